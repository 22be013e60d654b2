//! Lists dead letters, and sends their messages back to where they came from.
//!
//! Owns the steps of a letter's redrive, which are the same on all brokers. If the redrive forgets records,
//! it first forgets the record of the letter's call. Then it sends the letter's message. A broker's crate
//! reads the letters, sends the messages, and removes the letters whose messages were sent.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::channel;

use idem_core::listing::{List, Listed, MAX_LOOKED_AT};
use idem_core::protocol::{Resolution, ResolveAnswer, Seen, State};
use idem_core::{Scope, Store, StoreError};
use idem_runtime::DynStore;

use super::dead_letter::HEADERS;
use super::{Broker, BrokerError, Reason};

type Result<T, E = BrokerError> = std::result::Result<T, E>;

/// A dead letter at its broker, without the message's body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoredLetter {
    /// The broker's name for the letter: its id, offset or sequence number.
    pub id: String,
    /// Why the message was set aside: [`Reason::as_str`].
    pub reason: Option<String>,
    /// The text of the handler's last error, which may be private.
    pub error: Option<String>,
    /// The operation of the message's last idempotent call.
    pub operation: Option<String>,
    /// The digest of the key of the message's last idempotent call.
    pub key: Option<String>,
    /// How often the message was tried.
    pub tries: Option<u32>,
    /// The consumer that set the message aside.
    pub consumer: Option<String>,
    /// The subject, topic or queue that the message was sent to, and goes back to.
    pub origin: Option<String>,
    /// The broker's name for the message itself.
    pub message: Option<String>,
}

impl StoredLetter {
    /// The letter with this `id`, as its headers describe it.
    pub fn read(id: impl Into<String>, header: impl Fn(&str) -> Option<String>) -> Self {
        let [reason, error, tries, operation, key, origin, _, message, consumer] = HEADERS.map(header);
        let tries = tries.and_then(|number| number.parse().ok());
        Self { id: id.into(), reason, error, operation, key, tries, consumer, origin, message }
    }
}

/// One line for an operator. The error comes last, and is left out if there is none.
impl fmt::Display for StoredLetter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let or_dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
        let [reason, operation, key, origin] =
            [&self.reason, &self.operation, &self.key, &self.origin].map(or_dash);
        write!(f, "{} {reason} operation={operation} key={key} from={origin}", self.id)?;
        self.error.iter().try_for_each(|error| write!(f, " error={error:?}"))
    }
}

/// Whether idem adds a header with this name to dead letters. All other headers are the message's own.
#[must_use]
pub fn is_header_of_letter(name: &str) -> bool {
    HEADERS.iter().any(|own| own.eq_ignore_ascii_case(name))
}

/// Which dead letters go back, and whether their records are forgotten first.
///
/// ```
/// use idem::MemoryStore;
/// use idem::message::Redrive;
///
/// let store = MemoryStore::new();
/// let redrive = Redrive::matching(|letter| letter.operation.as_deref() == Some("orders.ship")).forgetting(&store);
/// # let _ = redrive;
/// ```
#[derive(Clone)]
#[must_use = "pass it to the source's `redrive`"]
pub struct Redrive {
    filter: Arc<dyn Fn(&StoredLetter) -> bool + Send + Sync>,
    store: Option<DynStore>,
    /// For each operation whose records were read, its failed records by the digests of their keys.
    failures: HashMap<String, HashMap<String, Listed>>,
    done: RedriveSummary,
}

impl Redrive {
    /// All dead letters.
    pub fn all() -> Self {
        Self::matching(|_| true)
    }

    /// The dead letters for which `filter` returns true.
    pub fn matching(filter: impl Fn(&StoredLetter) -> bool + Send + Sync + 'static) -> Self {
        Self {
            filter: Arc::new(filter),
            store: None,
            failures: HashMap::new(),
            done: RedriveSummary::default(),
        }
    }

    /// If a message's call [failed for good](Reason::Terminal) or [used up its attempts](Reason::Exhausted),
    /// the redrive forgets the call's record in this store before the message goes back. So the body runs
    /// again. Without this, the call would fail at once, and the message would be rejected again. A record is
    /// forgotten only if it has not changed since it was found. So if a call has succeeded since then, its
    /// record stays.
    ///
    /// The record is found by the digest of its key, in a walk over the failed records of the operation. If
    /// the store holds digests instead of keys (`StoreExt::digest_keys`), no record is found; use the command
    /// `idem forget` instead.
    pub fn forgetting<St: Store>(mut self, store: &St) -> Self {
        self.store = Some(DynStore::new(store.clone()));
        self
    }
}

