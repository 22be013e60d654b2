//! The state that all handles of a store share. If this process expects that a key has a result, a claim
//! first reads the record, because a read costs the server less than a claim.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use idem_core::inspection::Inspection;
use idem_core::listing::{List, Page};
use idem_core::protocol::{self, Claim, Record, Request};
use idem_core::{RecordKey, StoreError, Waiters};

use super::connector::{Connector, Opener, Session};
use crate::group_commit::{Answer, Failure, Op, Operation, Queues, Server};
use crate::hints::Hints;
use crate::own_runtime::apart;
use crate::purging::Purging;

/// Purges, lists and inspects, and stores the fact that callers use transactions. Each operation runs on a
/// separate connection, so that no request waits for it.
pub trait Housekeeping: Server<Session: Session> {
    /// How the server's connections are opened.
    type Opener: Opener<Session = Self::Session>;

    /// How many records a batch of a purge reads. The number is small, so that the batch is short.
    const PURGE_BATCH: usize;

    /// The connector that opens the server's connections.
    fn connector(&self) -> &Connector<Self::Opener>;

    /// Reads at most `most` records that are due for a purge. Deletes those that have expired. Returns how
    /// many it read and how many it deleted.
    fn purge(
        &self,
        session: &mut Self::Session,
        most: usize,
    ) -> impl Future<Output = Result<(usize, usize), Failure>> + Send;

    /// Reads a page of records, in the order of the primary key.
    fn list(
        &self,
        session: &mut Self::Session,
        request: &List,
    ) -> impl Future<Output = Result<Page, Failure>> + Send;

    /// Checks the server and its settings.
    fn inspect(
        &self,
        session: &mut Self::Session,
    ) -> impl Future<Output = Result<Inspection, Failure>> + Send;

    /// Whether this process knows that callers use transactions: it has read this fact from the server, or
    /// stored it there.
    fn has_transactions(&self) -> &AtomicBool;

    /// Stores the fact that callers use transactions, for all processes.
    fn mark_transactions(
        &self,
        session: &mut Self::Session,
    ) -> impl Future<Output = Result<(), Failure>> + Send;
}

/// The state that all handles of a store share. The macro [`store_by!`](crate::store_by) makes a store from
/// this type.
pub struct SharedStore<S: Housekeeping> {
    queues: Arc<Queues<S>>,
    /// Where the records are, for `Debug`.
    pub place: String,
    /// The largest result, in bytes.
    pub max_result_bytes: usize,
    /// The keys whose result this process has seen.
    results: Hints,
    waiters: Waiters,
    _purging: Option<Purging>,
}

impl<S: Housekeeping> SharedStore<S> {
    /// A store on this server. Purges the store about every `purge_every`, at random times, until the last
    /// handle is dropped.
    pub fn new(
        server: S,
        max_result_bytes: usize,
        place: String,
        purge_every: Option<Duration>,
    ) -> Arc<Self> {
        let queues = Arc::new(Queues::new(server));
        let purge = |queues: Arc<Queues<S>>, limit| async move { purged(queues.server(), limit).await };
        let purging = Purging::start(&queues, purge_every, purge);
        let (results, waiters) = (Hints::default(), Waiters::default());
        Arc::new(Self { queues, place, max_result_bytes, results, waiters, _purging: purging })
    }

    /// The server.
    #[must_use]
    pub fn server(&self) -> &S {
        self.queues.server()
    }

    /// The queues, for work that continues after the caller has dropped its future.
    fn queues(&self) -> Arc<Queues<S>> {
        self.queues.clone()
    }

    /// Runs an operation, and repeats it if the answer was lost or the server was unavailable for a moment.
    /// An [`Op::Forget`] whose answer was lost is not repeated.
    ///
    /// # Errors
    ///
    /// The errors of the server.
    pub fn ask<A>(
        &self,
        key: &RecordKey,
        op: Op,
        answer: impl FnOnce(Answer) -> Option<A> + Send,
    ) -> impl Future<Output = Result<A, StoreError>> + Send {
        let reply = self.queues.ask(Operation::new(key, op));
        async move {
            answer(reply.await?)
                .ok_or_else(|| StoreError::outcome_unknown("the answer was to something else"))
        }
    }

