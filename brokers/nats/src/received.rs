//! A message of JetStream, and how it is settled.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::{self, AckKind, Context};
use idem_runtime::message::{Delivery, Reason};

use crate::Error;

/// The header of a dead letter that says why it is one: [`Reason::as_str`].
pub const REASON: &str = "Idem-Reason";

/// The header of a dead letter that says how often its message was delivered.
pub const DELIVERIES: &str = "Idem-Deliveries";

/// Headers that the server acts on. In a copy they would have it refused, or drop others.
const OF_THE_SERVER: &str = "nats-";

/// Says which messages are in one order: see [`Source::group_by`](crate::Source::group_by).
pub(crate) type GroupBy = Arc<dyn Fn(&jetstream::Message) -> Option<String> + Send + Sync>;

/// What the messages of a source share.
pub(crate) struct Shared {
    pub(crate) jetstream: Context,
    pub(crate) dead_letters: String,
    /// How often the server delivers a message; for ever, if `None`.
    pub(crate) max_deliver: Option<i64>,
    pub(crate) group_by: Option<GroupBy>,
}

/// A message as JetStream delivered it: it dereferences to async-nats's own.
pub struct Received {
    message: jetstream::Message,
    shared: Arc<Shared>,
}

impl Received {
    pub(crate) const fn new(message: jetstream::Message, shared: Arc<Shared>) -> Self {
        Self { message, shared }
    }

    /// Whether the server forgets the message if it is to come again.
    fn is_last(&self) -> bool {
        match (self.shared.max_deliver, self.message.info()) {
            (Some(most), Ok(info)) => info.delivered >= most,
            _ => false,
        }
    }

    /// Where the message is, for events and for the id of its dead letter.
    fn place(&self) -> Option<String> {
        let info = self.message.info().ok()?;
        Some(format!("{}#{}", info.stream, info.stream_sequence))
    }

    /// The message's own headers, for its dead letter.
    fn headers(&self, reason: Reason) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, values) in self.message.headers.iter().flat_map(HeaderMap::iter) {
            if !name.to_string().to_ascii_lowercase().starts_with(OF_THE_SERVER) {
                values.iter().for_each(|value| headers.append(name.clone(), value.clone()));
            }
        }
        headers.insert(REASON, reason.as_str());
        if let Some(deliveries) = self.deliveries() {
            headers.insert(DELIVERIES, deliveries.to_string());
        }
        headers
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
        // Confirmed: an acknowledgement that is lost is an error here.
        self.message.double_ack().await.map_err(Error::at("acknowledge the message"))
    }

    async fn retry(self, after: Duration) -> Result<(), Error> {
        if self.is_last() {
            return self.reject(Reason::Exhausted).await;
        }
        self.ack_with(AckKind::Nak(Some(after)), "have the message delivered again").await
    }

    async fn reject(self, reason: Reason) -> Result<(), Error> {
        let mut letter =
            PublishMessage::build().headers(self.headers(reason)).payload(self.message.payload.clone());
        if let Some(place) = self.place() {
            // So that it is not there twice if this worker dies before it can acknowledge.
            letter = letter.message_id(place);
        }
        let doing = "publish the dead letter";
        let to = self.shared.dead_letters.clone();
        let sent = self.shared.jetstream.send_publish(to, letter).await.map_err(Error::at(doing))?;
        sent.await.map_err(Error::at(doing))?;
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

    fn deliveries(&self) -> Option<u32> {
        u32::try_from(self.message.info().ok()?.delivered).ok()
    }

    fn id(&self) -> Option<String> {
        self.place()
    }

    fn group(&self) -> Option<String> {
        self.shared.group_by.as_ref()?(&self.message)
    }
}
