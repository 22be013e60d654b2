//! Converts bodies: those of actix-web must stay on their thread, and those of idem need not.
//!
//! Owns how bytes are passed on. Knows nothing about heads.

use std::error::Error;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use actix_web::body::{BodySize, MessageBody};
use bytes::Bytes;
use futures_util::future::{Either, select};
use futures_util::stream::{self, Stream, StreamExt as _};
use http_body::{Body as _, Frame, SizeHint};
use idem_http::{Body, BoxError};
use tokio::sync::mpsc;

/// Makes a body that may leave this thread from a stream that may not: a task on this thread reads the stream, one
/// piece ahead.
pub(crate) fn sendable<S, E>(stream: S, length: Option<u64>) -> Body
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
                // The stream ended, or nobody needs the rest.
                _ => return,
            };
            let piece = piece.map(Frame::data).map_err(|error| BoxError::from(error.to_string()));
            if pieces.send(piece).await.is_err() {
                return;
            }
        }
    };
    actix_web::rt::spawn(reading);
    let body = http_body_util::StreamBody::new(stream::poll_fn(move |cx| received.poll_recv(cx)));
    Body::new(Sized { body, length })
}

/// The body of a handler's response.
pub(crate) fn of_response<B: MessageBody + 'static>(body: B) -> Body {
    let length = match body.size() {
        BodySize::None => return Body::from(Bytes::new()),
        BodySize::Sized(length) => Some(length),
        BodySize::Stream => None,
    };
    match body.try_into_bytes() {
        Ok(data) => Body::from(data),
        Err(body) => {
            let mut body = Box::pin(body);
            let pieces = stream::poll_fn(move |cx| body.as_mut().poll_next(cx));
            sendable(pieces.map(|piece| piece.map_err(|error| error.into().to_string())), length)
        }
    }
}

/// A body with a known length.
struct Sized<B> {
    body: B,
    length: Option<u64>,
}

impl<B: http_body::Body + Unpin> http_body::Body for Sized<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn size_hint(&self) -> SizeHint {
        self.length.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

/// A body of idem's on its way to the client.
pub(crate) struct Outgoing {
    body: Body,
    size: BodySize,
}

impl Outgoing {
    /// `said` is the `Content-Length` of the response, if it has one.
    pub(crate) fn new(body: Body, said: Option<u64>) -> Self {
        let size = said.or_else(|| body.size_hint().exact()).map_or(BodySize::Stream, BodySize::Sized);
        Self { body, size }
    }

    /// The body of a response that never has one.
    pub(crate) fn none() -> Self {
        Self { body: Body::from(Bytes::new()), size: BodySize::None }
    }
}

impl MessageBody for Outgoing {
    type Error = Box<dyn Error>;

    fn size(&self) -> BodySize {
        self.size
    }

    fn poll_next(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Box<dyn Error>>>> {
        loop {
            return Poll::Ready(match std::task::ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                None => None,
                Some(Err(error)) => Some(Err(error as Box<dyn Error>)),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => Some(Ok(data)),
                    // Trailers are dropped, because actix-web does not send them.
                    Err(_) => continue,
                },
            });
        }
    }
}
