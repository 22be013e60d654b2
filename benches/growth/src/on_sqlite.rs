//! SQLite in one file. It deletes what expired by itself.

use std::path::PathBuf;

use idem::SqliteStore;
use rusqlite::{Connection, params};
use tempfile::TempDir;

use crate::subject::{Anything, KEPT, MODEL, SHORT, Subject, key, spread};

/// How many rows a transaction of the filling has.
const CHUNK: usize = 500_000;

pub(crate) struct Sqlite {
    store: SqliteStore,
    connection: Connection,
    path: PathBuf,
    /// After the connections: it goes with the files.
    _folder: TempDir,
}

impl Sqlite {
    pub(crate) fn new() -> Anything<Self> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("idem.db");
        let store = SqliteStore::open(&path)?;
        let connection = Connection::open(&path)?;
        // It only fills, and what it fills needs not survive a power cut.
        connection.pragma_update(None, "synchronous", "OFF")?;
        Ok(Self { store, connection, path, _folder: folder })
    }

    /// The columns that are copied as they are, whatever the layout has.
    fn other_columns(&self) -> Anything<String> {
        let mut columns = self.connection.prepare(
            "SELECT name FROM pragma_table_info('idem_records') WHERE name NOT IN ('key', 'expires_at')",
        )?;
        let names: rusqlite::Result<Vec<String>> = columns.query_map((), |row| row.get(0))?.collect();
        Ok(names?.join(", "))
    }
}

impl Subject for Sqlite {
    type Store = SqliteStore;

    async fn name(&self) -> Anything<String> {
        Ok(format!("SQLite {}", rusqlite::version()))
    }

    fn store(&self) -> &SqliteStore {
        &self.store
    }

    fn has_room(&self, _: u64) -> Result<(), String> {
        Ok(())
    }

    async fn fill(&mut self, from: u64, to: u64) -> Anything<()> {
        let columns = self.other_columns()?;
        let mut numbers: Vec<u64> = (from..to).collect();
        // In the order of the index, so that each of its pages is written once.
        numbers.sort_unstable_by_key(|number| spread(*number));
        self.connection.pragma_update(None, "cache_size", -1_000_000)?;
        let mut copied = 0;
        for chunk in numbers.chunks(CHUNK) {
            let transaction = self.connection.transaction()?;
            {
                let mut copy = transaction.prepare(&format!(
                    "INSERT INTO idem_records (key, expires_at, {columns}) SELECT ?1, expires_at + ?2, {columns} \
                     FROM idem_records WHERE scope = ?3 AND key = ?4",
                ))?;
                for number in chunk {
                    copied +=
                        copy.execute(params![key(*number), i64::try_from(*number)?, KEPT, MODEL])? as u64;
                }
            }
            transaction.commit()?;
        }
        if copied != to - from {
            return Err("not each record was copied".into());
        }
        self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |_| Ok(()))?;
        self.connection.pragma_update(None, "cache_size", -2_000)?;
        Ok(())
    }

    async fn left(&self) -> Anything<u64> {
        let count = "SELECT count(*) FROM idem_records WHERE scope = ?1";
        let left: i64 = self.connection.query_row(count, [SHORT], |row| row.get(0))?;
        Ok(u64::try_from(left)?)
    }

    async fn bytes(&self) -> Anything<u64> {
        Ok(std::fs::metadata(&self.path)?.len())
    }
}
