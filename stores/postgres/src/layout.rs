//! The store's tables and view, and their names.

use crate::db::NOW;
use crate::db::identifier::Identifier;
use crate::db::schema::Layout;
use crate::db::schema::Named;

/// How full new records make a page, in percent. The rest is room for their later versions.
const FILLFACTOR: u32 = 70;

/// The store's objects, as statements name them.
#[derive(Clone, Debug)]
pub(super) struct Names {
    pub(super) schema: Identifier,
    pub(super) records: String,
    pub(super) meta: String,
    pub(super) meta_name: Identifier,
    pub(super) readable: String,
    /// The index of the first two layouts. Without a schema: an index is created in its table's.
    expiry_index: String,
    /// The index by which expired records are found, and the schema of both.
    purge_index: String,
    quoted_schema: String,
}

impl Named for Names {
    fn named(schema: &Identifier, table: &Identifier) -> Self {
        let in_schema = |suffix: &str| format!("{}.{}", schema.quoted(), table.with(suffix).quoted());
        Self {
            schema: schema.clone(),
            meta_name: table.with("_meta"),
            records: in_schema(""),
            meta: in_schema("_meta"),
            readable: in_schema("_readable"),
            expiry_index: table.with("_expiry").quoted(),
            purge_index: table.with("_purge").quoted(),
            quoted_schema: schema.quoted(),
        }
    }

    fn layout(&self) -> Layout {
        Layout {
            schema: self.schema.clone(),
            meta_name: self.meta_name.clone(),
            meta: self.meta.clone(),
            table: self.records.clone(),
            migrations: vec![records(self), with_steps(self), with_purge_at(self)],
        }
    }

    fn table(&self) -> &str {
        &self.records
    }
}

/// The statements that create the first layout.
fn records(names: &Names) -> String {
    let Names { records, meta, expiry_index, .. } = names;
    format!(
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
            PRIMARY KEY (scope, key)
        );
        CREATE INDEX {expiry_index} ON {records} (expires_at) WHERE expires_at IS NOT NULL;
        CREATE TABLE {meta} (name text PRIMARY KEY, value bigint NOT NULL);
        INSERT INTO {meta} (name, value) VALUES ('schema_version', 1), ('fence_floor', 0), ('transactions', 0);"
    )
}

/// The migration from the first layout to the second: adds steps, and recreates the view for people. Steps have the start of their
/// generation: a process of the first layout may leave steps behind, which the next generation must not see.
fn with_steps(names: &Names) -> String {
    let Names { records, meta, readable, .. } = names;
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
    format!(
        "ALTER TABLE {records} ADD COLUMN steps bytea[], -- what the body recorded, in its order
            ADD COLUMN steps_of bigint; -- created_at of the record they are of
        UPDATE {meta} SET value = 2 WHERE name = 'schema_version';
        CREATE OR REPLACE VIEW {readable} AS SELECT
            {scope} AS scope, {key} AS key,
            (ARRAY['in_flight', 'completed', 'failed', 'released', 'in_doubt'])[state + 1] AS state,
            encode(owner, 'hex') AS owner, fence, attempt, recovered,
            (ARRAY['rerun', 'in_doubt'])[on_crash + 1] AS on_crash,
            {lease_until}, {retry_at}, ttl * interval '1 microsecond' AS ttl,
            encode(fingerprint, 'hex') AS fingerprint,
            (ARRAY['too_large', 'not_encodable', 'exhausted'])[tombstone + 1] AS tombstone,
            {created_at}, {completed_at}, {expires_at}, octet_length(result) AS result_bytes,
            CASE WHEN steps_of = created_at AND completed_at IS NULL THEN cardinality(steps) ELSE 0 END AS steps
        FROM {records};"
    )
}

/// The migration from the second layout to the third: an instant that renewals and completions do not change finds expired
/// records. So those updates write no index (heap-only updates), in the room that each page keeps for them.
///
/// The column's default is for processes of the earlier layouts, which may still run: a purge looks at their records at once,
/// and again when they expire. It does the same with all records that exist already.
fn with_purge_at(names: &Names) -> String {
    let Names { records, meta, expiry_index, purge_index, quoted_schema, .. } = names;
    format!(
        "ALTER TABLE {records} ADD COLUMN purge_at bigint NOT NULL DEFAULT 0; -- when a purge looks at it
        ALTER TABLE {records} ALTER COLUMN purge_at SET DEFAULT {NOW}, SET (fillfactor = {FILLFACTOR});
        DROP INDEX IF EXISTS {quoted_schema}.{expiry_index};
        CREATE INDEX {purge_index} ON {records} (purge_at);
        UPDATE {meta} SET value = 3 WHERE name = 'schema_version';"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted() {
        let schema = Identifier::existing("od\"d".into());
        let names = Names::named(&schema, &Identifier::table("Mixed").unwrap());
        assert_eq!(names.records, "\"od\"\"d\".\"Mixed\"");
        assert_eq!(names.meta, "\"od\"\"d\".\"Mixed_meta\"");
    }
}
