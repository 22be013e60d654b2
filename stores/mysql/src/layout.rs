//! The store's tables, and their names.

use idem_store_kit::sql::Identifier;

use crate::text::Text as _;

/// The comment that distinguishes the meta table from a table of another program.
pub(super) const COMMENT: &str = "idem";

/// The names of the store's tables. `records`, `steps` and `meta` are quoted for use in statements.
#[derive(Clone, Debug)]
pub(super) struct Names {
    pub(super) database: Identifier,
    pub(super) meta_name: Identifier,
    pub(super) records: String,
    pub(super) steps: String,
    pub(super) meta: String,
}

impl Names {
    pub(super) fn new(database: &Identifier, table: &Identifier) -> Self {
        let in_database =
            |suffix: &str| format!("{}.{}", database.quoted('`'), table.with(suffix).quoted('`'));
        Self {
            database: database.clone(),
            meta_name: table.with("_meta"),
            records: in_database(""),
            steps: in_database("_steps"),
            meta: in_database("_meta"),
        }
    }

    /// The statements that create the meta table, which contains the version of the layout. The meta table is
    /// created first, with version 0, so a table of records without a meta table belongs to another program.
    pub(super) fn create_meta(&self) -> String {
        let meta = &self.meta;
        format!(
            "CREATE TABLE IF NOT EXISTS {meta} (
                name  VARBINARY(32)   NOT NULL PRIMARY KEY,
                value BIGINT UNSIGNED NOT NULL
            ) ENGINE = InnoDB ROW_FORMAT = DYNAMIC COMMENT = '{COMMENT}';
            INSERT INTO {meta} (name, value) VALUES ('schema_version', 0), ('transactions', 0)
            ON DUPLICATE KEY UPDATE name = name"
        )
    }

    pub(super) fn version(&self) -> String {
        format!("SELECT value FROM {} WHERE name = 'schema_version' LIMIT 1", self.meta)
    }

    pub(super) fn meta_comment(&self) -> String {
        let literal = |name: &Identifier| {
            let mut text = String::new();
            text.bytes(name.as_str().as_bytes());
            format!("CONVERT({text} USING utf8mb4)")
        };
        let (database, table) = (literal(&self.database), literal(&self.meta_name));
        format!(
            "SELECT table_comment FROM information_schema.tables WHERE table_schema = {database} AND table_name = {table} LIMIT 1"
        )
    }

    /// For each layout, the statements that lead to it from the layout before. The statements of the first
    /// layout create the tables.
    ///
    /// Several processes may run the statements at once, and any process may die halfway. The server runs DDL
    /// outside of transactions, so each statement must be repeatable. A table needs `IF NOT EXISTS`. Columns
    /// and indexes need nothing, because `Session::alter` ignores the error if they already exist or are
    /// already gone. No statement may stop claims for long. So an index needs `ALGORITHM = INPLACE, LOCK =
    /// NONE`, and a column needs `ALGORITHM = INSTANT`. A column also needs a default, because processes with
    /// the previous layout insert rows without this column.
    pub(super) fn layouts(&self) -> Vec<Vec<String>> {
        vec![self.tables()]
    }

    /// Stores the fact that the tables have this version of the layout.
    pub(super) fn reached(&self, version: usize) -> String {
        let meta = &self.meta;
        format!("UPDATE {meta} SET value = {version} WHERE name = 'schema_version' AND value < {version}")
    }

    fn tables(&self) -> Vec<String> {
        let Self { records, steps, .. } = self;
        let records = format!(
            "CREATE TABLE IF NOT EXISTS {records} (
                scope        VARBINARY(512)   NOT NULL COMMENT 'UTF-8',
                `key`        VARBINARY(1024)  NOT NULL COMMENT 'UTF-8',
                state        TINYINT UNSIGNED NOT NULL COMMENT '0 in_flight, 1 completed, 2 failed, 3 released, 4 in_doubt',
                owner        BINARY(16)       NOT NULL,
                fence        BIGINT UNSIGNED  NOT NULL,
                attempt      INT UNSIGNED     NOT NULL,
                recovered    TINYINT UNSIGNED NOT NULL,
                on_crash     TINYINT UNSIGNED NOT NULL COMMENT '0 rerun, 1 in_doubt',
                lease_until  BIGINT UNSIGNED  NOT NULL COMMENT 'instants: microseconds since 1970-01-01 UTC',
                retry_at     BIGINT UNSIGNED  NOT NULL,
                ttl          BIGINT UNSIGNED  NOT NULL COMMENT 'microseconds',
                fingerprint  BINARY(32),
                tombstone    TINYINT UNSIGNED COMMENT 'why there is no result: 0 too_large, 1 not_encodable, 2 exhausted',
                created_at   BIGINT UNSIGNED  NOT NULL,
                completed_at BIGINT UNSIGNED,
                expires_at   BIGINT UNSIGNED,
                purge_at     BIGINT UNSIGNED  NOT NULL COMMENT 'when a purge looks at it',
                steps        INT UNSIGNED     NOT NULL COMMENT 'how many there are in the table of steps',
                result       LONGBLOB,
                PRIMARY KEY (scope, `key`),
                KEY due (purge_at)
            ) ENGINE = InnoDB ROW_FORMAT = DYNAMIC"
        );
        let steps = format!(
            "CREATE TABLE IF NOT EXISTS {steps} (
                scope    VARBINARY(512)  NOT NULL,
                `key`    VARBINARY(1024) NOT NULL,
                position INT UNSIGNED    NOT NULL COMMENT 'from 0, in the order they were recorded',
                step     LONGBLOB        NOT NULL,
                PRIMARY KEY (scope, `key`, position)
            ) ENGINE = InnoDB ROW_FORMAT = DYNAMIC"
        );
        vec![records, steps]
    }
}
