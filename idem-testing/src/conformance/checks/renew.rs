//! Checks of renewing a lease.

use crate::conformance::stage::Stage;
use crate::conformance::trial::{Checked, DAY, LONG, Trial, print_of, same, that};
use idem_core::protocol::{OnCrash, RenewAnswer};

pub(crate) async fn an_owner_keeps_its_lease(t: &Trial) -> Checked {
    let key = t.key("a")?;
    let held = t.grant(&key, &t.ask_short()).await?;
    same("renew", t.renew(&held, LONG).await?, RenewAnswer::Held)?;
    t.pass(t.short() * 2).await;
    t.left("the lease", t.busy(&key).await?, LONG - t.short() * 2)
}

pub(crate) async fn a_lease_is_renewed_from_now_and_not_from_its_end(t: &Trial) -> Checked {
    let key = t.key("a")?;
    let held = t.take(&key).await?;
    t.pass(t.short()).await;
    for _ in 0..3 {
        same("renew", t.renew(&held, LONG).await?, RenewAnswer::Held)?;
    }
    t.left("the lease", t.busy(&key).await?, LONG)
}

pub(crate) async fn a_renewal_may_shorten_a_lease(t: &Trial) -> Checked {
    let key = t.key("a")?;
    let held = t.take(&key).await?;
    same("renew", t.renew(&held, t.short()).await?, RenewAnswer::Held)?;
    t.pass(t.short()).await;
    same("recovered", t.take(&key).await?.grant.recovered, true)
}

pub(crate) async fn a_lapsed_lease_is_renewed_if_nobody_took_over(t: &Trial) -> Checked {
    let key = t.key("a")?;
    let held = t.bring(&key, Stage::Lapsed).await?;
    same("renew", t.renew(&held, LONG).await?, RenewAnswer::Held)?;
    t.left("the lease", t.busy(&key).await?, LONG)
}

pub(crate) async fn a_renewal_is_lost_in_every_other_state(t: &Trial) -> Checked {
    let held = |stage: &Stage| matches!(stage, Stage::Running | Stage::Lapsed | Stage::InDoubt);
    for stage in Stage::ALL.into_iter().filter(|stage| !held(stage)) {
        let key = t.key(format!("{stage:?}"))?;
        let held = t.bring(&key, stage).await?;
        let before = t.get(&key).await?;
        same("renew", t.renew(&held, LONG).await?, RenewAnswer::Lost).map_err(|broken| broken.at(stage))?;
        t.unchanged(&key, &before).await.map_err(|broken| broken.at(stage))?;
    }
    Ok(())
}

pub(crate) async fn nobody_renews_anothers_lease(t: &Trial) -> Checked {
    for stage in Stage::ALL {
        let key = t.key(format!("{stage:?}"))?;
        let thief = t.bring(&key, stage).await?.with_another_owner();
        let before = t.get(&key).await?;
        same("renew", t.renew(&thief, LONG).await?, RenewAnswer::Lost).map_err(|broken| broken.at(stage))?;
        t.unchanged(&key, &before).await.map_err(|broken| broken.at(stage))?;
    }
    Ok(())
}

pub(crate) async fn nobody_renews_under_another_fence(t: &Trial) -> Checked {
    for stage in Stage::ALL {
        let key = t.key(format!("{stage:?}"))?;
        let held = t.bring(&key, stage).await?;
        let before = t.get(&key).await?;
        for change in [-1, 1] {
            let answer = t.renew(&held.with_fence(change), LONG).await?;
            same("renew", answer, RenewAnswer::Lost).map_err(|broken| broken.at(stage))?;
        }
        t.unchanged(&key, &before).await.map_err(|broken| broken.at(stage))?;
    }
    Ok(())
}

pub(crate) async fn a_renewal_of_an_absent_key_is_lost_and_makes_none(t: &Trial) -> Checked {
    let held = t.take(&t.key("a")?).await?;
    let absent = t.key("b")?;
    let answer = t.renew_with(&absent, &held.renewal(LONG)).await?;
    same("renew", answer, RenewAnswer::Lost)?;
    same("record", t.get(&absent).await?, None)
}

pub(crate) async fn a_renewal_changes_the_lease_alone(t: &Trial) -> Checked {
    let key = t.key("a")?;
    let request = t.ask().with_fingerprint(Some(print_of(3)));
    let held = t.grant(&key, &request).await?;
    let before = t.record(&key).await?;
    t.pass(t.short()).await;
    t.renew(&held, DAY).await?;
    let after = t.record(&key).await?;
    that(after.lease_until > before.lease_until, "the lease must be longer")?;
    let expected = before.with_lease_until(after.lease_until).with_expires_at(after.expires_at);
    same("record", after, expected)
}

pub(crate) async fn a_renewal_pushes_the_expiry(t: &Trial) -> Checked {
    let key = t.key("a")?;
    let request = t.ask_short().with_ttl(t.short());
    let held = t.grant(&key, &request).await?;
    same("renew", t.renew(&held, LONG).await?, RenewAnswer::Held)?;
    let record = t.record(&key).await?;
    same("expires_at", record.expires_at, Some(record.lease_until.after(t.short())))?;
    t.pass(t.short() * 3).await;
    t.purge(1_000).await?;
    t.busy(&key).await?;
    let doubted = t.key("b")?;
    let held = t.grant(&doubted, &t.ask().with_on_crash(OnCrash::InDoubt)).await?;
    t.renew(&held, LONG).await?;
    same("expires_at under in_doubt", t.record(&doubted).await?.expires_at, None)
}

pub(crate) async fn a_takeovers_lease_can_be_renewed(t: &Trial) -> Checked {
    let key = t.key("a")?;
    t.bring(&key, Stage::Lapsed).await?;
    let next = t.take(&key).await?;
    same("renew", t.renew(&next, DAY).await?, RenewAnswer::Held)?;
    t.left("the lease", t.busy(&key).await?, DAY)
}
