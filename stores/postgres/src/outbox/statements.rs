//! The statements, each one atomic step of the server, and each safe to be sent again when its answer was lost.
//!
//! A relay remembers what it has published while the database is away. Another server may lead when it is back, one that
//! has lost the last messages and gives their numbers out again: so a message is named by its number and its id.

use std::sync::Arc;

use super::layout::Names;
use crate::statements::NOW;

/// What is still to be published.
const PENDING: &str = "set_aside_at IS NULL AND published_at IS NULL";

/// When the server was started: what was seen of open transactions holds no longer than that.
const STARTED: &str = "(extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint";

/// $1 numbers, $2 ids.
const NAMED: &str = "unnest($1::bigint[], $2::text[]) AS a (sequence, id)";

/// The texts for one outbox's names.
#[derive(Debug)]
pub(super) struct Statements {
    pub(super) enqueue: Arc<str>,
    pub(super) claim: Arc<str>,
    pub(super) look: Arc<str>,
    pub(super) bound: Arc<str>,
    pub(super) holders: Arc<str>,
    pub(super) fetch: Arc<str>,
    pub(super) note: Arc<str>,
    pub(super) set_aside: Arc<str>,
    pub(super) delete: Arc<str>,
    pub(super) keep: Arc<str>,
    pub(super) renew: Arc<str>,
    pub(super) release: Arc<str>,
    pub(super) counts: Arc<str>,
    pub(super) list: Arc<str>,
    pub(super) retry: Arc<str>,
    pub(super) discard: Arc<str>,
    pub(super) purge: Arc<str>,
    pub(super) purge_topics: Arc<str>,
}

impl Statements {
    pub(super) fn new(names: &Names, notify: bool) -> Self {
        Self {
            enqueue: enqueue(names, notify).into(),
            claim: claim(names).into(),
            look: look(names).into(),
            bound: bound(names).into(),
            holders: holders().into(),
            fetch: fetch(names).into(),
            note: note(names).into(),
            set_aside: set_aside(names).into(),
            delete: delete(names).into(),
            keep: keep(names).into(),
            renew: renew(names).into(),
            release: release(names).into(),
            counts: counts(names).into(),
            list: list(names).into(),
            retry: retry(names).into(),
            discard: discard(names).into(),
            purge: purge(names).into(),
            purge_topics: purge_topics(names).into(),
        }
    }
}

/// $1 the topic's lock, $2 id, $3 topic, $4 payload: a row, if there was none of this id.
///
/// The lock is shared: it keeps nobody out, and shows a relay that a transaction may still have messages with lower
/// numbers than those it sees. It is taken before the number is: a row of `held` is there before its columns are
/// made into one of the table.
fn enqueue(names: &Names, notify: bool) -> String {
    let (messages, channel) = (&names.messages, &names.channel);
    let told = if notify { format!(", pg_notify('{channel}', '')::text") } else { String::new() };
    format!(
        "WITH held AS MATERIALIZED (SELECT pg_advisory_xact_lock_shared($1) AS lock) \
         INSERT INTO {messages} (id, topic, payload, enqueued_at) SELECT $2, $3, $4, {NOW} FROM held \
         ON CONFLICT (id) DO NOTHING RETURNING sequence{told}"
    )
}

/// Topics that have something to publish, by one look into the index for each: those after `after`, at most `most`.
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

/// Makes the rows of pending topics that are new.
fn make_topics(topics: &str) -> String {
    format!(
        "made AS ( \
           INSERT INTO {topics} (topic) SELECT p.topic FROM pending p WHERE p.topic IS NOT NULL \
             AND NOT EXISTS (SELECT FROM {topics} t WHERE t.topic = p.topic) \
           ORDER BY p.topic ON CONFLICT (topic) DO NOTHING RETURNING topic \
         )"
    )
}

