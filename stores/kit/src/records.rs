//! The records of a store: its requests, and what a process remembers of their keys.

use std::sync::Arc;
use std::time::Instant;

use idem_core::protocol::{self, Claim, Record, Request};
use idem_core::{RecordKey, StoreError};

use crate::group_commit::{Answer, Op, Operation, Queues, Server};
use crate::hints::Hints;

/// The records of a store on a server.
pub struct Records<S: Server> {
    queues: Arc<Queues<S>>,
    /// The largest result, in bytes.
    pub max_result_bytes: usize,
    /// Keys of which this process saw a result.
    results: Hints,
}

impl<S: Server> Records<S> {
    /// The records on this server.
    pub fn new(server: S, max_result_bytes: usize) -> Self {
        Self { queues: Arc::new(Queues::new(server)), max_result_bytes, results: Hints::default() }
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

    /// Applies a request.
    ///
    /// # Errors
    ///
    /// `TooLarge` for a result beyond the limit, and those of the server.
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
            let answer = self.ask(Operation::new(key, Op::Apply(request)), |answer| match answer {
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

    /// The live record of a key.
    ///
    /// # Errors
    ///
    /// Those of the server.
    pub async fn get(&self, key: &RecordKey) -> Result<Option<Record>, StoreError> {
        let reading = self.ask(Operation::new(key, Op::Get), |answer| match answer {
            Answer::Found(record) => Some(record),
            _ => None,
        });
        Ok(reading.await?.map(|record| *record))
    }

    /// Deletes the record of a key, and returns whether it was live.
    ///
    /// # Errors
    ///
    /// Those of the server.
    pub async fn forget(&self, key: &RecordKey) -> Result<bool, StoreError> {
        let forgetting = self.ask(Operation::new(key, Op::Forget), |answer| match answer {
            Answer::Forgotten(was_live) => Some(was_live),
            _ => None,
        });
        forgetting.await
    }

    /// Runs an operation, and repeats it if the answer was lost or the server was away for a moment.
    ///
    /// # Errors
    ///
    /// Those of the server.
    pub fn ask<A>(
        &self,
        operation: Operation,
        answer: impl FnOnce(Answer) -> Option<A> + Send,
    ) -> impl Future<Output = Result<A, StoreError>> + Send {
        let reply = self.queues.ask(operation);
        async move {
            answer(reply.await?)
                .ok_or_else(|| StoreError::outcome_unknown("the answer was to something else"))
        }
    }
}
