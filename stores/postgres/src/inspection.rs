//! Checks a server and its settings.

use sqlx::Row as _;
use sqlx::postgres::PgRow;

use crate::db::NOW;
use crate::db::failure::Failure;
use crate::db::session::{Session, statement};
use idem_core::StoreError;
use idem_core::inspection::{Inspection, Standing};
use idem_core::protocol::Timestamp;

/// Each setting, and what may be lost if the setting is off.
const SETTINGS: [(&str, &str); 3] = [
    ("fsync", "a power cut may lose acknowledged steps or damage the database"),
    ("full_page_writes", "a power cut may damage the database"),
    (
        "synchronous_commit",
        "a crash of the server may lose the last acknowledged steps, and bodies run again",
    ),
];

pub(super) async fn look(session: &mut Session) -> Result<Inspection, Failure> {
    let text = format!(
        "SELECT current_setting('server_version'), pg_is_in_recovery(), {NOW}, current_setting('fsync'), \
         current_setting('full_page_writes'), current_setting('synchronous_commit')"
    );
    let rows = session.fetch_all(statement(&text.into())).await?;
    rows.first().and_then(read).ok_or_else(|| {
        Failure::Refused(StoreError::configuration(
            "the server did not return its version; check its version and settings",
        ))
    })
}

fn read(row: &PgRow) -> Option<Inspection> {
    let now = u64::try_from(row.try_get::<i64, _>(2).ok()?).ok().map(Timestamp::from_micros);
    let server = format!("PostgreSQL {}", row.try_get::<String, _>(0).ok()?);
    let mut found = Inspection::of(server).with_now(now);
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
