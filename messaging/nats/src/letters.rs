//! The dead letters of a subject, and how their messages go back.

use async_nats::header::NATS_MESSAGE_ID;
use async_nats::jetstream::Context;
use async_nats::jetstream::message::StreamMessage;
use async_nats::jetstream::stream::{RawMessageErrorKind, Stream};
use idem_messages::{CONSUMER, DeadLetters, MESSAGE, ORIGIN, StoredLetter, is_header_of_letter};
use percent_encoding::percent_decode_str;

use crate::Error;
use crate::received::{DELIVERIES, copied};

const FIND: &str = "find the dead letters";

/// The dead letters of a subject, read by their sequence numbers.
pub struct Letters {
    jetstream: Context,
    stream: Stream,
    subject: String,
    next: u64,
    last: u64,
}

impl Letters {
    pub(crate) async fn open(jetstream: Context, subject: String) -> Result<Self, Error> {
        let name = jetstream.stream_by_subject(subject.as_str()).await.map_err(Error::at(FIND))?;
        let stream = jetstream.get_stream(name).await.map_err(Error::at(FIND))?;
        let last = stream.cached_info().state.last_sequence;
        Ok(Self { jetstream, stream, subject, next: 1, last })
    }

    fn id(&self, letter: &StreamMessage) -> String {
        format!("{}#{}", self.stream.cached_info().config.name, letter.sequence)
    }
}

impl DeadLetters for Letters {
    type Letter = StreamMessage;

    async fn next(&mut self) -> Result<Option<StreamMessage>, Error> {
        match self.stream.get_first_raw_message_by_subject(&self.subject, self.next).await {
            Ok(letter) if letter.sequence <= self.last => {
                self.next = letter.sequence + 1;
                Ok(Some(letter))
            }
            Err(error) if error.kind() != RawMessageErrorKind::NoMessageFound => {
                Err(Error::new("read a dead letter", error))
            }
            _ => Ok(None),
        }
    }

    fn about(&self, letter: &StreamMessage) -> StoredLetter {
        StoredLetter::read(self.id(letter), |name| {
            let value = letter.headers.get(name)?.as_str();
            // Those of the letter's description are encoded: see `Received::headers`.
            let is_plain = matches!(name, CONSUMER | ORIGIN | MESSAGE);
            let decoded = || percent_decode_str(value).decode_utf8_lossy().into_owned();
            Some(if is_plain { value.to_owned() } else { decoded() })
        })
    }

    async fn send(&self, letter: &StreamMessage, origin: &str) -> Result<(), Error> {
        let doing = "send the message back";
        let is_own = |name: &str| name != DELIVERIES && !is_header_of_letter(name);
        let mut headers = copied(&letter.headers, is_own);
        // The stream drops a second message with this id: this redrive may die before it removes the letter.
        headers.insert(NATS_MESSAGE_ID, format!("redrive/{}", self.id(letter)));
        let (to, payload) = (origin.to_owned(), letter.payload.clone());
        let sent = self.jetstream.publish_with_headers(to, headers, payload).await;
        sent.map_err(Error::at(doing))?.await.map(drop).map_err(Error::at(doing))
    }

    async fn remove(&mut self, letter: StreamMessage) -> Result<(), Error> {
        let removed = self.stream.delete_message(letter.sequence).await;
        removed.map(drop).map_err(Error::at("remove a dead letter"))
    }
}
