//! The statements that stay prepared, on MariaDB: each reads or writes one or many records.
//!
//! The server keeps a statement prepared for each number of rows. To keep few statements, the number of rows
//! is rounded up to a power of two, and the last row is repeated.

use std::iter::repeat_n;

use super::{Statements, has};
use crate::db::session::{AT_ONCE, IS_ONE};
use crate::rows::{COLUMNS, NOW, Value, on_the_server, result_of, values_by};
use crate::text::{Prepared, Text as _};
use idem_core::RecordKey;
use idem_core::protocol::Record;
use idem_store_kit::sql::name;

/// The completion of one record. `before` has only the state `InFlight` and the request's owner and fence.
/// `protocol::complete` made `after` from `before`, with [`BLANK_CLOCK`](crate::rows::BLANK_CLOCK) as the
/// time.
pub(crate) struct Completion<'t> {
    pub(crate) key: &'t RecordKey,
    pub(crate) before: Record,
    pub(crate) after: Record,
}

impl Completion<'_> {
    /// The changed fields of the record, except its result.
    fn changes(&self) -> impl Iterator<Item = (&'static str, Value<'_>)> {
        let (old, new) = (values_by(&self.before, on_the_server), values_by(&self.after, on_the_server));
        let changed = COLUMNS.into_iter().zip(old.into_iter().zip(new));
        changed.filter(|(_, (old, new))| old != new).map(|(column, (_, new))| (column, new))
    }

    /// Whether one statement can write both completions.
    pub(crate) fn goes_with(&self, other: &Self) -> bool {
        self.key.scope() == other.key.scope() && self.changes().eq(other.changes())
    }
}

/// The rows, with the last row repeated until their number is a power of two.
fn filled<T>(rows: &[T]) -> impl Iterator<Item = (usize, &T)> + Clone {
    let missing = rows.len().next_power_of_two() - rows.len();
    rows.iter().chain(rows.last().into_iter().flat_map(move |last| repeat_n(last, missing))).enumerate()
}

impl Statements {
    /// Inserts the records that do not exist yet, as a transaction of its own. All records were decided with
    /// [`BLANK_CLOCK`](crate::rows::BLANK_CLOCK). Returns scope, key and fence of each inserted record, and
    /// whether a transaction was open. If so, the caller must roll back.
    ///
    /// `IGNORE` turns the error of a duplicate into a warning. It would also hide values that do not fit, but
    /// here no key or number is too long.
    pub(crate) fn insert_new(&self, rows: &[(&RecordKey, Record)]) -> Prepared {
        let mut text = Prepared::default();
        text.push(&format!("{AT_ONCE}INSERT IGNORE"));
        let rows = filled(rows).map(|(_, (key, record))| (*key, record));
        self.insertion(&mut text, rows, on_the_server);
        text.push(" RETURNING scope, `key`, fence, @@in_transaction");
        text
    }

