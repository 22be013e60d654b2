//! Purges the table and walks through it, on connections of their own: no other operation waits, and none stays open behind a walk that
//! nobody continues.

use super::inspection;
use super::reading::name;
use super::rows::{self, column};
use super::setting::Setting;
use crate::db::failure::{Failure, Stage};
use crate::db::session::{BEGINNING, COMMIT, Session};
use idem_core::StoreError;
use idem_core::inspection::Inspection;
use idem_core::listing::{Cursor, List, Page};
use idem_store_kit::sql::{self, Housekeeping};

/// How many records one transaction of a purge looks at: few, so that it is short.
const PURGE_BATCH: usize = 200;

impl Housekeeping for Setting {
    async fn purge(&self, limit: usize) -> Result<usize, StoreError> {
        let batch = |mut session, most| async move { (purge(&mut session, self, most).await, session) };
        self.connector.purge(limit, PURGE_BATCH, batch).await
    }

    async fn list(&self, request: &List) -> Result<Page, StoreError> {
        let looking = |mut session| async move { (page(&mut session, self, request).await, session) };
        self.connector.apart(looking).await
    }

    async fn inspect(&self) -> Result<Inspection, StoreError> {
        inspection::look(&self.connector).await
    }
}

/// Deletes one batch, and repeats it after a deadlock with another transaction.
async fn purge(session: &mut Session, setting: &Setting, most: usize) -> Result<(usize, usize), Failure> {
    const ROUNDS: usize = 5;
    for _ in 1..ROUNDS {
        match purge_once(session, setting, most).await {
            Err(Failure::Raced(_)) => session.roll_back().await,
            done => return done,
        }
    }
    purge_once(session, setting, most).await
}

/// Looks at the records that are due. Returns their number, and how many were expired and are deleted.
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

/// Reads one page, in the order of the primary key.
async fn page(session: &mut Session, setting: &Setting, request: &List) -> Result<Page, Failure> {
    let after = request.after.as_ref().and_then(Cursor::key).unwrap_or_default();
    let scope = request.scope.as_ref().map(|scope| scope.as_str());
    let text = setting.statements.list(scope, after, request.looked_at());
    let response = session.run(text, Stage::Open).await?;
    let now = rows::now(response.rows(BEGINNING).first(), 0)?;
    let name = |row| name(row).map(Some);
    let record = |row| rows::read(row, 2).map(|row| (row.record, row.result_bytes));
    Ok(sql::page(request, now, response.rows(BEGINNING + 1), name, record)?)
}
