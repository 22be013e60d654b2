//! The statements that grant claims.

use super::{SMALL_RESULT, columns};
use crate::db::NOW;
use crate::layout::Names;
use crate::rows::COLUMNS;

/// How many advisory locks a statement takes at most.
const LOCKS: u32 = 64;

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
/// A result that is large is not among what is read: `large` says so, and `read` gets it.
pub(super) fn claim(names: &Names) -> String {
    let (records, meta) = (&names.records, &names.meta);
    let (all, of_record, grant) = (columns(""), columns("r."), first_grant(""));
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
           INSERT INTO {records} (scope, key, {all}, purge_at) \
           SELECT {grant} FROM asked WHERE NOT found AND free ORDER BY n \
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
             purge_at = a.now + a.keep, steps = CASE WHEN {expired} THEN NULL ELSE r.steps END \
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

/// $1 scope, $2 key, $3 owner, $4 fingerprint, $5 lease, $6 ttl, $7 `on_crash`: arrays of one length, sorted by scope and
/// key, no key twice.
///
/// Inserts what has no record, as `claim` does, and does nothing with the others: it reads no row and gives none, so it costs
/// the server less. Rows: scope, key, fence and now of what was inserted. Where a process has ever recorded in a caller's
/// transaction it inserts nothing, as it takes no lock, and gives a row without values.
///
/// That there is no record, and the floor of fences, are of one snapshot: where a record is being deleted, the floor that was
/// read may be of before, so nothing is inserted.
pub(super) fn claim_new(names: &Names) -> String {
    let (records, meta, all, grant) = (&names.records, &names.meta, columns(""), first_grant("a."));
    format!(
        "WITH clock AS MATERIALIZED (SELECT {NOW} AS now, \
           EXISTS (SELECT FROM {meta} WHERE name = 'transactions' AND value > 0) AS locks), \
         inserted AS ( \
           INSERT INTO {records} (scope, key, {all}, purge_at) \
           SELECT {grant} FROM clock CROSS JOIN unnest($1::bytea[], $2::bytea[], $3::bytea[], $4::bytea[], $5::bigint[], \
             $6::bigint[], $7::smallint[]) WITH ORDINALITY AS a (scope, key, own, print, lease, keep, crash, n) \
           WHERE NOT clock.locks AND NOT EXISTS (SELECT FROM {records} r WHERE r.scope = a.scope AND r.key = a.key) \
           ORDER BY a.n \
           ON CONFLICT (scope, key) DO NOTHING RETURNING scope, key, fence, created_at \
         ) \
         SELECT scope, key, fence, created_at FROM inserted \
         UNION ALL SELECT NULL, NULL, NULL, NULL FROM clock WHERE locks"
    )
}

/// The columns of a key's first grant, beginning with scope and key; `now` and what `a` has are those of the statement. The
/// fence is of the moment at which its row is inserted: the statement may have waited for another row before.
fn first_grant(a: &str) -> String {
    format!(
        "{a}scope, {a}key, 0, {a}own, \
         {NOW}, 1, false, {a}crash, \
         now + {a}lease, now, {a}keep, {a}print, NULL, now, NULL, \
         CASE WHEN {a}crash = 0 THEN now + {a}lease + {a}keep END, NULL, now + {a}keep",
    )
}
