//! The statements, each one atomic step of the server.
//!
//! Only what most calls do is restated here in SQL: a grant, a renewal, a completion. Everything else
//! is judged by the protocol's own functions on the row that a statement read, and written by `swap`
//! if the row is still that one.

use std::sync::Arc;
use std::time::Duration;

use super::layout::Names;
use super::rows::COLUMNS;
use idem_core::{RecordKey, support::framed_digest};

/// The server's now, in microseconds. Read once a statement, after its snapshot was taken.
pub(crate) const NOW: &str = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint";

/// When the transaction began: the same within it, and another in every other of the session.
const BEGUN: &str = "(extract(epoch FROM transaction_timestamp()) * 1000000)::bigint";

/// What a duplicate waits while a transaction holds the key: nobody knows how long that takes.
pub(super) const RETRY_AFTER: Duration = Duration::from_secs(1);

/// How many advisory locks a statement takes at most.
const LOCKS: u32 = 64;

/// Up to how many bytes a result is read together with its record, and of how many bytes are results read in one statement.
const SMALL_RESULT: u32 = 64 << 10;
const READ_BYTES: u32 = 1 << 20;

/// The texts for one store's names.
#[derive(Debug)]
pub(super) struct Statements {
    pub(super) claim: Arc<str>,
    pub(super) renew: Arc<str>,
    pub(super) record_step: Arc<str>,
    pub(super) complete: Arc<str>,
    pub(super) read: Arc<str>,
    pub(super) swap: Arc<str>,
    pub(super) forget: Arc<str>,
    pub(super) purge: Arc<str>,
    pub(super) take: Arc<str>,
    pub(super) transactions: Arc<str>,
    pub(super) set_transactions: Arc<str>,
    pub(super) insert_transactions: Arc<str>,
    pub(super) insert: Arc<str>,
    pub(super) replace: Arc<str>,
    pub(super) replace_expired: Arc<str>,
    pub(super) list: Arc<str>,
    pub(super) list_scope: Arc<str>,
    table: String,
}

impl Statements {
    pub(super) fn new(names: &Names) -> Self {
        Self {
            claim: claim(names).into(),
            renew: renew(names).into(),
            record_step: record_step(names).into(),
            complete: complete(names).into(),
            read: read(names).into(),
            swap: swap(names).into(),
            forget: forget(names).into(),
            purge: purge(names).into(),
            take: take(names).into(),
            transactions: format!("SELECT value FROM {} WHERE name = 'transactions'", names.meta).into(),
            set_transactions: format!(
                "UPDATE {} SET value = 1 WHERE name = 'transactions' RETURNING 1",
                names.meta
            )
            .into(),
            insert_transactions: format!(
                "INSERT INTO {} (name, value) VALUES ('transactions', 1) ON CONFLICT DO NOTHING",
                names.meta
            )
            .into(),
            insert: insert(names).into(),
            replace: replace(names).into(),
            replace_expired: replace_expired(names).into(),
            list: list(names, "(scope, key) > ($1, $2)").into(),
            list_scope: list(names, "scope = $1 AND key > $2").into(),
            table: names.records.clone(),
        }
    }

    /// The key's number among the advisory locks of the database.
    pub(super) fn lock_number(&self, key: &RecordKey) -> i64 {
        let digest = framed_digest(&[&self.table, key.scope().as_str(), key.key().as_str()]);
        let mut short = [0; 8];
        short.copy_from_slice(&digest[..8]);
        i64::from_be_bytes(short)
    }
}

/// The columns of a record, each with this before it.
fn columns(before: &str) -> String {
    COLUMNS.map(|column| format!("{before}{column}")).join(", ")
}

