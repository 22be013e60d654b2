//! Dead letters, the other way: what lies there, and how messages go back to where they came from.
//!
//! Owns the order of the work for all brokers: forget the record, send the message, remove the letter. A broker's crate reads, sends and
//! removes.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::future::ready;
use std::sync::Arc;

use idem_core::listing::{List, Listed, MAX_LOOKED_AT};
use idem_core::protocol::{Resolution, ResolveAnswer, Seen, State};
use idem_core::{Scope, Store, StoreError};
use idem_runtime::DynStore;

use super::dead_letter::HEADERS;
use super::{BrokerError, Reason};

type Result<T, E = BrokerError> = std::result::Result<T, E>;

/// A dead letter at its broker, without the message's body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoredLetter {
    /// The broker's name for the letter: its id, offset or sequence number.
    pub id: String,
    /// Why the message was set aside.
    pub reason: Option<Reason>,
    /// The text of the handler's last error, which may be private.
    pub error: Option<String>,
    /// The operation of the message's last idempotent call.
    pub operation: Option<String>,
    /// The digest of that call's key.
    pub key: Option<String>,
    /// How often the message was tried.
    pub tries: Option<u32>,
    /// The consumer that set it aside.
    pub consumer: Option<String>,
    /// The place that the message was sent to, to which it goes back.
    pub origin: Option<String>,
    /// The broker's name for the message itself.
    pub message: Option<String>,
}

impl StoredLetter {
    /// The letter with this name, as its headers describe it.
    pub fn read(id: impl Into<String>, header: impl Fn(&str) -> Option<String>) -> Self {
        let [reason, error, tries, operation, key, consumer, origin, message] = HEADERS.map(header);
        let reason = reason.and_then(|word| Reason::of(&word));
        let tries = tries.and_then(|number| number.parse().ok());
        Self { id: id.into(), reason, error, operation, key, tries, consumer, origin, message }
    }
}

/// One line, for an operator: everything but the error, which comes last.
impl fmt::Display for StoredLetter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
        let reason = self.reason.map_or("-", Reason::as_str);
        let (operation, key, origin) = (or_none(&self.operation), or_none(&self.key), or_none(&self.origin));
        write!(f, "{} {reason} operation={operation} key={key} from={origin}", self.id)?;
        self.error.iter().try_for_each(|error| write!(f, " error={error:?}"))
    }
}

/// Whether a header of this name is a dead letter's, and not the message's own.
#[must_use]
pub fn is_header_of_letter(name: &str) -> bool {
    HEADERS.iter().any(|own| own.eq_ignore_ascii_case(name))
}

/// The dead letters of a broker that were there when it was opened, each once.
pub trait DeadLetters: Sized + Send + Sync {
    /// A letter with its message.
    type Letter: Send + Sync;

    /// The next letter; `None` after the last.
    fn next(&mut self) -> impl Future<Output = Result<Option<Self::Letter>>> + Send;

    /// What a letter says of its message.
    fn about(&self, letter: &Self::Letter) -> StoredLetter;

    /// Sends the message to this origin with its own headers. Returns when the broker has stored it.
    fn send(&self, letter: &Self::Letter, to: &str) -> impl Future<Output = Result<()>> + Send;

    /// Removes a letter.
    fn remove(&mut self, letter: Self::Letter) -> impl Future<Output = Result<()>> + Send;

    /// Leaves a letter among the others: nothing to do, unless a letter that was read does not stay.
    fn keep(&mut self, _letter: Self::Letter) -> impl Future<Output = Result<()>> + Send {
        ready(Ok(()))
    }

    /// Shows the letters that were kept again, where the broker hides what was read.
    fn close(self) -> impl Future<Output = Result<()>> + Send {
        ready(Ok(()))
    }
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
}

impl Redrive {
    /// All dead letters.
    pub fn all() -> Self {
        Self::matching(|_| true)
    }

    /// The dead letters for which this returns true.
    pub fn matching(filter: impl Fn(&StoredLetter) -> bool + Send + Sync + 'static) -> Self {
        Self { filter: Arc::new(filter), store: None }
    }

    /// Before a message goes back whose call [failed for good](Reason::Terminal) or [used up its attempts](Reason::Exhausted), its
    /// record in this store is forgotten, so that the body runs again; otherwise the message gets the recorded error and comes
    /// straight back. A record is forgotten only while it is as it was found: a record of a call that has succeeded since stays.
    ///
    /// The record is found by its digest, in a walk over the failed records of the operation. Where
    /// the store itself has digests of keys (`StoreExt::digest_keys`) nothing is found: use the command `idem forget`.
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
    /// How many records were forgotten for them.
    pub forgotten: u64,
    /// How many letters the filter left out.
    pub kept: u64,
    /// How many messages could not be sent back. Their letters stay, and the event `redrive_failed` has the reason.
    pub failed: u64,
}

/// All letters: what [`broker_methods`](crate::broker_methods) calls.
///
/// # Errors
///
/// The broker fails.
pub async fn list_all<D: DeadLetters>(mut letters: D) -> Result<Vec<StoredLetter>> {
    let mut list = Vec::new();
    while let Some(letter) = letters.next().await? {
        list.push(letters.about(&letter));
        letters.keep(letter).await?;
    }
    letters.close().await.map(|()| list)
}

