//! One worker for all brokers.
//!
//! Owns `run` and `run_until` of every broker's source, and the plan that a consumer and a broker agree on
//! before reading. A broker's crate owns how to connect, how to read, and how to settle a message.

use std::fmt::Display;
use std::future::ready;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::join;
use futures_util::stream::{self, Stream};
use tokio::sync::{Mutex, oneshot, watch};
use tokio::time::timeout;

use super::{BrokerError, Consumer, Delivery, Progress, Redrive, Summary};

/// At the shutdown, a broker has this time to give back unread messages. Then it has the same time again to
/// close the connection.
const PATIENCE: Duration = Duration::from_secs(30);

/// A function that chooses the group of a message: messages for which it returns the same text are handled
/// one after another. Without such a function, [`Delivery::group`] chooses the group.
pub type GroupBy<M> = Option<Box<dyn Fn(&M) -> Option<String> + Send + Sync>>;

/// A broker's source of messages, which knows how to connect. [`broker_methods`](crate::broker_methods) gives
/// the source its methods `group_by`, `run`, `run_until`, `dead_letters` and `redrive`.
pub trait Broker: Sized + Send {
    /// The message, and how it is settled.
    type Message: Delivery + Send + Sync;
    /// Reads the messages.
    type Reader: Reader<Message = Self::Message>;

    /// Connects, and checks the settings that can be checked before the first message.
    fn connect(self, plan: &mut Plan) -> impl Future<Output = Result<Self::Reader, BrokerError>> + Send;

    /// Hands each dead letter in the queue to [`Redrive::sends`], and removes the letter if the letter's
    /// message was sent. All other letters stay, even after an error.
    fn redrive_letters(&self, redrive: &mut Redrive) -> impl Future<Output = Result<(), BrokerError>> + Send;
}

