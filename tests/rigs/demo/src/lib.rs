//! The rig of message workers. It starts a broker, a store and workers as processes, sends orders, some of
//! them more than once, and kills workers. Then it checks every order from outside.
//!
//! [`brokers`] has all code that differs between brokers.

mod books;
pub mod brokers;
mod run;
mod shop;
mod worker;

pub use brokers::{Broker, Kind, Setup};
pub use run::main;
pub use shop::{Order, ShipError, Shipment, Shop, ship};

/// Any error of a demo.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// How many handlers each worker runs at a time.
pub const CONCURRENCY: usize = 10;
