//! A message of SQS, and how it is settled.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aws_sdk_sqs::Client;
use aws_sdk_sqs::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_sqs::operation::send_message::SendMessageError;
use aws_sdk_sqs::operation::send_message::builders::SendMessageFluentBuilder;
use aws_sdk_sqs::types::{Message, MessageAttributeValue, MessageSystemAttributeName};
use idem_messages::{DeadLetter, Delivery, ERROR};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::Error;
use crate::deletes::Delete;
use crate::failed::failed;

/// How many attributes a message may have.
const ATTRIBUTES: usize = 10;

/// This long after a message's receipt, SQS delivers the message again, even if its visibility was extended.
const LONGEST: Duration = Duration::from_secs(12 * 60 * 60);

/// This process lets a visibility timeout end this long before the limit `LONGEST`. SQS refuses a timeout
/// that ends after the limit, and SQS noted the receipt of the message earlier than this process.
const MARGIN: Duration = Duration::from_secs(2);

/// The state that all messages of a source share.
pub(crate) struct Shared {
    pub(crate) client: Client,
    pub(crate) queue: String,
    pub(crate) dead_letters: String,
    pub(crate) visibility: Duration,
    pub(crate) deletes: UnboundedSender<Delete>,
}

/// A message as SQS delivered it. It dereferences to the SDK's message.
pub struct Received {
    pub(crate) message: Message,
    at: Instant,
    /// The time until which SQS hides the message from other workers.
    hidden_until: Mutex<Instant>,
    /// Whether the message's dead letter is stored, so that only the deletion is missing.
    set_aside: AtomicBool,
    shared: Arc<Shared>,
}

impl Received {
    pub(crate) fn new(message: Message, shared: Arc<Shared>) -> Self {
        let at = Instant::now();
        let hidden_until = Mutex::new(at + shared.visibility);
        Self { message, at, hidden_until, set_aside: AtomicBool::default(), shared }
    }

    fn hidden_until(&self) -> MutexGuard<'_, Instant> {
        self.hidden_until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn visible_after(&self, after: Duration, doing: &'static str) -> Result<(), Error> {
        let (now, seconds) = (Instant::now(), visibility(after, self.at.elapsed()));
        let request = self.shared.client.change_message_visibility().queue_url(&self.shared.queue);
        let request = request.set_receipt_handle(self.message.receipt_handle.clone());
        let timeout = i32::try_from(seconds).unwrap_or(i32::MAX);
        request.visibility_timeout(timeout).send().await.map_err(failed(doing))?;
        *self.hidden_until() = now + Duration::from_secs(seconds);
        Ok(())
    }

    /// Sends a copy with these attributes in addition to the message's own, up to SQS's limit of attributes.
    /// Returns `false` if SQS refuses a message with these attributes.
    async fn copy_to_dead_letters(&self, new: &[(&str, String)]) -> Result<bool, Error> {
        let doing = "send the dead letter";
        let Shared { client, dead_letters, .. } = &*self.shared;
        let mut attributes = self.message.message_attributes.clone().unwrap_or_default();
        attributes.remove(ERROR);
        for (name, value) in new {
            if attributes.len() < ATTRIBUTES || attributes.contains_key(*name) {
                let text = MessageAttributeValue::builder().data_type("String").string_value(allowed(value));
                attributes.insert((*name).to_owned(), text.build().map_err(failed(doing))?);
            }
        }
        // The copy has the message's id, so a FIFO queue drops a second copy within five minutes.
        let letter = copy(client, dead_letters, &self.message, self.id());
        match letter.set_message_attributes(Some(attributes)).send().await {
            Err(error) if is_of_the_message(&error) && !new.is_empty() => Ok(false),
            sent => sent.map(|_| true).map_err(failed(doing)),
        }
    }

    fn attributes(&self, letter: &DeadLetter) -> Vec<(&'static str, String)> {
        let queue = self.destination().unwrap_or_default();
        letter.headers(self, &queue, &queue)
    }
}

impl Delivery for Received {
    type Error = Error;

    const SYSTEM: Option<&'static str> = Some("aws_sqs");

    async fn acknowledge(&self) -> Result<(), Error> {
        let (answer, answered) = oneshot::channel();
        let receipt = self.message.receipt_handle.clone().unwrap_or_default();
        // If the task that deletes messages has ended, `answered` fails, too.
        let _ = self.shared.deletes.send(Delete { receipt, answer });
        answered.await.map_err(Error::at("delete the message"))?
    }

    async fn retry(&self, after: Duration) -> Result<(), Error> {
        self.visible_after(after, "have the message delivered again").await
    }

    async fn reject(&self, letter: &DeadLetter) -> Result<(), Error> {
        // A message near the queue's size limit may have no room for the error text, or for any of our
        // attributes.
        if !self.set_aside.load(Ordering::Relaxed)
            && !self.copy_to_dead_letters(&self.attributes(letter)).await?
            && !self.copy_to_dead_letters(&self.attributes(&letter.without_error())).await?
        {
            self.copy_to_dead_letters(&[]).await?;
            letter.is_bare(self);
        }
        self.set_aside.store(true, Ordering::Relaxed);
        self.acknowledge().await
    }

