//! A check of a long random history of several owners and keys, with lost answers.

use crate::conformance::differential::history;
use crate::conformance::trial::{Checked, Trial};
use crate::seed;

/// The number of operations in a full run.
const LENGTH: usize = 8_000;

pub(crate) async fn a_long_random_history(t: &Trial) -> Checked {
    history(t, seed(), LENGTH / t.profile.one_in()).await
}
