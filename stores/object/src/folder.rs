//! A folder as an object store. Each object is a file, and a write replaces the file by a rename under a
//! lock. The type `LocalFileSystem` of `object_store` is not used, because it cannot replace a file on a
//! condition.

use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;

use idem_core::StoreError;
use idem_core::inspection::{Inspection, Standing};
use idem_store_kit::cas::{CompareAndSwap, Listing, ObjectName, Put, Version};

use crate::MAX_OBJECT_BYTES;

/// How many locks the files share.
const LOCKS: u32 = 256;

/// How long a write waits for its lock. This limit is for the case that another process hangs while it holds
/// the lock.
const PATIENCE: Duration = Duration::from_secs(1);

/// The subfolder that contains the locks. No scope has this name, because the encoded name of a scope has
/// only letters, digits, `_`, `-` and `=`.
const LOCK_FOLDER: &str = ".locks";

/// A folder of objects. The revision of an object is its whole content.
#[derive(Clone)]
pub(crate) struct Folder(pub(crate) Arc<PathBuf>);

fn failure(error: &io::Error) -> StoreError {
    match error.kind() {
        ErrorKind::WouldBlock => StoreError::unavailable("another process holds the lock of the file"),
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem | ErrorKind::NotADirectory => {
            StoreError::configuration(format!("the folder cannot be used: {}", error.kind()))
        }
        kind => StoreError::outcome_unknown(format!("the file could not be read or written: {kind}")),
    }
}

impl Folder {
    pub(crate) fn open(path: PathBuf) -> Result<Self, StoreError> {
        fs::create_dir_all(path.join(LOCK_FOLDER)).and_then(|()| File::open(&path)?.sync_all()).map_err(
            |error| StoreError::configuration(format!("the folder cannot be made: {}", error.kind())),
        )?;
        Ok(Self(Arc::new(path)))
    }

