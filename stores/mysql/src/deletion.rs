//! Deletes expired records, in short transactions on a connection of its own, so that no other operation waits.

use super::reading;
use super::rows::column;
use super::setting::Setting;
use crate::db::failure::{Failure, Stage};
use crate::db::session::{BEGINNING, COMMIT, Session};
use idem_core::StoreError;

/// How many records one transaction looks at: few, so that it is short.
const PURGE_BATCH: usize = 200;

/// Deletes at most `limit` expired records.
pub(super) async fn purge(setting: &Setting, limit: usize) -> Result<usize, StoreError> {
    let batch = |mut session, most| async move { (in_rounds(&mut session, setting, most).await, session) };
    setting.connector.purge(limit, PURGE_BATCH, batch).await
}

/// Deletes one batch, and repeats it after a deadlock with another transaction.
async fn in_rounds(session: &mut Session, setting: &Setting, most: usize) -> Result<(usize, usize), Failure> {
    const ROUNDS: usize = 5;
    for _ in 1..ROUNDS {
        match batch(session, setting, most).await {
            Err(Failure::Raced(_)) => session.roll_back().await,
            done => return done,
        }
    }
    batch(session, setting, most).await
}

/// Looks at the records that are due. Returns their number, and how many were expired and are deleted.
async fn batch(session: &mut Session, setting: &Setting, most: usize) -> Result<(usize, usize), Failure> {
    let statements = &setting.statements;
    let response = session.run(statements.lock_due(most), Stage::Open).await?;
    let (rows, mut texts, mut deleted) = (response.rows(BEGINNING), Vec::new(), 0);
    for row in rows {
        let name = reading::name(row)?;
        if column::<u64>(row, 3, "expires_at")? == 0 {
            texts.push(statements.put_off(name));
            continue;
        }
        if column::<u64>(row, 2, "steps")? > 0 {
            texts.push(statements.delete_steps(name));
        }
        texts.push(statements.delete(name));
        deleted += 1;
    }
    texts.push(COMMIT.to_owned());
    session.run(texts.join("; "), Stage::Committing).await?;
    Ok((rows.len(), deleted))
}
