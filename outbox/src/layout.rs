//! The outbox's tables and view, and their names.

use idem_core::framed_digest;
use idem_postgres::db::schema::{Named, Tables, Version};

/// The names of the outbox's tables and channel, as statements contain them.
#[derive(Clone, Debug)]
pub(super) struct Names {
    tables: Tables,
    pub(super) messages: String,
    pub(super) topics: String,
    /// The channel of the `NOTIFY` for a new message.
    pub(super) channel: String,
}

impl Named for Names {
    fn of(tables: &Tables) -> Self {
        let messages = tables.named("");
        let digest = framed_digest(&[&messages]);
        let hex: String = digest[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        Self {
            tables: tables.clone(),
            topics: tables.named("_topics"),
            messages,
            channel: format!("idem_outbox_{hex}"),
        }
    }

    fn versions(&self) -> Vec<Version> {
        vec![Version { statements: create(self), indexes: Vec::new() }]
    }
}

impl Names {
    /// The number of the topic's advisory lock.
    pub(super) fn lock_number(&self, topic: &str) -> i64 {
        let digest = framed_digest(&["idem outbox", &self.messages, topic]);
        let mut short = [0; 8];
        short.copy_from_slice(&digest[..8]);
        i64::from_be_bytes(short)
    }
}

/// The statements that create the first layout.
fn create(names: &Names) -> String {
    let Names { messages, topics, tables, .. } = names;
    let index = |suffix: &str| tables.table.with(suffix).quoted('"');
    let (meta, readable) = (tables.named("_meta"), tables.named("_readable"));
    let (pending, aside, expiry) = (index("_pending"), index("_aside"), index("_expiry"));
    let date = |column: &str| format!("to_timestamp({column} / 1000000.0) AS {column}");
    let (enqueued_at, set_aside_at) = (date("enqueued_at"), date("set_aside_at"));
    let (published_at, expires_at) = (date("published_at"), date("expires_at"));
    format!(
        "CREATE TABLE {messages} (
            sequence     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            id           text    NOT NULL UNIQUE,
            topic        text    COLLATE \"C\" NOT NULL,
            payload      bytea   NOT NULL,
            attempts     integer NOT NULL DEFAULT 0,
            last_error   text,
            enqueued_at  bigint  NOT NULL, -- instants: microseconds since 1970-01-01 UTC
            set_aside_at bigint,
            published_at bigint,
            expires_at   bigint            -- of a published one that is kept
        );
        CREATE INDEX {pending} ON {messages} (topic, sequence)
            WHERE set_aside_at IS NULL AND published_at IS NULL;
        CREATE INDEX {aside} ON {messages} (sequence) WHERE set_aside_at IS NOT NULL;
        CREATE INDEX {expiry} ON {messages} (expires_at) WHERE expires_at IS NOT NULL;
        CREATE TABLE {topics} (
            topic        text    COLLATE \"C\" PRIMARY KEY,
            owner        bytea,                      -- the relay that has it, until
            lease_until  bigint  NOT NULL DEFAULT 0,
            due_at       bigint  NOT NULL DEFAULT 0, -- not before, after a failure
            failures     integer NOT NULL DEFAULT 0, -- in a row
            served_at    bigint  NOT NULL DEFAULT 0,
            blocked_by   bigint                      -- the message that holds it up until somebody decides
        );
        CREATE TABLE {meta} (name text PRIMARY KEY, value bigint NOT NULL);
        CREATE VIEW {readable} AS SELECT
            sequence, id, topic,
            CASE WHEN published_at IS NOT NULL THEN 'published'
                 WHEN set_aside_at IS NOT NULL THEN 'set_aside' ELSE 'pending' END AS state,
            attempts, last_error, {enqueued_at}, {set_aside_at}, {published_at}, {expires_at},
            octet_length(payload) AS payload_bytes
        FROM {messages};"
    )
}