/// Gives the source of a [`Broker`](crate::Broker) its methods `group_by`, `run`, `run_until`, `dead_letters`
/// and `redrive`, which are the same for all brokers. The three arguments are the types of the source, of its
/// message, and of the client's message. The source's message dereferences to the client's message. The
/// source must have a field `group_by` for its [`GroupBy`](crate::GroupBy) and a field `dead_letters`, and
/// the message must have a field `message`. The trait itself does not have these methods, because then the
/// compiler could not prove that their futures are `Send`.
#[macro_export]
macro_rules! broker_methods {
    ($source:ty, $message:ty, $client_message:ty) => {
        impl ::std::ops::Deref for $message {
            type Target = $client_message;

            fn deref(&self) -> &$client_message {
                &self.message
            }
        }

        impl ::std::fmt::Debug for $message {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.debug_struct("Received").field("id", &$crate::Delivery::id(self)).finish_non_exhaustive()
            }
        }

        // Leaves out the configuration, which may contain a password.
        impl ::std::fmt::Debug for $source {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.debug_struct("Source").field("dead_letters", &self.dead_letters).finish_non_exhaustive()
            }
        }

        impl $source {
            /// Messages for which `group` returns the same text are handled one after another: see
            /// [`Delivery::group`](idem_messages::Delivery::group). Unless this is set, messages are handled
            /// in no order, or in the order of the broker's own groups: see the [crate](crate).
            pub fn group_by(
                mut self,
                group: impl Fn(&$message) -> Option<String> + Send + Sync + 'static,
            ) -> Self {
                self.group_by = ::std::option::Option::Some(::std::boxed::Box::new(group));
                self
            }

            /// Handles messages for ever: [`run_until`](Self::run_until) without a shutdown.
            ///
            /// # Errors
            ///
            /// As [`run_until`](Self::run_until).
            pub async fn run<H, F, T, E>(
                self,
                consumer: $crate::Consumer<E>,
                handler: H,
            ) -> Result<$crate::Summary, $crate::BrokerError>
            where
                H: Fn(&$message) -> F,
                F: Future<Output = Result<T, E>>,
                E: ::std::fmt::Display,
            {
                self.run_until(::std::future::pending(), consumer, handler).await
            }

            /// Handles messages until `shutdown` ends. Then the source waits for the running handlers
            /// ([`Consumer::grace`](idem_messages::Consumer::grace)), gives back the messages whose handlers
            /// have not started, and waits for results that are still to be recorded
            /// ([`Consumer::drain`](idem_messages::Consumer::drain)). The broker's values for
            /// [`Consumer::extend_every`](idem_messages::Consumer::extend_every) and
            /// [`Consumer::redelivery_horizon`](idem_messages::Consumer::redelivery_horizon) apply if the
            /// broker reports them and the program does not set its own.
            ///
            /// If the broker goes away, the source waits until it is back.
            ///
            /// # Errors
            ///
            /// Returned only before the first message: the broker cannot be reached, or something that the
            /// source needs is missing or has wrong settings. Later failures are reported as events and
            /// counted in the summary.
            ///
            /// # Cancellation
            ///
            /// As [`Consumer::run`](idem_messages::Consumer::run): the handlers and the connection are
            /// dropped, and the broker delivers the handlers' messages again by its own rule.
            pub async fn run_until<H, F, T, E>(
                self,
                shutdown: impl Future<Output = ()>,
                consumer: $crate::Consumer<E>,
                handler: H,
            ) -> Result<$crate::Summary, $crate::BrokerError>
            where
                H: Fn(&$message) -> F,
                F: Future<Output = Result<T, E>>,
                E: ::std::fmt::Display,
            {
                let mut source = self;
                let group_by = source.group_by.take();
                let mut plan = $crate::Plan::of(&consumer);
                let reader = ::std::boxed::Box::pin($crate::Broker::connect(source, &mut plan)).await?;
                Ok($crate::work(reader, plan, group_by, shutdown, consumer, handler).await)
            }

            /// Lists the dead letters, and leaves them where they are.
            ///
            /// # Errors
            ///
            /// The broker cannot be reached, or fails.
            pub async fn dead_letters(
                &self,
            ) -> Result<::std::vec::Vec<$crate::StoredLetter>, $crate::BrokerError> {
                $crate::list(self).await
            }

            /// Sends the messages of dead letters back to the subject, topic or queue that they came from, as
            /// new messages with their own headers. Letters that arrive meanwhile are left for the next
            /// redrive. A dead letter is removed after the broker has stored its message. So a redrive that
            /// is killed loses nothing, but may send one message twice.
            ///
            /// # Errors
            ///
            /// The broker or the store fails. The messages before the failure are sent; all other letters
            /// stay.
            pub async fn redrive(
                &self,
                mut redrive: $crate::Redrive,
            ) -> Result<$crate::RedriveSummary, $crate::BrokerError> {
                $crate::Broker::redrive_letters(self, &mut redrive).await?;
                Ok(redrive.summary())
            }
        }
    };
}

/// Handles the messages of a reader until `shutdown` ends. Failures of the broker are counted in the summary.
/// [`broker_methods`](crate::broker_methods) calls this function.
pub async fn work<R, H, F, T, E>(
    reader: R,
    plan: Plan,
    group_by: GroupBy<R::Message>,
    shutdown: impl Future<Output = ()>,
    mut consumer: Consumer<E>,
    handler: H,
) -> Summary
where
    R: Reader<Message: Delivery + Send + Sync>,
    H: Fn(&R::Message) -> F,
    F: Future<Output = Result<T, E>>,
    E: Display,
{
    (consumer.settings.extend_every, consumer.settings.horizon) =
        (plan.extend_every, plan.redelivery_horizon);
    let progress = consumer.progress.clone();
    let (ending, ended) = oneshot::channel::<()>();
    let shutdown = async {
        shutdown.await;
        drop(ending);
    };
    let (reader, room) = (Mutex::new(reader), Room::default());
    // The stream is boxed, so that the returned future is `Send` whatever the handler borrows.
    let messages = read(&reader, &room).boxed();
    let group = |message: &R::Message| match &group_by {
        Some(group) => group(message),
        None => message.group(),
    };
    let working = consumer.work(shutdown, messages, Some(&room), group, handler);
    // Gives the unread messages back while handlers still run, so that other workers get them at once.
    let stopping = async {
        let _ = ended.await;
        ended_in_time(&progress, async { reader.lock().await.stop().await }).await;
    };
    // These futures are on the heap, because they contain the caller's handlers and the broker's client.
    join(Box::pin(working), Box::pin(stopping)).await;
    Box::pin(ended_in_time(&progress, reader.into_inner().close())).await;
    progress.summary()
}