/// $1 scope, $2 key, $3 owner, $4 fingerprint, $5 lease, $6 ttl, $7 `on_crash`, $8 `max_attempts`,
/// $9 `recovers`, $10 the key's number among the server's advisory locks: arrays of one length, sorted by scope
/// and key, no key twice.
///
/// Rows of kind 0, one a claim: its number, now, the row as it was, and whether no transaction of a caller's has the
/// key (nothing where it is not to be had anyway). Of kind 1: scope, key and fence of what was inserted. Of kind 2:
/// the number of a claim that took a row over, and the new row.
///
/// The row is read first, and what leaves it as it is writes nothing: no row lock, no WAL. The advisory lock is
/// shared, so that only a transaction's excludes it, and held until the commit, so that none can slip between. It is taken
/// only where a process has ever recorded in a caller's transaction, and for few keys at a time: the server's table of locks
/// is small, and every program's. The lock makes a duplicate wait politely; without it the transaction's insert fails. A key
/// without its lock is left as it is, and asked for again in the next statement.
///
/// A result that is large is not among what is read: `large` says so, and `read` gets it. The fence is of the moment at which
/// its row is inserted: the statement may have waited for another row before.
fn claim(names: &Names) -> String {
    let (records, meta) = (&names.records, &names.meta);
    let (all, of_record) = (columns(""), columns("r."));
    let nothing = COLUMNS
        .map(|column| match column {
            "state" | "on_crash" | "tombstone" => "NULL::smallint",
            "owner" | "fingerprint" | "result" => "NULL::bytea",
            "recovered" => "NULL::boolean",
            "fence" => "fence",
            _ => "NULL::bigint",
        })
        .join(", ");
    let small = COLUMNS
        .map(|column| match column {
            "result" => format!("CASE WHEN octet_length(result) <= {SMALL_RESULT} THEN result END"),
            column => column.to_owned(),
        })
        .join(", ");
    let expired = "r.expires_at IS NOT NULL AND r.expires_at <= a.now";
    let attempts_left = "(a.most IS NULL OR r.attempt < a.most)";
    format!(
        "WITH clock AS MATERIALIZED (SELECT {NOW} AS now, \
           EXISTS (SELECT FROM {meta} WHERE name = 'transactions' AND value > 0) AS locks), \
         asked AS MATERIALIZED ( \
           SELECT a.*, a.recovers AND a.crash <> 0 AS settles, clock.now, r.key IS NOT NULL AS found, {of_record}, \
             CASE WHEN r.key IS NULL OR r.state = 3 OR r.state = 0 AND r.lease_until <= clock.now \
               OR r.state = 4 AND a.recovers AND a.crash <> 0 OR r.expires_at <= clock.now THEN CASE WHEN NOT clock.locks THEN true \
               WHEN a.n <= {LOCKS} THEN pg_try_advisory_xact_lock_shared(a.number) END END AS free \
           FROM clock CROSS JOIN unnest($1::bytea[], $2::bytea[], $3::bytea[], $4::bytea[], $5::bigint[], \
             $6::bigint[], $7::smallint[], $8::bigint[], $9::boolean[], $10::bigint[]) WITH ORDINALITY \
             AS a (scope, key, own, print, lease, keep, crash, most, recovers, number, n) \
           LEFT JOIN {records} r ON r.scope = a.scope AND r.key = a.key \
         ), inserted AS ( \
           INSERT INTO {records} (scope, key, {all}) \
           SELECT scope, key, 0, own, \
             greatest({NOW}, (SELECT value + 1 FROM {meta} WHERE name = 'fence_floor')), 1, false, crash, \
             now + lease, now, keep, print, NULL, now, NULL, \
             CASE WHEN crash = 0 THEN now + lease + keep END, NULL \
           FROM asked WHERE NOT found AND free ORDER BY n \
           ON CONFLICT (scope, key) DO NOTHING \
           RETURNING scope, key, fence \
         ), taken AS ( \
           UPDATE {records} r SET \
             state = 0, owner = a.own, fence = greatest(r.fence + 1, a.now), \
             attempt = CASE WHEN {expired} THEN 1 WHEN r.attempt > a.most THEN r.attempt \
               ELSE least(r.attempt + 1, 4294967295) END, \
             recovered = (r.state IN (0, 4) OR r.recovered) AND NOT ({expired}), on_crash = a.crash, \
             lease_until = a.now + a.lease, retry_at = a.now, ttl = a.keep, \
             fingerprint = CASE WHEN {expired} THEN a.print ELSE coalesce(a.print, r.fingerprint) END, \
             tombstone = NULL, created_at = CASE WHEN {expired} THEN a.now ELSE r.created_at END, \
             completed_at = NULL, \
             expires_at = CASE WHEN a.crash = 0 THEN a.now + a.lease + a.keep END, result = NULL, \
             steps = CASE WHEN {expired} THEN NULL ELSE r.steps END \
           FROM asked a \
           WHERE a.free AND (a.state IN (0, 3) OR a.state = 4 AND a.settles OR a.expires_at <= a.now) \
             AND r.scope = a.scope AND r.key = a.key AND ( \
             {expired} \
             OR (r.fingerprint IS NULL OR a.print IS NULL OR r.fingerprint = a.print) \
               AND r.owner <> a.own \
               AND (r.state = 3 AND NOT r.recovered AND r.retry_at <= a.now AND {attempts_left} \
                 OR (r.state IN (0, 4) AND r.lease_until <= a.now OR r.state = 3 AND r.recovered AND r.retry_at <= a.now) \
                   AND (a.settles OR r.state <> 4 AND r.on_crash = 0 AND a.crash = 0) \
                   AND (a.recovers OR {attempts_left}))) \
           RETURNING a.n, {of_record} \
         ) \
         SELECT 0, n, now, NULL::bytea, NULL::bytea, found, {small}, free, octet_length(result) > {SMALL_RESULT} FROM asked \
         UNION ALL SELECT 1, NULL, NULL, scope, key, true, {nothing}, NULL, false FROM inserted \
         UNION ALL SELECT 2, n, NULL, NULL, NULL, true, {all}, NULL, false FROM taken"
    )
}

