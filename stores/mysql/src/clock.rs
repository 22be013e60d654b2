//! Reads the row with the server's time, and whether callers record in transactions.

use std::sync::atomic::Ordering;

use super::rows::column;
use super::setting::Setting;
use crate::db::session::Answers;
use idem_core::protocol::Timestamp;
use idem_store_kit::sql::Unreadable;

/// Reads the row of `clock`, and notes whether transactions of callers are in use.
pub(super) fn clock(answers: &Answers, statement: usize, setting: &Setting) -> Result<Timestamp, Unreadable> {
    let row = answers.rows(statement).first().ok_or(Unreadable("now"))?;
    let now = u64::try_from(column::<i64>(row, 0, "now")?).map_err(|_| Unreadable("now"))?;
    if column::<Option<u64>>(row, 1, "transactions")?.is_some_and(|count| count > 0) {
        setting.has_transactions.store(true, Ordering::Relaxed);
    }
    Ok(Timestamp::from_micros(now))
}
