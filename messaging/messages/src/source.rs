//! Taking from the stream, with pauses after errors.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use futures_util::stream::Stream;
use tokio::time::{Sleep, sleep};

use super::Incoming;

const LONGEST_PAUSE: Duration = Duration::from_secs(5);

#[derive(Default)]
pub(super) struct Source {
    pauses: Option<ExponentialBackoff>,
    pause: Option<Pin<Box<Sleep>>>,
}

impl Source {
    pub(super) fn poll<S>(
        &mut self,
        stream: Pin<&mut S>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<<S::Item as Incoming>::Message, ()>>>
    where
        S: Stream,
        S::Item: Incoming,
    {
        if let Some(pause) = &mut self.pause {
            ready!(pause.as_mut().poll(cx));
            self.pause = None;
        }
        let item = ready!(stream.poll_next(cx)).map(Incoming::incoming);
        Poll::Ready(item.map(|item| {
            item.inspect(|_| self.pauses = None).map_err(|error| {
                tracing::warn!(target: "idem", event = "stream_failed", %error, "no message, but an error");
                let pauses = self.pauses.get_or_insert_with(|| pauses().build());
                self.pause = Some(Box::pin(sleep(pauses.next().unwrap_or(LONGEST_PAUSE))));
            })
        }))
    }
}

/// Between errors of a stream that gives nothing else.
fn pauses() -> ExponentialBuilder {
    let first = Duration::from_millis(10);
    ExponentialBuilder::default().with_min_delay(first).with_max_delay(LONGEST_PAUSE).without_max_times()
}