impl fmt::Debug for Redrive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redrive").field("forgets", &self.store.is_some()).finish_non_exhaustive()
    }
}

/// What a redrive did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RedriveSummary {
    /// How many messages were sent back.
    pub sent: u64,
    /// How many records were forgotten before their messages were sent back.
    pub forgotten: u64,
    /// How many letters the filter left out.
    pub kept: u64,
    /// How many messages could not be sent back. Their letters stay, and the event `redrive_failed` has the
    /// reason.
    pub failed: u64,
}

/// Lists the dead letters. [`broker_methods`](crate::broker_methods) calls this.
///
/// # Errors
///
/// The broker fails.
pub async fn list<B: Broker>(broker: &B) -> Result<Vec<StoredLetter>> {
    let (sender, letters) = channel();
    let mut none = Redrive::matching(move |letter| sender.send(letter.clone()).is_err());
    broker.redrive_letters(&mut none).await?;
    drop(none);
    Ok(letters.into_iter().collect())
}

impl Redrive {
    /// Sends a letter's message back, unless the filter leaves the letter out. `send` gets the origin of the
    /// message. Returns whether the broker has stored the message, so that the letter can be removed. A
    /// broker's crate calls this for each letter.
    ///
    /// # Errors
    ///
    /// The store fails. The letter stays.
    pub async fn sends<F>(&mut self, letter: StoredLetter, send: impl FnOnce(String) -> F) -> Result<bool>
    where
        F: Future<Output = Result<()>>,
    {
        if !(self.filter)(&letter) {
            self.done.kept += 1;
            return Ok(false);
        }
        let forgetting = self.forget(&letter).await;
        let forgotten = forgetting.map_err(BrokerError::at("forget the record of a dead letter"))?;
        let StoredLetter { id, operation, key, reason, origin, .. } = letter;
        let sent = match origin {
            Some(origin) => send(origin).await,
            None => Err(BrokerError::new("send the message back", "its letter has no origin")),
        };
        if let Err(error) = sent {
            self.done.failed += 1;
            tracing::warn!(
                target: "idem", event = "redrive_failed", message_id = id, operation, key, %error,
                "a dead letter's message cannot be sent back"
            );
            return Ok(false);
        }
        self.done.sent += 1;
        self.done.forgotten += u64::from(forgotten);
        tracing::info!(
            target: "idem", event = "dead_letter_redriven", message_id = id, operation, key, reason, forgotten,
            "a dead letter's message was sent back"
        );
        Ok(true)
    }

    /// The counts up to now.
    #[must_use]
    pub const fn summary(&self) -> RedriveSummary {
        self.done
    }

    /// Forgets the failed record of the call that a letter names. Returns whether a record was forgotten. A
    /// record that has changed since it was found stays.
    async fn forget(&mut self, about: &StoredLetter) -> Result<bool, StoreError> {
        let StoredLetter { reason, operation, key, origin, .. } = about;
        let failed = [Reason::Terminal, Reason::Exhausted].map(|reason| Some(reason.as_str()));
        let (Some(store), Some(operation), Some(key), Some(_), true) =
            (&self.store, operation, key, origin, failed.contains(&reason.as_deref()))
        else {
            return Ok(false);
        };
        if !self.failures.contains_key(operation) {
            self.failures.insert(operation.clone(), failures(store, operation).await?);
        }
        let failed = self.failures.get_mut(operation).and_then(|failures| failures.remove(key));
        let Some(failed) = failed else { return Ok(false) };
        let forget = Resolution::ForgetSeen(Seen::of(&failed.record));
        Ok(store.resolve(&failed.key, &forget).await? == ResolveAnswer::Resolved)
    }
}

/// The failed records of an operation, by the digests of their keys.
async fn failures(store: &DynStore, operation: &str) -> Result<HashMap<String, Listed>, StoreError> {
    let mut failures = HashMap::new();
    let failed = List::default().with_states(vec![State::Failed]).with_limit(MAX_LOOKED_AT);
    let mut next = Scope::new(operation.to_owned()).ok().map(|scope| failed.with_scope(Some(scope)));
    while let Some(request) = next {
        let page = store.list(&request).await?;
        failures.extend(page.records.into_iter().map(|listed| (listed.key.digest().to_string(), listed)));
        next = page.next.map(|cursor| request.with_after(Some(cursor)));
    }
    Ok(failures)
}
