//! The store's tables and view, and their names.

use idem_store_kit::sql::Identifier;

use crate::db::schema::{Index, Named, Tables, Version};

/// The `fillfactor` of the table: how far new records fill a page, in percent. The rest of the page is for
/// later versions of these records.
const FILLFACTOR: u32 = 70;

/// The store's objects, as statements name them.
#[derive(Clone, Debug)]
pub(super) struct Names {
    pub(super) records: String,
    pub(super) meta: String,
    pub(super) readable: String,
    /// The index by which expired records are found.
    purge_index: Identifier,
}

impl Named for Names {
    fn of(tables: &Tables) -> Self {
        Self {
            records: tables.named(""),
            meta: tables.named("_meta"),
            readable: tables.named("_readable"),
            purge_index: tables.table.with("_purge"),
        }
    }

    fn versions(&self) -> Vec<Version> {
        vec![first(self)]
    }
}

/// The first layout. A purge finds expired records by `purge_at`. Renewals do not change this column, and
/// completions seldom do. So these updates are heap-only: they write no index, and use the free space of
/// their page.
fn first(names: &Names) -> Version {
    let Names { records, meta, readable, purge_index, .. } = names;
    let text = |column: &str| {
        format!(
            "CASE WHEN position(E'\\\\x00'::bytea IN {column}) = 0 AND \
             current_setting('server_encoding') = 'UTF8' \
             THEN convert_from({column}, 'UTF8') ELSE encode({column}, 'escape') END"
        )
    };
    let date = |column: &str| format!("to_timestamp({column} / 1000000.0) AS {column}");
    let (scope, key) = (text("scope"), text("key"));
    let (lease_until, retry_at) = (date("lease_until"), date("retry_at"));
    let (created_at, completed_at, expires_at) =
        (date("created_at"), date("completed_at"), date("expires_at"));
    let statements = format!(
        "CREATE TABLE {records} (
            scope        bytea    NOT NULL, -- text in UTF-8, which may hold what the type text does not
            key          bytea    NOT NULL,
            state        smallint NOT NULL, -- 0 in_flight, 1 completed, 2 failed, 3 released, 4 in_doubt
            owner        bytea    NOT NULL,
            fence        bigint   NOT NULL,
            attempt      bigint   NOT NULL,
            recovered    boolean  NOT NULL,
            on_crash     smallint NOT NULL, -- 0 rerun, 1 in_doubt
            lease_until  bigint   NOT NULL, -- instants: microseconds since 1970-01-01 UTC
            retry_at     bigint   NOT NULL,
            ttl          bigint   NOT NULL, -- microseconds
            fingerprint  bytea,
            tombstone    smallint,          -- why there is no result: 0 too_large, 1 not_encodable, 2 exhausted
            created_at   bigint   NOT NULL,
            completed_at bigint,
            expires_at   bigint,
            result       bytea,
            steps        bytea[],           -- what the body recorded, in its order
            purge_at     bigint   NOT NULL, -- when a purge looks at it
            PRIMARY KEY (scope, key)
        ) WITH (fillfactor = {FILLFACTOR});
        CREATE TABLE {meta} (name text PRIMARY KEY, value bigint NOT NULL);
        INSERT INTO {meta} (name, value) VALUES ('transactions', 0);
        CREATE VIEW {readable} AS SELECT
            {scope} AS scope, {key} AS key,
            (ARRAY['in_flight', 'completed', 'failed', 'released', 'in_doubt'])[state + 1] AS state,
            encode(owner, 'hex') AS owner, fence, attempt, recovered,
            (ARRAY['rerun', 'in_doubt'])[on_crash + 1] AS on_crash,
            {lease_until}, {retry_at}, ttl * interval '1 microsecond' AS ttl,
            encode(fingerprint, 'hex') AS fingerprint,
            (ARRAY['too_large', 'not_encodable', 'exhausted'])[tombstone + 1] AS tombstone,
            {created_at}, {completed_at}, {expires_at}, octet_length(result) AS result_bytes,
            coalesce(cardinality(steps), 0) AS steps
        FROM {records};"
    );
    let index = Index { name: purge_index.clone(), table: records.clone(), columns: "purge_at".into() };
    Version { statements, indexes: vec![index] }
}

#[cfg(test)]
mod tests;
