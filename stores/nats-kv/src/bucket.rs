//! The requests to a bucket: a read from its leader, a write that expects a revision, a purge up to a
//! revision, a walk in the order of revisions.

use std::error::Error as _;
use std::time::Duration;

use async_nats::header::{NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, NATS_MESSAGE_TTL};
use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, pull};
use async_nats::jetstream::context::{PublishError, PublishErrorKind};
use async_nats::jetstream::message::StreamMessage;
use async_nats::jetstream::stream::{LastRawMessageErrorKind, StorageType};
use async_nats::jetstream::{self, Context, ErrorCode, kv};
use async_nats::{HeaderMap, HeaderValue};
use bytes::Bytes;
use futures_util::StreamExt as _;

use idem_core::StoreError;
use idem_core::inspection::{Inspection, Standing};
use idem_store_kit::cas::{CompareAndSwap, Listing, ObjectName, Put, Version};

/// Upper limit in bytes for the subject and the headers of a message.
const ENVELOPE: usize = 4_096;

/// A request contains an expiry only if the expiry is shorter than this (100 years), because the server's
/// integer type cannot hold much more. A message without an expiry stays until it is deleted.
const LONGEST_EXPIRY: Duration = Duration::from_secs(100 * 366 * 86_400);

pub(crate) struct Bucket {
    client: async_nats::Client,
    context: Context,
    store: kv::Store,
    /// The beginning of the subjects of all records.
    subjects: String,
    /// Whether the bucket supports an expiry for each key.
    expires: bool,
    max_bytes: usize,
}

impl Bucket {
    pub(crate) fn new(
        client: async_nats::Client,
        context: Context,
        store: kv::Store,
        prefix: &str,
    ) -> Result<Self, StoreError> {
        let config = &store.stream.cached_info().config;
        if !config.max_age.is_zero() {
            return Err(StoreError::configuration(
                "the bucket deletes every key after its `max_age`, also one in doubt: use a bucket without it",
            ));
        }
        if config.mirror.is_some() || config.sources.is_some() {
            return Err(StoreError::configuration("the bucket is a mirror: use the original"));
        }
        let limit = usize::try_from(config.max_message_size).unwrap_or(usize::MAX);
        let max_bytes = client.server_info().max_payload.min(limit).saturating_sub(ENVELOPE);
        let expires = config.allow_message_ttl;
        let dot = if prefix.is_empty() { "" } else { "." };
        let subjects = format!("{}{prefix}{dot}", store.prefix);
        Ok(Self { client, context, store, subjects, expires, max_bytes })
    }

    pub(crate) fn name(&self) -> &str {
        &self.store.name
    }

    fn subject(&self, name: &ObjectName) -> String {
        format!("{}{}.{}", self.subjects, name.scope, name.key)
    }

    async fn last(&self, subject: &str) -> Result<Option<StreamMessage>, StoreError> {
        match self.store.stream.get_last_raw_message_by_subject(subject).await {
            Ok(message) => Ok(Some(message)),
            Err(error) => match error.kind() {
                LastRawMessageErrorKind::NoMessageFound => Ok(None),
                kind => Err(StoreError::unavailable(format!("JetStream did not read it: {kind}"))),
            },
        }
    }

    /// Publishes the bytes if `last` is still the last sequence of the subject; 0 means that the subject has
    /// no message. Returns the new sequence, or `None` if the subject has another last sequence.
    async fn publish(
        &self,
        subject: &str,
        bytes: Bytes,
        last: u64,
        keep: Option<Duration>,
    ) -> Result<Option<u64>, StoreError> {
        let mut headers = HeaderMap::new();
        headers.insert(NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, HeaderValue::from(last));
        if let Some(keep) = keep.filter(|keep| self.expires && *keep < LONGEST_EXPIRY) {
            headers.insert(NATS_MESSAGE_TTL, HeaderValue::from(keep.as_secs() + 1));
        }
        let size = bytes.len();
        let sent = self.context.publish_with_headers(subject.to_owned(), headers, bytes).await;
        let acknowledged = match sent {
            Ok(acknowledgement) => acknowledgement.await,
            Err(error) => Err(error),
        };
        match acknowledged {
            Ok(acknowledgement) => Ok(Some(acknowledgement.sequence)),
            Err(error) if is_refused_by_condition(&error) => Ok(None),
            Err(error) => Err(self.failure(&error, size)),
        }
    }

    fn failure(&self, error: &PublishError, size: usize) -> StoreError {
        match error.kind() {
            PublishErrorKind::MaxPayloadExceeded => StoreError::too_large(size, self.max_bytes),
            PublishErrorKind::StreamNotFound => StoreError::unavailable(
                "nobody answers for the bucket: it is gone, or JetStream is not ready",
            ),
            PublishErrorKind::MaxAckPending => StoreError::unavailable("too many writes wait for JetStream"),
            kind => match code(error) {
                // The server's text is left out, because it may contain the subject, and so the key.
                Some(code) => {
                    StoreError::unavailable(format!("JetStream refuses the write, code {}", code.0))
                }
                None => StoreError::outcome_unknown(format!("the write to JetStream failed: {kind}")),
            },
        }
    }
}

/// The object in this message. `None` if the message is the marker of a deleted object.
fn version(message: StreamMessage) -> Option<Version<u64>> {
    let version = Version { bytes: message.payload, revision: message.sequence };
    (!version.bytes.is_empty()).then_some(version)
}

