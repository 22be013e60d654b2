//! The arms on MariaDB: this library, and SQL by hand on a pool of 16 connections that are not pinged before
//! use.

use idem::MySqlStore;
use idem_test_servers::MariaDb;
use sqlx::MySqlPool;
use sqlx::mysql::MySqlPoolOptions;

use crate::arm::{Anything, Arm, Contest, RECEIPT, beside, right};

async fn arms(url: String) -> Anything<Vec<Arm>> {
    let pool = MySqlPoolOptions::new().max_connections(16).test_before_acquire(false).connect(&url).await?;
    sqlx::query(
        "CREATE TABLE IF NOT EXISTS by_hand (`key` varbinary(200) PRIMARY KEY, state varchar(20) NOT NULL, \
         owner varchar(20) NOT NULL, locked_until datetime(6) NOT NULL, expires_at datetime(6), result blob)",
    )
    .execute(&pool)
    .await?;
    let hand = Arm::new("two statements, a `SELECT`", &pool, pay, look);
    Ok(beside(hand, &MySqlStore::connect(&url).await?))
}

async fn pay(pool: MySqlPool, key: String) -> Anything<()> {
    let claimed = sqlx::query(
        "INSERT IGNORE INTO by_hand (`key`, state, owner, locked_until) \
         VALUES (?, 'in_flight', 'worker', now(6) + interval 30 second)",
    )
    .bind(key.as_bytes())
    .execute(&pool)
    .await?;
    let recorded = sqlx::query(
        "UPDATE by_hand SET state = 'completed', result = ?, expires_at = now(6) + interval 1 day \
         WHERE `key` = ? AND owner = 'worker' AND state = 'in_flight'",
    )
    .bind(RECEIPT.as_bytes())
    .bind(key.as_bytes())
    .execute(&pool)
    .await?;
    right((claimed.rows_affected(), recorded.rows_affected()) == (1, 1))
}

async fn look(pool: MySqlPool, key: String) -> Anything<()> {
    let select = sqlx::query_as("SELECT state, result FROM by_hand WHERE `key` = ?").bind(key.as_bytes());
    let (state, result): (String, Vec<u8>) = select.fetch_one(&pool).await?;
    right(state == "completed" && result == RECEIPT.as_bytes())
}

pub(crate) fn contest() -> Anything<Contest> {
    // With its default settings, the server waits for the disk at each commit.
    let server = MariaDb::with(&[]);
    Ok(Contest::new("MariaDB", server.url(), Some(server.port()), server, arms))
}
