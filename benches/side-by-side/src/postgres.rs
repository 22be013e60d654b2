//! The arms on PostgreSQL: this library, and SQL by hand on a pool of 16 connections that are not pinged
//! before use.

use idem::PostgresStore;
use idem_test_servers::Postgres;
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;

use crate::arm::{Anything, Arm, Contest, RECEIPT, beside, right};

async fn arms(url: String) -> Anything<Vec<Arm>> {
    let pool = PgPoolOptions::new().max_connections(16).test_before_acquire(false).connect(&url).await?;
    sqlx::query(
        "CREATE TABLE IF NOT EXISTS by_hand (key text PRIMARY KEY, state text NOT NULL, owner text NOT NULL, \
         locked_until timestamptz NOT NULL, expires_at timestamptz, result bytea)",
    )
    .execute(&pool)
    .await?;
    let hand = Arm::new("two statements, a `SELECT`", &pool, pay, look);
    Ok(beside(hand, &PostgresStore::connect(&url).await?))
}

async fn pay(pool: PgPool, key: String) -> Anything<()> {
    let claimed = sqlx::query(
        "INSERT INTO by_hand (key, state, owner, locked_until) \
         VALUES ($1, 'in_flight', 'worker', now() + interval '30 seconds') ON CONFLICT DO NOTHING",
    )
    .bind(&key)
    .execute(&pool)
    .await?;
    let recorded = sqlx::query(
        "UPDATE by_hand SET state = 'completed', result = $2, expires_at = now() + interval '1 day' \
         WHERE key = $1 AND owner = 'worker' AND state = 'in_flight'",
    )
    .bind(&key)
    .bind(RECEIPT.as_bytes())
    .execute(&pool)
    .await?;
    right((claimed.rows_affected(), recorded.rows_affected()) == (1, 1))
}

async fn look(pool: PgPool, key: String) -> Anything<()> {
    let select = sqlx::query_as("SELECT state, result FROM by_hand WHERE key = $1").bind(&key);
    let (state, result): (String, Vec<u8>) = select.fetch_one(&pool).await?;
    right(state == "completed" && result == RECEIPT.as_bytes())
}

pub(crate) fn contest() -> Anything<Contest> {
    // With its default settings, the server waits for the disk at each commit.
    let server = Postgres::with(&[]);
    Ok(Contest::new("PostgreSQL", server.url(), Some(server.port()), server, arms))
}
