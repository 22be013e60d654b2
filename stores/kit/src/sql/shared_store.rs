//! What all handles of a store share.

use std::sync::Arc;
use std::time::Duration;

use idem_core::{StoreError, Waiters};

use super::purging::Purging;
use crate::Records;
use crate::group_commit::{Queues, Server};

/// What all handles of a store share.
pub struct SharedStore<S: Server> {
    /// The records on its server.
    pub records: Records<S>,
    /// Where they are, for `Debug`.
    pub place: String,
    /// The callers of this process that wait for keys.
    pub waiters: Waiters,
    _purging: Option<Purging>,
}

impl<S: Server> SharedStore<S> {
    /// A store on this server. Calls `purge` with a limit about every `purge_every`, at random times, until the last handle is dropped.
    pub fn new<F>(
        server: S,
        max_result_bytes: usize,
        place: String,
        purge_every: Option<Duration>,
        purge: impl Fn(Arc<Queues<S>>, usize) -> F + Send + 'static,
    ) -> Arc<Self>
    where
        F: Future<Output = Result<usize, StoreError>> + Send,
    {
        let records = Records::new(server, max_result_bytes);
        let purging = Purging::start(&records.queues(), purge_every, purge);
        Arc::new(Self { records, place, waiters: Waiters::default(), _purging: purging })
    }
}
