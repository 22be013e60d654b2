//! Checks of one key with other arguments.

use crate::conformance::stage::Stage;
use crate::conformance::trial::{Checked, LONG, Trial, print_of, same, that};
use idem_core::protocol::{
    Claim, ClaimAnswer, CompleteAnswer, Fingerprint, ReleaseAnswer, ReleaseCause, RenewAnswer,
};

fn with(t: &Trial, byte: u8) -> Claim {
    t.ask().with_fingerprint(Some(print_of(byte)))
}

pub(crate) async fn another_fingerprint_is_a_mismatch_in_every_state(t: &Trial) -> Checked {
    for stage in Stage::live() {
        let key = t.key(format!("{stage:?}"))?;
        t.bring_with(&key, stage, with(t, 1)).await?;
        let answer = t.claim(&key, &with(t, 2)).await?;
        same("claim", answer, ClaimAnswer::Mismatch).map_err(|broken| broken.at(stage))?;
    }
    Ok(())
}

pub(crate) async fn a_mismatch_changes_nothing(t: &Trial) -> Checked {
    for stage in Stage::live() {
        let key = t.key(format!("{stage:?}"))?;
        t.bring_with(&key, stage, with(t, 1)).await?;
        let before = t.get(&key).await?;
        for request in [with(t, 2), with(t, 3).with_max_attempts(t.ask_at_most(1).max_attempts)] {
            t.claim(&key, &request).await?;
        }
        t.unchanged(&key, &before).await.map_err(|broken| broken.at(stage))?;
    }
    Ok(())
}

pub(crate) async fn the_same_fingerprint_is_no_mismatch_in_any_state(t: &Trial) -> Checked {
    for stage in Stage::live() {
        let key = t.key(format!("{stage:?}"))?;
        t.bring_with(&key, stage, with(t, 1)).await?;
        let answer = t.claim(&key, &with(t, 1)).await?;
        that(answer != ClaimAnswer::Mismatch, "the same fingerprint is a mismatch")
            .map_err(|broken| broken.at(stage))?;
    }
    Ok(())
}

pub(crate) async fn a_claim_without_a_fingerprint_matches_any(t: &Trial) -> Checked {
    for stage in Stage::live() {
        let key = t.key(format!("{stage:?}"))?;
        t.bring_with(&key, stage, with(t, 1)).await?;
        let answer = t.claim(&key, &t.ask()).await?;
        that(answer != ClaimAnswer::Mismatch, "no fingerprint is a mismatch")
            .map_err(|broken| broken.at(stage))?;
    }
    Ok(())
}

pub(crate) async fn any_fingerprint_matches_a_record_without_one(t: &Trial) -> Checked {
    for stage in Stage::live() {
        let key = t.key(format!("{stage:?}"))?;
        t.bring(&key, stage).await?;
        let answer = t.claim(&key, &with(t, 9)).await?;
        that(answer != ClaimAnswer::Mismatch, "a fingerprint mismatches none")
            .map_err(|broken| broken.at(stage))?;
    }
    Ok(())
}

pub(crate) async fn an_attempt_without_a_fingerprint_keeps_the_recorded_one(t: &Trial) -> Checked {
    for stage in [Stage::Released, Stage::Lapsed] {
        let key = t.key(format!("{stage:?}"))?;
        t.bring_with(&key, stage, with(t, 1)).await?;
        t.take(&key).await?;
        same("fingerprint", t.record(&key).await?.fingerprint, Some(print_of(1)))?;
        same("claim", t.claim(&key, &with(t, 2)).await?, ClaimAnswer::Mismatch)
            .map_err(|broken| broken.at(stage))?;
    }
    Ok(())
}

pub(crate) async fn an_attempt_with_the_first_fingerprint_records_it(t: &Trial) -> Checked {
    for stage in [Stage::Released, Stage::Lapsed] {
        let key = t.key(format!("{stage:?}"))?;
        t.bring(&key, stage).await?;
        t.grant(&key, &with(t, 1)).await?;
        same("claim", t.claim(&key, &with(t, 2)).await?, ClaimAnswer::Mismatch)
            .map_err(|broken| broken.at(stage))?;
    }
    Ok(())
}

