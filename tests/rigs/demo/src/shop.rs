//! The orders, the function that ships them, and the handler around it.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use idem::message::{Consumer, Disposition, Reason};
use idem::tower::{Error, IdempotentLayer};
use idem::{DynStore, Operation, Outcome, ResultRules, idempotent};
use idem_test_servers::Ledger;
use serde::{Deserialize, Serialize};
use tower::util::BoxCloneService;
use tower::{ServiceBuilder, ServiceExt as _};

use crate::CONCURRENCY;

/// How long a result is kept. The attribute of [`ship`] states the same time.
const TTL: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// The content of a message.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Order {
    /// The order's number.
    pub id: u64,
    /// How many pieces. An order of 0 pieces cannot be shipped.
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

/// The result of shipping.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Shipment {
    /// The parcel's number.
    pub parcel: String,
}

/// Why an order is not shipped.
#[derive(Debug, thiserror::Error, Serialize, Deserialize)]
pub enum ShipError {
    /// The order has no pieces; another delivery does not change that.
    #[error("an order of no pieces")]
    Empty,
    /// The message is not an order.
    #[error("the message is not an order")]
    NoOrder,
    /// The effect failed.
    #[error("the effect failed: {0}")]
    Effect(String),
    /// An error of idem's own.
    #[error(transparent)]
    #[serde(skip)]
    Idem(#[from] idem::Error),
}

impl ShipError {
    /// Whether the error is recorded and replayed.
    pub const fn is_final(&self) -> bool {
        matches!(self, Self::Empty)
    }

    fn effect(error: impl std::fmt::Display) -> Self {
        Self::Effect(error.to_string())
    }

    /// How to settle a message with this error, for `Consumer::dispose`.
    pub const fn disposition(&self, _attempt: u32, proposed: Disposition) -> Disposition {
        match self {
            Self::NoOrder => Disposition::reject(Reason::Terminal),
            _ => proposed,
        }
    }
}

/// The consumer of a worker.
pub(crate) fn consumer() -> Consumer<ShipError> {
    Consumer::new().concurrency(CONCURRENCY).dispose(ShipError::disposition)
}

/// The state of a handler.
#[derive(Clone, Debug)]
pub struct Shop {
    /// The store of results.
    pub store: DynStore,
    /// The lease of an order.
    pub lease: Duration,
    /// The files with effects, and with answers for the check.
    pub ledger: Ledger,
    /// How long shipping takes.
    pub work: Duration,
}

impl Shop {
    /// A shop that keeps results in this store and its ledger in this folder.
    pub const fn new(store: DynStore, lease: Duration, folder: PathBuf, work: Duration) -> Self {
        Self { store, lease, ledger: Ledger::new(folder), work }
    }

    /// The handler of a message: ships its order, and writes the answer to the ledger for the check.
    pub(crate) async fn handle(&self, order: Result<Order, ShipError>) -> Result<Shipment, ShipError> {
        let id = order.as_ref().ok().map(|order| order.id);
        let call = async {
            let order = order?;
            ship(self, &order).await
        };
        // The call is boxed, because a test's thread has a small stack.
        self.clone().observe(id, Box::pin(call)).await.map_err(ShipError::effect)?
    }

    /// Runs a delivery, and writes it and its answer to the ledger for the check.
    ///
    /// # Errors
    ///
    /// The ledger cannot be written.
    pub(crate) async fn observe<E>(
        self,
        order: Option<u64>,
        call: impl Future<Output = Result<Shipment, E>>,
    ) -> io::Result<Result<Shipment, E>> {
        self.ledger.add("deliveries", "1")?;
        let observed = idem::observe(call).await;
        if let (Ok(shipment), Some(order)) = (&observed.value, order) {
            let how = match observed.outcome {
                Some(Outcome::Replayed { .. }) => "replayed",
                Some(Outcome::Unrecorded { .. }) => "unrecorded",
                _ => "ran",
            };
            self.ledger.add("answers", &format!("{order} {} {how}", shipment.parcel))?;
        }
        Ok(observed.value)
    }

    /// A tower service that ships an order once, for frameworks that pass a job or an invocation to a
    /// service.
    pub(crate) fn service(&self) -> BoxCloneService<Order, Shipment, Error<ShipError>> {
        let is_final = |error: &Error<ShipError>| matches!(error, Error::Service(error) if error.is_final());
        let operation: Operation<ResultRules<Shipment, Error<ShipError>>> =
            Operation::new("orders.ship").ttl(TTL).lease(self.lease).terminal(is_final);
        let shop = self.clone();
        ServiceBuilder::new()
            .layer(IdempotentLayer::new(operation, self.store.clone(), |order: &Order| ("order", order.id)))
            .service_fn(move |order: Order| {
                let shop = shop.clone();
                async move { shop.effect(&order).await }
            })
            .boxed_clone()
    }

    /// The effect: a line in the ledger. The ledger accepts a second line for the same order, so repeated
    /// effects are counted.
    pub(crate) async fn effect(&self, order: &Order) -> Result<Shipment, ShipError> {
        if order.pieces == 0 {
            return Err(ShipError::Empty);
        }
        self.ledger.add("effects", &order.id.to_string()).map_err(ShipError::effect)?;
        tokio::time::sleep(self.work).await;
        // The number is random, so that every attempt has another parcel.
        Ok(Shipment { parcel: format!("P{:016x}", rand::random::<u64>()) })
    }
}

/// Ships an order.
///
/// # Errors
///
/// [`ShipError`].
#[idempotent(
    key = "order/{order.id}",
    scope = "orders.ship",
    fingerprint = order.pieces,
    store = shop.store,
    ttl = "7d",
    lease = shop.lease,
    terminal = ShipError::is_final
)]
pub async fn ship(shop: &Shop, order: &Order) -> Result<Shipment, ShipError> {
    shop.effect(order).await
}
