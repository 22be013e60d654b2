//! The requests to an object store: reads, and writes on the condition of an entity tag or a version.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _};
use object_store::path::Path;
use object_store::{
    Error, GetOptions, ObjectMeta, ObjectStore, ObjectStoreExt as _, PutMode, PutOptions, PutPayload, TagSet,
    UpdateVersion,
};

use idem_core::StoreError;
use idem_core::inspection::{Inspection, Standing};
use idem_store_kit::cas::{CompareAndSwap, Listing, ObjectName, Put, Version};
use idem_store_kit::retry;

use crate::MAX_OBJECT_BYTES;

/// How many objects of a page are read at the same time.
const READS: usize = 16;

/// The objects below a prefix.
pub(crate) struct Bucket {
    pub(crate) objects: Arc<dyn ObjectStore>,
    prefix: Path,
}

/// The store error for a failed request. It leaves out the texts of the client, because these contain names
/// of objects, and the names contain keys.
fn failure(error: &Error) -> StoreError {
    match error {
        Error::NotImplemented { .. } | Error::NotSupported { .. } => StoreError::configuration(
            "this object store, or its client as it is set up, has no conditional writes",
        ),
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => {
            StoreError::configuration("the object store refuses this client: it must read, write and list")
        }
        Error::NotFound { .. } => StoreError::configuration("the bucket does not exist"),
        Error::InvalidPath { .. } | Error::UnknownConfigurationKey { .. } => {
            StoreError::configuration("the object store's client refuses the request: check its settings")
        }
        _ => StoreError::outcome_unknown("the request to the object store failed"),
    }
}

impl Bucket {
    pub(crate) fn new(objects: Arc<dyn ObjectStore>, prefix: &str) -> Self {
        Self { objects, prefix: Path::from(prefix) }
    }

    fn path(&self, name: &ObjectName) -> Path {
        self.prefix.clone().join(&*name.scope).join(&*name.key)
    }

    /// Reads an object, even if it is empty. The callers treat an empty object as deleted.
    async fn read(&self, path: &Path) -> Result<Option<Version<UpdateVersion>>, StoreError> {
        let answer = match self.objects.get_opts(path, GetOptions::default()).await {
            Ok(answer) => answer,
            Err(Error::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(failure(&error)),
        };
        let revision =
            UpdateVersion { e_tag: answer.meta.e_tag.clone(), version: answer.meta.version.clone() };
        let bytes = answer.bytes().await.map_err(|error| failure(&error))?;
        Ok(Some(Version { bytes, revision }))
    }

    /// Writes an object. Returns `None` if the condition in `mode` does not hold.
    async fn write(
        &self,
        path: &Path,
        bytes: Bytes,
        mode: PutMode,
    ) -> Result<Option<UpdateVersion>, StoreError> {
        let mut tags = TagSet::default();
        if bytes.is_empty() {
            tags.push("idem", "expired");
        }
        let is_update = matches!(mode, PutMode::Update(_));
        let options = PutOptions { mode, tags, ..PutOptions::default() };
        match self.objects.put_opts(path, PutPayload::from(bytes), options).await {
            Ok(written) => Ok(Some(written.into())),
            Err(Error::AlreadyExists { .. } | Error::Precondition { .. } | Error::NotModified { .. }) => {
                Ok(None)
            }
            Err(Error::NotFound { .. }) if is_update => Ok(None),
            Err(error) => Err(failure(&error)),
        }
    }

    /// Checks that the service obeys the conditions of writes. On a service that ignores them, bodies would
    /// run twice.
    pub(crate) async fn check(self, time: Duration) -> Result<Self, StoreError> {
        let path = self.prefix.clone().join(format!("check-{:016x}", rand::random::<u64>()));
        let write = async |text: &'static str, mode: PutMode| {
            retry::retried(time, || self.write(&path, Bytes::from_static(text.as_bytes()), mode.clone()))
                .await
        };
        // The answer is not checked: if the answer of an earlier try was lost, the object already exists.
        write("first", PutMode::Create).await?;
        let first = retry::retried(time, || self.read(&path)).await?.map(|version| version.revision);
        let again = write("again", PutMode::Create).await?;
        let first =
            first.ok_or_else(|| StoreError::unavailable("an object is gone that was just written"))?;
        write("second", PutMode::Update(first.clone())).await?;
        let late = write("late", PutMode::Update(first)).await?;
        // Only this check uses the object, so the deletion needs no condition.
        let _ = self.objects.delete(&path).await;
        if again.is_some() || late.is_some() {
            return Err(StoreError::configuration(
                "this object store ignores the conditions of writes (`If-None-Match`, `If-Match`): bodies would run twice",
            ));
        }
        Ok(self)
    }
}

