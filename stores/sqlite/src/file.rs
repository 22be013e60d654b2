//! The path of the file, and whether it still names the file that was opened.
//!
//! SQLite continues to write into a file that was removed, and two processes would then have different records. So
//! every use first checks whether the path still names the file that was opened. A read checks only if nobody has for a
//! millisecond, as a check takes a quarter of a read's time.

use std::fs::Metadata;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use idem_core::StoreError;

/// For how long, in microseconds, a look is good enough for a read.
const LOOK_EVERY: u64 = 1_000;

/// The fewest bytes of a database that is laid out.
pub(super) const SMALLEST: u64 = 512;

/// The identity of a file, independent of its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    device: u64,
    number: u64,
}

impl Identity {
    #[cfg(unix)]
    fn of(metadata: &Metadata) -> Self {
        use std::os::unix::fs::MetadataExt as _;
        Self { device: metadata.dev(), number: metadata.ino() }
    }

    /// On other systems, an open file cannot be removed or replaced.
    #[cfg(not(unix))]
    const fn of(_: &Metadata) -> Self {
        Self { device: 0, number: 0 }
    }
}

/// What is at the path now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PathEntry {
    /// A file.
    File {
        /// Its identity.
        identity: Identity,
        /// Its length in bytes.
        length: u64,
    },
    /// No file was found.
    Nothing,
}

/// What is at the path now.
///
/// # Errors
///
/// A configuration error if something other than a file is at the path.
pub(super) fn look(path: &Path) -> Result<PathEntry, StoreError> {
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_file() => {
            Ok(PathEntry::File { identity: Identity::of(&metadata), length: metadata.len() })
        }
        Ok(metadata) => Err(StoreError::configuration(format!(
            "{} is {}; give the path of a file",
            path.display(),
            if metadata.is_dir() { "a folder" } else { "not a regular file" }
        ))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(PathEntry::Nothing),
        Err(error)
            if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::InvalidFilename) =>
        {
            Err(StoreError::configuration("the path of the database is no path; give the path of a file")
                .with_source(error))
        }
        Err(error) => Err(StoreError::unavailable(format!(
            "the file {} cannot be looked at; check its folder and the permissions of that",
            path.display()
        ))
        .with_source(error)),
    }
}

/// The path of the write-ahead log beside the file.
pub(super) fn log_path(path: &Path) -> PathBuf {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    log.into()
}

/// Whether there is a non-empty write-ahead log beside the file.
pub(super) fn has_log(path: &Path) -> bool {
    log_of(path).is_some()
}

/// The write-ahead log beside the file, if it is not empty.
fn log_of(path: &Path) -> Option<Identity> {
    std::fs::metadata(log_path(path)).ok().filter(|log| log.len() > 0).map(|log| Identity::of(&log))
}

/// What happened to the file that was opened.
pub(super) enum Standing {
    /// The path still names it.
    Same,
    /// The path names another file.
    Replaced,
    /// The path names no file.
    Gone,
}

/// The path of the database, and which file it named when it was opened.
pub(super) struct DatabaseFile {
    path: PathBuf,
    opened: Mutex<Identity>,
    /// The log to which the writer's transactions go.
    log: Mutex<Option<Identity>>,
    /// The origin of `good_until`.
    begin: Instant,
    /// Until when, in microseconds, the last look of a read is good enough.
    good_until: AtomicU64,
}

impl DatabaseFile {
    pub(super) fn new(path: PathBuf, opened: Identity) -> Self {
        let (opened, log, good_until) = (Mutex::new(opened), Mutex::new(None), AtomicU64::new(0));
        Self { path, opened, log, begin: Instant::now(), good_until }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The identity of the writer's file.
    pub(super) fn opened(&self) -> Identity {
        *self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_opened(&self, identity: Identity) {
        *self.opened.lock().unwrap_or_else(PoisonError::into_inner) = identity;
        self.good_until.store(0, Ordering::Relaxed);
    }

    /// The file the writer works on, if the path names it, or did a moment ago.
    pub(super) fn opened_lately(&self) -> Option<Identity> {
        let opened = self.opened();
        let now = u64::try_from(self.begin.elapsed().as_micros()).unwrap_or(u64::MAX);
        if now < self.good_until.load(Ordering::Relaxed) {
            return Some(opened);
        }
        let same = self.now() == Some(opened);
        self.good_until.store(if same { now.saturating_add(LOOK_EVERY) } else { 0 }, Ordering::Relaxed);
        same.then_some(opened)
    }

    /// Notes which log belongs to the writer's file, and returns whether there is a non-empty one.
    pub(super) fn note_log(&self) -> bool {
        let log = log_of(&self.path);
        *self.log.lock().unwrap_or_else(PoisonError::into_inner) = log;
        log.is_some()
    }

    /// Whether the log of the writer's previous file is beside the file that replaced it. SQLite would apply that log
    /// to the new file, because a log does not say to which file it belongs.
    pub(super) fn log_is_left(&self) -> bool {
        let noted = *self.log.lock().unwrap_or_else(PoisonError::into_inner);
        noted.is_some() && noted == log_of(&self.path) && self.now() != Some(self.opened())
    }

    /// What happened to the writer's file.
    pub(super) fn standing(&self) -> Standing {
        match self.now() {
            Some(identity) if identity == self.opened() => Standing::Same,
            Some(_) => Standing::Replaced,
            None => Standing::Gone,
        }
    }

    /// The identity of the file at the path, if there is one; an emptied file does not count.
    pub(super) fn now(&self) -> Option<Identity> {
        match look(&self.path) {
            Ok(PathEntry::File { identity, length }) if length >= SMALLEST => Some(identity),
            Ok(_) | Err(_) => None,
        }
    }
}
