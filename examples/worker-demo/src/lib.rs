//! What the demos of the message workers share.
//!
//! A demo starts a broker, a store and workers as processes, sends orders of which some come twice, kills
//! workers, and checks every order from the outside. Each worker crate has its own annotated handler and
//! its own glue to its broker; all else stands here. It knows no broker: see [`Broker`].

mod books;
mod demo;
mod killed;
mod ledger;
mod shop;
mod worker;

pub use demo::{Broker, main};
pub use killed::{WorkerProcess, killed_between_effect_and_record, until};
pub use ledger::Ledger;
pub use shop::{Order, ShipError, Shipment, Shop};

/// Whatever goes wrong in a demo.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;