/// $1 owner, $2 lease, $3 the topic after which to look, $4 at how many: the topic that is now this owner's, whether another
/// went away with it, and how often in a row it failed, or nothing; the last topic of those, or nothing where they are all
/// that there are after $3; and how many of them are new.
fn claim(names: &Names) -> String {
    let topics = &names.topics;
    let (pending, made) = (pending_topics(&names.messages, "$3", "$4::integer"), make_topics(topics));
    format!(
        "WITH RECURSIVE {pending}, {made}, picked AS MATERIALIZED ( \
           SELECT t.topic, t.owner FROM pending p JOIN {topics} t ON t.topic = p.topic CROSS JOIN clock \
           WHERE (t.lease_until <= clock.now OR t.owner = $1) AND t.due_at <= clock.now \
             AND t.blocked_by IS NULL \
           ORDER BY t.served_at LIMIT 1 FOR UPDATE OF t SKIP LOCKED \
         ), claimed AS ( \
           UPDATE {topics} t SET owner = $1, lease_until = clock.now + $2, served_at = clock.now \
           FROM picked, clock WHERE t.topic = picked.topic \
           RETURNING t.topic, picked.owner IS NOT NULL AND picked.owner <> $1 AS taken_over, t.failures \
         ) \
         SELECT c.topic, c.taken_over, c.failures, \
           (SELECT p.topic FROM pending p WHERE p.n = $4), (SELECT count(*) FROM made) \
         FROM clock LEFT JOIN claimed c ON true"
    )
}

/// Makes the topics that are new: how many, and how long until the next of all may be had.
fn look(names: &Names) -> String {
    let topics = &names.topics;
    let (pending, made) = (pending_topics(&names.messages, "''", "2147483647"), make_topics(topics));
    format!(
        "WITH RECURSIVE {pending}, {made} \
         SELECT (SELECT count(*) FROM made), (SELECT min(greatest(t.lease_until, t.due_at)) - min(clock.now) \
           FROM pending p JOIN {topics} t ON t.topic = p.topic CROSS JOIN clock WHERE t.blocked_by IS NULL)"
    )
}

/// $1 topic, $2 how many: the number of the last of the first so many, and when the server was started.
fn bound(names: &Names) -> String {
    let messages = &names.messages;
    format!(
        "SELECT (SELECT max(sequence) FROM (SELECT sequence FROM {messages} WHERE topic = $1 AND {PENDING} \
           ORDER BY sequence LIMIT $2) first), {STARTED}"
    )
}

/// $1 the topic's lock: the transactions that have it, and when the server was started.
fn holders() -> String {
    format!(
        "SELECT ARRAY(SELECT virtualtransaction FROM pg_locks \
           WHERE locktype = 'advisory' AND granted AND mode = 'ShareLock' AND objsubid = 1 \
             AND (classid::bigint << 32) | objid::bigint = $1 \
             AND database = (SELECT oid FROM pg_database WHERE datname = current_database())), {STARTED}"
    )
}

/// $1 topic, $2 the last number, $3 how many: number, id, payload, attempts and age of each, in order.
fn fetch(names: &Names) -> String {
    let messages = &names.messages;
    format!(
        "SELECT sequence, id, payload, attempts, {NOW} - enqueued_at FROM {messages} \
         WHERE topic = $1 AND {PENDING} AND sequence <= $2 ORDER BY sequence LIMIT $3"
    )
}

/// $1 number, $2 attempts before, $3 and after, $4 error, $5 id.
fn note(names: &Names) -> String {
    let messages = &names.messages;
    format!(
        "UPDATE {messages} SET attempts = $3, last_error = $4 WHERE sequence = $1 AND id = $5 AND attempts = $2"
    )
}

/// $1 number, $2 attempts, $3 error, $4 whether it holds up its topic, $5 id.
fn set_aside(names: &Names) -> String {
    let Names { messages, topics, .. } = names;
    format!(
        "WITH aside AS (UPDATE {messages} SET attempts = $2, last_error = coalesce($3, last_error), \
           set_aside_at = {NOW} WHERE sequence = $1 AND id = $5 AND {PENDING} RETURNING topic) \
         UPDATE {topics} t SET blocked_by = $1 FROM aside WHERE $4 AND t.topic = aside.topic"
    )
}

/// $1 numbers, $2 ids.
fn delete(names: &Names) -> String {
    let (messages, unblocked) = (&names.messages, unblocked(names, "noted"));
    format!(
        "WITH noted AS (DELETE FROM {messages} m USING {NAMED} WHERE m.sequence = a.sequence AND m.id = a.id \
           RETURNING m.topic, m.sequence) \
         {unblocked}"
    )
}

/// $1 numbers, $2 ids, $3 for how long.
fn keep(names: &Names) -> String {
    let (messages, unblocked) = (&names.messages, unblocked(names, "noted"));
    format!(
        "WITH noted AS (UPDATE {messages} m SET published_at = clock.now, expires_at = clock.now + $3, \
           set_aside_at = NULL FROM (SELECT {NOW} AS now) clock CROSS JOIN {NAMED} \
           WHERE m.sequence = a.sequence AND m.id = a.id AND m.published_at IS NULL \
           RETURNING m.topic, m.sequence) \
         {unblocked}"
    )
}