    async fn give_back(&self) -> Result<(), Error> {
        if self.set_aside.load(Ordering::Relaxed) {
            return self.acknowledge().await;
        }
        self.visible_after(Duration::ZERO, "give the message back").await
    }

    async fn extend(&self) -> Result<(), Error> {
        self.visible_after(self.shared.visibility, "extend the message").await
    }

    fn is_held(&self) -> bool {
        Instant::now() < *self.hidden_until()
    }

    fn deliveries(&self) -> Option<u32> {
        let counted = MessageSystemAttributeName::ApproximateReceiveCount;
        self.message.attributes.as_ref()?.get(&counted)?.parse().ok()
    }

    fn destination(&self) -> Option<String> {
        self.shared.queue.rsplit('/').next().map(str::to_owned)
    }

    fn id(&self) -> Option<String> {
        self.message.message_id.clone()
    }

    fn group(&self) -> Option<String> {
        is_fifo(&self.shared.queue).then(|| group_id(&self.message)).flatten()
    }
}

/// A request that sends a copy of a message, without the message's attributes. A FIFO queue drops a second
/// copy with the same `id` within five minutes.
pub(crate) fn copy(
    client: &Client,
    queue: &str,
    message: &Message,
    id: Option<String>,
) -> SendMessageFluentBuilder {
    let copy = client.send_message().queue_url(queue).set_message_body(message.body.clone());
    if !is_fifo(queue) {
        return copy;
    }
    let group = group_id(message).or_else(|| message.message_id.clone());
    copy.set_message_group_id(group).set_message_deduplication_id(id)
}

/// Whether SQS refuses this message each time it is sent: the message is too large, or an attribute has a
/// character that SQS does not allow.
fn is_of_the_message<R>(error: &SdkError<SendMessageError, R>) -> bool {
    let of_the_message = ["InvalidParameterValue", "InvalidMessageContents"];
    error.code().is_some_and(|code| of_the_message.iter().any(|word| code.contains(word)))
}

/// The visibility timeout for `after`, in seconds: rounded up, but at most until `MARGIN` before the limit
/// `LONGEST`.
fn visibility(after: Duration, since_receipt: Duration) -> u64 {
    let longest = LONGEST.saturating_sub(since_receipt).saturating_sub(MARGIN).as_secs();
    (after.as_secs() + u64::from(after.subsec_nanos() > 0)).min(longest)
}

/// Replaces two characters that SQS refuses. SQS also refuses control characters, but the text has none.
fn allowed(text: &str) -> String {
    text.replace(['\u{fffe}', '\u{ffff}'], "\u{fffd}")
}

fn is_fifo(queue: &str) -> bool {
    queue.ends_with(".fifo")
}

fn group_id(message: &Message) -> Option<String> {
    message.attributes.as_ref()?.get(&MessageSystemAttributeName::MessageGroupId).cloned()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use aws_sdk_sqs::error::{ErrorMetadata, SdkError};
    use aws_sdk_sqs::operation::send_message::SendMessageError;
    use aws_sdk_sqs::types::Message;
    use aws_sdk_sqs::{Client, Config};
    use idem_messages::Delivery as _;
    use tokio::sync::mpsc::unbounded_channel;

    use super::{Received, Shared, is_of_the_message, visibility};

    #[tokio::test(start_paused = true)]
    async fn a_message_that_could_not_be_extended_is_not_held_any_longer() {
        let client = Client::from_conf(Config::builder().behavior_version_latest().build());
        let (queue, dead_letters, (deletes, _coming)) = ("queue".into(), "dead".into(), unbounded_channel());
        let visibility = Duration::from_secs(30);
        let shared = Shared { client, queue, dead_letters, visibility, deletes };
        let received = Received::new(Message::builder().build(), Arc::new(shared));
        tokio::time::advance(Duration::from_secs(29)).await;
        assert!(received.is_held());
        tokio::time::advance(Duration::from_secs(2)).await;
        assert!(!received.is_held(), "SQS delivers it to others");
    }

    #[test]
    fn only_what_sqs_refuses_for_the_message_itself_leaves_attributes_out() {
        let refused = |code| {
            let refused = SendMessageError::generic(ErrorMetadata::builder().code(code).build());
            is_of_the_message(&SdkError::service_error(refused, ()))
        };
        assert!(refused("InvalidParameterValue") && refused("InvalidParameterValueException"));
        assert!(!refused("RequestThrottled") && !refused("InvalidClientTokenId"));
    }

    #[test]
    fn no_message_is_hidden_for_longer_than_sqs_allows() {
        let hours = |hours: u64| Duration::from_secs(hours * 3_600);
        assert_eq!(visibility(Duration::from_millis(1_001), hours(0)), 2);
        assert_eq!(visibility(hours(12), Duration::from_millis(500)), 12 * 3_600 - 3);
        assert_eq!((visibility(hours(1), hours(12)), visibility(Duration::ZERO, hours(1))), (0, 0));
    }
}
