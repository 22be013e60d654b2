//! The SQL statements. The server runs each of them atomically.
//!
//! SQL restates only the rules that most calls need: the grant of a new key, a renewal, a step, a completion.
//! For other requests, a statement reads the row, the protocol's own functions decide, and `swap` writes the
//! new record if the row has not changed.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::layout::Names;
use super::rows::COLUMNS;
use crate::db::NOW;
use idem_core::{RecordKey, framed_digest};

/// The time when the transaction began. It is constant within a transaction, and different in every other
/// transaction of the session.
const BEGUN: &str = "(extract(epoch FROM transaction_timestamp()) * 1000000)::bigint";

/// The number of the parameter with the transaction's start, after scope, key and columns.
const BEGUN_GIVEN: usize = COLUMNS.len() + 3;

/// The `purge_at` of a record that a caller's transaction writes: its `expires_at` ($16, the column before
/// the last), or 0 if it has none.
const ENDS: &str = "coalesce($16::bigint, 0)";

/// An hour in microseconds.
const HOUR: u64 = 3_600_000_000;

/// The largest record that is read together with others, in bytes of its result and its steps.
const SMALL_RESULT: u32 = 64 << 10;

/// The texts of the statements, with the names of the tables of one store.
#[derive(Debug)]
pub(super) struct Statements {
    pub(super) claim_new: Arc<str>,
    pub(super) renew: Arc<str>,
    pub(super) record_step: Arc<str>,
    pub(super) complete: Arc<str>,
    pub(super) read: Arc<str>,
    pub(super) read_one: Arc<str>,
    pub(super) swap: Arc<str>,
    pub(super) forget: Arc<str>,
    pub(super) purge: Arc<str>,
    pub(super) take: Arc<str>,
    pub(super) set_transactions: Arc<str>,
    pub(super) insert: Arc<str>,
    pub(super) replace: Arc<str>,
    pub(super) list: Arc<str>,
    pub(super) list_scope: Arc<str>,
    table: String,
    /// Whether any process has ever recorded in a caller's transaction, as far as this process knows.
    pub(super) with_transactions: AtomicBool,
}

