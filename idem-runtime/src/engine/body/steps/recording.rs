//! Reading and recording the steps of an attempt in its store.

use std::sync::Arc;

use tokio::time::Instant;

use super::{Confirmed, Done, Failed, Job, Log, Recorder};
use crate::engine::claim::claimed::Claimed;
use crate::engine::report::Event;
use crate::engine::retry::retry_until;
use crate::error::{CallId, StoreErrorKind};
use idem_core::Store;
use idem_core::protocol::{
    Grant, RecordStep, RecordStepAnswer, RecordedStep, State, StoredResult, Tombstone,
};

impl<S: Store> Recorder for Claimed<S> {
    fn log(&self) -> &Log {
        &self.log
    }

    fn id(&self) -> CallId {
        self.call.id()
    }

    fn grant(&self) -> Grant {
        self.grant
    }

    fn max_bytes(&self) -> usize {
        self.call.max_result_bytes()
    }

    fn report(&self, event: Event<'_>) {
        self.call.report(event, self.grant.attempt);
    }

    fn is_lost(&self) -> bool {
        self.lease.is_lost()
    }

    fn is_over(&self) -> bool {
        self.lease.is_over()
    }

    fn confirm(self: Arc<Self>) -> Option<Confirmed> {
        if self.lease.held_until() > Instant::now() && !self.lease.is_doubted() {
            return None;
        }
        let until = Instant::now() + self.call.policy.store_timeout;
        Some(Box::pin(async move { self.renew_before_start(until).await }))
    }

    fn lose(&self) {
        self.lease.lose();
    }

    fn load(&self) -> Job {
        let (call, owner, fence, end) =
            (self.call.clone(), self.owner, self.grant.fence, self.retries_until());
        Box::pin(async move {
            let read =
                retry_until("the steps", || end, call.policy.store_timeout, || call.store.get(&call.key));
            let record = read.await.map_err(Failed::Store)?;
            let mine = record.filter(|record| {
                matches!(record.state, State::InFlight | State::InDoubt)
                    && record.owner == owner
                    && record.fence == fence
            });
            mine.map(|record| Done::Loaded(record.steps.into())).ok_or(Failed::Lost)
        })
    }

    fn record(&self, position: u32, step: RecordedStep) -> Job {
        let (call, end) = (Arc::clone(&self.call), self.retries_until());
        let mut request = RecordStep::new(self.owner, self.grant.fence, position, step);
        Box::pin(async move {
            loop {
                let ask = || call.store.record_step(&call.key, &request);
                match retry_until("the step", || end, call.policy.store_timeout, ask).await {
                    Ok(RecordStepAnswer::Recorded) => return Ok(Done::Recorded(request.step)),
                    Ok(_) => return Err(Failed::Lost),
                    Err(error) if error.kind() == StoreErrorKind::TooLarge => {
                        let tombstone = StoredResult::Tombstone(Tombstone::TooLarge);
                        if request.step.result == tombstone {
                            return Err(Failed::Store(error));
                        }
                        request.step.result = tombstone;
                    }
                    Err(error) => return Err(Failed::Store(error)),
                }
            }
        })
    }
}
