//! The path of the file, and whether it still names the file that was opened.
//!
//! SQLite continues to write into a file that was removed, and two processes would then have different records. So
//! every use first checks whether the path still names the file that was opened. A read checks only if nobody has for a
//! millisecond, as a check takes a quarter of a read's time.

use std::fs::{Metadata, metadata, read_link};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use idem_core::StoreError;

/// For how long, in microseconds, a look is good enough for a read.
const LOOK_EVERY: u64 = 1_000;

/// The fewest bytes of a database that is laid out.
pub(super) const SMALLEST: u64 = 512;

/// How many symbolic links may lead to a file one after another, as on Linux.
const MOST_LINKS: usize = 40;

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

/// The file at the path, if there is one, and its length in bytes.
///
/// # Errors
///
/// A configuration error if something other than a file is at the path.
pub(super) fn look(path: &Path) -> Result<Option<(Identity, u64)>, StoreError> {
    match metadata(path) {
        Ok(metadata) if metadata.is_file() => Ok(Some((Identity::of(&metadata), metadata.len()))),
        Ok(metadata) => Err(StoreError::configuration(format!(
            "{} is {}; give the path of a file",
            path.display(),
            if metadata.is_dir() { "a folder" } else { "not a regular file" }
        ))),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) if matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::InvalidFilename) => {
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

/// The path of the write-ahead log: beside the file, which may be where symbolic links lead.
pub(super) fn log_path(path: &Path) -> PathBuf {
    let mut file = path.to_owned();
    for _ in 0..MOST_LINKS {
        let Ok(target) = read_link(&file) else { break };
        file.set_file_name(target);
    }
    file.as_mut_os_string().push("-wal");
    file
}

/// The file's write-ahead log, if there is one, and its length in bytes.
fn log_of(path: &Path) -> Option<(Identity, u64)> {
    look(&log_path(path)).ok().flatten()
}

/// Whether the file has a write-ahead log that is not empty.
pub(super) fn has_log(path: &Path) -> bool {
    log_of(path).is_some_and(|(_, length)| length > 0)
}

/// The writer's file and the log of its transactions.
#[derive(Clone, Copy)]
struct Opened {
    file: Identity,
    log: Option<Identity>,
}

impl Opened {
    /// The log that is beside a file when it is opened stays beside it until that connection is closed.
    fn at(path: &Path, file: Identity) -> Self {
        Self { file, log: log_of(path).map(|(log, _)| log) }
    }
}

/// The path of the database, and which file it named when it was opened.
pub(super) struct DatabaseFile {
    path: PathBuf,
    opened: Mutex<Opened>,
    /// The origin of `good_until`.
    begin: Instant,
    /// Until when, in microseconds, the last look of a read is good enough.
    good_until: AtomicU64,
}

impl DatabaseFile {
    pub(super) fn new(path: PathBuf, file: Identity) -> Self {
        let opened = Mutex::new(Opened::at(&path, file));
        Self { path, opened, begin: Instant::now(), good_until: AtomicU64::new(0) }
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
        *self.lock() = Opened::at(&self.path, file);
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

    /// Whether the log of the writer's previous file is beside the file that replaced it. SQLite would apply that log
    /// to the new file, because a log does not say to which file it belongs.
    pub(super) fn log_is_left(&self) -> bool {
        let opened = *self.lock();
        let log = log_of(&self.path).filter(|(_, length)| *length > 0).map(|(log, _)| log);
        log.is_some() && log == opened.log && self.now() != Some(opened.file)
    }

    /// The identity of the file at the path, if there is one; an emptied file does not count.
    pub(super) fn now(&self) -> Option<Identity> {
        let (file, length) = look(&self.path).ok().flatten()?;
        (length >= SMALLEST).then_some(file)
    }
}
