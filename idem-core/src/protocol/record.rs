//! The record and the types of its fields. There are no rules here.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;

/// An instant of a store's clock: microseconds since the Unix epoch.
///
/// Compare it only with times of the same store, because other clocks may differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The instant this many microseconds after the Unix epoch.
    #[must_use]
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// Microseconds since the Unix epoch.
    #[must_use]
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// This instant plus `duration`, rounded up to the microsecond; the last possible instant if that does
    /// not fit.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(whole_micros(duration)))
    }

    /// This instant minus `duration`, rounded down to the microsecond; the epoch if that does not fit.
    #[must_use]
    pub fn before(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(whole_micros(duration)))
    }

    /// The time from `earlier` to this instant; zero if `earlier` is not earlier.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

/// A duration in microseconds, rounded up; the largest number if that does not fit.
fn whole_micros(duration: Duration) -> u64 {
    let below_a_second = duration.subsec_nanos().div_ceil(1_000);
    duration.as_secs().saturating_mul(1_000_000).saturating_add(below_a_second.into())
}

/// Identifies the claimant of one attempt: 128 random bits, new for each attempt.
///
/// The owner makes a claim repeatable: if the answer is lost, the claimant sends the claim again with the
/// same owner and gets the same answer.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Owner([u8; 16]);

impl Owner {
    /// The owner of a record after an operator decided about it, or after the attempts ran out. No worker has
    /// this owner, so no late worker mistakes the result or the release for its own.
    pub const NOBODY: Self = Self([0; 16]);

    /// A new owner, from the thread's cryptographic generator.
    #[must_use]
    pub fn random() -> Self {
        Self(rand::random::<u128>().to_be_bytes())
    }

    /// The owner with these bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Owner({:032x})", u128::from_be_bytes(self.0))
    }
}

/// The fencing token of a grant: strictly increasing per key, even after a record was deleted.
///
/// Send the fence to a downstream service that can compare fences. Then a paused worker cannot overwrite its
/// successor's work there either (Kleppmann, *How to do distributed locking*, 2016).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fence(u64);

impl Fence {
    /// The fence with this number.
    #[must_use]
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The SHA-256 of a canonical form of a call's arguments. Calls with the same key must have the same
/// fingerprint.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// The fingerprint with these bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // If the input has few possible values, a whole digest reveals it. Four bytes are enough to tell two
        // fingerprints apart.
        write!(f, "Fingerprint({:02x}{:02x}{:02x}{:02x}..)", self.0[0], self.0[1], self.0[2], self.0[3])
    }
}

/// The state of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum State {
    /// Claimed; the body is running, or its worker died.
    InFlight,
    /// A value is recorded and replayed.
    Completed,
    /// A terminal error is recorded and replayed, or the attempts ran out.
    Failed,
    /// The last claim was released without a result, and the key can be claimed again when the retry delay is
    /// over. The record stays, so that its attempt count and its fence survive.
    Released,
    /// A worker went away under `on_crash = "in_doubt"`, or `recover` could not find out what an earlier run
    /// did. An operator or a later `recover` must find out whether the effect happened.
    InDoubt,
}

/// What happens after a run that began and did not end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnCrash {
    /// The next caller runs the body again.
    #[default]
    Rerun,
    /// The key is in doubt. No body starts until an operator, or a later `recover`, has found out whether the
    /// effect happened.
    InDoubt,
}

/// Which terminal state a result belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// The result is a value.
    Completed,
    /// The result is a terminal error, or the attempts ran out.
    Failed,
}

/// A recorded result: its bytes, or why there are none.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum StoredResult {
    /// The encoded value or error.
    Value(Bytes),
    /// Why no value is recorded. The body or the step must still not run again.
    Tombstone(Tombstone),
}

impl fmt::Debug for StoredResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value(bytes) => write!(f, "Value({} bytes)", bytes.len()),
            Self::Tombstone(reason) => f.debug_tuple("Tombstone").field(reason).finish(),
        }
    }
}

/// Why a recorded result has no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Tombstone {
    /// The encoded result was larger than the operation or the store takes.
    TooLarge,
    /// The result could not be encoded.
    NotEncodable,
    /// No attempt made a result, and no attempts are left.
    Exhausted,
}

/// The recorded result of one step of a body, which a rerun gets instead of running the step again.
#[derive(Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct RecordedStep {
    /// Its name.
    pub name: String,
    /// The fingerprint of its input, which must not change from one run to the next.
    pub input: Option<Fingerprint>,
    /// Its value.
    pub result: StoredResult,
}

impl fmt::Debug for RecordedStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // An input often has few possible values, so not even four bytes of its digest are shown.
        f.debug_struct("RecordedStep")
            .field("name", &self.name)
            .field("input", &self.input.map(|_| ".."))
            .field("result", &self.result)
            .finish()
    }
}

/// What a store keeps for one key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Record {
    /// Its state.
    pub state: State,
    /// The owner of the last attempt, or [`Owner::NOBODY`].
    pub owner: Owner,
    /// The fence of the last grant. If that grant took over from an earlier run, and was then released as
    /// unused, or as doubtful while in flight, the fence is one higher.
    pub fence: Fence,
    /// How many times the body was started, including this time; from 1 (0 if the only grant was released
    /// unused). A grant past the limit starts no body, and its number is the limit plus one. If the record
    /// has a higher number already, because the limit was lowered, that number stays.
    pub attempt: u32,
    /// Whether the last grant took over from a run that began and did not end. In a released record, whether
    /// the next grant takes over from such a run.
    pub recovered: bool,
    /// The crash policy of the last grant.
    pub on_crash: OnCrash,
    /// When the lease of the last grant ends.
    pub lease_until: Timestamp,
    /// When a released record may be claimed again.
    pub retry_at: Timestamp,
    /// How long the record is kept after its completion, its release or the end of its lease.
    pub ttl: Duration,
    /// The fingerprint of the arguments, which must not change under this key.
    pub fingerprint: Option<Fingerprint>,
    /// The result; `Some` exactly in the states `Completed` and `Failed`.
    pub result: Option<StoredResult>,
    /// The recorded steps of the body, in the order of recording. A release, a takeover, a doubt and
    /// `Exhausted` keep them. A record with any other result has none, because no body runs again.
    pub steps: Vec<RecordedStep>,
    /// When the record was created, which is when its first attempt was granted.
    pub created_at: Timestamp,
    /// When it was completed or failed.
    pub completed_at: Option<Timestamp>,
    /// From when the record counts as absent; `None` for never.
    pub expires_at: Option<Timestamp>,
}
