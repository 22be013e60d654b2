//! Converts bodies. actix-web's bodies must stay on their thread, whereas idem's bodies must be able to move
//! to another thread.
//!
//! Passes bytes on unchanged. Knows nothing about heads.

use std::error::Error;
use std::pin::pin;

use actix_web::body::{BodySize, BodyStream, BoxBody, MessageBody, SizedStream};
use bytes::Bytes;
use futures_util::future::{Either, select};
use futures_util::stream::{self, Stream, StreamExt as _};
use http_body::{Body as _, Frame};
use http_body_util::{BodyDataStream, StreamBody};
use idem_http::{Body, BoxError};
use tokio::sync::mpsc;

/// Makes a body that may move to another thread. The stream stays on this thread: a task reads the stream,
/// one piece ahead of the body's reader.
pub(crate) fn sendable<S, E>(stream: S) -> Body
where
    S: Stream<Item = Result<Bytes, E>> + 'static,
    E: ToString,
{
    let (pieces, mut received) = mpsc::channel(1);
    let reading = async move {
        let mut stream = pin!(stream);
        loop {
            let piece = match select(pin!(pieces.closed()), stream.next()).await {
                Either::Right((Some(piece), _)) => piece,
                // The stream ended, or no reader is left.
                _ => return,
            };
            let piece = piece.map(Frame::data).map_err(|error| BoxError::from(error.to_string()));
            if pieces.send(piece).await.is_err() {
                return;
            }
        }
    };
    actix_web::rt::spawn(reading);
    Body::new(StreamBody::new(stream::poll_fn(move |cx| received.poll_recv(cx))))
}

pub(crate) fn of_response<B: MessageBody + 'static>(body: B) -> Body {
    if body.size() == BodySize::None {
        return Body::from(Bytes::new());
    }
    match body.try_into_bytes() {
        Ok(data) => Body::from(data),
        Err(body) => {
            let mut body = Box::pin(body);
            let pieces = stream::poll_fn(move |cx| body.as_mut().poll_next(cx));
            sendable(pieces.map(|piece| piece.map_err(|error| error.into().to_string())))
        }
    }
}

/// Converts one of idem's bodies for the client. `said` is the `Content-Length` of the response, if the
/// response has this header. Trailers are dropped, because actix-web does not send them.
pub(crate) fn outgoing(body: Body, said: Option<u64>) -> BoxBody {
    let length = said.or_else(|| body.size_hint().exact());
    let data = BodyDataStream::new(body).map(|piece| piece.map_err(|error| error as Box<dyn Error>));
    match length {
        Some(length) => SizedStream::new(length, data).boxed(),
        None => BodyStream::new(data).boxed(),
    }
}
