//! Reads the row with the server's time, the floor of fences, and whether callers record in transactions.

use std::sync::atomic::Ordering;

use super::rows::{Unreadable, column};
use super::setting::Setting;
use crate::db::session::Answers;
use idem_core::protocol::{Fence, Timestamp};

/// The server's time and the floor of fences.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    pub(super) now: Timestamp,
    pub(super) floor: Fence,
}

/// Reads the row of `clock`, and notes whether transactions of callers are in use.
pub(super) fn clock(answers: &Answers, statement: usize, setting: &Setting) -> Result<Clock, Unreadable> {
    let row = answers.rows(statement).first().ok_or(Unreadable("now"))?;
    let now = column::<i64>(row, 0, "now")?;
    let now = u64::try_from(now).map(Timestamp::from_micros).map_err(|_| Unreadable("now"))?;
    let floor = Fence::new(column::<Option<u64>>(row, 1, "fence_floor")?.unwrap_or_default());
    if column::<Option<u64>>(row, 2, "transactions")?.is_some_and(|count| count > 0) {
        setting.has_transactions.store(true, Ordering::Relaxed);
    }
    Ok(Clock { now, floor })
}