/// Sends messages back: what [`broker_methods`](crate::broker_methods) calls. A letter is removed after its message was stored, so a redrive that is
/// killed loses nothing; it may send one message twice.
///
/// # Errors
///
/// The broker or the store fails. The messages before that are sent, and all other letters are there.
pub async fn redrive_all<D: DeadLetters>(mut letters: D, redrive: Redrive) -> Result<RedriveSummary> {
    let (walked, failures, done) = Default::default();
    let mut run = Run { redrive, walked, failures, done };
    let ended = run.all(&mut letters).await;
    // Also after a failure, so that no letter stays hidden.
    let closed = letters.close().await;
    ended.and(closed).map(|()| run.done)
}

/// A redrive under way.
struct Run {
    redrive: Redrive,
    /// The operations whose failed records were read.
    walked: HashSet<String>,
    /// Their failed records, by the digests of their keys.
    failures: HashMap<String, Listed>,
    done: RedriveSummary,
}

impl Run {
    async fn all<D: DeadLetters>(&mut self, letters: &mut D) -> Result<()> {
        while let Some(letter) = letters.next().await? {
            match self.send(letters, &letter).await {
                Ok(true) => letters.remove(letter).await?,
                not_sent => {
                    letters.keep(letter).await?;
                    not_sent?;
                }
            }
        }
        Ok(())
    }

    /// Sends a message back, unless the filter leaves it out. Returns whether it was sent.
    async fn send<D: DeadLetters>(&mut self, letters: &D, letter: &D::Letter) -> Result<bool> {
        let about = letters.about(letter);
        if !(self.redrive.filter)(&about) {
            self.done.kept += 1;
            return Ok(false);
        }
        let (mut forgotten, mut sent) =
            (false, Err(BrokerError::new("send the message back", "its letter has no origin")));
        if let Some(origin) = &about.origin {
            let forgetting = self.forget(&about).await;
            forgotten = forgetting.map_err(BrokerError::at("forget the record of a dead letter"))?;
            sent = letters.send(letter, origin).await;
        }
        let StoredLetter { id, operation, key, reason, .. } = about;
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
        let reason = reason.map(Reason::as_str);
        tracing::info!(
            target: "idem", event = "dead_letter_redriven", message_id = id, operation, key, reason, forgotten,
            "a dead letter's message was sent back"
        );
        Ok(true)
    }

    /// Forgets the record that a letter came from. Returns whether there was one, and it was as it was found.
    async fn forget(&mut self, about: &StoredLetter) -> Result<bool, StoreError> {
        let StoredLetter { reason, operation, key, .. } = about;
        let (Some(store), Some(Reason::Terminal | Reason::Exhausted), Some(operation), Some(key)) =
            (&self.redrive.store, reason, operation, key)
        else {
            return Ok(false);
        };
        if self.walked.insert(operation.clone()) {
            self.failures.extend(failures(store, operation).await?);
        }
        let Some(failed) = self.failures.remove(key) else { return Ok(false) };
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

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use idem_core::RecordKey;
    use idem_core::protocol::{Answer, Record, Request};

    use super::*;

    /// A store that is down.
    #[derive(Clone)]
    struct Down;

    fn down<T>() -> Result<T, StoreError> {
        Err(StoreError::unavailable("down"))
    }

    impl Store for Down {
        async fn apply(&self, _: &RecordKey, _: Request) -> Result<Answer, StoreError> {
            down()
        }

        async fn forget(&self, _: &RecordKey) -> Result<bool, StoreError> {
            down()
        }

        async fn get(&self, _: &RecordKey) -> Result<Option<Record>, StoreError> {
            down()
        }

        async fn purge(&self, _: usize) -> Result<usize, StoreError> {
            down()
        }
    }

    /// One letter, and what is done with it.
    struct Shelf(Option<StoredLetter>, Arc<Mutex<Vec<&'static str>>>);

    impl Shelf {
        fn note(&self, done: &'static str) {
            self.1.lock().unwrap().push(done);
        }
    }

    impl DeadLetters for Shelf {
        type Letter = StoredLetter;

        async fn next(&mut self) -> Result<Option<StoredLetter>, BrokerError> {
            Ok(self.0.take())
        }

        fn about(&self, letter: &StoredLetter) -> StoredLetter {
            letter.clone()
        }

        async fn send(&self, _: &StoredLetter, _: &str) -> Result<(), BrokerError> {
            self.note("sent");
            Ok(())
        }

        async fn remove(&mut self, _: StoredLetter) -> Result<(), BrokerError> {
            self.note("removed");
            Ok(())
        }

        async fn keep(&mut self, _: StoredLetter) -> Result<(), BrokerError> {
            self.note("kept");
            Ok(())
        }

        async fn close(self) -> Result<(), BrokerError> {
            self.note("closed");
            Ok(())
        }
    }

    #[tokio::test]
    async fn a_letter_whose_record_cannot_be_forgotten_is_kept() {
        let (reason, operation, key) = (Some(Reason::Terminal), Some("ship".into()), Some("ab12".into()));
        let letter =
            StoredLetter { reason, operation, key, origin: Some("orders".into()), ..Default::default() };
        for (redrive, expected) in [
            (Redrive::all(), vec!["sent", "removed", "closed"]),
            (Redrive::all().forgetting(&Down), vec!["kept", "closed"]),
            (Redrive::matching(|_| false).forgetting(&Down), vec!["kept", "closed"]),
        ] {
            let done = Arc::default();
            let forgets = redrive.store.is_some();
            let outcome = redrive_all(Shelf(Some(letter.clone()), Arc::clone(&done)), redrive).await;
            assert_eq!(*done.lock().unwrap(), expected);
            assert!(outcome.is_ok() || forgets, "{outcome:?}");
        }
    }
}