fn read<'r, R>(
    reader: &'r Mutex<R>,
    room: &'r Room,
) -> impl Stream<Item = Result<R::Message, BrokerError>> + Send + 'r
where
    R: Reader<Message: Send>,
{
    stream::unfold(reader, move |reader| async move { Some((reader.lock().await.next(room).await, reader)) })
}

/// Awaits `ending` for up to `PATIENCE`. Counts and reports a failure of the broker.
async fn ended_in_time(progress: &Progress, ending: impl Future<Output = Result<(), BrokerError>>) {
    let silent = |_| Err(BrokerError::new("end the work", "the broker did not answer in time"));
    if let Err(error) = timeout(PATIENCE, ending).await.unwrap_or_else(silent) {
        progress.count(|summary| summary.broker_errors += 1);
        tracing::warn!(target: "idem", event = "broker_failed", %error, "the broker failed at the shutdown");
    }
}

/// Reads messages from a broker, until the reader is dropped or closed.
pub trait Reader: Send {
    /// The message.
    type Message;

    /// The next message. If the broker's messages must be extended, the reader requests no more messages than
    /// there is room for, because the consumer extends only messages that it holds. If no room is left, the
    /// reader may still return the messages that it requested before.
    fn next(&mut self, room: &Room) -> impl Future<Output = Result<Self::Message, BrokerError>> + Send;

    /// When the shutdown begins, gives back the messages that arrived and were not read. Handlers still run,
    /// and their messages are settled later, so the connection must stay open, even after an error. The
    /// future is dropped after 30 s. Does nothing unless it is overridden.
    fn stop(&mut self) -> impl Future<Output = Result<(), BrokerError>> + Send {
        ready(Ok(()))
    }

    /// Disconnects, after [`stop`](Self::stop) and the last handler. The future is dropped after 30 s.
    fn close(self) -> impl Future<Output = Result<(), BrokerError>> + Send;
}

/// What a consumer and its broker agree on before the first message.
#[derive(Debug)]
#[non_exhaustive]
pub struct Plan {
    /// How many messages the consumer may hold. Unless [`Consumer::prefetch`] is set, messages that wait for
    /// other messages or for the end of a pause do not count.
    pub capacity: usize,
    /// [`Consumer::extend_every`], if the program has set it. Otherwise the broker's crate may set it.
    pub extend_every: Option<Duration>,
    /// [`Consumer::redelivery_horizon`], if the program has set it. Otherwise the broker's crate may set it.
    pub redelivery_horizon: Option<Duration>,
}

impl Plan {
    /// A plan for this consumer.
    #[must_use]
    pub fn of<E>(consumer: &Consumer<E>) -> Self {
        let Consumer { settings, .. } = consumer;
        let (extend_every, redelivery_horizon) = (settings.extend_every, settings.horizon);
        Self { capacity: settings.capacity(), extend_every, redelivery_horizon }
    }
}

/// How many messages a consumer can take now. The consumer keeps this number up to date.
#[derive(Debug, Default)]
pub struct Room(watch::Sender<usize>);

impl Room {
    /// Waits until the consumer can take a message. Returns how many it can take.
    pub async fn free(&self) -> usize {
        // An error is impossible, because `self` holds a sender.
        self.0.subscribe().wait_for(|free| *free > 0).await.map_or(1, |free| *free)
    }

    pub(super) fn set(&self, free: usize) {
        self.0.send_if_modified(|now| std::mem::replace(now, free) != free);
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::{Progress, ended_in_time};

    #[tokio::test(start_paused = true)]
    async fn a_broker_that_is_gone_does_not_hold_up_the_end() {
        let progress = Progress::new();
        ended_in_time(&progress, pending()).await;
        assert_eq!(progress.summary().broker_errors, 1);
    }
}