/// The topics of these messages are held up by them no more. One that was published late by a relay that had lost
/// its topic may have been set aside by another meanwhile.
fn unblocked(names: &Names, by: &str) -> String {
    let topics = &names.topics;
    format!(
        "UPDATE {topics} t SET blocked_by = NULL, due_at = 0 FROM {by} \
         WHERE t.topic = {by}.topic AND t.blocked_by = {by}.sequence"
    )
}

/// $1 topic, $2 owner, $3 lease: a row, if it was still this owner's.
fn renew(names: &Names) -> String {
    let topics = &names.topics;
    format!("UPDATE {topics} SET lease_until = {NOW} + $3 WHERE topic = $1 AND owner = $2 RETURNING 1")
}

/// $1 topic, $2 owner, $3 for how long nobody is to take it, $4 how often in a row it failed.
fn release(names: &Names) -> String {
    let topics = &names.topics;
    format!(
        "UPDATE {topics} SET owner = NULL, lease_until = 0, due_at = {NOW} + $3, failures = $4 \
         WHERE topic = $1 AND owner = $2"
    )
}

/// How many are pending, set aside and kept, the age of the oldest pending one, and how many topics are held up.
fn counts(names: &Names) -> String {
    let Names { messages, topics, .. } = names;
    format!(
        "SELECT count(*) FILTER (WHERE {PENDING}), \
           count(*) FILTER (WHERE set_aside_at IS NOT NULL), \
           count(*) FILTER (WHERE published_at IS NOT NULL), \
           {NOW} - min(enqueued_at) FILTER (WHERE {PENDING}), \
           (SELECT count(*) FROM {topics} WHERE blocked_by IS NOT NULL) \
         FROM {messages}"
    )
}

/// $1 how many: what was set aside, oldest number first.
fn list(names: &Names) -> String {
    let Names { messages, topics, .. } = names;
    format!(
        "SELECT sequence, id, topic, octet_length(payload), attempts, last_error, set_aside_at, \
           EXISTS (SELECT FROM {topics} t WHERE t.blocked_by = m.sequence) \
         FROM {messages} m WHERE set_aside_at IS NOT NULL ORDER BY sequence LIMIT $1"
    )
}

/// $1 id: a row, if it was set aside and is pending again.
fn retry(names: &Names) -> String {
    let messages = &names.messages;
    let freed = freed(names);
    format!(
        "WITH back AS (UPDATE {messages} SET set_aside_at = NULL, attempts = 0, last_error = NULL \
           WHERE id = $1 AND set_aside_at IS NOT NULL RETURNING topic, sequence), {freed}"
    )
}

/// $1 id: a row, if it was set aside and is gone.
fn discard(names: &Names) -> String {
    let messages = &names.messages;
    let freed = freed(names);
    format!(
        "WITH back AS (DELETE FROM {messages} WHERE id = $1 AND set_aside_at IS NOT NULL \
           RETURNING topic, sequence), {freed}"
    )
}

/// The topic of what is back is held up by it no more, and a relay is told.
fn freed(names: &Names) -> String {
    let (channel, unblocked) = (&names.channel, unblocked(names, "back"));
    format!("freed AS ({unblocked}) SELECT sequence, pg_notify('{channel}', '')::text FROM back")
}

/// $1 how many at the most: how many of those kept were deleted.
fn purge(names: &Names) -> String {
    let messages = &names.messages;
    format!(
        "WITH gone AS (DELETE FROM {messages} WHERE sequence = ANY (ARRAY( \
           SELECT sequence FROM {messages} WHERE expires_at <= (SELECT {NOW}) \
           ORDER BY expires_at LIMIT $1 FOR UPDATE SKIP LOCKED)) RETURNING 1) \
         SELECT count(*) FROM gone"
    )
}

/// $1 for how long nobody has published anything of a topic.
fn purge_topics(names: &Names) -> String {
    let topics = &names.topics;
    format!(
        "DELETE FROM {topics} WHERE topic = ANY (ARRAY(SELECT topic FROM {topics} \
           WHERE owner IS NULL AND blocked_by IS NULL AND greatest(served_at, due_at) <= (SELECT {NOW}) - $1 \
           FOR UPDATE SKIP LOCKED))"
    )
}