/// $1 scope, $2 key, $3 owner, $4 fence, $5 lease: the numbers of those that were renewed.
fn renew(names: &Names) -> String {
    let records = &names.records;
    format!(
        "WITH clock AS MATERIALIZED (SELECT {NOW} AS now) \
         UPDATE {records} r SET lease_until = clock.now + a.lease, \
           expires_at = CASE WHEN r.on_crash = 0 THEN clock.now + a.lease + r.ttl END \
         FROM clock CROSS JOIN unnest($1::bytea[], $2::bytea[], $3::bytea[], $4::bigint[], $5::bigint[]) \
           WITH ORDINALITY AS a (scope, key, own, number, lease, n) \
         WHERE r.scope = a.scope AND r.key = a.key AND r.owner = a.own AND r.fence = a.number \
           AND r.state = 0 AND (r.expires_at IS NULL OR r.expires_at > clock.now) \
         RETURNING a.n"
    )
}

/// $1 scope, $2 key, $3 owner, $4 fence, $5 state, $6 tombstone, $7 result, $8 ttl: the numbers of those
/// that were recorded.
fn complete(names: &Names) -> String {
    let records = &names.records;
    format!(
        "WITH clock AS MATERIALIZED (SELECT {NOW} AS now) \
         UPDATE {records} r SET state = a.verdict, tombstone = a.reason, result = a.bytes, ttl = a.keep, \
           completed_at = clock.now, expires_at = clock.now + a.keep, steps = NULL \
         FROM clock CROSS JOIN unnest($1::bytea[], $2::bytea[], $3::bytea[], $4::bigint[], $5::smallint[], \
             $6::smallint[], $7::bytea[], $8::bigint[]) \
           WITH ORDINALITY AS a (scope, key, own, number, verdict, reason, bytes, keep, n) \
         WHERE r.scope = a.scope AND r.key = a.key AND r.owner = a.own AND r.fence = a.number \
           AND r.state IN (0, 4) AND (r.expires_at IS NULL OR r.expires_at > clock.now) \
         RETURNING a.n"
    )
}

/// The steps of this generation: a process of the first layout may have begun another beside them, or
/// recorded its result.
const STEPS: &str =
    "CASE WHEN r.steps_of = r.created_at AND (r.completed_at IS NULL OR r.tombstone = 2) THEN r.steps END";

/// $1 scope, $2 key, $3 owner, $4 fence, $5 position, $6 step: the numbers of those that were recorded as
/// the next.
fn record_step(names: &Names) -> String {
    let records = &names.records;
    format!(
        "WITH clock AS MATERIALIZED (SELECT {NOW} AS now) \
         UPDATE {records} r SET steps = array_append({STEPS}, a.step), steps_of = r.created_at \
         FROM clock CROSS JOIN unnest($1::bytea[], $2::bytea[], $3::bytea[], $4::bigint[], $5::bigint[], \
             $6::bytea[]) \
           WITH ORDINALITY AS a (scope, key, own, number, position, step, n) \
         WHERE r.scope = a.scope AND r.key = a.key AND r.owner = a.own AND r.fence = a.number \
           AND r.state IN (0, 4) AND (r.expires_at IS NULL OR r.expires_at > clock.now) \
           AND coalesce(cardinality({STEPS}), 0) = a.position \
         RETURNING a.n"
    )
}

