//! Checks of reading and forgetting records.

use crate::conformance::stage::Stage;
use crate::conformance::trial::{Checked, LONG, Trial, same};
use idem_core::protocol::{CompleteAnswer, ReleaseAnswer, ReleaseCause, RenewAnswer};

pub(crate) async fn a_key_nobody_claimed_has_no_record(t: &Trial) -> Checked {
    let key = t.key("a")?;
    same("record", t.get(&key).await?, None)?;
    t.take(&t.key("b")?).await?;
    same("record", t.get(&key).await?, None)
}

pub(crate) async fn a_record_is_in_the_state_it_was_brought_to(t: &Trial) -> Checked {
    for stage in Stage::ALL {
        let key = t.key(format!("{stage:?}"))?;
        t.bring(&key, stage).await?;
        let state = t.get(&key).await?.map(|record| record.state);
        same("state", state, stage.state()).map_err(|broken| broken.at(stage))?;
    }
    Ok(())
}

pub(crate) async fn only_a_terminal_record_has_a_result(t: &Trial) -> Checked {
    for stage in Stage::live() {
        let key = t.key(format!("{stage:?}"))?;
        t.bring(&key, stage).await?;
        let record = t.record(&key).await?;
        let terminal = matches!(stage, Stage::Completed | Stage::Failed | Stage::Exhausted);
        same("a result", record.result.is_some(), terminal).map_err(|broken| broken.at(stage))?;
        same("completed_at", record.completed_at.is_some(), terminal).map_err(|broken| broken.at(stage))?;
    }
    Ok(())
}

pub(crate) async fn looking_at_a_record_changes_nothing(t: &Trial) -> Checked {
    for stage in Stage::live() {
        let key = t.key(format!("{stage:?}"))?;
        t.bring(&key, stage).await?;
        let before = t.get(&key).await?;
        for _ in 0..3 {
            t.unchanged(&key, &before).await.map_err(|broken| broken.at(stage))?;
        }
    }
    Ok(())
}

pub(crate) async fn forgetting_tells_whether_there_was_a_record(t: &Trial) -> Checked {
    for stage in Stage::ALL {
        let key = t.key(format!("{stage:?}"))?;
        t.bring(&key, stage).await?;
        same("forget", t.forget(&key).await?, stage.state().is_some()).map_err(|broken| broken.at(stage))?;
        same("forget again", t.forget(&key).await?, false).map_err(|broken| broken.at(stage))?;
        same("record", t.get(&key).await?, None).map_err(|broken| broken.at(stage))?;
    }
    same("forget", t.forget(&t.key("never")?).await?, false)
}

pub(crate) async fn a_forgotten_key_starts_anew(t: &Trial) -> Checked {
    for stage in Stage::ALL {
        let key = t.key(format!("{stage:?}"))?;
        t.bring(&key, stage).await?;
        t.forget(&key).await?;
        let grant = t.take(&key).await.map_err(|broken| broken.at(stage))?.grant;
        same("attempt", grant.attempt, 1).map_err(|broken| broken.at(stage))?;
        same("recovered", grant.recovered, false).map_err(|broken| broken.at(stage))?;
    }
    Ok(())
}

pub(crate) async fn a_forgotten_owner_comes_too_late(t: &Trial) -> Checked {
    let key = t.key("a")?;
    let held = t.bring(&key, Stage::Forgotten).await?;
    let next = t.take(&key).await?;
    let before = t.get(&key).await?;
    same("complete", t.complete(&held, b"late").await?, CompleteAnswer::Lost)?;
    same("renew", t.renew(&held, LONG).await?, RenewAnswer::Lost)?;
    same("release", t.release(&held, ReleaseCause::Failed).await?, ReleaseAnswer::Lost)?;
    t.unchanged(&key, &before).await?;
    same("complete by the next", t.complete(&next, b"next").await?, CompleteAnswer::Done)
}

pub(crate) async fn forgetting_one_key_leaves_the_others(t: &Trial) -> Checked {
    let names = ["a", "a/b", "a/", "A", "ab", "a%", "a*", "a_"];
    let mut kept = Vec::new();
    for name in names {
        let key = t.key(name)?;
        t.bring(&key, Stage::Completed).await?;
        kept.push((t.get(&key).await?, key));
    }
    for name in ["a*", "a%", "a_", "a"] {
        same("forget", t.forget(&t.key(name)?).await?, true)?;
        kept.retain(|(_, key)| key.key().as_str() != name);
        for (before, key) in &kept {
            t.unchanged(key, before).await?;
        }
    }
    Ok(())
}
