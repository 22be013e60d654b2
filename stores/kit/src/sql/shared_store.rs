//! What all handles of a store share: the store itself, but for its name and settings. Puts requests to the server as the process
//! remembers their keys.

use std::sync::Arc;
use std::time::{Duration, Instant};

use idem_core::inspection::Inspection;
use idem_core::listing::{List, Page};
use idem_core::protocol::{self, Claim, Record, Request};
use idem_core::{RecordKey, StoreError, Waiters};

use super::purging::Purging;
use crate::group_commit::{Answer, Op, Operation, Queues, Server};
use crate::hints::Hints;
use crate::own_runtime::apart;

/// What a server does beside the requests, on a connection of its own, so that no other operation waits.
pub trait Housekeeping: Server {
    /// Deletes at most `limit` expired records.
    fn purge(&self, limit: usize) -> impl Future<Output = Result<usize, StoreError>> + Send;

    /// Reads a page of records.
    fn list(&self, request: &List) -> impl Future<Output = Result<Page, StoreError>> + Send;

    /// Checks the server and its settings.
    fn inspect(&self) -> impl Future<Output = Result<Inspection, StoreError>> + Send;
}

/// What all handles of a store share: [`store_by!`](crate::store_by) makes a store of it.
pub struct SharedStore<S: Housekeeping> {
    queues: Arc<Queues<S>>,
    /// Where the records are, for `Debug`.
    pub place: String,
    /// The largest result, in bytes.
    pub max_result_bytes: usize,
    /// Keys of which this process saw a result.
    results: Hints,
    waiters: Waiters,
    _purging: Option<Purging>,
}

impl<S: Housekeeping> SharedStore<S> {
    /// A store on this server. Purges it about every `purge_every`, at random times, until the last handle is dropped.
    pub fn new(
        server: S,
        max_result_bytes: usize,
        place: String,
        purge_every: Option<Duration>,
    ) -> Arc<Self> {
        let queues = Arc::new(Queues::new(server));
        let purge = |queues: Arc<Queues<S>>, limit| async move { queues.server().purge(limit).await };
        let purging = Purging::start(&queues, purge_every, purge);
        let (results, waiters) = (Hints::default(), Waiters::default());
        Arc::new(Self { queues, place, max_result_bytes, results, waiters, _purging: purging })
    }

    /// The server.
    #[must_use]
    pub fn server(&self) -> &S {
        self.queues.server()
    }

    /// What leads to the server, for work that outlives a call.
    #[must_use]
    pub fn queues(&self) -> Arc<Queues<S>> {
        self.queues.clone()
    }

    /// Runs an operation, and repeats it if the answer was lost or the server was away for a moment.
    ///
    /// # Errors
    ///
    /// Those of the server.
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

    /// The answer to a claim on a key that has its result, by a read, which costs the server less than a claim; `None` if it has none.
    async fn replay(&self, key: &RecordKey, request: &Claim) -> Result<Option<protocol::Answer>, StoreError> {
        let begin = Instant::now();
        let record = match self.get(key).await {
            Ok(record) => record,
            Err(error) if begin.elapsed() > self.server().timeout() / 2 => return Err(error),
            // The claim needs no reading.
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
        apart(async move { queues.server().purge(limit).await }).await
    }

    #[doc(hidden)]
    pub async fn list(&self, request: &List) -> Result<Page, StoreError> {
        let (queues, request) = (self.queues(), request.clone());
        apart(async move { queues.server().list(&request).await }).await
    }

    #[doc(hidden)]
    pub async fn inspect(&self) -> Result<Inspection, StoreError> {
        let queues = self.queues();
        apart(async move { queues.server().inspect().await }).await
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
