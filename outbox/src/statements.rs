//! The statements. Each statement is atomic, and safe to repeat if its answer was lost.
//!
//! While the database is down, a relay remembers which messages it has published. After a failover, the new
//! primary may have lost the last messages, and may use their numbers for other messages. So the relay's
//! statements identify a message by its number and its id.

use sqlx::AssertSqlSafe;

use super::layout::Names;
use idem_postgres::db::NOW;
use idem_postgres::db::session::Statement;

/// The condition for messages that are still to be published.
const PENDING: &str = "set_aside_at IS NULL AND published_at IS NULL";

/// The time when the server was started. After a restart, earlier knowledge about open transactions is
/// invalid.
const STARTED: &str = "(extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint";

/// The numbers and ids of messages, as rows. $1 numbers, $2 ids.
const NAMED: &str = "unnest($1::bigint[], $2::text[]) AS a (sequence, id)";

fn query(text: String) -> Statement {
    sqlx::query(AssertSqlSafe(text))
}

impl Names {
    /// Enqueues. $1 the topic's lock, $2 id, $3 topic, $4 payload. Returns a row, unless the id exists.
    ///
    /// The lock is shared, so it blocks no other transaction that enqueues. It shows a relay that a
    /// transaction may still have messages with lower numbers than the visible messages. The transaction
    /// takes the lock before the number, because the row of `held` exists before the insert computes its
    /// columns.
    pub(super) fn enqueue(&self, notify: bool) -> String {
        let (messages, channel) = (&self.messages, &self.channel);
        let told = if notify { format!(", pg_notify('{channel}', '')::text") } else { String::new() };
        format!(
            "WITH held AS MATERIALIZED (SELECT pg_advisory_xact_lock_shared($1) AS lock) \
             INSERT INTO {messages} (id, topic, payload, enqueued_at) SELECT $2, $3, $4, {NOW} FROM held \
             ON CONFLICT (id) DO NOTHING RETURNING sequence{told}"
        )
    }

    /// Creates the rows of new topics, and claims a topic. $1 owner, $2 lease, $3 the topic after which to
    /// look, $4 how many topics to look at. Returns one row. Its first three columns are the claimed topic,
    /// whether it was taken over from a relay that died, and how many times in a row it failed. They are null
    /// if no topic was claimed. The fourth column is the last topic that was looked at, null if all were
    /// looked at. The fifth column is how many rows were created.
    pub(super) fn claim(&self) -> Statement {
        let (topics, pending) = (&self.topics, pending_topics(&self.messages, "$3", "$4::integer"));
        query(format!(
            "WITH RECURSIVE {pending}, made AS ( \
               INSERT INTO {topics} (topic) SELECT p.topic FROM pending p WHERE p.topic IS NOT NULL \
                 AND NOT EXISTS (SELECT FROM {topics} t WHERE t.topic = p.topic) \
               ORDER BY p.topic ON CONFLICT (topic) DO NOTHING RETURNING topic \
             ), picked AS MATERIALIZED ( \
               SELECT t.topic, t.owner FROM pending p JOIN {topics} t ON t.topic = p.topic CROSS JOIN clock \
               WHERE (t.lease_until <= clock.now OR t.owner = $1) AND t.due_at <= clock.now \
                 AND t.blocked_by IS NULL \
               ORDER BY least(t.served_at, clock.now) LIMIT 1 FOR UPDATE OF t SKIP LOCKED \
             ), claimed AS ( \
               UPDATE {topics} t SET owner = $1, lease_until = clock.now + $2, served_at = clock.now \
               FROM picked, clock WHERE t.topic = picked.topic \
               RETURNING t.topic, picked.owner IS NOT NULL AND picked.owner <> $1 AS taken_over, t.failures \
             ) \
             SELECT c.topic, c.taken_over, c.failures, \
               (SELECT p.topic FROM pending p WHERE p.n = $4), (SELECT count(*) FROM made) \
             FROM clock LEFT JOIN claimed c ON true"
        ))
    }

    /// Returns how long until the next topic with messages may be claimed.
    pub(super) fn look(&self) -> Statement {
        let (topics, pending) = (&self.topics, pending_topics(&self.messages, "''", "2147483647"));
        query(format!(
            "WITH RECURSIVE {pending} SELECT min(greatest(t.lease_until, t.due_at)) - min(clock.now) \
             FROM pending p JOIN {topics} t ON t.topic = p.topic CROSS JOIN clock WHERE t.blocked_by IS NULL"
        ))
    }

