//! A store that is filled directly, and the calls that are made on it.

use std::time::Duration;

use idem::{Error, Operation, Store};

pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;
pub(crate) type Anything<T> = Result<T, Failure>;

/// The scope of the records that stay.
pub(crate) const KEPT: &str = "growth.kept";
/// The scope of the records that expire soon.
pub(crate) const SHORT: &str = "growth.short";
/// The key of the record that all others of [`KEPT`] are copies of.
pub(crate) const MODEL: &str = "model";
/// The factor that spreads the numbers of keys over the index like random identifiers.
pub(crate) const SPREAD: u64 = 2_654_435_761;

const RECEIPT: &str = "a receipt of sixty-two characters, as a body might well give.. ";

/// One store, as the bench needs it.
pub(crate) trait Subject {
    type Store: Store;

    /// Its name and version.
    async fn name(&self) -> Anything<String>;
    fn store(&self) -> Anything<&Self::Store>;
    /// Checks that this number of additional records fits; the error says why they do not.
    fn has_room(&self, records: u64) -> Result<(), String>;
    /// Adds copies of the model under the keys of the numbers from `from` up to `to`.
    async fn fill(&mut self, from: u64, to: u64) -> Anything<()>;
    /// The number of records of [`SHORT`] in the store, including expired ones.
    async fn left(&self) -> Anything<u64>;
    /// The bytes that the store takes on disk, or in the server's memory.
    async fn bytes(&self) -> Anything<u64>;
    /// Whether the program must purge.
    fn is_purged(&self) -> bool {
        false
    }
}

/// The key of a number: spread over the index, and easy to compute in the language of each store.
pub(crate) fn key(number: u64) -> String {
    format!("{:08x}-{number}", spread(number))
}

/// The position of a number's key among all keys.
pub(crate) fn spread(number: u64) -> u64 {
    number.wrapping_mul(SPREAD) & 0xffff_ffff
}

/// The operation of calls whose records stay.
pub(crate) fn kept() -> Operation {
    Operation::new(KEPT).ttl(Duration::from_secs(30 * 24 * 60 * 60))
}

/// The operation of calls whose records expire after a second.
pub(crate) fn short() -> Operation {
    Operation::new(SHORT).ttl(Duration::from_secs(1))
}

/// Makes a call whose body runs.
pub(crate) async fn fresh<S: Store>(operation: &Operation, store: &S, key: String) -> Anything<()> {
    operation.run(store, key, || async { Ok::<_, Error>(RECEIPT.to_owned()) }).await?;
    Ok(())
}

/// Makes a call whose body must not run and that must return the model's result.
pub(crate) async fn replay<S: Store>(operation: &Operation, store: &S, key: String) -> Anything<()> {
    let given = operation.run(store, key, || async { Ok::<_, Error>(String::new()) }).await?;
    if given == RECEIPT { Ok(()) } else { Err("a filled record was not replayed".into()) }
}

/// Makes the record that all others are copies of, through the store.
pub(crate) async fn model<S: Subject>(subject: &S) -> Anything<()> {
    fresh(&kept(), subject.store()?, MODEL.to_owned()).await
}

/// Checks that the copies are records as the store would have made them: it replays them, and does not replay them for
/// another scope.
pub(crate) async fn check<S: Subject>(subject: &S, records: u64) -> Anything<()> {
    let (store, operation) = (subject.store()?, kept());
    for number in [0, 1, records / 3, records / 2, records - 1] {
        replay(&operation, store, key(number)).await?;
    }
    match replay(&short(), store, key(0)).await {
        Ok(()) => Err("a call of another scope was given a filled record".into()),
        Err(_) => Ok(()),
    }
}