/// $1 scope, $2 key: number, now, and the row, if there is one, with its steps; those in front that are `READ_BYTES` together,
/// and one at the least.
fn read(names: &Names) -> String {
    let (records, all, of_record) = (&names.records, columns(""), columns("r."));
    format!(
        "SELECT n, now, found, {all}, steps FROM ( \
           SELECT a.n, clock.now, r.key IS NOT NULL AS found, {of_record}, {STEPS} AS steps, \
             sum(coalesce(octet_length(r.result), 0) + coalesce(pg_column_size(r.steps), 0)) OVER (ORDER BY a.n) AS bytes \
           FROM (SELECT {NOW} AS now) clock \
           CROSS JOIN unnest($1::bytea[], $2::bytea[]) WITH ORDINALITY AS a (scope, key, n) \
           LEFT JOIN {records} r ON r.scope = a.scope AND r.key = a.key \
         ) found WHERE n = 1 OR bytes <= {READ_BYTES}"
    )
}

/// $1 scope, $2 key, $3..$7 of the row that was read: state, owner, fence, `lease_until`, `expires_at`, which
/// no two rows of one key have in common; then the new columns. The numbers of those that were written.
/// Nothing that is written so adds a step; a result takes their place, and attempts that ran out do not.
fn swap(names: &Names) -> String {
    let records = &names.records;
    let kinds = COLUMNS.map(|column| match column {
        "state" | "on_crash" | "tombstone" => "smallint",
        "owner" | "fingerprint" | "result" => "bytea",
        "recovered" => "boolean",
        _ => "bigint",
    });
    let parameters: Vec<String> =
        kinds.iter().enumerate().map(|(index, kind)| format!("${}::{kind}[]", index + 8)).collect();
    let new = columns("new_");
    let set = COLUMNS.map(|column| format!("{column} = a.new_{column}")).join(", ");
    let parameters = parameters.join(", ");
    format!(
        "UPDATE {records} r SET {set}, \
           steps = CASE WHEN a.new_completed_at IS NULL OR a.new_tombstone = 2 THEN r.steps END \
         FROM unnest($1::bytea[], $2::bytea[], $3::smallint[], $4::bytea[], $5::bigint[], $6::bigint[], \
             $7::bigint[], {parameters}) \
           WITH ORDINALITY AS a (scope, key, was, own, number, until, ends, {new}, n) \
         WHERE r.scope = a.scope AND r.key = a.key AND r.state = a.was AND r.owner = a.own \
           AND r.fence = a.number AND r.lease_until = a.until AND r.expires_at IS NOT DISTINCT FROM a.ends \
         RETURNING a.n"
    )
}

/// $1 scope, $2 key: whether the record that was deleted was alive, if there was one.
fn forget(names: &Names) -> String {
    let (records, raise) = (&names.records, raise_floor(names, "gone"));
    format!(
        "WITH clock AS MATERIALIZED (SELECT {NOW} AS now), \
         gone AS (DELETE FROM {records} WHERE scope = $1 AND key = $2 RETURNING fence, expires_at), \
         raised AS ({raise}) \
         SELECT expires_at IS NULL OR expires_at > now FROM gone CROSS JOIN clock"
    )
}

/// $1 how many at the most: how many were deleted. What another transaction holds is left for later.
fn purge(names: &Names) -> String {
    let (records, raise) = (&names.records, raise_floor(names, "gone"));
    format!(
        "WITH gone AS (DELETE FROM {records} WHERE ctid = ANY (ARRAY( \
           SELECT ctid FROM {records} WHERE expires_at <= (SELECT {NOW}) \
           ORDER BY expires_at LIMIT $1 FOR UPDATE SKIP LOCKED)) RETURNING fence), \
         raised AS ({raise}) \
         SELECT count(*) FROM gone"
    )
}

