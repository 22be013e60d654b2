//! A message of JetStream, and how it is settled.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::{self, AckKind, Context};
use idem_runtime::message::{Delivery, Reason};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

use crate::Error;

/// The header of a dead letter with the reason of the rejection: [`Reason::as_str`].
pub const REASON: &str = "Idem-Reason";

/// The header of a dead letter with the number of times that its message was delivered.
pub const DELIVERIES: &str = "Idem-Deliveries";

/// The header of a dead letter with the text of the handler's last error, cut at 1,024 bytes. Headers of NATS are ASCII: other
/// characters, and `%`, are percent-encoded as UTF-8.
pub const ERROR: &str = "Idem-Error";

/// The characters that are encoded in the text of an error.
const ENCODED: &AsciiSet = &CONTROLS.add(b'%');

/// The start of the headers that the server acts on. In a copy they could make the server refuse it, or drop it as a duplicate.
const OF_THE_SERVER: &str = "nats-";

/// Returns the group of a message: see [`Source::group_by`](crate::Source::group_by).
pub(crate) type GroupBy = Arc<dyn Fn(&jetstream::Message) -> Option<String> + Send + Sync>;

/// The state that all messages of a source share.
pub(crate) struct Shared {
    pub(crate) jetstream: Context,
    pub(crate) dead_letters: String,
    /// How often the server delivers a message at most; `None` is without a limit.
    pub(crate) max_deliver: Option<i64>,
    pub(crate) group_by: Option<GroupBy>,
}

/// A message as JetStream delivered it. It dereferences to async-nats's message.
pub struct Received {
    message: jetstream::Message,
    /// The text of the handler's last error.
    error: Option<String>,
    shared: Arc<Shared>,
}

impl Received {
    pub(crate) const fn new(message: jetstream::Message, shared: Arc<Shared>) -> Self {
        Self { message, error: None, shared }
    }

    /// Whether this is the last delivery that `max_deliver` allows.
    fn is_last(&self) -> bool {
        match (self.shared.max_deliver, self.message.info()) {
            (Some(most), Ok(info)) => info.delivered >= most,
            _ => false,
        }
    }

    /// The stream and sequence number of the message, for events and for the id of its dead letter.
    fn place(&self) -> Option<String> {
        let info = self.message.info().ok()?;
        Some(format!("{}#{}", info.stream, info.stream_sequence))
    }

    /// The headers of the dead letter: the message's own, and ours.
    fn headers(&self, reason: Reason, error: Option<&str>) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, values) in self.message.headers.iter().flat_map(HeaderMap::iter) {
            let lower = name.to_string().to_ascii_lowercase();
            if !lower.starts_with(OF_THE_SERVER) && !lower.eq_ignore_ascii_case(ERROR) {
                values.iter().for_each(|value| headers.append(name.clone(), value.clone()));
            }
        }
        headers.insert(REASON, reason.as_str());
        if let Some(error) = error {
            headers.insert(ERROR, utf8_percent_encode(error, ENCODED).to_string());
        }
        if let Some(deliveries) = self.deliveries() {
            headers.insert(DELIVERIES, deliveries.to_string());
        }
        headers
    }

    async fn publish(&self, reason: Reason, error: Option<&str>) -> Result<(), Error> {
        let headers = self.headers(reason, error);
        let mut letter = PublishMessage::build().headers(headers).payload(self.message.payload.clone());
        if let Some(place) = self.place() {
            // The stream drops a second letter with this id: this worker may die before it acknowledges the message.
            letter = letter.message_id(place);
        }
        let doing = "publish the dead letter";
        let to = self.shared.dead_letters.clone();
        let sent = self.shared.jetstream.send_publish(to, letter).await.map_err(Error::at(doing))?;
        sent.await.map_err(Error::at(doing))?;
        Ok(())
    }

    async fn ack_with(&self, kind: AckKind, doing: &'static str) -> Result<(), Error> {
        self.message.ack_with(kind).await.map_err(Error::at(doing))
    }
}

impl Deref for Received {
    type Target = jetstream::Message;

    fn deref(&self) -> &jetstream::Message {
        &self.message
    }
}

impl fmt::Debug for Received {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Received").field("place", &self.place()).finish_non_exhaustive()
    }
}

impl Delivery for Received {
    type Error = Error;

    async fn acknowledge(self) -> Result<(), Error> {
        // Waits for the server's confirmation, so that a lost acknowledgement is an error here.
        self.message.double_ack().await.map_err(Error::at("acknowledge the message"))
    }

    async fn retry(self, after: Duration) -> Result<(), Error> {
        if self.is_last() {
            return self.reject(Reason::Exhausted).await;
        }
        self.ack_with(AckKind::Nak(Some(after)), "have the message delivered again").await
    }

    async fn reject(self, reason: Reason) -> Result<(), Error> {
        let sent = self.publish(reason, self.error.as_deref()).await;
        if sent.is_err() && self.error.is_some() {
            // A message near the server's `max_payload` has no room for the text.
            self.publish(reason, None).await?;
        } else {
            sent?;
        }
        self.acknowledge().await
    }

    async fn give_back(self) -> Result<(), Error> {
        if self.is_last() {
            return self.reject(Reason::Exhausted).await;
        }
        self.ack_with(AckKind::Nak(None), "give the message back").await
    }

    async fn extend(&self) -> Result<(), Error> {
        self.ack_with(AckKind::Progress, "extend the message").await
    }

    fn failed(&mut self, error: &str) {
        self.error = Some(error.to_owned());
    }

    fn deliveries(&self) -> Option<u32> {
        u32::try_from(self.message.info().ok()?.delivered).ok()
    }

    fn system(&self) -> Option<&'static str> {
        Some("nats")
    }

    fn destination(&self) -> Option<String> {
        // The stream: a subject may have an id in it.
        Some(self.message.info().ok()?.stream.to_owned())
    }

    fn id(&self) -> Option<String> {
        self.place()
    }

    fn group(&self) -> Option<String> {
        self.shared.group_by.as_ref()?(&self.message)
    }
}
