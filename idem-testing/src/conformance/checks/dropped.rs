//! Checks of callers that go away: the store applies the request of a dropped future either completely or not
//! at all.

use futures_util::FutureExt;

use crate::conformance::trial::{Checked, Trial, same, that, value};
use idem_core::Store;
use idem_core::protocol::{CompleteAnswer, ReleaseAnswer, ReleaseCause};

pub(crate) async fn a_claim_whose_asker_went_away_is_granted_once_or_never(t: &Trial) -> Checked {
    for number in 0..20 {
        let key = t.key(format!("{number}"))?;
        let request = t.ask();
        // This polls the claim once and then drops it.
        let _ = t.store.claim(&key, &request).now_or_never();
        same("attempt", t.grant(&key, &request).await?.grant.attempt, 1)?;
    }
    Ok(())
}

pub(crate) async fn a_completion_whose_asker_went_away_is_whole_or_absent(t: &Trial) -> Checked {
    for number in 0..20 {
        let key = t.key(format!("{number}"))?;
        let held = t.take(&key).await?;
        let _ = t.store.complete(&key, &held.completion("first")).now_or_never();
        same("complete", t.complete(&held, b"second").await?, CompleteAnswer::Done)?;
        let result = t.replay(&key).await?.result;
        let whole = result == value("first") || result == value("second");
        that(whole, format!("the result is neither: {result:?}"))?;
    }
    Ok(())
}

pub(crate) async fn a_release_whose_asker_went_away_is_whole_or_absent(t: &Trial) -> Checked {
    for number in 0..20 {
        let key = t.key(format!("{number}"))?;
        let held = t.take(&key).await?;
        let _ = t.store.release(&key, &held.release(ReleaseCause::Failed)).now_or_never();
        same("release", t.release(&held, ReleaseCause::Failed).await?, ReleaseAnswer::Released)?;
        same("attempt", t.take(&key).await?.grant.attempt, 2)?;
    }
    Ok(())
}
