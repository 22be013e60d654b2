//! The settings of a store in a bucket, and how it connects.

use std::error::Error as _;
use std::fmt;
use std::time::Duration;

use async_nats::ConnectOptions;
use async_nats::jetstream::context::{
    ContextBuilder, CreateKeyValueErrorKind, GetStreamError, GetStreamErrorKind, KeyValueErrorKind,
};
use async_nats::jetstream::{Context, kv};

use idem_core::StoreError;
use idem_store_kit::cas::{CasSettings, CasStore};
use idem_store_kit::{own_runtime, retry};

use crate::NatsKvStore;
use crate::bucket::Bucket;

/// How long the server keeps the marker of an expired key. The marker informs watchers of the bucket.
const MARKERS: Duration = Duration::from_secs(1);

/// The settings for a new [`NatsKvStore`].
#[derive(Clone)]
#[must_use]
pub struct NatsKvStoreBuilder {
    url: String,
    bucket: String,
    options: ConnectOptions,
    replicas: usize,
    must_exist: bool,
    prefix: String,
    settings: CasSettings,
}

impl NatsKvStoreBuilder {
    pub(crate) fn new(url: &str, bucket: &str) -> Self {
        Self {
            url: url.into(),
            bucket: bucket.into(),
            options: ConnectOptions::new(),
            replicas: 1,
            must_exist: false,
            prefix: String::new(),
            settings: CasSettings::default(),
        }
    }

    /// The options of the connection, such as credentials and certificates.
    pub fn options(mut self, options: ConnectOptions) -> Self {
        self.options = options;
        self
    }

    /// How many servers keep a bucket that this store creates; 1 unless set.
    pub const fn replicas(mut self, replicas: usize) -> Self {
        self.replicas = replicas;
        self
    }

    /// Makes `connect` fail if the bucket is missing, instead of creating the bucket.
    pub const fn must_exist(mut self) -> Self {
        self.must_exist = true;
        self
    }

    /// The first token of all keys, made of `A-Z a-z 0-9 _ -`; none unless set. Stores with different
    /// prefixes in one bucket share no records.
    pub fn prefix(mut self, prefix: &str) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// How much the clocks of the calling machines may differ; 1 s unless set. Another worker can take over a
    /// claim only when this time has passed after the end of the claim's lease.
    pub const fn clock_skew(mut self, skew: Duration) -> Self {
        self.settings.clock_skew = skew;
        self
    }

    /// How long one operation may take, with all its requests and retries; 5 s unless set. After this time,
    /// the operation fails, and its outcome may be unknown.
    pub const fn operation_timeout(mut self, timeout: Duration) -> Self {
        self.settings.operation_timeout = timeout;
        self
    }

    /// Connects, and creates the bucket if it is missing.
    ///
    /// # Errors
    ///
    /// `Unavailable` if no server answers, or if the bucket cannot be created. `Configuration` if
    ///
    /// - the name of the bucket or the prefix has a character that is not allowed;
    /// - the server refuses the client;
    /// - the bucket is missing and [`must_exist`](Self::must_exist) is set;
    /// - the stream is not a bucket, is a mirror, or deletes records by itself (`max_age`).
    pub async fn connect(self) -> Result<NatsKvStore, StoreError> {
        let settings = self.settings;
        let bucket = own_runtime::apart(async move {
            retry::retried_with_cause(self.settings.operation_timeout, || self.opened()).await
        });
        Ok(NatsKvStore(CasStore::new(bucket.await?, settings)))
    }

    async fn opened(&self) -> Result<Bucket, StoreError> {
        let is_token =
            |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
        if !is_token(&self.prefix) || !is_token(&self.bucket) || self.bucket.is_empty() {
            return Err(StoreError::configuration(
                "the names of a bucket and a prefix have A-Z a-z 0-9 _ - only",
            ));
        }
        let connected = self.options.clone().connect(self.url.as_str()).await;
        let client = connected.map_err(|error| match error.kind() {
            async_nats::ConnectErrorKind::Io
            | async_nats::ConnectErrorKind::TimedOut
            | async_nats::ConnectErrorKind::Dns => {
                StoreError::unavailable(format!("no connection to NATS: {}", error.kind()))
            }
            kind => StoreError::configuration(format!("NATS refuses the connection: {kind}")),
        })?;
        // Each request gets only a part of the operation timeout, so that there is time to repeat a request
        // whose answer was lost.
        let patience = self.settings.operation_timeout / 4;
        let context = ContextBuilder::new().timeout(patience).build(client.clone());
        let store = self.bucket(&context).await?;
        Bucket::new(client, context, store, &self.prefix)
    }

    async fn bucket(&self, context: &Context) -> Result<kv::Store, StoreError> {
        let missing = match context.get_key_value(&*self.bucket).await {
            Ok(store) => return Ok(store),
            Err(error) => error,
        };
        let cause = missing.source().and_then(|cause| cause.downcast_ref::<GetStreamError>());
        match missing.kind() {
            KeyValueErrorKind::GetBucket
                if cause.is_some_and(|cause| cause.kind() == GetStreamErrorKind::Request) =>
            {
                return Err(StoreError::unavailable(
                    "the server does not say whether there is such a bucket; if this goes on, it has no JetStream",
                ));
            }
            KeyValueErrorKind::GetBucket if self.must_exist => {
                return Err(StoreError::configuration("the bucket does not exist"));
            }
            KeyValueErrorKind::GetBucket => {}
            kind => return Err(StoreError::configuration(format!("this is not a bucket: {kind}"))),
        }
        let create = |limit_markers| {
            context.create_key_value(kv::Config {
                bucket: self.bucket.clone(),
                description: "records of idem".into(),
                num_replicas: self.replicas,
                limit_markers,
                ..kv::Config::default()
            })
        };
        let mut created = create(Some(MARKERS)).await;
        if created
            .as_ref()
            .is_err_and(|error| error.kind() == CreateKeyValueErrorKind::LimitMarkersNotSupported)
        {
            created = create(None).await;
        }
        // The creation may fail because another process creates the bucket at the same time, or because the
        // server has just started. So the error is transient, and `connect` tries again.
        created
            .map_err(|error| StoreError::unavailable(format!("cannot create the bucket: {}", error.kind())))
    }
}

impl fmt::Debug for NatsKvStoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsKvStoreBuilder").field("bucket", &self.bucket).finish_non_exhaustive()
    }
}
