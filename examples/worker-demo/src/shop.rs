//! The orders, and what a handler needs to ship one.

use std::path::PathBuf;
use std::time::Duration;

use idem::message::{Dispose, Disposition, Reason};
use idem::{DynStore, PostgresStore, idempotent};
use serde::{Deserialize, Serialize};
use sqlx::{PgPool, Postgres, Transaction};

use crate::Ledger;

/// An order, as it stands in a message.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Order {
    /// Which order.
    pub id: u64,
    /// How many pieces. None cannot be shipped.
    pub pieces: u32,
}

impl Order {
    /// The order in a message.
    ///
    /// # Errors
    ///
    /// [`ShipError::NoOrder`].
    pub fn parse(body: &[u8]) -> Result<Self, ShipError> {
        serde_json::from_slice(body).map_err(|_| ShipError::NoOrder)
    }
}

/// What shipping gives.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Shipment {
    /// The parcel's number.
    pub parcel: String,
}

/// Why an order is not shipped.
#[derive(Debug, thiserror::Error, Serialize, Deserialize)]
pub enum ShipError {
    /// There is nothing to ship: no delivery will change that.
    #[error("an order of no pieces")]
    Empty,
    /// The message is no order.
    #[error("the message is no order")]
    NoOrder,
    /// The effect could not be had.
    #[error("the effect could not be had: {0}")]
    Effect(String),
    /// It did not come to the body.
    #[error(transparent)]
    #[serde(skip)]
    Idem(#[from] idem::Error),
}

impl ShipError {
    /// Whether the error is kept and replayed.
    #[must_use]
    pub const fn is_final(&self) -> bool {
        matches!(self, Self::Empty)
    }

    fn effect(error: impl std::fmt::Display) -> Self {
        Self::Effect(error.to_string())
    }
}

impl Dispose for ShipError {
    fn disposition(&self, _attempt: u32, proposed: Disposition) -> Disposition {
        match self {
            Self::NoOrder => Disposition::reject(Reason::Terminal),
            _ => proposed,
        }
    }
}

/// What a handler needs.
#[derive(Clone, Debug)]
pub struct Shop {
    /// Where results are kept.
    pub store: DynStore,
    /// How long a silent worker keeps an order.
    pub lease: Duration,
    /// Where the effects go, and what is told to whoever checks.
    pub ledger: Ledger,
    /// How long shipping takes.
    pub work: Duration,
    /// Where effects and results are one commit: see [`Shop::ship_in_transaction`].
    pub(crate) database: Option<(PgPool, PostgresStore)>,
}

impl Shop {
    /// One that keeps results in this store and its books in this folder.
    #[must_use]
    pub const fn new(store: DynStore, lease: Duration, folder: PathBuf, work: Duration) -> Self {
        Self { store, lease, ledger: Ledger::new(folder), work, database: None }
    }

    /// Has the effect: one line in the ledger, where nothing keeps a second one out.
    ///
    /// # Errors
    ///
    /// [`ShipError::Empty`], [`ShipError::Effect`].
    pub async fn pack(&self, order: &Order) -> Result<Shipment, ShipError> {
        if order.pieces == 0 {
            return Err(ShipError::Empty);
        }
        self.ledger.add("effects", &order.id.to_string()).map_err(ShipError::effect)?;
        tokio::time::sleep(self.work).await;
        Ok(parcel())
    }

    /// Whether the effects are rows of the database that keeps the results.
    #[must_use]
    pub const fn is_transactional(&self) -> bool {
        self.database.is_some()
    }

    /// Has the effect as a row of the database that keeps the result: both are one commit.
    ///
    /// # Errors
    ///
    /// [`ShipError`].
    pub async fn ship_in_transaction(&self, order: &Order) -> Result<Shipment, ShipError> {
        let Some((pool, store)) = &self.database else {
            return Err(ShipError::Effect("the store is no PostgreSQL".to_owned()));
        };
        let mut tx = pool.begin().await.map_err(ShipError::effect)?;
        let shipped = insert(store, &mut tx, order, self.work).await;
        // A failure that is kept is part of the commit, too.
        tx.commit().await.map_err(ShipError::effect)?;
        shipped
    }

    /// Ships, and puts down what was answered for whoever checks.
    ///
    /// # Errors
    ///
    /// Those of `shipping`.
    pub async fn answered(
        &self,
        order: &Order,
        shipping: impl Future<Output = Result<Shipment, ShipError>>,
    ) -> Result<Shipment, ShipError> {
        let observed = idem::observe(shipping).await;
        if let Ok(shipment) = &observed.value {
            let replayed = observed.outcome.is_some_and(|outcome| outcome.is_replayed());
            let how = if replayed { "replayed" } else { "ran" };
            let line = format!("{} {} {how}", order.id, shipment.parcel);
            self.ledger.add("answers", &line).map_err(ShipError::effect)?;
        }
        observed.value
    }
}

#[idempotent(
    key = "order/{order.id}",
    scope = "orders.ship",
    fingerprint = order.pieces,
    store = store,
    ttl = "7d",
    transaction = tx,
    terminal = ShipError::is_final
)]
async fn insert(
    store: &PostgresStore,
    tx: &mut Transaction<'_, Postgres>,
    order: &Order,
    work: Duration,
) -> Result<Shipment, ShipError> {
    if order.pieces == 0 {
        return Err(ShipError::Empty);
    }
    let id = i64::try_from(order.id).map_err(ShipError::effect)?;
    // No unique index keeps a second one out: they are counted.
    let insert = sqlx::query("INSERT INTO effects (id) VALUES ($1)").bind(id);
    insert.execute(&mut **tx).await.map_err(ShipError::effect)?;
    tokio::time::sleep(work).await;
    Ok(parcel())
}

/// At random, so that no two attempts give the same, of one order or of two.
fn parcel() -> Shipment {
    Shipment { parcel: format!("P{:016x}", rand::random::<u64>()) }
}
