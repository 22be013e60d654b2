//! What a store owes to record in a transaction of the caller's.
//!
//! Owns the trait, and how a connection is found behind what an argument is. It knows no database.

use std::ops::DerefMut;

use super::Store;
use crate::error::StoreError;
use crate::key::RecordKey;
use crate::protocol::{Claim, ClaimAnswer, Complete, CompleteAnswer, Grant, Record, Timestamp};

/// A store that can record in a transaction of the caller's, with the caller's own writes.
///
/// Nothing that happens here is seen by others before the caller commits. Only
/// [`PostgresStore`](crate::PostgresStore) is one.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot record in a transaction of the caller's",
    label = "with `transaction`, this must be a `PostgresStore`"
)]
pub trait TransactionStore: Store {
    /// The same store: a type that nothing else has, so that rustc says once of a store that is none.
    type Itself: TransactionStore;

    /// What carries the transaction.
    type Connection: Send;

    /// The same store.
    fn itself(self) -> Self::Itself;

    /// Whether a transaction is open on it.
    fn is_open(connection: &Self::Connection) -> bool;

    /// Takes the key for this transaction, if it is to be had: until its end no other transaction gets
    /// it. Nothing is written.
    fn take(
        &self,
        connection: &mut Self::Connection,
        key: &RecordKey,
        request: &Claim,
    ) -> impl Future<Output = Result<Taking, StoreError>> + Send;

    /// Marks the point to which [`undo`](Self::undo) goes back.
    fn mark(connection: &mut Self::Connection) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Goes back to the mark, and removes it.
    fn undo(connection: &mut Self::Connection) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// As [`undo`](Self::undo), before anything else that is asked of the connection from now on.
    fn undo_first(connection: &mut Self::Connection);

    /// Removes the mark, and keeps what was done since.
    fn keep(connection: &mut Self::Connection) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Records a result in the transaction, if the record is still the one that was taken.
    fn record(
        &self,
        connection: &mut Self::Connection,
        key: &RecordKey,
        taken: &Taken,
        request: &Complete,
    ) -> impl Future<Output = Result<CompleteAnswer, StoreError>> + Send;

    /// Makes it impossible to commit the transaction.
    fn spoil(connection: &mut Self::Connection) -> impl Future<Output = ()> + Send;
}

/// What became of an attempt to take a key.
#[derive(Debug)]
pub enum Taking {
    /// It is this transaction's.
    Taken(Box<Taken>),
    /// It is not to be had; why.
    Refused(ClaimAnswer),
}

/// A key that a transaction has taken.
#[derive(Debug)]
pub struct Taken {
    /// The right to run the body.
    pub grant: Grant,
    /// The record as it was read; `None` where there is none.
    pub old: Option<Record>,
    /// The record as a claim outside a transaction would have written it.
    pub new: Record,
    /// When the transaction began, by which it is known again.
    pub begun: Timestamp,
    /// When it was taken, by the store's clock.
    pub at: Timestamp,
    /// The same by this process's.
    pub since: tokio::time::Instant,
}

/// Ways to a connection.
pub(crate) mod via {
    /// The connection itself.
    #[derive(Debug)]
    pub struct Itself;
    /// Through one that gives it out mutably, and so on.
    #[derive(Debug)]
    pub struct Through<V>(V);
}

/// A connection `C`, or what gives one out mutably: a transaction, a pool's connection, a wrapper.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no connection of the store's kind",
    label = "this argument must be a `&mut` of a connection or transaction, such as `&mut Transaction<'_, Postgres>`"
)]
pub trait Carries<C, Via> {
    /// The connection.
    fn connection(&mut self) -> &mut C;
}

#[diagnostic::do_not_recommend]
impl<C> Carries<C, via::Itself> for C {
    fn connection(&mut self) -> &mut C {
        self
    }
}

#[diagnostic::do_not_recommend]
impl<C, V, T: DerefMut<Target: Carries<C, V>>> Carries<C, via::Through<V>> for T {
    fn connection(&mut self) -> &mut C {
        self.deref_mut().connection()
    }
}
