//! What one would write by hand: claim by insert, record by a guarded update, and look.

use sqlx::postgres::PgPoolOptions;
use sqlx::{PgPool, Row as _};

use crate::Failure;

/// The hand-written guard.
#[derive(Clone)]
pub(crate) struct Hand(PgPool);

impl Hand {
    pub(crate) async fn new(url: &str) -> Result<Self, Failure> {
        let pool = PgPoolOptions::new()
            .max_connections(16)
            .min_connections(16)
            .test_before_acquire(false)
            .connect(url)
            .await?;
        sqlx::query(
            "CREATE TABLE by_hand (key text PRIMARY KEY, state text NOT NULL, owner text NOT NULL, \
             locked_until timestamptz NOT NULL, expires_at timestamptz, result bytea)",
        )
        .execute(&pool)
        .await?;
        Ok(Self(pool))
    }

    /// A fresh call.
    pub(crate) async fn pay(self, key: String) -> Result<(), Failure> {
        let claimed = sqlx::query(
            "INSERT INTO by_hand (key, state, owner, locked_until) \
             VALUES ($1, 'in_flight', $2, now() + interval '30 seconds') ON CONFLICT DO NOTHING",
        )
        .bind(&key)
        .bind("worker")
        .execute(&self.0)
        .await?;
        let recorded = sqlx::query(
            "UPDATE by_hand SET state = 'completed', result = $2, expires_at = now() + interval '1 day' \
             WHERE key = $1 AND owner = $3 AND state = 'in_flight'",
        )
        .bind(&key)
        .bind(&b"\"a receipt\""[..])
        .bind("worker")
        .execute(&self.0)
        .await?;
        match (claimed.rows_affected(), recorded.rows_affected()) {
            (1, 1) => Ok(()),
            _ => Err("the key was taken".into()),
        }
    }

    /// A replay.
    pub(crate) async fn look(self, key: String) -> Result<(), Failure> {
        let row = sqlx::query("SELECT state, result FROM by_hand WHERE key = $1")
            .bind(&key)
            .fetch_one(&self.0)
            .await?;
        let (state, result): (String, Vec<u8>) = (row.try_get(0)?, row.try_get(1)?);
        if state == "completed" && !result.is_empty() { Ok(()) } else { Err("no result".into()) }
    }
}