pub(crate) async fn asking_in_vain_records_no_fingerprint(t: &Trial) -> Checked {
    for stage in [Stage::Running, Stage::Completed, Stage::Failed, Stage::InDoubt, Stage::NotDue] {
        let key = t.key(format!("{stage:?}"))?;
        t.bring(&key, stage).await?;
        t.claim(&key, &with(t, 1)).await?;
        same("fingerprint", t.record(&key).await?.fingerprint, None).map_err(|broken| broken.at(stage))?;
    }
    Ok(())
}

pub(crate) async fn the_owner_itself_is_refused_with_another_fingerprint(t: &Trial) -> Checked {
    let key = t.key("a")?;
    let request = with(t, 1);
    let held = t.grant(&key, &request).await?;
    let other = request.with_fingerprint(Some(print_of(2)));
    same("claim", t.claim(&key, &other).await?, ClaimAnswer::Mismatch)?;
    same("renew", t.renew(&held, LONG).await?, RenewAnswer::Held)
}

pub(crate) async fn fingerprints_that_differ_in_one_bit_are_different(t: &Trial) -> Checked {
    let key = t.key("a")?;
    let bytes: [u8; 32] = std::array::from_fn(|index| u8::try_from(index * 7).unwrap_or(0));
    let recorded = t.ask().with_fingerprint(Some(Fingerprint::from_bytes(bytes)));
    t.grant(&key, &recorded).await?;
    for place in 0..256 {
        let mut other = bytes;
        other[place / 8] ^= 1 << (place % 8);
        let request = t.ask().with_fingerprint(Some(Fingerprint::from_bytes(other)));
        let answer = t.claim(&key, &request).await?;
        same(&format!("claim with bit {place} changed"), answer, ClaimAnswer::Mismatch)?;
    }
    Ok(())
}

pub(crate) async fn fingerprints_of_odd_bytes_are_kept_as_they_are(t: &Trial) -> Checked {
    let texts: [&[u8]; 6] = [b"\0", b"\xff", b"'", b"%", b"\n", b"0"];
    for (number, text) in texts.into_iter().enumerate() {
        let key = t.key(format!("{number}"))?;
        let bytes = [text[0]; 32];
        let request = t.ask().with_fingerprint(Some(Fingerprint::from_bytes(bytes)));
        t.grant(&key, &request).await?;
        same("fingerprint", t.record(&key).await?.fingerprint, request.fingerprint)?;
        t.grant(&key, &request).await?;
        same("claim", t.claim(&key, &with(t, 1)).await?, ClaimAnswer::Mismatch)?;
    }
    Ok(())
}

pub(crate) async fn a_fingerprint_lives_as_long_as_its_record(t: &Trial) -> Checked {
    for stage in [Stage::Forgotten, Stage::Expired, Stage::ExpiredInFlight] {
        let key = t.key(format!("{stage:?}"))?;
        t.bring_with(&key, stage, with(t, 1)).await?;
        t.grant(&key, &with(t, 2)).await.map_err(|broken| broken.at(stage))?;
        same("claim", t.claim(&key, &with(t, 1)).await?, ClaimAnswer::Mismatch)?;
    }
    Ok(())
}

pub(crate) async fn a_new_generation_does_not_inherit_a_fingerprint(t: &Trial) -> Checked {
    for stage in [Stage::Forgotten, Stage::Expired, Stage::ExpiredInFlight] {
        let key = t.key(format!("{stage:?}"))?;
        t.bring_with(&key, stage, with(t, 1)).await?;
        t.take(&key).await?;
        same("fingerprint", t.record(&key).await?.fingerprint, None).map_err(|broken| broken.at(stage))?;
    }
    Ok(())
}

pub(crate) async fn a_mismatch_leaves_the_owner_its_claim(t: &Trial) -> Checked {
    let key = t.key("a")?;
    let held = t.grant(&key, &with(t, 1).with_lease(t.short())).await?;
    t.pass(t.short()).await;
    same("claim", t.claim(&key, &with(t, 2)).await?, ClaimAnswer::Mismatch)?;
    same("complete", t.complete(&held, b"r").await?, CompleteAnswer::Done)?;
    let other = t.key("b")?;
    let held = t.grant(&other, &with(t, 1)).await?;
    t.claim(&other, &with(t, 2)).await?;
    same("release", t.release(&held, ReleaseCause::Failed).await?, ReleaseAnswer::Released)
}
