//! The messages in a body. Each message consists of one byte that says whether its content is compressed,
//! four bytes with the length of the content, and the content.
//!
//! Owns the framing of messages. Knows nothing about their content.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use http_body::{Body, Frame, SizeHint};
use idem_http::BoxError;
use tokio::time::Sleep;

/// How long a call may stay open after its first message and still count as unary.
const PATIENCE: Duration = Duration::from_secs(10);

/// The length of the head of a message, in bytes.
const HEAD: usize = 5;

/// Counts messages while their bytes arrive.
#[derive(Default)]
pub(crate) struct Messages {
    head: Vec<u8>,
    /// How many bytes of the last message's content are still missing.
    bytes_left: usize,
    pub(crate) begun: usize,
}

impl Messages {
    pub(crate) fn add(&mut self, mut data: &[u8]) {
        while !data.is_empty() {
            if self.bytes_left > 0 {
                let taken = self.bytes_left.min(data.len());
                self.bytes_left -= taken;
                data.advance(taken);
                continue;
            }
            if self.head.is_empty() {
                self.begun += 1;
            }
            self.head.push(data.get_u8());
            if let [_, length @ ..] = &*self.head
                && let Ok(length) = <[u8; HEAD - 1]>::try_from(length)
            {
                self.bytes_left = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
                self.head.clear();
            }
        }
    }

    fn is_one(&self) -> bool {
        self.begun == 1 && self.bytes_left == 0 && self.head.is_empty()
    }
}

/// The body of a call that must be unary. If the call turns out to be a stream, reading the body fails, and
/// `streams` is set.
pub(crate) struct Unary<B> {
    body: B,
    messages: Messages,
    patience: Option<Pin<Box<Sleep>>>,
    streams: Arc<AtomicBool>,
}

impl<B> Unary<B> {
    pub(crate) fn new(body: B, streams: Arc<AtomicBool>) -> Self {
        Self { body, messages: Messages::default(), patience: None, streams }
    }

    fn refuse(&self) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.streams.store(true, Ordering::Relaxed);
        Poll::Ready(Some(Err("the call is not a unary one".into())))
    }
}

impl<B> Body for Unary<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                self.messages.add(frame.data_ref().map_or(&[], |data| data));
                if self.messages.begun > 1 { self.refuse() } else { Poll::Ready(Some(Ok(frame))) }
            }
            Poll::Ready(ended) => Poll::Ready(ended.map(|frame| frame.map_err(Into::into))),
            Poll::Pending if self.messages.is_one() => {
                let patience = self.patience.get_or_insert_with(|| Box::pin(tokio::time::sleep(PATIENCE)));
                if patience.as_mut().poll(cx).is_ready() { self.refuse() } else { Poll::Pending }
            }
            Poll::Pending => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_counted_however_their_bytes_are_cut() {
        let two = [&[0, 0, 0, 0, 3, b'a', b'b', b'c'][..], &[1, 0, 0, 0, 0]].concat();
        for size in 1..=two.len() {
            let mut messages = Messages::default();
            let mut begun = Vec::new();
            for piece in two.chunks(size) {
                messages.add(piece);
                begun.push(messages.begun);
            }
            assert_eq!((messages.begun, messages.bytes_left, messages.head.len()), (2, 0, 0), "{size}");
            assert!(size > 7 || begun[0] == 1, "{size}: {begun:?}");
        }
        let mut first = Messages::default();
        first.add(&two[..7]);
        assert!(!first.is_one(), "it is not whole");
        first.add(&two[7..8]);
        assert!(first.is_one());
    }
}
