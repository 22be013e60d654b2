//! A handler whose effects are counted.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use idem_messages::{Consumer, Disposition};
use idem_runtime::{Error, MemoryStore, Operation};

use crate::{Delivered, Handler, Settings};

/// Why a message was not handled.
#[derive(Debug)]
pub enum Failed {
    /// The message gets this disposition.
    Becomes(Disposition),
    /// The handler made no idempotent call, and failed with this text.
    Says(String),
    /// The call failed with an error of idem's own.
    Idem(Error),
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Becomes(_) => f.write_str("as it was told"),
            Self::Says(text) => f.write_str(text),
            Self::Idem(error) => error.fmt(f),
        }
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Idem(error)
    }
}

fn choose(error: &Failed, _: u32, proposed: Disposition) -> Disposition {
    match error {
        Failed::Becomes(disposition) => *disposition,
        _ => proposed,
    }
}

/// Ships orders: the body of a message is the order.
#[derive(Clone, Debug, Default)]
pub struct Shop(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    store: MemoryStore,
    begun: Mutex<Vec<(Delivered, Instant)>>,
    effects: Mutex<Vec<String>>,
}

impl Shop {
    /// A consumer that runs ten handlers at a time.
    pub fn settings() -> Settings {
        Consumer::new().concurrency(10).dispose(choose)
    }

    /// Ships an order, once.
    ///
    /// # Errors
    ///
    /// [`Failed::Idem`].
    pub async fn ship(&self, order: String, work: Duration) -> Result<String, Failed> {
        let Inner { store, effects, .. } = &*self.0;
        let ship = Operation::new("orders.ship");
        ship.run(store, order.clone(), || async {
            effects.lock().unwrap().push(order);
            tokio::time::sleep(work).await;
            Ok("parcel 7".to_owned())
        })
        .await
    }

    /// A handler that notes the delivery and ships the order.
    pub fn ships(&self, work: Duration) -> Handler {
        let shop = self.clone();
        self.notes(move |order| {
            let shop = shop.clone();
            async move { shop.ship(order, work).await }
        })
    }

    /// A handler that notes the delivery and then runs `handler`.
    pub fn notes<F>(&self, handler: impl Fn(String) -> F + Send + Sync + 'static) -> Handler
    where
        F: Future<Output = Result<String, Failed>> + Send + 'static,
    {
        let shop = self.clone();
        Box::new(move |message| {
            let order = message.body.clone();
            shop.0.begun.lock().unwrap().push((message, Instant::now()));
            Box::pin(handler(order))
        })
    }

    /// The times at which handlers began with this order.
    pub fn begun(&self, order: &str) -> Vec<Instant> {
        let begun = self.0.begun.lock().unwrap();
        begun.iter().filter(|(begun, _)| begun.body == order).map(|(_, at)| *at).collect()
    }

    /// Whether each message still had the header that it was sent with.
    pub fn are_traced(&self) -> bool {
        let begun = self.0.begun.lock().unwrap();
        begun.iter().all(|(message, _)| message.trace == Some(format!("t-{}", message.body)))
    }

    /// The number of times a handler began.
    pub fn deliveries(&self) -> usize {
        self.0.begun.lock().unwrap().len()
    }

    /// The shipped orders, sorted; an order that was shipped twice is listed twice.
    pub fn effects(&self) -> Vec<String> {
        let mut effects = self.0.effects.lock().unwrap().clone();
        effects.sort();
        effects
    }
}