    #[doc(hidden)]
    #[expect(clippy::manual_async_fn, reason = "an `async fn` has each argument in its future twice")]
    pub fn apply(
        &self,
        key: &RecordKey,
        request: Request,
    ) -> impl Future<Output = Result<protocol::Answer, StoreError>> + Send {
        async move {
            request.check_size(self.max_result_bytes)?;
            let mark = self.results.mark(key);
            if let Request::Claim(claim) = &request
                && self.results.expects_result(mark)
                && let Some(answer) = self.replay(key, claim).await?
            {
                self.results.saw(mark, &answer);
                return Ok(answer);
            }
            let answer = self.ask(key, Op::Apply(request), |answer| match answer {
                Answer::Applied(answer) => Some(answer),
                _ => None,
            });
            let answer = answer.await?;
            self.results.saw(mark, &answer);
            Ok(answer)
        }
    }

    /// Answers a claim by a read. `None` if the key has no result, or if the read fails within half of the
    /// timeout.
    async fn replay(&self, key: &RecordKey, request: &Claim) -> Result<Option<protocol::Answer>, StoreError> {
        let begin = Instant::now();
        let record = match self.get(key).await {
            Ok(record) => record,
            Err(error) if begin.elapsed() > self.server().timeout() / 2 => return Err(error),
            // The error of this read does not matter, because the caller then makes the claim.
            Err(_) => return Ok(None),
        };
        Ok(record.and_then(|record| protocol::recorded_answer(&record, request)).map(Into::into))
    }

    #[doc(hidden)]
    pub async fn get(&self, key: &RecordKey) -> Result<Option<Record>, StoreError> {
        let reading = self.ask(key, Op::Get, |answer| match answer {
            Answer::Found(record) => Some(record),
            _ => None,
        });
        Ok(reading.await?.map(|record| *record))
    }

    #[doc(hidden)]
    pub async fn forget(&self, key: &RecordKey) -> Result<bool, StoreError> {
        let forgetting = self.ask(key, Op::Forget, |answer| match answer {
            Answer::Forgotten(was_live) => Some(was_live),
            _ => None,
        });
        forgetting.await
    }

    #[doc(hidden)]
    pub async fn purge(&self, limit: usize) -> Result<usize, StoreError> {
        let queues = self.queues();
        apart(async move { purged(queues.server(), limit).await }).await
    }

    #[doc(hidden)]
    pub async fn list(&self, request: &List) -> Result<Page, StoreError> {
        let (queues, request) = (self.queues(), request.clone());
        let listing = async move {
            let (server, request) = (queues.server(), &request);
            let page = |mut session| async move { (server.list(&mut session, request).await, session) };
            server.connector().apart(page).await
        };
        apart(listing).await
    }

    #[doc(hidden)]
    pub async fn inspect(&self) -> Result<Inspection, StoreError> {
        let queues = self.queues();
        let inspecting = async move {
            let server = queues.server();
            let look = |mut session| async move { (server.inspect(&mut session).await, session) };
            let mut inspection = server.connector().apart(look).await?;
            server.connector().find_encryption(&mut inspection).await?;
            Ok(inspection)
        };
        apart(inspecting).await
    }

    /// Stores the fact that callers use transactions, so that all processes notice a key that a transaction
    /// has taken.
    ///
    /// # Errors
    ///
    /// The errors of the server.
    pub async fn announce(&self) -> Result<(), StoreError> {
        if self.server().has_transactions().load(Ordering::Relaxed) {
            return Ok(());
        }
        let queues = self.queues();
        let marking = async move {
            let server = queues.server();
            let mark = |mut session| async move { (server.mark_transactions(&mut session).await, session) };
            server.connector().apart(mark).await?;
            server.has_transactions().store(true, Ordering::Relaxed);
            Ok(())
        };
        apart(marking).await
    }

    #[doc(hidden)]
    pub const fn max_result_bytes(&self) -> Option<usize> {
        Some(self.max_result_bytes)
    }

    #[doc(hidden)]
    pub const fn waiters(&self) -> &Waiters {
        &self.waiters
    }
}

/// Deletes at most `limit` expired records. Returns how many it deleted.
async fn purged<S: Housekeeping>(server: &S, limit: usize) -> Result<usize, StoreError> {
    let batch = |mut session, most| async move { (server.purge(&mut session, most).await, session) };
    server.connector().purge(limit, S::PURGE_BATCH, batch).await
}