impl CompareAndSwap for Bucket {
    type Revision = UpdateVersion;

    async fn get(&self, name: &ObjectName) -> Result<Option<Version<UpdateVersion>>, StoreError> {
        Ok(self.read(&self.path(name)).await?.filter(|version| !version.bytes.is_empty()))
    }

    async fn put(
        &self,
        name: &ObjectName,
        bytes: Bytes,
        seen: Option<&UpdateVersion>,
        _keep: Option<Duration>,
    ) -> Result<Put<UpdateVersion>, StoreError> {
        let path = self.path(name);
        let mode = seen.cloned().map_or(PutMode::Create, PutMode::Update);
        let written = self.write(&path, bytes.clone(), mode).await?;
        if written.is_some() || seen.is_some() {
            return Ok(written.into());
        }
        match self.read(&path).await? {
            Some(left) if left.bytes.is_empty() => {
                Ok(self.write(&path, bytes, PutMode::Update(left.revision)).await?.into())
            }
            version => Ok(Put::Refused(version)),
        }
    }

    async fn delete(&self, name: &ObjectName, seen: &UpdateVersion) -> Result<bool, StoreError> {
        let emptied = self.write(&self.path(name), Bytes::new(), PutMode::Update(seen.clone())).await?;
        Ok(emptied.is_some())
    }

    async fn list(
        &self,
        scope: Option<&str>,
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Listing<UpdateVersion>, StoreError> {
        let prefix = scope.map_or_else(|| self.prefix.clone(), |scope| self.prefix.clone().join(scope));
        let foreign = || StoreError::configuration("the place to go on from is not one of this store's");
        let after = after.map(|after| {
            str::from_utf8(after).ok().and_then(|text| Path::parse(text).ok()).ok_or_else(foreign)
        });
        let metas = match after.transpose()? {
            Some(after) => self.objects.list_with_offset(Some(&prefix), &after),
            None => self.objects.list(Some(&prefix)),
        };
        let mut metas: Vec<ObjectMeta> =
            metas.take(limit).try_collect().await.map_err(|error| failure(&error))?;
        let next = metas.last().filter(|_| metas.len() >= limit).map(|meta| meta.location.as_ref().into());
        // An empty object counts as deleted.
        metas.retain(|meta| meta.size > 0);
        let reads = metas.into_iter().map(|meta| async move { self.read(&meta.location).await });
        let versions: Vec<_> = futures_util::stream::iter(reads).buffered(READS).try_collect().await?;
        Ok(Listing { versions: versions.into_iter().flatten().collect(), next })
    }

    async fn inspect(&self) -> Result<Inspection, StoreError> {
        let mut inspection = Inspection::of(self.objects.to_string());
        inspection.find(Standing::Fine, "conditions", "kept, as a check at the start found");
        let text = "a rule must delete objects with the tag `idem=expired`, and no rule others: see the store's page";
        inspection.find(Standing::Unknown, "lifecycle", text);
        Ok(inspection)
    }

    fn max_bytes(&self) -> usize {
        MAX_OBJECT_BYTES
    }
}