    /// $1 topic. Returns the number of its last pending message, and the time when the server was started.
    pub(super) fn bound(&self) -> Statement {
        let messages = &self.messages;
        query(format!(
            "SELECT (SELECT max(sequence) FROM {messages} WHERE topic = $1 AND {PENDING}), {STARTED}"
        ))
    }

    /// $1 the topic's lock. Returns the transactions that hold the lock, and the time when the server was
    /// started.
    pub(super) fn holders() -> Statement {
        query(format!(
            "SELECT ARRAY(SELECT virtualtransaction FROM pg_locks \
               WHERE locktype = 'advisory' AND granted AND mode = 'ShareLock' AND objsubid = 1 \
                 AND (classid::bigint << 32) | objid::bigint = $1 \
                 AND database = (SELECT oid FROM pg_database WHERE datname = current_database())), {STARTED}"
        ))
    }

    /// $1 topic, $2 the last number, $3 how many messages, $4 the server's start time in the bound, $5 how
    /// many bytes of payloads after the first message. Returns number, id, payload, attempts and age of each
    /// message, in order. Returns nothing if the server was restarted since the bound was read.
    pub(super) fn fetch(&self) -> Statement {
        let messages = &self.messages;
        query(format!(
            "SELECT sequence, id, payload, attempts, {NOW} - enqueued_at FROM ( \
               SELECT *, sum(octet_length(payload)) OVER (ORDER BY sequence) - \
                 first_value(octet_length(payload)) OVER (ORDER BY sequence) AS bytes FROM ( \
                 SELECT * FROM {messages} WHERE topic = $1 AND {PENDING} AND sequence <= $2 AND {STARTED} = $4 \
                 ORDER BY sequence LIMIT $3) batch) sized \
             WHERE bytes <= $5 ORDER BY sequence"
        ))
    }

    /// Records a message's attempts and its last error. $1 number, $2 attempts before, $3 attempts after, $4
    /// error, $5 id.
    pub(super) fn note(&self) -> Statement {
        let messages = &self.messages;
        query(format!(
            "UPDATE {messages} SET attempts = $3, last_error = $4 WHERE sequence = $1 AND id = $5 AND attempts = $2"
        ))
    }

    /// Sets a message aside. $1 number, $2 attempts, $3 error, $4 whether it blocks its topic, $5 id.
    pub(super) fn set_aside(&self) -> Statement {
        let Names { messages, topics, .. } = self;
        query(format!(
            "WITH aside AS (UPDATE {messages} SET attempts = $2, last_error = coalesce($3, last_error), \
               set_aside_at = {NOW} WHERE sequence = $1 AND id = $5 AND {PENDING} RETURNING topic) \
             UPDATE {topics} t SET blocked_by = $1 FROM aside WHERE $4 AND t.topic = aside.topic"
        ))
    }

    /// Deletes published messages. $1 numbers, $2 ids.
    pub(super) fn delete(&self) -> Statement {
        let (messages, unblocked) = (&self.messages, unblocked(self, "noted"));
        query(format!(
            "WITH noted AS (DELETE FROM {messages} m USING {NAMED} WHERE m.sequence = a.sequence AND m.id = a.id \
               RETURNING m.topic, m.sequence) \
             {unblocked}"
        ))
    }

    /// Records messages as published, and keeps them. $1 numbers, $2 ids, $3 how long to keep them.
    pub(super) fn keep(&self) -> Statement {
        let (messages, unblocked) = (&self.messages, unblocked(self, "noted"));
        query(format!(
            "WITH noted AS (UPDATE {messages} m SET published_at = clock.now, expires_at = clock.now + $3, \
               set_aside_at = NULL FROM (SELECT {NOW} AS now) clock CROSS JOIN {NAMED} \
               WHERE m.sequence = a.sequence AND m.id = a.id AND m.published_at IS NULL \
               RETURNING m.topic, m.sequence) \
             {unblocked}"
        ))
    }

    /// Renews a claim. $1 topic, $2 owner, $3 lease. Returns a row, if this owner still has the topic.
    pub(super) fn renew(&self) -> Statement {
        let topics = &self.topics;
        query(format!(
            "UPDATE {topics} SET lease_until = {NOW} + $3 WHERE topic = $1 AND owner = $2 RETURNING 1"
        ))
    }

    /// Releases a topic. $1 topic, $2 owner, $3 the pause before the next claim, $4 how many times in a row
    /// the topic failed.
    pub(super) fn release(&self) -> Statement {
        let topics = &self.topics;
        query(format!(
            "UPDATE {topics} SET owner = NULL, lease_until = 0, \
               due_at = CASE WHEN $3 = 0 THEN 0 ELSE {NOW} + $3 END, failures = $4 \
             WHERE topic = $1 AND owner = $2"
        ))
    }