    /// Runs `work` on a thread that may block.
    async fn blocking<A: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> io::Result<A> + Send + 'static,
    ) -> Result<A, StoreError> {
        let folder = self.clone();
        match tokio::task::spawn_blocking(move || work(&folder)).await {
            Ok(answer) => answer.map_err(|error| failure(&error)),
            Err(_) => Err(StoreError::outcome_unknown("the work on the file was broken off")),
        }
    }

    fn file(&self, name: &ObjectName) -> PathBuf {
        self.0.join(&name.scope).join(&name.key)
    }

    /// Takes the lock of this object, until the returned file is dropped. Other objects may share the lock.
    fn lock(&self, name: &ObjectName) -> io::Result<File> {
        // FNV-1a, because the hash must be the same in all processes and in all versions of this program.
        let hash = [name.scope.as_bytes(), b"/", name.key.as_bytes()].concat().into_iter();
        let hash =
            hash.fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
        let path = self.0.join(LOCK_FOLDER).join((hash % LOCKS).to_string());
        let lock = File::options().create(true).truncate(false).write(true).open(path)?;
        let begin = Instant::now();
        loop {
            match lock.try_lock() {
                Ok(()) => return Ok(lock),
                Err(TryLockError::Error(error)) => return Err(error),
                Err(TryLockError::WouldBlock) if begin.elapsed() > PATIENCE => {
                    return Err(ErrorKind::WouldBlock.into());
                }
                Err(TryLockError::WouldBlock) => thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    /// If the content of the file is `seen`, replaces it by `new` and returns `true`. If `seen` is `None`,
    /// the file must not exist. If `new` is `None`, deletes the file.
    fn swap(&self, name: &ObjectName, seen: Option<&Bytes>, new: Option<&Bytes>) -> io::Result<bool> {
        let (path, lock) = (self.file(name), self.lock(name)?);
        if content(&path)?.as_ref() != seen {
            return Ok(false);
        }
        let folder = self.0.join(&name.scope);
        if !folder.exists() {
            fs::create_dir_all(&folder)?;
            File::open(&*self.0)?.sync_all()?;
        }
        match new {
            // Only the holder of the lock writes, so nobody else uses the temporary file.
            Some(bytes) => {
                let temporary = folder.join(format!(".{}", name.key));
                let mut file = File::create(&temporary)?;
                file.write_all(bytes)?;
                file.sync_all()?;
                fs::rename(&temporary, &path)?;
            }
            None => fs::remove_file(&path)?,
        }
        File::open(&folder)?.sync_all()?;
        drop(lock);
        Ok(true)
    }

    /// The names of all files of a scope, or of all scopes, as `scope/key`, sorted.
    fn names(&self, scope: Option<&str>) -> io::Result<Vec<String>> {
        let scopes = scope.map_or_else(|| entries(&self.0), |scope| Ok(vec![scope.to_owned()]))?;
        let mut names = Vec::new();
        for scope in scopes {
            let keys = entries(&self.0.join(&scope))?;
            names.extend(keys.into_iter().map(|key| format!("{scope}/{key}")));
        }
        names.sort_unstable();
        Ok(names)
    }
}

/// The names in a folder, except locks and temporary files.
fn entries(folder: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let names = entries.map(|entry| Ok(entry?.file_name().into_string().unwrap_or_default()));
    let names: io::Result<Vec<String>> = names.collect();
    Ok(names?.into_iter().filter(|name| !name.is_empty() && !name.starts_with('.')).collect())
}

fn version(bytes: Bytes) -> Version<Bytes> {
    Version { revision: bytes.clone(), bytes }
}

fn content(path: &Path) -> io::Result<Option<Bytes>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes.into())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

impl CompareAndSwap for Folder {
    type Revision = Bytes;

    async fn get(&self, name: &ObjectName) -> Result<Option<Version<Bytes>>, StoreError> {
        let name = name.clone();
        let bytes = self.blocking(move |folder| content(&folder.file(&name))).await?;
        Ok(bytes.map(version))
    }

    async fn put(
        &self,
        name: &ObjectName,
        bytes: Bytes,
        seen: Option<&Bytes>,
        _keep: Option<Duration>,
    ) -> Result<Put<Bytes>, StoreError> {
        let (name, seen, new) = (name.clone(), seen.cloned(), bytes.clone());
        let written = self.blocking(move |folder| folder.swap(&name, seen.as_ref(), Some(&new))).await?;
        Ok(written.then_some(bytes).into())
    }

    async fn delete(&self, name: &ObjectName, seen: &Bytes) -> Result<bool, StoreError> {
        let (name, seen) = (name.clone(), seen.clone());
        self.blocking(move |folder| folder.swap(&name, Some(&seen), None)).await
    }

    async fn list(
        &self,
        scope: Option<&str>,
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Listing<Bytes>, StoreError> {
        let (scope, after) = (scope.map(str::to_owned), after.unwrap_or_default().to_vec());
        self.blocking(move |folder| {
            let mut names = folder.names(scope.as_deref())?;
            names.retain(|name| name.as_bytes() > &*after);
            let is_last = names.len() <= limit;
            names.truncate(limit);
            let next = names.last().filter(|_| !is_last).map(|name| name.clone().into_bytes());
            let versions = names.iter().filter_map(|name| content(&folder.0.join(name)).transpose());
            let versions = versions.map(|bytes| bytes.map(version)).collect::<io::Result<Vec<_>>>()?;
            Ok(Listing { versions, next })
        })
        .await
    }

    async fn inspect(&self) -> Result<Inspection, StoreError> {
        let mut inspection = Inspection::of("a folder");
        let text = "must be on this machine: locks and flushes on a network's file system are not tested";
        inspection.find(Standing::Unknown, "disk", text);
        Ok(inspection)
    }

    fn max_bytes(&self) -> usize {
        MAX_OBJECT_BYTES
    }
}
