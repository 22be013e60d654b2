//! Purges and lists records, inspects the server, and stores the fact that callers use transactions. Each of
//! these operations runs on a separate connection.

use std::sync::atomic::AtomicBool;

use super::inspection;
use super::reading::name;
use super::rows::{self, column};
use super::setting::Setting;
use crate::db::connector::{Connector, Opener};
use crate::db::failure::{Failure, Stage};
use crate::db::session::{BEGINNING, COMMIT, Session};
use idem_core::inspection::Inspection;
use idem_core::listing::{Cursor, List, Page};
use idem_store_kit::sql::{self, Housekeeping};

impl Housekeeping for Setting {
    type Opener = Opener;

    const PURGE_BATCH: usize = 200;

    fn connector(&self) -> &Connector {
        &self.connector
    }

    /// Purges a batch. Repeats it if it failed because of another transaction, for example by a deadlock.
    async fn purge(&self, session: &mut Session, most: usize) -> Result<(usize, usize), Failure> {
        const ROUNDS: usize = 5;
        for _ in 1..ROUNDS {
            match purge_once(session, self, most).await {
                Err(Failure::Raced(_)) => session.roll_back().await,
                done => return done,
            }
        }
        purge_once(session, self, most).await
    }

    async fn list(&self, session: &mut Session, request: &List) -> Result<Page, Failure> {
        let after = request.after.as_ref().and_then(Cursor::key).unwrap_or_default();
        let scope = request.scope.as_ref().map(|scope| scope.as_str());
        let text = self.statements.list(scope, after, request.looked_at());
        let response = session.run(text, Stage::Open).await?;
        let now = rows::now(response.rows(BEGINNING).first(), 0)?;
        let name = |row| name(row).map(Some);
        let record = |row| rows::read(row, 2).map(|row| (row.record, row.result_bytes));
        Ok(sql::page(request, now, response.rows(BEGINNING + 1), name, record)?)
    }

    async fn inspect(&self, session: &mut Session) -> Result<Inspection, Failure> {
        inspection::look(session).await
    }

    fn has_transactions(&self) -> &AtomicBool {
        &self.has_transactions
    }

    async fn mark_transactions(&self, session: &mut Session) -> Result<(), Failure> {
        session.run(self.statements.announce(), Stage::Committing).await.map(drop)
    }
}

/// Purges one batch: reads records that are due, deletes the expired ones, and makes the others due at a
/// later time. Returns how many it read and how many it deleted.
async fn purge_once(
    session: &mut Session,
    setting: &Setting,
    most: usize,
) -> Result<(usize, usize), Failure> {
    let statements = &setting.statements;
    let response = session.run(statements.lock_due(most), Stage::Open).await?;
    let (rows, mut texts, mut deleted) = (response.rows(BEGINNING), Vec::new(), 0);
    for row in rows {
        let name = name(row)?;
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
