//! The database file: whether the path still names this file, and the connections that read it.
//!
//! SQLite continues to write into a file that was removed, and two processes would then have different
//! records. So every use first checks whether the path still names the file that was opened. A check takes a
//! quarter of the time of a read. So a read uses the check of another read if that check is less than a
//! millisecond old.

use std::fs::{Metadata, metadata, read_link};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::failure;
use idem_core::StoreError;

/// How long the result of a check is valid for a read.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// A database with the layout has at least this many bytes.
pub(super) const SMALLEST: u64 = 512;

/// How many symbolic links may lead to a file one after another, as on Linux.
const MOST_LINKS: usize = 40;

/// How many idle connections stay open for reads.
const MOST_IDLE: usize = 16;

/// The identity of a file, independent of its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    device: u64,
    number: u64,
}

impl Identity {
    #[cfg(unix)]
    pub(super) fn of(metadata: &Metadata) -> Self {
        use std::os::unix::fs::MetadataExt as _;
        Self { device: metadata.dev(), number: metadata.ino() }
    }

    /// On systems other than Unix, an open file cannot be removed or replaced.
    #[cfg(not(unix))]
    pub(super) const fn of(_: &Metadata) -> Self {
        Self { device: 0, number: 0 }
    }
}

/// The path of the write-ahead log. The log is beside the real file, to which symbolic links may lead.
pub(super) fn log_path(path: &Path) -> PathBuf {
    let mut file = path.to_owned();
    for _ in 0..MOST_LINKS {
        let Ok(target) = read_link(&file) else { break };
        file.set_file_name(target);
    }
    file.as_mut_os_string().push("-wal");
    file
}

fn log_of(path: &Path) -> Option<Metadata> {
    metadata(log_path(path)).ok().filter(Metadata::is_file)
}

/// Whether the file has a write-ahead log that is not empty.
pub(super) fn has_log(path: &Path) -> bool {
    log_of(path).is_some_and(|log| log.len() > 0)
}

/// Sets options of a connection. None of them changes the file.
pub(super) fn harden(connection: &Connection) -> rusqlite::Result<()> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    connection.pragma_update(None, "cell_size_check", true)?;
    // On macOS, `fsync` alone leaves data in the drive's cache, where a power cut loses it. On other systems,
    // these settings do nothing.
    connection.pragma_update(None, "fullfsync", true)?;
    connection.pragma_update(None, "checkpoint_fullfsync", true)?;
    connection.pragma_update(None, "synchronous", "FULL")
}

/// Closes a connection whose file was moved or deleted. Does not touch the log of the file that now has the
/// path.
pub(super) fn abandon(connection: Connection) {
    let _ = connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
    drop(connection);
}

/// The path of the database, and the file that it named when the writer opened it.
pub(super) struct DatabaseFile {
    path: PathBuf,
    opened: Mutex<Opened>,
}

/// The writer's file.
struct Opened {
    file: Identity,
    /// The file's write-ahead log.
    log: Option<Identity>,
    /// When a read last saw that the path leads to this file.
    seen: Option<Instant>,
    /// Idle connections to the file, for reads.
    idle: Vec<Connection>,
}

impl Opened {
    /// Notes the identity of the log that is beside the file now. This log stays there until the connection
    /// to the file is closed.
    fn at(path: &Path, file: Identity) -> Self {
        Self { file, log: log_of(path).map(|log| Identity::of(&log)), seen: None, idle: Vec::new() }
    }
}

impl DatabaseFile {
    pub(super) fn new(path: PathBuf, file: Identity) -> Self {
        Self { opened: Mutex::new(Opened::at(&path, file)), path }
    }

    fn lock(&self) -> MutexGuard<'_, Opened> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The identity of the writer's file.
    pub(super) fn opened(&self) -> Identity {
        self.lock().file
    }

    pub(super) fn set_opened(&self, file: Identity) {
        let opened = Opened::at(&self.path, file);
        let previous = std::mem::replace(&mut *self.lock(), opened);
        previous.idle.into_iter().for_each(abandon);
    }

    /// The identity of the file at the path, if there is one; an emptied file does not count.
    pub(super) fn now(&self) -> Option<Identity> {
        let file = metadata(&self.path).ok().filter(Metadata::is_file)?;
        (file.len() >= SMALLEST).then(|| Identity::of(&file))
    }

    /// Whether the log of the writer's previous file is beside the file that replaced it. SQLite would apply
    /// that log to the new file, because a log does not say to which file it belongs.
    pub(super) fn log_is_left(&self) -> bool {
        let (file, log) = {
            let opened = self.lock();
            (opened.file, opened.log)
        };
        let beside = log_of(&self.path).filter(|log| log.len() > 0).map(|log| Identity::of(&log));
        beside.is_some() && beside == log && self.now() != Some(file)
    }

    /// Reads on a connection that no other reader uses, without waiting for a lock of the file. If this
    /// fails, the caller should ask the writer, which may know the cause.
    pub(super) fn read<T>(
        &self,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        let now = Instant::now();
        let mut opened = self.lock();
        if opened.seen.is_none_or(|seen| now.saturating_duration_since(seen) >= LOOK_EVERY) {
            let file = opened.file;
            drop(opened);
            if self.now() != Some(file) {
                return Err(failure::gone(&self.path));
            }
            opened = self.lock();
            // The writer may have opened another file meanwhile.
            if opened.file == file {
                opened.seen = Some(now);
            }
        }
        let (file, idle) = (opened.file, opened.idle.pop());
        drop(opened);
        let connection = match idle {
            Some(connection) => connection,
            None => self.open_reader(file)?,
        };
        let result = read(&connection);
        let is_sound = result.as_ref().err().is_none_or(failure::is_busy);
        let mut opened = self.lock();
        if opened.file != file {
            drop(opened);
            abandon(connection);
        } else if is_sound && opened.idle.len() < MOST_IDLE {
            opened.idle.push(connection);
        }
        result.map_err(|error| failure::not_applied(&self.path, error))
    }

    /// Opens the file for reading; the writer has verified it before.
    fn open_reader(&self, file: Identity) -> Result<Connection, StoreError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let opened = Connection::open_with_flags(&self.path, flags).and_then(|connection| {
            connection.busy_timeout(Duration::ZERO)?;
            harden(&connection)?;
            Ok(connection)
        });
        let connection = opened.map_err(|error| failure::not_applied(&self.path, error))?;
        if self.now() != Some(file) {
            // The connection may lead to the writer's file, or to the file that replaced it.
            abandon(connection);
            return Err(failure::gone(&self.path));
        }
        Ok(connection)
    }

    pub(super) fn close_readers(&self) {
        self.lock().idle.clear();
    }
}
