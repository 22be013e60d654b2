//! Real servers for tests and demos: each on a free port of 127.0.0.1, in a folder of its own. If a server is
//! not shared, it ends when it is dropped or when the process that started it ends. Tests that neither kill
//! nor configure a database server share one server (`Postgres::shared`, `MariaDb::shared`). Each of these
//! tests has its own database on it.
//!
//! Owns processes, ports and folders. Depends on no client library, except the one for buckets. All calls
//! block, except those of `meter` and `web`, which are async.

#![allow(clippy::missing_panics_doc, reason = "a server that cannot be started fails the test")]

mod aws;
#[cfg(feature = "bucket")]
mod bucket;
mod certificate;
mod database;
mod installed;
mod kafka;
mod ledger;
mod mariadb;
#[cfg(feature = "meter")]
pub mod meter;
mod nats;
mod pgbouncer;
mod postgres;
mod process;
pub mod program;
mod rabbitmq;
mod redis;
mod redis_group;
mod shared;
mod test_child;
#[cfg(feature = "web")]
pub mod web;

pub use aws::Aws;
#[cfg(feature = "bucket")]
pub use bucket::bucket;
pub use database::{DatabaseServer, Engine};
pub use kafka::Kafka;
pub use ledger::Ledger;
pub use mariadb::{MariaDb, MariaDbEngine};
pub use nats::Nats;
pub use pgbouncer::PgBouncer;
pub use postgres::{Postgres, PostgresEngine};
pub use process::{Server, free_port, until};
pub use rabbitmq::RabbitMq;
pub use redis::Redis;
pub use redis_group::{RedisCluster, RedisSentinel};
pub use test_child::{TestChild, say};
