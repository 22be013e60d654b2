//! A message of JetStream, and how it is settled.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::header::NATS_MESSAGE_ID;
use async_nats::jetstream::{self, AckKind, Context};
use idem_messages::{DeadLetter, Delivery, ERROR, Reason};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

use crate::Error;

/// The characters that are encoded in the headers of a dead letter.
const ENCODED: &AsciiSet = &CONTROLS.add(b'%');

/// The bytes of a header line in addition to its name and value: `": "` and the end of the line.
const LINE: usize = 4;

/// The bytes of `NATS/1.0`, the end of that line, and the empty line after the headers.
const VERSION_LINE: usize = 12;

/// The start of the names of headers that the server acts on. In a copy, these headers could make the server
/// refuse the copy, or drop it as a duplicate.
const OF_THE_SERVER: &str = "nats-";

/// The state that all messages of a source share.
pub(crate) struct Shared {
    pub(crate) jetstream: Context,
    pub(crate) dead_letters: String,
    /// The name of JetStream's consumer.
    pub(crate) consumer: String,
    /// The limit of deliveries of a message; `None` for no limit.
    pub(crate) max_deliver: Option<i64>,
}

/// A message as JetStream delivered it. It dereferences to async-nats's message.
pub struct Received {
    pub(crate) message: jetstream::Message,
    shared: Arc<Shared>,
    /// Whether the message's dead letter is stored, so that only the acknowledgement is missing.
    set_aside: AtomicBool,
}

impl Received {
    pub(crate) const fn new(message: jetstream::Message, shared: Arc<Shared>) -> Self {
        Self { message, shared, set_aside: AtomicBool::new(false) }
    }

    /// The stream and sequence number of the message, for events and for the id of its dead letter.
    fn place(&self) -> Option<String> {
        let info = self.message.info().ok()?;
        Some(format!("{}#{}", info.stream, info.stream_sequence))
    }

    /// The message's own headers, except an earlier error text and the headers that the server acts on.
    fn own_headers(&self) -> HeaderMap {
        self.message.headers.as_ref().map(|headers| copied(headers, |name| name != ERROR)).unwrap_or_default()
    }

    /// The headers of the dead letter: the message's own headers, and the headers that this crate adds.
    fn headers(&self, letter: &DeadLetter) -> HeaderMap {
        let mut headers = self.own_headers();
        let consumer = &self.shared.consumer;
        for (name, value) in letter.headers(self, consumer, self.message.subject.as_str()) {
            headers.insert(name, utf8_percent_encode(&value, ENCODED).to_string());
        }
        if let Some(place) = self.place() {
            // This worker may die before it acknowledges the message, and then the next worker sends the
            // letter again. Within its duplicate window, the stream drops the second letter, because both
            // have this id.
            headers.insert(NATS_MESSAGE_ID, format!("{place}@{consumer}"));
        }
        headers
    }

    /// The number of bytes that the server would count for a dead letter with these headers.
    fn size(&self, headers: &HeaderMap) -> usize {
        let lines = headers.iter().flat_map(|(name, values)| {
            values.iter().map(move |value| AsRef::<str>::as_ref(name).len() + value.as_str().len() + LINE)
        });
        self.message.payload.len() + VERSION_LINE + lines.sum::<usize>()
    }

    async fn ack_with(&self, kind: AckKind, doing: &'static str) -> Result<(), Error> {
        self.message.ack_with(kind).await.map_err(Error::at(doing))
    }
}

/// The headers of a copy: the kept headers, except those that the server acts on. `is_kept` gets names in
/// lower case.
pub(crate) fn copied(headers: &HeaderMap, is_kept: impl Fn(&str) -> bool) -> HeaderMap {
    let mut copied = HeaderMap::new();
    for (name, values) in headers.iter() {
        let lower = name.to_string().to_ascii_lowercase();
        if !lower.starts_with(OF_THE_SERVER) && is_kept(&lower) {
            values.iter().for_each(|value| copied.append(name.clone(), value.clone()));
        }
    }
    copied
}

impl Delivery for Received {
    type Error = Error;

    const SYSTEM: Option<&'static str> = Some("nats");

    async fn acknowledge(&self) -> Result<(), Error> {
        // This fails if no reply arrives. The client counts any reply as a confirmation, even "no
        // responders".
        self.message.double_ack().await.map_err(Error::at("acknowledge the message"))
    }

    async fn retry(&self, after: Duration) -> Result<(), Error> {
        self.ack_with(AckKind::Nak(Some(after)), "have the message delivered again").await
    }

    async fn reject(&self, letter: &DeadLetter) -> Result<(), Error> {
        if self.set_aside.load(Ordering::Relaxed) {
            return self.acknowledge().await;
        }
        let room = self.shared.jetstream.client().server_info().max_payload;
        let tries = [self.headers(letter), self.headers(&letter.without_error())];
        let fitting = tries.into_iter().find(|headers| self.size(headers) <= room);
        let headers = fitting.unwrap_or_else(|| {
            letter.is_bare(self);
            self.own_headers()
        });
        let doing = "publish the dead letter";
        let (to, payload) = (self.shared.dead_letters.clone(), self.message.payload.clone());
        let sent = self.shared.jetstream.publish_with_headers(to, headers, payload).await;
        sent.map_err(Error::at(doing))?.await.map_err(Error::at(doing))?;
        self.set_aside.store(true, Ordering::Relaxed);
        self.acknowledge().await
    }

    async fn give_back(&self) -> Result<(), Error> {
        if self.set_aside.load(Ordering::Relaxed) {
            return self.acknowledge().await;
        }
        if self.is_last_delivery() {
            let letter = DeadLetter::new(Reason::Exhausted, self.deliveries().unwrap_or(1));
            return self.reject(&letter).await;
        }
        self.ack_with(AckKind::Nak(None), "give the message back").await
    }

    async fn extend(&self) -> Result<(), Error> {
        self.ack_with(AckKind::Progress, "extend the message").await
    }

    fn is_held(&self) -> bool {
        true
    }

    fn is_last_delivery(&self) -> bool {
        match (self.shared.max_deliver, self.message.info()) {
            (Some(most), Ok(info)) => info.delivered >= most,
            _ => false,
        }
    }

    fn deliveries(&self) -> Option<u32> {
        u32::try_from(self.message.info().ok()?.delivered).ok()
    }

    fn destination(&self) -> Option<String> {
        // Returns the stream and not the subject, because a subject may contain an id.
        Some(self.message.info().ok()?.stream.to_owned())
    }

    fn id(&self) -> Option<String> {
        self.place()
    }
}
