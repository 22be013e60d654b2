//! Real servers for tests and demos: each on a free port of 127.0.0.1, in a folder of its own. A server ends when it is
//! dropped or when the process that started it ends. Tests that neither kill nor configure a database server share one, each with a
//! database of its own: `Postgres::shared`, `MariaDb::shared`.
//!
//! Owns processes, ports and folders; depends on no client library, but for a bucket's. All calls block.

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
pub use installed::says_what_is_missing;
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

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::process::Life;
    use super::{MariaDb, Postgres};

    #[test]
    fn a_postgres_server_answers_survives_a_kill_and_ends_with_its_owner() {
        let mut postgres = Postgres::start();
        assert_eq!(postgres.sql("create table t (x int); insert into t values (7); select x from t"), "7");
        postgres.server().kill();
        postgres.restart();
        assert_eq!(postgres.sql("select x from t"), "7");
        postgres.server().stop("-INT");
        postgres.restart();
        let (life, port) = (Life::of(postgres.server()), postgres.server().port());
        drop(postgres);
        assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
        assert!(life.is_over());
    }

    #[test]
    fn a_shared_server_has_a_database_for_each_test_and_ends_after_the_last_one() {
        let (one, other) = (Postgres::shared(), Postgres::shared());
        assert_eq!((one.port() == other.port(), one.url() == other.url()), (true, false));
        assert_eq!(one.sql("create table t (x int); select count(*) from t"), "0");
        assert_eq!(other.sql("create table t (x int); select count(*) from t"), "0");
        let (mysql, other_mysql) = (MariaDb::shared(), MariaDb::shared());
        assert_eq!((mysql.port() == other_mysql.port(), mysql.url() == other_mysql.url()), (true, false));
        assert_eq!(mysql.sql("create table t (x int); select count(*) from t"), "0");
        let database = one.database().to_owned();
        drop(one);
        let left = format!("select count(*) from pg_database where datname = '{database}'");
        assert_eq!(other.sql(&left), "0");
    }
}