    /// Builds one statement that commits by itself. The statement completes each record that is live, in
    /// flight and without steps, and that has the owner and fence of its completion. All completions in `lot`
    /// must [go together](Completion::goes_with), and their results must not be empty.
    pub(crate) fn complete(&self, lot: &[Completion<'_>]) -> Prepared {
        let mut text = Prepared::default();
        let Some(first) = lot.first() else { return text };
        text.push(AT_ONCE);
        text.push(&format!("UPDATE {} FORCE INDEX (PRIMARY) SET ", self.names.records));
        for (column, new) in first.changes() {
            text.push(column);
            text.push(" = ");
            text.value(&new);
            text.push(", ");
            if column == "expires_at" {
                text.push("purge_at = LEAST(purge_at, ");
                text.value(&new);
                text.push("), ");
            }
        }
        text.push("result = CASE `key`");
        for (place, Completion { key, after, .. }) in filled(lot) {
            text.push(" WHEN ");
            text.bytes(name(key).1);
            text.push(" THEN ");
            // If a key is repeated, its first `WHEN` counts.
            let is_repeated = place >= lot.len();
            text.value(&if is_repeated { Value::Bytes(b"-") } else { result_of(after) });
        }
        text.push(" END WHERE ");
        text.are_keys(filled(lot).map(|(_, completion)| completion.key));
        text.push(" AND (`key`, owner, fence) IN (");
        for (place, Completion { key, before, .. }) in filled(lot) {
            text.push(if place == 0 { "(" } else { ", (" });
            text.bytes(name(key).1);
            text.push(", ");
            text.bytes(before.owner.as_bytes());
            text.push(", ");
            text.number(before.fence.get());
            text.push(")");
        }
        text.push(")");
        has(&mut text, &first.before, &["state", "steps"]);
        text.push(&format!(" AND (expires_at IS NULL OR expires_at > {NOW})"));
        text.push(IS_ONE);
        text
    }

    /// Reads the rows of these keys of one scope, as [`look`](Self::look) does. Returns no row if the session
    /// is in a transaction, because the transaction may have an older snapshot.
    pub(crate) fn look_prepared(&self, keys: &[&RecordKey]) -> Prepared {
        let (mut text, count) = (Prepared::default(), keys.len().next_power_of_two());
        self.read(&mut text, filled(keys).map(|(_, key)| *key), " AND @@in_transaction = 0", count);
        text
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use idem_core::protocol::{Fence, Owner, State, StoredResult, Timestamp};
    use idem_test_servers::MariaDb;
    use sqlx::Row as _;
    use sqlx::mysql::MySqlRow;

    use super::super::test_session::{key_of, opened};
    use super::*;
    use crate::db::failure::{Failure, Stage};
    use crate::db::session::Session;
    use crate::rows::{self, BLANK_CLOCK};

    fn in_flight(fence: u64) -> Record {
        Record::new(State::InFlight, Owner::random(), Fence::new(fence))
            .with_expires_at(Some(Timestamp::from_micros(u64::MAX >> 1)))
    }

    /// Inserts these records, and returns the names of the new ones.
    async fn inserted(
        session: &mut Session,
        statements: &Statements,
        rows: &[(RecordKey, Record)],
    ) -> Result<Vec<String>, Failure> {
        let rows: Vec<_> = rows.iter().map(|(key, record)| (key, record.clone())).collect();
        let response = session.run_prepared(statements.insert_new(&rows), Stage::Committing).await?;
        let name = |row: &MySqlRow| String::from_utf8(row.get::<Vec<u8>, _>(1)).unwrap();
        Ok(response.rows(0).iter().map(name).collect())
    }

    fn completion<'t>(key: &'t RecordKey, record: &Record, result: &'static str) -> Completion<'t> {
        let before = Record::new(State::InFlight, record.owner, record.fence);
        let after = Record::new(State::Completed, record.owner, record.fence)
            .with_result(Some(StoredResult::Value(Bytes::from_static(result.as_bytes()))))
            .with_completed_at(Some(BLANK_CLOCK))
            .with_expires_at(Some(BLANK_CLOCK.after(Duration::from_secs(60))));
        Completion { key, before, after }
    }

    #[tokio::test]
    async fn only_what_is_new_is_inserted_and_told_and_what_is_there_stays() {
        let server = MariaDb::shared();
        let (mut session, statements) = opened(&server).await;
        let rows: Vec<_> =
            (0..5).map(|number| (key_of(&number.to_string()), in_flight(7 + number))).collect();
        let first = inserted(&mut session, &statements, &rows[1..3]).await.unwrap();
        assert_eq!(first, ["1", "2"]);
        let others: Vec<_> = rows.iter().map(|(key, _)| (key.clone(), in_flight(9))).collect();
        assert_eq!(inserted(&mut session, &statements, &others).await.unwrap(), ["0", "3", "4"]);
        let fences = "select group_concat(fence order by `key`) from records";
        assert_eq!(server.sql(fences), "9,8,9,9,9");
        let owners = server.sql("select count(distinct owner) from records");
        assert_eq!(owners, "5");
    }

    #[tokio::test]
    async fn nobody_waits_for_a_row_that_another_has_locked() {
        let server = MariaDb::shared();
        let (mut session, statements) = opened(&server).await;
        let (mut other, _) = opened(&server).await;
        let rows: Vec<_> = (0..3).map(|number| (key_of(&number.to_string()), in_flight(7))).collect();
        inserted(&mut session, &statements, &rows[..1]).await.unwrap();
        let deletes = "START TRANSACTION; DELETE FROM records WHERE `key` = '0'".to_owned();
        other.run(deletes, Stage::Open).await.unwrap();
        session.run("SET innodb_lock_wait_timeout = 30".to_owned(), Stage::Open).await.unwrap();
        let begin = std::time::Instant::now();
        let response = inserted(&mut session, &statements, &rows).await;
        assert!(matches!(response, Err(Failure::Raced(_))), "{response:?}");
        let done = [completion(&rows[0].0, &rows[0].1, "done")];
        let completed = session.run_prepared(statements.complete(&done), Stage::Committing).await;
        assert!(matches!(completed.map(drop), Err(Failure::Raced(_))));
        assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
        other.roll_back().await;
        // A statement that failed leaves nothing behind.
        assert_eq!(server.sql("select count(*) from records"), "1");
    }

    #[tokio::test]
    async fn a_result_is_sent_once_though_its_row_is_repeated() {
        let server = MariaDb::shared();
        let (mut session, statements) = opened(&server).await;
        let rows: Vec<_> = (0..33).map(|number| (key_of(&number.to_string()), in_flight(7))).collect();
        inserted(&mut session, &statements, &rows).await.unwrap();
        let lot: Vec<_> = rows.iter().map(|(key, record)| completion(key, record, "a result")).collect();
        let statement = statements.complete(&lot);
        assert_eq!(statement.text.matches("WHEN").count(), 64);
        let bytes = format!("{:?}", statement.values);
        let result = format!("{:?}", b"a result");
        assert_eq!(bytes.matches(result.trim_matches(['[', ']'])).count(), 33, "{bytes}");
        session.run_prepared(statement, Stage::Committing).await.unwrap();
        assert_eq!(server.sql("select count(*) from records where result = 'a result'"), "33");
    }

    #[tokio::test]
    async fn each_completion_changes_the_record_of_its_owner_and_fence_and_only_if_it_is_alive() {
        let server = MariaDb::shared();
        let (mut session, statements) = opened(&server).await;
        let mut rows: Vec<_> =
            (0..6).map(|number| (key_of(&number.to_string()), in_flight(7 + number))).collect();
        rows[3].1 = in_flight(10).with_expires_at(Some(Timestamp::from_micros(1)));
        rows[4].1.state = State::Released;
        inserted(&mut session, &statements, &rows).await.unwrap();
        session.run("UPDATE records SET steps = 1 WHERE `key` = '5'".to_owned(), Stage::Open).await.unwrap();
        // The second completion has the owner and fence of the first record.
        let mut lot: Vec<_> = rows.iter().map(|(key, record)| completion(key, record, "done")).collect();
        lot[1] = completion(&rows[1].0, &rows[0].1, "of another");
        lot[2] = completion(&rows[2].0, &rows[2].1, "its own");
        let done = session.run_prepared(statements.complete(&lot), Stage::Committing).await.unwrap();
        assert_eq!(done.written(0), 2);
        let results = "select convert(group_concat(concat(`key`, '=', result) order by `key`) using ascii) from records where state = 1";
        assert_eq!(server.sql(results), "0=done,2=its own");
        let ends = "select count(distinct expires_at - completed_at), min(expires_at - completed_at) from records where state = 1";
        assert_eq!(server.sql(ends), "1|60000000");
    }

    /// Another client of a pooler may have left the session with an open transaction or with another binary
    /// log format. In the first case, a later rollback of that client would undo operations that were
    /// answered as done. In the second case, a replica would not get these operations.
    #[tokio::test]
    async fn nothing_is_completed_or_read_in_a_session_that_is_not_as_it_was() {
        let server = MariaDb::shared();
        let (mut session, statements) = opened(&server).await;
        let rows: Vec<_> = (0..3).map(|number| (key_of(&number.to_string()), in_flight(7))).collect();
        inserted(&mut session, &statements, &rows).await.unwrap();
        let done = [completion(&rows[0].0, &rows[0].1, "done")];
        for open in ["START TRANSACTION", "SET autocommit = 0", "SET binlog_format = 'STATEMENT'"] {
            session.run(open.to_owned(), Stage::Open).await.unwrap();
            let response = session.run_prepared(statements.complete(&done), Stage::Committing).await.unwrap();
            assert_eq!(response.written(0), 0, "{open}");
            let back = "ROLLBACK; SET autocommit = 1; SET binlog_format = 'ROW'".to_owned();
            session.run(back, Stage::Open).await.unwrap();
        }
        let (first, absent, last) = (key_of("0"), key_of("absent"), key_of("2"));
        for keys in [vec![&first], vec![&first, &absent, &last]] {
            let read = session.run_prepared(statements.look_prepared(&keys), Stage::Open).await.unwrap();
            assert_eq!(read.rows(0).len(), keys.len().min(2));
            session.run("START TRANSACTION".to_owned(), Stage::Open).await.unwrap();
            let read = session.run_prepared(statements.look_prepared(&keys), Stage::Open).await.unwrap();
            assert!(read.rows(0).is_empty(), "it may be an old snapshot");
            session.roll_back().await;
        }
        let response = session.run_prepared(statements.complete(&done), Stage::Committing).await.unwrap();
        assert_eq!(response.written(0), 1);
    }

    #[tokio::test]
    async fn a_record_is_read_in_every_character_set() {
        let server = MariaDb::shared();
        let (mut session, statements) = opened(&server).await;
        let (key, record) = (key_of("1"), in_flight(7));
        inserted(&mut session, &statements, &[(key.clone(), record.clone())]).await.unwrap();
        for charset in ["utf8mb4", "latin1", "utf16", "ucs2"] {
            let set = format!("SET character_set_connection = {charset}, character_set_results = {charset}");
            session.run(set, Stage::Open).await.unwrap();
            let response = session.run(statements.look(&[&key]), Stage::Open).await.unwrap();
            let read = rows::read(&response.rows(1)[0], 2).unwrap();
            assert_eq!((read.record.state, read.record.owner), (record.state, record.owner), "{charset}");
            assert_eq!(read.record.fence, record.fence, "{charset}");
        }
    }

    #[test]
    fn completions_go_together_if_they_write_the_same_but_for_the_result() {
        let (first, second) = (key_of("1"), key_of("2"));
        let (record, other) = (in_flight(7), in_flight(8));
        let one = completion(&first, &record, "a");
        assert!(one.goes_with(&completion(&second, &other, "b")));
        let mut later = completion(&second, &other, "b");
        later.after = later.after.with_expires_at(Some(BLANK_CLOCK.after(Duration::from_secs(61))));
        assert!(!one.goes_with(&later));
        let elsewhere =
            RecordKey::new(idem_core::Scope::new("bills").unwrap(), idem_core::Key::new("2").unwrap());
        assert!(!one.goes_with(&completion(&elsewhere, &other, "b")));
    }
}
