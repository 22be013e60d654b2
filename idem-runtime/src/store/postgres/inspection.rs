//! What there is to say of a server and its table.

use sqlx::postgres::{PgConnection, PgRow};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, Row as _};
use tokio::time::timeout;

use super::failure;
use super::session::Opening;
use super::statements::NOW;
use crate::error::StoreError;
use crate::inspection::{Inspection, Standing};
use crate::protocol::Timestamp;
use crate::store::retry::retried;

/// What a setting that is off loses.
const SETTINGS: [(&str, &str); 3] = [
    ("fsync", "a power cut may lose acknowledged steps or damage the database"),
    ("full_page_writes", "a power cut may damage the database"),
    (
        "synchronous_commit",
        "a crash of the server may lose the last acknowledged steps, and bodies run again",
    ),
];

/// Looks at the server, on a connection of its own.
pub(super) async fn look(opening: &Opening) -> Result<Inspection, StoreError> {
    retried(opening.time(), || async {
        let mut connection = opening.open().await?;
        let asked = format!(
            "SELECT current_setting('server_version'), pg_is_in_recovery(), {NOW}, current_setting('fsync'), \
             current_setting('full_page_writes'), current_setting('synchronous_commit')"
        );
        let found = connection.fetch_all(AssertSqlSafe(asked)).await;
        let _ = timeout(opening.time(), PgConnection::close(connection)).await;
        let found = found.map_err(|error| failure::of_statement(&error).error())?;
        found.first().and_then(read).ok_or_else(|| {
            StoreError::configuration("the server does not say what it is; look at its version and settings")
        })
    })
    .await
}

fn read(row: &PgRow) -> Option<Inspection> {
    let now = u64::try_from(row.try_get::<i64, _>(2).ok()?).ok().map(Timestamp::from_micros);
    let server = format!("PostgreSQL {}", row.try_get::<String, _>(0).ok()?);
    let mut found = Inspection { server, now, findings: Vec::new() };
    if row.try_get::<bool, _>(1).ok()? {
        found.find(
            Standing::Broken,
            "role",
            "a standby, which takes no writes: use an address that follows the primary",
        );
    } else {
        found.find(Standing::Fine, "role", "primary");
    }
    for (index, (name, loss)) in SETTINGS.into_iter().enumerate() {
        let value: String = row.try_get(index + 3).ok()?;
        match value.as_str() {
            "off" => found.find(Standing::Weak, name, format!("off: {loss}")),
            value => found.find(Standing::Fine, name, value),
        }
    }
    Some(found)
}
