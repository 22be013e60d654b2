//! MariaDB: what one would write by hand on a pool of 16 that does not ping, and what is here.

use idem::MySqlStore;
use idem_test_servers::MariaDb;
use sqlx::mysql::MySqlPoolOptions;
use sqlx::{MySqlPool, Row as _};

use crate::arm::{Anything, Arm, Contest, RECEIPT, call, none, ours, wrong};

async fn hand(url: &str) -> Anything<Arm> {
    let pool = MySqlPoolOptions::new().max_connections(16).test_before_acquire(false).connect(url).await?;
    sqlx::query(
        "CREATE TABLE IF NOT EXISTS by_hand (`key` varbinary(200) PRIMARY KEY, state varchar(20) NOT NULL, \
         owner varchar(20) NOT NULL, locked_until datetime(6) NOT NULL, expires_at datetime(6), result blob)",
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
    if (claimed.rows_affected(), recorded.rows_affected()) == (1, 1) { Ok(()) } else { Err(wrong()) }
}

async fn look(pool: MySqlPool, key: String) -> Anything<()> {
    let select = sqlx::query("SELECT state, result FROM by_hand WHERE `key` = ?").bind(key.as_bytes());
    let row = select.fetch_one(&pool).await?;
    let (state, result): (String, Vec<u8>) = (row.try_get(0)?, row.try_get(1)?);
    if state == "completed" && result == RECEIPT.as_bytes() { Ok(()) } else { Err(wrong()) }
}

async fn arms(url: String) -> Anything<Vec<Arm>> {
    let mut arms = vec![hand(&url).await?];
    arms.extend(ours(&MySqlStore::connect(&url).await?));
    arms.push(none());
    Ok(arms)
}

pub(crate) fn contest() -> Contest {
    // The server waits for the disk.
    let server = MariaDb::with(&[]);
    Contest {
        store: "MariaDB",
        connect: Box::new(|url| Box::pin(arms(url))),
        url: server.url(),
        port: Some(server.port()),
        _kept: Box::new(server),
    }
}
