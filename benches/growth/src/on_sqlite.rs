//! SQLite in one file. It deletes expired records by itself.

use std::fs::File;
use std::path::PathBuf;

use idem::SqliteStore;
use rusqlite::{Connection, OpenFlags, params};
use tempfile::TempDir;

use crate::subject::{Anything, KEPT, MODEL, SHORT, Subject, key, spread};

pub(crate) struct Sqlite {
    /// `None` only while the file is filled.
    store: Option<SqliteStore>,
    path: PathBuf,
    /// Declared after the store, because dropping it removes the files.
    _folder: TempDir,
}

impl Sqlite {
    pub(crate) fn new() -> Anything<Self> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("idem.db");
        Ok(Self { store: Some(SqliteStore::open(&path)?), path, _folder: folder })
    }
}

/// Copies the model, in one transaction.
fn copy(connection: &mut Connection, numbers: &[u64]) -> Anything<()> {
    let transaction = connection.transaction()?;
    // The columns that are copied unchanged, whatever the layout is.
    let columns: String = transaction.query_row(
        "SELECT group_concat(name, ', ') FROM pragma_table_info('idem_records') \
         WHERE name NOT IN ('key', 'expires_at')",
        (),
        |row| row.get(0),
    )?;
    let mut copy = transaction.prepare(&format!(
        "INSERT INTO idem_records (key, expires_at, {columns}) SELECT ?1, expires_at + ?2, {columns} \
         FROM idem_records WHERE scope = ?3 AND key = ?4",
    ))?;
    for (later, number) in (0_i64..).zip(numbers) {
        if copy.execute(params![key(*number), later, KEPT, MODEL])? != 1 {
            return Err("a record was not copied".into());
        }
    }
    drop(copy);
    Ok(transaction.commit()?)
}

impl Subject for Sqlite {
    type Store = SqliteStore;

    async fn name(&self) -> Anything<String> {
        Ok(format!("SQLite {}", rusqlite::version()))
    }

    fn store(&self) -> Anything<&SqliteStore> {
        Ok(self.store.as_ref().ok_or("it is being filled")?)
    }

    fn has_room(&self, _: u64) -> Result<(), String> {
        Ok(())
    }

    async fn fill(&mut self, from: u64, to: u64) -> Anything<()> {
        let mut numbers: Vec<u64> = (from..to).collect();
        // In the order of the index, so that each page of the index is written once.
        numbers.sort_unstable_by_key(|number| spread(*number));
        // The store is closed, so that nothing is written twice.
        self.store = None;
        let mut connection = Connection::open(&self.path)?;
        for (name, value) in [("journal_mode", "OFF"), ("synchronous", "OFF"), ("cache_size", "-500000")] {
            connection.pragma_update(None, name, value)?;
        }
        copy(&mut connection, &numbers)?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        drop(connection);
        // Otherwise the disk would still be busy with the file while calls are measured. Nobody has the file open now.
        File::open(&self.path)?.sync_all()?;
        self.store = Some(SqliteStore::open(&self.path)?);
        Ok(())
    }

    async fn left(&self) -> Anything<u64> {
        let connection = Connection::open_with_flags(&self.path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        let count = "SELECT count(*) FROM idem_records WHERE scope = ?1";
        let left: i64 = connection.query_row(count, [SHORT], |row| row.get(0))?;
        Ok(u64::try_from(left)?)
    }

    async fn bytes(&self) -> Anything<u64> {
        Ok(std::fs::metadata(&self.path)?.len())
    }
}
