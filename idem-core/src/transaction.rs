//! The traits of stores that can record in the caller's transaction.
//!
//! Owns these traits, and the way from the caller's argument to the connection. Knows no database.

use std::ops::DerefMut;

use crate::Store;
use crate::error::StoreError;
use crate::key::RecordKey;
use crate::protocol::{Claim, ClaimAnswer, Complete, CompleteAnswer, Grant, Record, Timestamp};

/// A store that can record in the caller's transaction, together with the caller's own writes.
///
/// `PostgresStore` and `MySqlStore` implement it. A store implements [`RecordsIn`] for each driver that it
/// supports.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot record in a transaction of the caller's",
    label = "with `transaction`, this must be a `PostgresStore` or a `MySqlStore`"
)]
pub trait TransactionStore: Store {
    /// The same store. Only a store with transactions has this type, so for any other store rustc reports one
    /// error and not several.
    type Itself: TransactionStore;

    /// The same store.
    fn itself(self) -> Self::Itself;

    /// Announces to the other processes with this store that there are calls in transactions.
    /// [`RecordsIn::take`] does this, too, on another connection. But then the caller's transaction is open
    /// meanwhile.
    fn announce(&self) -> impl Future<Output = Result<(), StoreError>> + Send {
        std::future::ready(Ok(()))
    }
}

/// A store that can record in the transaction of a connection. `C` is the driver's type of the connection.
///
/// Nobody else sees the store's writes before the caller commits.
pub trait RecordsIn<C>: TransactionStore {
    /// A savepoint that was set.
    type Mark: Send;

    /// Whether a transaction is open on this connection.
    fn is_open(connection: &mut C) -> bool;

    /// Takes the key for this transaction, if the key is free. No other transaction gets the key until this
    /// transaction ends. The store writes no record.
    fn take(
        &self,
        connection: &mut C,
        key: &RecordKey,
        request: &Claim,
    ) -> impl Future<Output = Result<Taking, StoreError>> + Send;

    /// Sets the savepoint that [`undo`](Self::undo) returns to.
    fn mark(connection: &mut C) -> impl Future<Output = Result<Self::Mark, StoreError>> + Send;

    /// Rolls back to the savepoint and removes it. If this future is dropped, the engine calls
    /// [`undo_first`](Self::undo_first).
    fn undo(connection: &mut C, mark: &mut Self::Mark)
    -> impl Future<Output = Result<(), StoreError>> + Send;

    /// As [`undo`](Self::undo), but without waiting: the rollback runs before the next statement on the
    /// connection.
    fn undo_first(connection: &mut C, mark: &mut Self::Mark);

    /// Removes the savepoint and keeps the writes that were made after it.
    fn keep(connection: &mut C, mark: &mut Self::Mark)
    -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Records a result in the transaction, if the record has not changed since the key was taken.
    fn record(
        &self,
        connection: &mut C,
        key: &RecordKey,
        taken: &Taken,
        request: &Complete,
    ) -> impl Future<Output = Result<CompleteAnswer, StoreError>> + Send;

    /// Makes it impossible to commit the transaction.
    fn spoil(connection: &mut C) -> impl Future<Output = ()> + Send;
}

/// A pool that begins the transactions in which the store `S` records: for the HTTP layer, whose caller has
/// no transaction.
///
/// The pools of sqlx and the connection of SeaORM are such pools. For another driver, implement this trait
/// for a type of your own around the driver's pool.
#[diagnostic::on_unimplemented(
    message = "`{S}` cannot record in the transactions of `{Self}`",
    label = "expected a pool of the store's driver, such as `sqlx::PgPool` for a `PostgresStore`",
    note = "the same name may be of another version of its crate: `cargo tree -i sqlx` shows whether there are two"
)]
pub trait TransactionPool<S>: Clone + Send + Sync + 'static {
    /// The driver's type of the connection, in which the store records.
    type Connection: Send;

    /// An open transaction. Dropping it rolls it back.
    type Transaction: Send + 'static;

    /// Takes a connection and begins a transaction on it.
    ///
    /// # Errors
    ///
    /// [`StoreErrorKind::Unavailable`](crate::StoreErrorKind) if no connection is free in time, or the server
    /// does not answer.
    fn begin(&self) -> impl Future<Output = Result<Self::Transaction, StoreError>> + Send;

    /// The connection of a transaction.
    fn connection(transaction: &mut Self::Transaction) -> &mut Self::Connection;

    /// Commits a transaction.
    ///
    /// # Errors
    ///
    /// Any failure, even if the transaction is committed and only the answer was lost.
    fn commit(transaction: Self::Transaction) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Rolls a transaction back. If that fails, the connection is lost, and the transaction is lost with it.
    fn roll_back(transaction: Self::Transaction) -> impl Future<Output = ()> + Send;
}

/// The outcome of an attempt to take a key.
#[derive(Debug)]
pub enum Taking {
    /// This transaction has the key.
    Taken(Box<Taken>),
    /// The key is not free, for this reason.
    Refused(ClaimAnswer),
}

/// A key that a transaction has taken.
#[derive(Debug)]
pub struct Taken {
    /// The right to run the body.
    pub grant: Grant,
    /// The record as it was read; `None` if there was no record.
    pub old: Option<Record>,
    /// The record as a claim outside a transaction would have written it.
    pub new: Record,
    /// The start of the transaction; it identifies the transaction.
    pub begun: Timestamp,
    /// When the key was taken, by the store's clock.
    pub at: Timestamp,
    /// When the key was taken, by the clock of this process.
    pub since: tokio::time::Instant,
}

/// Type-level paths from an argument to its connection.
pub mod via {
    /// The connection itself.
    #[derive(Debug)]
    pub struct Itself;
    /// One mutable dereference, then the path `V`.
    #[derive(Debug)]
    pub struct Through<V>(V);
}

/// A connection in whose transaction the store `S` can record. A value that dereferences mutably to such a
/// connection has this trait, too: a transaction, a pool's connection or a wrapper.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no connection of the store's kind",
    label = "this argument must be a `&mut` of a connection or transaction, such as `&mut Transaction<'_, Postgres>`",
    note = "the same name may be of another version of its crate: a transaction must be of the version that the store uses, such as \
            sqlx 0.9; `cargo tree -i sqlx` shows whether there are two, and the pages of the stores list the versions"
)]
pub trait Carries<S, Via> {
    /// The driver's type of the connection.
    type Connection: Send;

    /// The connection.
    fn connection(&mut self) -> &mut Self::Connection;
}

#[diagnostic::do_not_recommend]
impl<S: RecordsIn<C>, C: Send> Carries<S, via::Itself> for C {
    type Connection = C;

    fn connection(&mut self) -> &mut C {
        self
    }
}

#[diagnostic::do_not_recommend]
impl<S, V, T: DerefMut<Target: Carries<S, V>>> Carries<S, via::Through<V>> for T {
    type Connection = <T::Target as Carries<S, V>>::Connection;

    fn connection(&mut self) -> &mut Self::Connection {
        self.deref_mut().connection()
    }
}
