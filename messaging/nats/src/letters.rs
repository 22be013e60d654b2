//! The dead letters of a subject, and how their messages go back.

use async_nats::HeaderValue;
use async_nats::header::NATS_MESSAGE_ID;
use async_nats::jetstream::Context;
use async_nats::jetstream::message::StreamMessage;
use async_nats::jetstream::stream::RawMessageErrorKind;
use idem_messages::{Redrive, StoredLetter, is_header_of_letter};
use percent_encoding::percent_decode_str;

use crate::Error;
use crate::received::copied;

const FIND: &str = "find the dead letters";

pub(crate) async fn redrive(jetstream: &Context, subject: &str, redrive: &mut Redrive) -> Result<(), Error> {
    let name = jetstream.stream_by_subject(subject).await.map_err(Error::at(FIND))?;
    let stream = jetstream.get_stream(&name).await.map_err(Error::at(FIND))?;
    let (mut next, last) = (1, stream.cached_info().state.last_sequence);
    loop {
        let letter = match stream.get_first_raw_message_by_subject(subject, next).await {
            Ok(letter) if letter.sequence <= last => letter,
            Err(error) if error.kind() != RawMessageErrorKind::NoMessageFound => {
                return Err(Error::new("read a dead letter", error));
            }
            _ => return Ok(()),
        };
        next = letter.sequence + 1;
        let id = format!("{name}#{}", letter.sequence);
        let send = |origin| send(jetstream, &letter, &id, origin);
        if redrive.sends(about(&id, &letter), send).await? {
            let removed = stream.delete_message(letter.sequence).await;
            removed.map_err(Error::at("remove a dead letter"))?;
        }
    }
}

fn about(id: &str, letter: &StreamMessage) -> StoredLetter {
    // `Received::headers` has encoded these values.
    let decoded = |value: &HeaderValue| percent_decode_str(value.as_str()).decode_utf8_lossy().into_owned();
    StoredLetter::read(id, |name| letter.headers.get(name).map(decoded))
}

async fn send(jetstream: &Context, letter: &StreamMessage, id: &str, origin: String) -> Result<(), Error> {
    let mut headers = copied(&letter.headers, |name| !is_header_of_letter(name));
    // This redrive may die before it removes the letter, and then the next redrive sends the message again.
    // Within its duplicate window, the stream drops the second message, because both have this id.
    headers.insert(NATS_MESSAGE_ID, format!("redrive/{id}"));
    let doing = "send the message back";
    let sent = jetstream.publish_with_headers(origin, headers, letter.payload.clone()).await;
    sent.map_err(Error::at(doing))?.await.map(drop).map_err(Error::at(doing))
}