impl Statements {
    pub(super) fn new(names: &Names) -> Self {
        Self {
            claim_new: claim_new(names).into(),
            renew: renew(names).into(),
            record_step: record_step(names).into(),
            complete: complete(names).into(),
            read: read(names).into(),
            read_one: read_one(names).into(),
            swap: swap(names).into(),
            forget: forget(names).into(),
            purge: purge(names).into(),
            take: take(names).into(),
            // Writes only if the value is not set yet, because each update costs a commit.
            set_transactions: format!(
                "UPDATE {} SET value = 1 WHERE name = 'transactions' AND value = 0",
                names.meta
            )
            .into(),
            insert: insert(names, "DO NOTHING").into(),
            replace: insert(names, &replaced()).into(),
            list: list(names, "(scope, key) > ($1, $2)").into(),
            list_scope: list(names, "scope = $1 AND key > $2").into(),
            table: names.records.clone(),
            with_transactions: AtomicBool::new(false),
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

/// The columns of a record, each with this prefix.
fn columns(before: &str) -> String {
    COLUMNS.map(|column| format!("{before}{column}")).join(", ")
}

/// $1 scope, $2 key, $3 owner, $4 fingerprint, $5 lease, $6 ttl, $7 `on_crash`, $8 the key's number among the
/// database's advisory locks. These are arrays of one length, sorted by scope and key. No key occurs twice.
///
/// Inserts the records of keys that have none, and leaves the others unchanged. Rows: scope, key, fence and
/// creation time of each inserted record. The fence is taken when the row is inserted, because the statement
/// may have waited for another row before.
///
/// If any process has ever recorded in a caller's transaction, the statement also returns a row without
/// values. It then inserts the record of a key only if it gets the key's lock. The lock is shared, so that
/// only the lock of a caller's transaction excludes it. The statement holds the lock until its commit, so
/// that no caller's transaction can take the key earlier. Without this lock, a claim could be granted while a
/// caller's transaction holds the key, and the insert of that transaction would fail.
fn claim_new(names: &Names) -> String {
    let (records, meta, all) = (&names.records, &names.meta, columns(""));
    format!(
        "WITH clock AS MATERIALIZED (SELECT {NOW} AS now, \
           EXISTS (SELECT FROM {meta} WHERE name = 'transactions' AND value > 0) AS locks), \
         inserted AS ( \
           INSERT INTO {records} (scope, key, {all}, purge_at) \
           SELECT a.scope, a.key, 0, a.own, {NOW}, 1, false, a.crash, now + a.lease, now, a.keep, a.print, NULL, now, NULL, \
             CASE WHEN a.crash = 0 THEN now + a.lease + a.keep END, NULL, now + a.keep \
           FROM clock CROSS JOIN unnest($1::bytea[], $2::bytea[], $3::bytea[], $4::bytea[], $5::bigint[], \
             $6::bigint[], $7::smallint[], $8::bigint[]) \
             WITH ORDINALITY AS a (scope, key, own, print, lease, keep, crash, number, n) \
           WHERE NOT EXISTS (SELECT FROM {records} r WHERE r.scope = a.scope AND r.key = a.key) \
             AND coalesce(pg_try_advisory_xact_lock_shared(a.number), NOT clock.locks) \
           ORDER BY a.n \
           ON CONFLICT (scope, key) DO NOTHING RETURNING scope, key, fence, created_at \
         ) \
         SELECT scope, key, fence, created_at FROM inserted \
         UNION ALL SELECT NULL, NULL, NULL, NULL FROM clock WHERE locks"
    )
}

/// $1 scope, $2 key, $3 owner, $4 fence, $5 lease. Returns the positions of the renewed records in the
/// arrays, from 1.
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

/// $1 scope, $2 key, $3 owner, $4 fence, $5 state, $6 tombstone, $7 result, $8 ttl. Returns the positions of
/// the completed records in the arrays, from 1.
fn complete(names: &Names) -> String {
    let records = &names.records;
    format!(
        "WITH clock AS MATERIALIZED (SELECT {NOW} AS now) \
         UPDATE {records} r SET state = a.verdict, tombstone = a.reason, result = a.bytes, ttl = a.keep, \
           completed_at = clock.now, expires_at = clock.now + a.keep, \
           purge_at = least(r.purge_at, clock.now + a.keep), steps = NULL \
         FROM clock CROSS JOIN unnest($1::bytea[], $2::bytea[], $3::bytea[], $4::bigint[], $5::smallint[], \
             $6::smallint[], $7::bytea[], $8::bigint[]) \
           WITH ORDINALITY AS a (scope, key, own, number, verdict, reason, bytes, keep, n) \
         WHERE r.scope = a.scope AND r.key = a.key AND r.owner = a.own AND r.fence = a.number \
           AND r.state IN (0, 4) AND (r.expires_at IS NULL OR r.expires_at > clock.now) \
         RETURNING a.n"
    )
}

/// $1 scope, $2 key, $3 owner, $4 fence, $5 position, $6 step. Records a step only if it is the next step of
/// its record. Returns the positions in the arrays, from 1, of the records whose step was recorded.
fn record_step(names: &Names) -> String {
    let records = &names.records;
    format!(
        "WITH clock AS MATERIALIZED (SELECT {NOW} AS now) \
         UPDATE {records} r SET steps = array_append(r.steps, a.step) \
         FROM clock CROSS JOIN unnest($1::bytea[], $2::bytea[], $3::bytea[], $4::bigint[], $5::bigint[], \
             $6::bytea[]) \
           WITH ORDINALITY AS a (scope, key, own, number, position, step, n) \
         WHERE r.scope = a.scope AND r.key = a.key AND r.owner = a.own AND r.fence = a.number \
           AND r.state IN (0, 4) AND (r.expires_at IS NULL OR r.expires_at > clock.now) \
           AND coalesce(cardinality(r.steps), 0) = a.position \
         RETURNING a.n"
    )
}

/// $1 scope, $2 key. Rows: the position of the key in the arrays, the present time, and the record with its
/// steps, if the key has one. A large record is returned only if its key is the first one. The group commit
/// repeats the operations on the other large records. A window function over the bytes would return more
/// records at once, but doubles the server's work for a small batch.
fn read(names: &Names) -> String {
    let (records, of_record) = (&names.records, columns("r."));
    format!(
        "SELECT a.n, clock.now, r.key IS NOT NULL AS found, {of_record}, r.steps \
         FROM (SELECT {NOW} AS now) clock \
         CROSS JOIN unnest($1::bytea[], $2::bytea[]) WITH ORDINALITY AS a (scope, key, n) \
         LEFT JOIN {records} r ON r.scope = a.scope AND r.key = a.key \
         WHERE a.n = 1 OR coalesce(octet_length(r.result), 0) + coalesce(pg_column_size(r.steps), 0) <= {SMALL_RESULT}"
    )
}

/// As `read`, for one key: $1 scope, $2 key. Without arrays the server needs less than half the time (15 us
/// instead of 40). Most reads of a single caller are of this kind.
fn read_one(names: &Names) -> String {
    let (records, of_record) = (&names.records, columns("r."));
    format!(
        "SELECT 1::bigint AS n, clock.now, r.key IS NOT NULL AS found, {of_record}, r.steps \
         FROM (SELECT {NOW} AS now) clock LEFT JOIN {records} r ON r.scope = $1 AND r.key = $2"
    )
}

/// $1 scope, $2 key, $3..$7 state, owner, fence, `lease_until` and `expires_at` of the row that was read. Any
/// two versions of a key's record differ in at least one of these five, unless only a step was added. The new
/// columns begin at $8. The last parameter is the number of the key's advisory lock (see `claim_new`), or
/// null if no lock is needed. Rows: the position of each written record, with true, and the position of each
/// record whose lock was not free, with false.
///
/// This statement adds no step. It deletes the steps if the record begins anew, or if it gets a result other
/// than the tombstone `exhausted`.
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
    let (parameters, number) = (parameters.join(", "), COLUMNS.len() + 8);
    format!(
        "WITH asked AS MATERIALIZED ( \
           SELECT a.*, coalesce(pg_try_advisory_xact_lock_shared(a.number), true) AS free \
           FROM unnest($1::bytea[], $2::bytea[], $3::smallint[], $4::bytea[], $5::bigint[], $6::bigint[], \
             $7::bigint[], {parameters}, ${number}::bigint[]) \
             WITH ORDINALITY AS a (scope, key, was, own, fence, until, ends, {new}, number, n)), \
         written AS ( \
           UPDATE {records} r SET {set}, purge_at = least(r.purge_at, a.new_expires_at), \
             steps = CASE WHEN a.new_created_at = r.created_at AND (a.new_completed_at IS NULL OR a.new_tombstone = 2) \
               THEN r.steps END \
           FROM asked a \
           WHERE a.free AND r.scope = a.scope AND r.key = a.key AND r.state = a.was AND r.owner = a.own \
             AND r.fence = a.fence AND r.lease_until = a.until AND r.expires_at IS NOT DISTINCT FROM a.ends \
           RETURNING a.n) \
         SELECT n, true FROM written UNION ALL SELECT n, false FROM asked WHERE NOT free"
    )
}

/// $1 scope, $2 key. Returns whether the deleted record was live, if there was one.
fn forget(names: &Names) -> String {
    let records = &names.records;
    format!(
        "DELETE FROM {records} WHERE scope = $1 AND key = $2 RETURNING expires_at IS NULL OR expires_at > {NOW}"
    )
}

/// $1 the limit. Returns how many records were read, and how many of them were deleted. Rows that another
/// transaction holds are left for later.
///
/// `purge_at` is never later than a record's `expires_at`. It is earlier if the record was renewed or its
/// body took time. If a record is due but not expired, it becomes due again at its `expires_at`. If it has no
/// `expires_at`, it becomes due again after its `ttl`, but at the earliest in an hour.
fn purge(names: &Names) -> String {
    let records = &names.records;
    format!(
        "WITH clock AS MATERIALIZED (SELECT {NOW} AS now), \
         due AS MATERIALIZED (SELECT r.ctid AS place, coalesce(r.expires_at <= (SELECT now FROM clock), false) AS over \
           FROM {records} r WHERE r.purge_at <= (SELECT now FROM clock) \
           ORDER BY r.purge_at LIMIT $1 FOR UPDATE SKIP LOCKED), \
         gone AS (DELETE FROM {records} WHERE ctid = ANY (ARRAY(SELECT place FROM due WHERE over)) RETURNING 1), \
         later AS (UPDATE {records} SET purge_at = coalesce(expires_at, (SELECT now FROM clock) + greatest(ttl, {HOUR})) \
           WHERE ctid = ANY (ARRAY(SELECT place FROM due WHERE NOT over))) \
         SELECT (SELECT count(*) FROM due), (SELECT count(*) FROM gone)"
    )
}

/// $1 scope, $2 key, $3 the key's number among the database's advisory locks. Columns of the only row: the
/// present time; the time when the transaction began; whether the transaction got the lock; whether the key
/// has a record; that record. If the record refuses every new claim, the transaction does not try to get the
/// lock, and the column of the lock is null.
fn take(names: &Names) -> String {
    let (records, of_record) = (&names.records, columns("r."));
    format!(
        "SELECT clock.now, {BEGUN}, \
           CASE WHEN (r.state IN (1, 2, 4) OR r.state = 0 AND r.lease_until > clock.now \
               OR r.state = 3 AND r.retry_at > clock.now) \
             AND (r.expires_at IS NULL OR r.expires_at > clock.now) \
           THEN NULL ELSE pg_try_advisory_xact_lock($3) END, \
           r.key IS NOT NULL, {of_record} \
         FROM (SELECT {NOW} AS now) clock LEFT JOIN {records} r ON r.scope = $1 AND r.key = $2"
    )
}

/// $1 scope, $2 key, from $3 the columns, then the time when the transaction began. Writes only in the
/// transaction that began at this time. Returns a row if the record was written. `otherwise` says what
/// happens if the key has a row.
fn insert(names: &Names, otherwise: &str) -> String {
    let (records, all) = (&names.records, columns(""));
    let parameters: Vec<String> = (1..=COLUMNS.len() + 2).map(|number| format!("${number}")).collect();
    let parameters = parameters.join(", ");
    format!(
        "INSERT INTO {records} AS r (scope, key, {all}, purge_at) SELECT {parameters}, {ENDS} WHERE {BEGUN} = ${BEGUN_GIVEN} \
         ON CONFLICT (scope, key) {otherwise} RETURNING 1"
    )
}

/// The part of `insert` for a key with a row. Replaces the row if it is still as it was read; the parameters
/// after `BEGUN_GIVEN` say how it was. If the row has been purged or forgotten since, `insert` inserts the
/// record.
fn replaced() -> String {
    let set = COLUMNS.map(|column| format!("{column} = excluded.{column}")).join(", ");
    let [state, owner, fence, until, ends] = [1, 2, 3, 4, 5].map(|index| BEGUN_GIVEN + index);
    format!(
        "DO UPDATE SET {set}, purge_at = excluded.purge_at, steps = NULL \
         WHERE r.state = ${state} AND r.owner = ${owner} AND r.fence = ${fence} AND r.lease_until = ${until} \
         AND r.expires_at IS NOT DISTINCT FROM ${ends}"
    )
}

/// $1 scope and $2 key after which the page begins, $3 how many rows. Rows: the present time, scope, key,
/// length of the result, and the record's columns. If the page is empty, one row has only the time. The
/// server reads the length of a result, not the result.
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
