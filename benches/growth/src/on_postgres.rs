//! PostgreSQL, which waits for the disk. The program purges every second.

use idem::PostgresStore;
use idem_test_servers::Postgres;

use crate::subject::{Anything, KEPT, MODEL, SHORT, SPREAD, Subject};

pub(crate) struct OnPostgres {
    store: PostgresStore,
    server: Postgres,
}

impl OnPostgres {
    pub(crate) async fn new() -> Anything<Self> {
        // The filling writes as much in a minute as a program does in days; all other settings are the defaults.
        let server = Postgres::with(&["max_wal_size=4GB"]);
        let store = PostgresStore::connect(&server.url()).await?;
        Ok(Self { store, server })
    }

    fn number(&self, sql: &str) -> Anything<u64> {
        Ok(self.server.sql(sql).parse()?)
    }
}

impl Subject for OnPostgres {
    type Store = PostgresStore;

    async fn name(&self) -> Anything<String> {
        let version = self.server.sql("SHOW server_version");
        Ok(format!("PostgreSQL {}", version.split(' ').next().unwrap_or_default()))
    }

    fn store(&self) -> Anything<&PostgresStore> {
        Ok(&self.store)
    }

    fn has_room(&self, _: u64) -> Result<(), String> {
        Ok(())
    }

    async fn fill(&mut self, from: u64, to: u64) -> Anything<()> {
        let columns = self.server.sql(
            "SELECT string_agg(quote_ident(column_name), ', ') FROM information_schema.columns \
             WHERE table_name = 'idem_records' AND column_name NOT IN ('key', 'expires_at')",
        );
        let copied = self.number(&format!(
            "WITH copied AS (INSERT INTO idem_records (key, expires_at, {columns}) \
             SELECT convert_to(numbered.name, 'UTF8'), expires_at + row_number() OVER (), {columns} FROM \
             (SELECT lpad(to_hex(n * {SPREAD} % 4294967296), 8, '0') || '-' || n AS name \
              FROM generate_series({from}::bigint, {to}::bigint - 1) n ORDER BY 1) numbered \
             CROSS JOIN (SELECT * FROM idem_records \
              WHERE scope = '{KEPT}'::bytea AND key = '{MODEL}'::bytea) model RETURNING 1) \
             SELECT count(*) FROM copied",
        ))?;
        if copied != to - from {
            return Err("not each record was copied".into());
        }
        // As autovacuum would do it while a table grows slowly.
        let _ = self.server.sql("VACUUM (ANALYZE) idem_records");
        let _ = self.server.sql("CHECKPOINT");
        Ok(())
    }

    async fn left(&self) -> Anything<u64> {
        self.number(&format!("SELECT count(*) FROM idem_records WHERE scope = '{SHORT}'::bytea"))
    }

    async fn bytes(&self) -> Anything<u64> {
        self.number("SELECT pg_total_relation_size('idem_records')")
    }

    fn is_purged(&self) -> bool {
        true
    }
}
