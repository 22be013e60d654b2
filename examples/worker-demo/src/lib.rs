//! The shared part of the demos of message workers.
//!
//! A demo starts a broker, a store and workers as processes, sends orders, some of them twice, kills
//! workers, and checks every order from outside. Each worker example has its own annotated handler and
//! its own implementation of [`Broker`]; this crate has the rest, and knows no broker.

mod books;
mod demo;
mod killed;
mod ledger;
mod outage;
mod shop;
mod worker;

pub use demo::{Broker, main};
pub use killed::{WorkerProcess, killed_between_effect_and_record, until};
pub use ledger::Ledger;
pub use shop::{Order, ShipError, Shipment, Shop};

/// Any error of a demo.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;
