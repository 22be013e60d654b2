//! The arms on SQLite: this library, and code by hand on a second file, with the same durability.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use idem::SqliteStore;
use rusqlite::{Connection, params};
use tokio::task::spawn_blocking;

use crate::arm::{Anything, Arm, Contest, RECEIPT, beside, right};

/// Code by hand: one connection that writes and one that reads, each behind a lock.
#[derive(Clone)]
struct Hand {
    writer: Arc<Mutex<Connection>>,
    reader: Arc<Mutex<Connection>>,
}

impl Hand {
    fn new(path: &Path) -> Anything<Self> {
        let writer = Connection::open(path)?;
        writer.pragma_update(None, "journal_mode", "WAL")?;
        writer.pragma_update(None, "synchronous", "FULL")?;
        writer.execute_batch(
            "CREATE TABLE by_hand (key TEXT PRIMARY KEY, state TEXT NOT NULL, owner TEXT NOT NULL,
             locked_until INTEGER NOT NULL, result BLOB) STRICT",
        )?;
        let reader = Connection::open(path)?;
        Ok(Self { writer: Arc::new(Mutex::new(writer)), reader: Arc::new(Mutex::new(reader)) })
    }

    fn claim(&self, key: &str) -> Anything<bool> {
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let mut insert = writer.prepare_cached(
            "INSERT INTO by_hand (key, state, owner, locked_until) VALUES (?1, 'in_flight', 'worker', 0)
             ON CONFLICT DO NOTHING",
        )?;
        Ok(insert.execute(params![key])? == 1)
    }

    fn record(&self, key: &str) -> Anything<bool> {
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let mut update = writer.prepare_cached(
            "UPDATE by_hand SET state = 'completed', result = ?2
             WHERE key = ?1 AND owner = 'worker' AND state = 'in_flight'",
        )?;
        Ok(update.execute(params![key, RECEIPT.as_bytes()])? == 1)
    }

    fn look(&self, key: &str) -> Anything<bool> {
        let reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        let mut select = reader.prepare_cached("SELECT state, result FROM by_hand WHERE key = ?1")?;
        let (state, result): (String, Vec<u8>) =
            select.query_row(params![key], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(state == "completed" && result == RECEIPT.as_bytes())
    }
}

async fn pay(hand: Hand, key: String) -> Anything<()> {
    let (claiming, again) = (hand.clone(), key.clone());
    // A commit blocks its thread, so it runs on one of tokio's threads for blocking work.
    let claimed = spawn_blocking(move || claiming.claim(&key)).await??;
    let recorded = spawn_blocking(move || hand.record(&again)).await??;
    right(claimed && recorded)
}

/// A read is short, so it is made on the current thread.
async fn look(hand: Hand, key: String) -> Anything<()> {
    right(hand.look(&key)?)
}

async fn arms(folder: String) -> Anything<Vec<Arm>> {
    let folder = Path::new(&folder);
    let hand = Hand::new(&folder.join("hand.db"))?;
    let hand = Arm::new("two commits, a read", &hand, pay, look);
    Ok(beside(hand, &SqliteStore::open(folder.join("idem.db"))?))
}

pub(crate) fn contest() -> Anything<Contest> {
    let folder = tempfile::tempdir()?;
    Ok(Contest::new("SQLite", folder.path().display().to_string(), None, folder, arms))
}
