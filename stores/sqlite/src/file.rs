//! Where the file is, and whether it is still the one that was opened.
//!
//! SQLite goes on writing into a file that was removed, and two processes would then keep two
//! truths. So every use first looks whether the path still names the file it opened.

use std::fs::Metadata;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use idem_core::StoreError;

/// The fewest bytes of a database that is laid out.
pub(super) const SMALLEST: u64 = 512;

/// What makes a file the same file.
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

    /// Elsewhere a file that is open cannot be removed or replaced.
    #[cfg(not(unix))]
    const fn of(_: &Metadata) -> Self {
        Self { device: 0, number: 0 }
    }
}

/// What the path names now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// A file.
    File {
        /// Which.
        identity: Identity,
        /// How many bytes are in it.
        length: u64,
    },
    /// Nothing, as far as can be seen.
    Nothing,
}

/// What the path names now.
///
/// # Errors
///
/// A configuration error where it names something other than a file.
pub(super) fn look(path: &Path) -> Result<Found, StoreError> {
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_file() => {
            Ok(Found::File { identity: Identity::of(&metadata), length: metadata.len() })
        }
        Ok(metadata) => Err(StoreError::configuration(format!(
            "{} is {}; give the path of a file",
            path.display(),
            if metadata.is_dir() { "a folder" } else { "not a regular file" }
        ))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Found::Nothing),
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

/// Whether there is a write-ahead log with something in it beside the file.
pub(super) fn has_log(path: &Path) -> bool {
    log_of(path).is_some()
}

/// The write-ahead log beside the file, if there is something in it.
fn log_of(path: &Path) -> Option<Identity> {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    std::fs::metadata(log).ok().filter(|log| log.len() > 0).map(|log| Identity::of(&log))
}

/// What became of the file that was opened.
pub(super) enum Standing {
    /// The path names it still.
    Same,
    /// The path names another.
    Replaced,
    /// The path names none.
    Gone,
}

/// The path of the database, and which file it named when it was opened.
pub(super) struct DatabaseFile {
    path: PathBuf,
    opened: Mutex<Identity>,
    /// The log that the writer's transactions go to.
    log: Mutex<Option<Identity>>,
}

impl DatabaseFile {
    pub(super) const fn new(path: PathBuf, opened: Identity) -> Self {
        Self { path, opened: Mutex::new(opened), log: Mutex::new(None) }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The file the writer works on.
    pub(super) fn opened(&self) -> Identity {
        *self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_opened(&self, identity: Identity) {
        *self.opened.lock().unwrap_or_else(PoisonError::into_inner) = identity;
    }

    /// Remembers which log belongs to the file the writer works on; whether there is one with something in it.
    pub(super) fn note_log(&self) -> bool {
        let log = log_of(&self.path);
        *self.log.lock().unwrap_or_else(PoisonError::into_inner) = log;
        log.is_some()
    }

    /// Whether the log of the file the writer worked on lies beside the file that replaced it. SQLite
    /// would play it into that: a log does not say which file it belongs to.
    pub(super) fn log_is_left(&self) -> bool {
        let noted = *self.log.lock().unwrap_or_else(PoisonError::into_inner);
        noted.is_some() && noted == log_of(&self.path) && self.now() != Some(self.opened())
    }

    /// What became of the file the writer works on.
    pub(super) fn standing(&self) -> Standing {
        match self.now() {
            Some(identity) if identity == self.opened() => Standing::Same,
            Some(_) => Standing::Replaced,
            None => Standing::Gone,
        }
    }

    /// Which file the path names, if any; one that was emptied is none.
    pub(super) fn now(&self) -> Option<Identity> {
        match look(&self.path) {
            Ok(Found::File { identity, length }) if length >= SMALLEST => Some(identity),
            Ok(_) | Err(_) => None,
        }
    }
}
