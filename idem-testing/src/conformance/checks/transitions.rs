//! Checks of the transitions: every request in every state that a key can reach in a few requests.

use crate::OperationKind;
use crate::conformance::differential::traces::ending_with;
use crate::conformance::trial::{Checked, Trial};

pub(crate) async fn a_claim_in_any_state(t: &Trial) -> Checked {
    ending_with(t, OperationKind::Claim).await
}

pub(crate) async fn a_renewal_in_any_state(t: &Trial) -> Checked {
    ending_with(t, OperationKind::Renew).await
}

pub(crate) async fn a_completion_in_any_state(t: &Trial) -> Checked {
    ending_with(t, OperationKind::Complete).await
}

pub(crate) async fn a_release_in_any_state(t: &Trial) -> Checked {
    ending_with(t, OperationKind::Release).await
}

pub(crate) async fn an_operators_word_in_any_state(t: &Trial) -> Checked {
    ending_with(t, OperationKind::Resolve).await
}

pub(crate) async fn a_removal_in_any_state(t: &Trial) -> Checked {
    ending_with(t, OperationKind::Forget).await
}

pub(crate) async fn any_request_on_a_record_with_steps(t: &Trial) -> Checked {
    ending_with(t, OperationKind::RecordStep).await
}