/// The server's error code, if the server refused a message.
fn code(error: &PublishError) -> Option<ErrorCode> {
    error.source()?.downcast_ref::<jetstream::Error>().map(jetstream::Error::error_code)
}

fn is_refused_by_condition(error: &PublishError) -> bool {
    let codes = [ErrorCode::STREAM_WRONG_LAST_SEQUENCE, ErrorCode::STREAM_WRONG_LAST_SEQUENCE_CONSTANT];
    error.kind() == PublishErrorKind::WrongLastSequence
        || code(error).is_some_and(|code| codes.contains(&code))
}

impl CompareAndSwap for Bucket {
    type Revision = u64;

    async fn get(&self, name: &ObjectName) -> Result<Option<Version<u64>>, StoreError> {
        Ok(self.last(&self.subject(name)).await?.and_then(version))
    }

    async fn put(
        &self,
        name: &ObjectName,
        bytes: Bytes,
        seen: Option<&u64>,
        keep: Option<Duration>,
    ) -> Result<Put<u64>, StoreError> {
        let subject = self.subject(name);
        let last = seen.copied().unwrap_or(0);
        if let Some(revision) = self.publish(&subject, bytes.clone(), last, keep).await? {
            return Ok(Put::Written(revision));
        }
        match self.last(&subject).await? {
            Some(marker) if seen.is_none() && marker.payload.is_empty() => {
                Ok(self.publish(&subject, bytes, marker.sequence, keep).await?.into())
            }
            message => Ok(Put::Refused(message.and_then(version))),
        }
    }

    async fn delete(&self, name: &ObjectName, seen: &u64) -> Result<bool, StoreError> {
        // Deletes the messages of the subject up to the revision `seen`. If a newer message has replaced that
        // revision, there is nothing to delete.
        let purge = self.store.stream.purge().filter(self.subject(name)).sequence(seen + 1).await;
        let purged = purge.map_err(|error| {
            StoreError::outcome_unknown(format!("JetStream did not purge it: {}", error.kind()))
        })?;
        Ok(purged.purged > 0)
    }

    async fn list(
        &self,
        scope: Option<&str>,
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Listing<u64>, StoreError> {
        let failed = |error: &dyn std::fmt::Display| {
            StoreError::unavailable(format!("JetStream did not list the bucket: {error}"))
        };
        let after = match after {
            None => 0,
            Some(bytes) => u64::from_be_bytes(bytes.try_into().map_err(|_| {
                StoreError::configuration("the place to go on from is not one of this store's")
            })?),
        };
        // Messages are in the order of their sequences, and a changed record moves to the end.
        let walk = pull::Config {
            filter_subject: match scope {
                Some(scope) => format!("{}{scope}.>", self.subjects),
                None => format!("{}>", self.subjects),
            },
            ack_policy: AckPolicy::None,
            memory_storage: true,
            deliver_policy: DeliverPolicy::ByStartSequence { start_sequence: after + 1 },
            ..pull::Config::default()
        };
        let consumer =
            self.store.stream.create_consumer(walk).await.map_err(|error| failed(&error.kind()))?;
        let name = consumer.cached_info().name.clone();
        // `fetch` returns only the messages that exist now. A request that waits for `limit` messages could
        // wait in vain, because the last messages may be deleted before they are read.
        let batch = consumer.fetch().max_messages(limit).messages().await;
        let mut messages = batch.map_err(|error| failed(&error.kind()))?;
        let mut listing = Listing { versions: Vec::new(), next: None };
        while let Some(message) = messages.next().await {
            let message = message.map_err(|_| failed(&"the connection broke"))?;
            let (revision, pending) = message
                .info()
                .map(|info| (info.stream_sequence, info.pending))
                .map_err(|_| failed(&"a message has no sequence"))?;
            listing.next = (pending > 0).then(|| revision.to_be_bytes().to_vec());
            let bytes = message.message.payload;
            if !bytes.is_empty() {
                listing.versions.push(Version { bytes, revision });
            }
        }
        // Without this deletion, the server would keep the consumer for minutes, and a walk makes a consumer
        // for each page.
        let _ = self.store.stream.delete_consumer(&name).await;
        Ok(listing)
    }

    async fn inspect(&self) -> Result<Inspection, StoreError> {
        let server = format!("NATS {}", self.client.server_info().version);
        let mut inspection = Inspection::of(server);
        let stream = self.context.get_stream(&self.store.stream_name).await;
        let stream = stream.map_err(|error| {
            StoreError::unavailable(format!("JetStream did not describe the bucket: {}", error.kind()))
        })?;
        let config = &stream.cached_info().config;
        match config.storage {
            StorageType::File => inspection.find(Standing::Fine, "storage", "in a file"),
            StorageType::Memory => {
                inspection.find(Standing::Weak, "storage", "in memory: a restart forgets every key");
            }
        }
        if config.num_replicas < 3 {
            let text = "fewer than 3: the records are as durable as this server's disk";
            inspection.find(Standing::Unknown, "replicas", text);
        }
        let text =
            "see `sync_interval` of the server: unless it is `always`, a power cut loses the newest writes";
        inspection.find(Standing::Unknown, "flushes", text);
        if !self.expires {
            let text = "the bucket has no expiry for each key: call `purge` regularly";
            inspection.find(Standing::Unknown, "expiry", text);
        }
        Ok(inspection)
    }

    fn max_bytes(&self) -> usize {
        self.max_bytes
    }
}
