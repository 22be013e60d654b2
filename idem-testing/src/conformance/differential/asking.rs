//! An operation of any kind as a value, and its answer.

use crate::OperationKind;
use idem_core::protocol::{self, Request};
use idem_core::{RecordKey, Store, StoreError};

/// Any operation that may change a record. Reads are left out, because the test reads the record after every
/// operation.
#[derive(Clone, Debug)]
pub(super) enum Ask {
    Step(Request),
    Forget,
    Purge(usize),
}

impl Ask {
    pub(super) fn kind(&self) -> OperationKind {
        match self {
            Self::Step(request) => OperationKind::of(request),
            Self::Forget => OperationKind::Forget,
            Self::Purge(_) => OperationKind::Purge,
        }
    }

    /// Sends the operation to a store.
    pub(super) async fn of<S: Store>(&self, store: &S, key: &RecordKey) -> Result<Answer, StoreError> {
        Ok(match self {
            Self::Step(request) => Answer::Step(store.apply(key, request.clone()).await?),
            Self::Forget => Answer::Forget(store.forget(key).await?),
            Self::Purge(limit) => Answer::Purge(store.purge(*limit).await?),
        })
    }
}

#[derive(Debug, PartialEq)]
pub(super) enum Answer {
    Step(protocol::Answer),
    Forget(bool),
    /// How many records were deleted. In an expected answer, how many may be deleted at most.
    Purge(usize),
}