    /// Counts pending, set-aside and kept messages, and blocked topics. Also returns the age of the oldest
    /// pending message.
    pub(super) fn counts(&self) -> Statement {
        let Names { messages, topics, .. } = self;
        query(format!(
            "SELECT count(*) FILTER (WHERE {PENDING}), \
               count(*) FILTER (WHERE set_aside_at IS NOT NULL), \
               count(*) FILTER (WHERE published_at IS NOT NULL), \
               {NOW} - min(enqueued_at) FILTER (WHERE {PENDING}), \
               (SELECT count(*) FROM {topics} WHERE blocked_by IS NOT NULL) \
             FROM {messages}"
        ))
    }

    /// $1 how many. Returns the messages that were set aside, lowest number first.
    pub(super) fn list(&self) -> Statement {
        let Names { messages, topics, .. } = self;
        query(format!(
            "SELECT sequence, id, topic, octet_length(payload), attempts, last_error, set_aside_at, \
               EXISTS (SELECT FROM {topics} t WHERE t.blocked_by = m.sequence) \
             FROM {messages} m WHERE set_aside_at IS NOT NULL ORDER BY sequence LIMIT $1"
        ))
    }

    /// If the message was set aside, makes it pending again and returns a row. $1 id.
    pub(super) fn retry(&self) -> Statement {
        let pending = "SET set_aside_at = NULL, attempts = 0, last_error = NULL";
        decided(self, &format!("UPDATE {} {pending}", self.messages))
    }

    /// If the message was set aside, deletes it and returns a row. $1 id.
    pub(super) fn discard(&self) -> Statement {
        decided(self, &format!("DELETE FROM {}", self.messages))
    }

    /// Deletes kept messages whose time is over. $1 the limit. Returns how many were deleted.
    pub(super) fn purge(&self) -> Statement {
        let messages = &self.messages;
        query(format!(
            "WITH gone AS (DELETE FROM {messages} WHERE sequence = ANY (ARRAY( \
               SELECT sequence FROM {messages} WHERE expires_at <= (SELECT {NOW}) \
               ORDER BY expires_at LIMIT $1 FOR UPDATE SKIP LOCKED)) RETURNING 1) \
             SELECT count(*) FROM gone"
        ))
    }

    /// Deletes the rows of topics that have no pending message and are not blocked. $1 how long a topic must
    /// be idle.
    pub(super) fn purge_topics(&self) -> Statement {
        let Names { messages, topics, .. } = self;
        query(format!(
            "DELETE FROM {topics} WHERE topic = ANY (ARRAY(SELECT topic FROM {topics} t \
               WHERE blocked_by IS NULL AND greatest(lease_until, served_at, due_at) <= (SELECT {NOW}) - $1 \
                 AND NOT EXISTS (SELECT FROM {messages} m WHERE m.topic = t.topic AND {PENDING}) \
               FOR UPDATE SKIP LOCKED))"
        ))
    }
}

/// The topics after `after` that have messages to publish, at most `most`. Each topic costs one index lookup.
fn pending_topics(messages: &str, after: &str, most: &str) -> String {
    format!(
        "clock AS MATERIALIZED (SELECT {NOW} AS now), pending (topic, n) AS ( \
           (SELECT topic, 1 FROM {messages} WHERE {PENDING} AND topic > {after} ORDER BY topic LIMIT 1) \
           UNION ALL \
           SELECT (SELECT m.topic FROM {messages} m WHERE {PENDING} AND m.topic > p.topic \
             ORDER BY m.topic LIMIT 1), p.n + 1 \
           FROM pending p WHERE p.topic IS NOT NULL AND p.n < {most} \
         )"
    )
}

/// Unblocks the topics that these messages block. A published message may block its topic, too: a relay that
/// has lost the topic may publish a message after another relay has set the message aside.
fn unblocked(names: &Names, by: &str) -> String {
    let topics = &names.topics;
    format!(
        "UPDATE {topics} t SET blocked_by = NULL, due_at = 0 FROM {by} \
         WHERE t.topic = {by}.topic AND t.blocked_by = {by}.sequence"
    )
}

/// Makes this change to a message that was set aside, unblocks its topic, and notifies the relays. $1 id.
fn decided(names: &Names, change: &str) -> Statement {
    let (channel, unblocked) = (&names.channel, unblocked(names, "back"));
    query(format!(
        "WITH back AS ({change} WHERE id = $1 AND set_aside_at IS NOT NULL RETURNING topic, sequence), \
           freed AS ({unblocked}) \
         SELECT sequence, pg_notify('{channel}', '')::text FROM back"
    ))
}
