//! The checks of a file.

use std::path::Path;

use rusqlite::Connection;

use super::file::log_path;
use super::now;
use idem_core::inspection::{Inspection, Standing};

pub(super) fn look(connection: &Connection, path: &Path) -> rusqlite::Result<Inspection> {
    let number = |sql: &str| connection.query_row(sql, (), |row| row.get::<_, i64>(0));
    let mode: String = connection.query_row("PRAGMA journal_mode", (), |row| row.get(0))?;
    let mut inspection = Inspection::of(format!("SQLite {}", rusqlite::version())).with_now(Some(now()));
    let layout = number("PRAGMA user_version")?;
    inspection.find(Standing::Fine, "layout", format!("version {layout}"));
    match mode.as_str() {
        "wal" => inspection.find(Standing::Fine, "journal_mode", "wal"),
        other => inspection.find(
            Standing::Weak,
            "journal_mode",
            format!(
                "{other}: another program changed it; readers and writers wait for each other until it is wal"
            ),
        ),
    }
    // The setting of our own connections. The settings of other programs' connections are not visible here.
    match number("PRAGMA synchronous")? {
        2 | 3 => inspection.find(Standing::Fine, "synchronous", "full: what is acknowledged is on disk"),
        other => inspection.find(
            Standing::Weak,
            "synchronous",
            format!("{other}: a power cut may lose acknowledged steps, and bodies run again"),
        ),
    }
    let (pages, free, size) =
        (number("PRAGMA page_count")?, number("PRAGMA freelist_count")?, number("PRAGMA page_size")?);
    let log = std::fs::metadata(log_path(path)).map_or(0, |log| log.len());
    inspection.find(
        Standing::Fine,
        "size",
        format!("{} bytes, {} of them free to be used again; log {log} bytes", pages * size, free * size),
    );
    Ok(inspection)
}
