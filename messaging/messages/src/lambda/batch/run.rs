//! One run of a handler, and the keys that it holds.

use std::sync::Arc;

use crate::report::About;
use crate::{Choose, Decision, Gate, HeldKeys, Observation, Tries, settle_by};

/// The state that the records of one batch share.
pub(super) struct Run<H> {
    handler: H,
    pub(super) held: Arc<HeldKeys>,
    pub(super) gate: Gate,
}

impl<H> Run<H> {
    pub(super) fn new(handler: H) -> Self {
        Self { handler, held: Arc::default(), gate: Gate::new() }
    }

    /// Calls the handler for a record, and decides how the record is settled. Also returns whether another handler with the
    /// same key ended meanwhile.
    pub(super) async fn handle<R, C, F, T, E>(
        &self,
        record: R,
        tries: Tries,
        choose: &C,
        about: &mut About,
    ) -> (Decision<()>, bool)
    where
        H: Fn(R) -> F,
        F: Future<Output = Result<T, E>>,
        C: Choose<E>,
    {
        let handling = Handling { observation: Arc::new(Observation::of_handler(&self.held, None)), about };
        let choose = |error: &E, attempt, proposed| choose.choose(error, attempt, proposed);
        let call = async { (self.handler)(record).await };
        let decision = settle_by(&handling.observation, call, tries, choose).await.without_value();
        (decision, handling.observation.let_go())
    }
}

/// A running handler. Dropping it frees the keys that it holds.
struct Handling<'a> {
    observation: Arc<Observation>,
    about: &'a mut About,
}

impl Drop for Handling<'_> {
    fn drop(&mut self) {
        self.about.key = self.observation.key();
        self.observation.let_go();
    }
}