/// $1 scope, $2 key, $3 the key's number among the server's advisory locks: now, when the transaction began, the floor of fences,
/// whether this transaction may take the key (nothing where it is not to be had anyway), and the row.
fn take(names: &Names) -> String {
    let (records, meta, of_record) = (&names.records, &names.meta, columns("r."));
    format!(
        "SELECT clock.now, {BEGUN}, (SELECT value FROM {meta} WHERE name = 'fence_floor'), \
           CASE WHEN (r.state IN (1, 2, 4) OR r.state = 0 AND r.lease_until > clock.now) \
             AND (r.expires_at IS NULL OR r.expires_at > clock.now) \
           THEN NULL ELSE pg_try_advisory_xact_lock($3) END, \
           r.key IS NOT NULL, {of_record} \
         FROM (SELECT {NOW} AS now) clock LEFT JOIN {records} r ON r.scope = $1 AND r.key = $2"
    )
}

/// $1 scope, $2 key, from $3 the columns, and when the transaction began: a row, if it was inserted, and
/// that is still the transaction.
fn insert(names: &Names) -> String {
    let (records, all) = (&names.records, columns(""));
    let parameters: Vec<String> = (1..=COLUMNS.len() + 2).map(|number| format!("${number}")).collect();
    let (parameters, begun) = (parameters.join(", "), COLUMNS.len() + 3);
    format!(
        "INSERT INTO {records} (scope, key, {all}) SELECT {parameters} WHERE {BEGUN} = ${begun} \
         ON CONFLICT (scope, key) DO NOTHING RETURNING 1"
    )
}

/// As `swap`, of one row, and of a result only: parameters as `insert` has them, and then those of the row that was read.
fn replace(names: &Names) -> String {
    let records = &names.records;
    let set: Vec<String> =
        COLUMNS.iter().enumerate().map(|(index, column)| format!("{column} = ${}", index + 3)).collect();
    let set = set.join(", ");
    let begun = COLUMNS.len() + 3;
    let was = begun + 1;
    let [state, owner, fence, until, ends] = [was, was + 1, was + 2, was + 3, was + 4];
    format!(
        "UPDATE {records} SET {set}, steps = NULL WHERE scope = $1 AND key = $2 AND state = ${state} AND owner = ${owner} \
         AND fence = ${fence} AND lease_until = ${until} AND expires_at IS NOT DISTINCT FROM ${ends} \
         AND {BEGUN} = ${begun} RETURNING 1"
    )
}

/// As `replace`, of a row that was over when it was read: nobody misses it if it was purged since.
fn replace_expired(names: &Names) -> String {
    let (records, all) = (&names.records, columns(""));
    let parameters: Vec<String> = (1..=COLUMNS.len() + 2).map(|number| format!("${number}")).collect();
    let parameters = parameters.join(", ");
    let set = COLUMNS.map(|column| format!("{column} = excluded.{column}")).join(", ");
    let begun = COLUMNS.len() + 3;
    let was = begun + 1;
    let [state, owner, fence, until, ends] = [was, was + 1, was + 2, was + 3, was + 4];
    format!(
        "INSERT INTO {records} AS r (scope, key, {all}) SELECT {parameters} WHERE {BEGUN} = ${begun} \
         ON CONFLICT (scope, key) DO UPDATE SET {set}, steps = NULL WHERE r.state = ${state} AND r.owner = ${owner} \
         AND r.fence = ${fence} AND r.lease_until = ${until} AND r.expires_at IS NOT DISTINCT FROM ${ends} RETURNING 1"
    )
}

/// Keeps the highest fence that was deleted, so that fences rise also where the clock is set back.
fn raise_floor(names: &Names, gone: &str) -> String {
    let meta = &names.meta;
    format!(
        "UPDATE {meta} SET value = highest.fence FROM (SELECT max(fence) AS fence FROM {gone}) highest \
         WHERE name = 'fence_floor' AND value < highest.fence"
    )
}

/// $1 scope and $2 key after which the page begins, $3 how many rows. Row: now, scope, key, length of the result, the
/// record's columns; or now alone. The server reads the length of a result, not the result.
fn list(names: &Names, which: &str) -> String {
    let columns = COLUMNS.map(|column| match column {
        "result" => "CASE WHEN result IS NOT NULL THEN ''::bytea END AS result",
        column => column,
    });
    format!(
        "SELECT clock.now, page.* FROM (SELECT {NOW} AS now) clock LEFT JOIN ( \
           SELECT scope, key, octet_length(result)::bigint AS bytes, {} FROM {} WHERE {which} \
           ORDER BY scope, key LIMIT $3) page ON true ORDER BY page.scope, page.key",
        columns.join(", "),
        names.records
    )
}
