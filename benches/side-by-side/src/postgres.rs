//! The arms on PostgreSQL: SQL by hand on a pool of 16 connections that does not ping, and this library.

use idem::PostgresStore;
use idem_test_servers::Postgres;
use sqlx::postgres::PgPoolOptions;
use sqlx::{PgPool, Row as _};

use crate::arm::{Anything, Arm, Contest, RECEIPT, call, none, ours, wrong};

async fn hand(url: &str) -> Anything<Arm> {
    let pool = PgPoolOptions::new().max_connections(16).test_before_acquire(false).connect(url).await?;
    sqlx::query(
        "CREATE TABLE IF NOT EXISTS by_hand (key text PRIMARY KEY, state text NOT NULL, owner text NOT NULL, \
         locked_until timestamptz NOT NULL, expires_at timestamptz, result bytea)",
    )
    .execute(&pool)
    .await?;
    let reading = pool.clone();
    Ok(Arm {
        name: "two statements, a `SELECT`",
        fresh: call(move |key| pay(pool.clone(), key)),
        replay: call(move |key| look(reading.clone(), key)),
        work: None,
    })
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
    if (claimed.rows_affected(), recorded.rows_affected()) == (1, 1) { Ok(()) } else { Err(wrong()) }
}

async fn look(pool: PgPool, key: String) -> Anything<()> {
    let row =
        sqlx::query("SELECT state, result FROM by_hand WHERE key = $1").bind(&key).fetch_one(&pool).await?;
    let (state, result): (String, Vec<u8>) = (row.try_get(0)?, row.try_get(1)?);
    if state == "completed" && result == RECEIPT.as_bytes() { Ok(()) } else { Err(wrong()) }
}

async fn arms(url: String) -> Anything<Vec<Arm>> {
    let mut arms = vec![hand(&url).await?];
    arms.extend(ours(&PostgresStore::connect(&url).await?));
    arms.push(none());
    Ok(arms)
}

pub(crate) fn contest() -> Contest {
    // With its own settings, the server waits for the disk.
    let server = Postgres::with(&[]);
    Contest {
        store: "PostgreSQL",
        connect: Box::new(|url| Box::pin(arms(url))),
        url: server.url(),
        port: Some(server.port()),
        _kept: Box::new(server),
    }
}
