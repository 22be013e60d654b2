//! The statements that claim or complete one record alone, in an exchange of their own.

use idem_core::RecordKey;
use idem_core::protocol::Record;

use super::{Statements, has, name_and_values};
use crate::db::session::{AT_ONCE, IS_ONE, ONE};
use crate::layout::Names;
use crate::rows::{COLUMNS, FENCE, NOW, Value, on_the_server, result_of, values_by};
use crate::text::{Prepared, Text};

/// The statements of an exchange that changes one record.
pub(crate) enum Alone {
    /// Texts, of which the one at [`Alone::PLACE`] writes.
    Texts(String),
    Prepared(Prepared),
}

impl Alone {
    /// The place of the statement that writes.
    pub(crate) const PLACE: usize = 2;
}

impl Statements {
    /// Fails at once if another transaction has the row of this key locked, then begins a transaction of one statement. Fails
    /// there if a transaction is open.
    fn alone(&self, key: &RecordKey) -> String {
        let mut text = "SELECT 1".to_owned();
        self.of_keys(&mut text, [key].into_iter());
        text.push_str(" FOR UPDATE NOWAIT; ");
        text.push_str(ONE);
        text
    }

    /// Inserts the record of a claim that was judged by [`BLANK_CLOCK`](crate::rows::BLANK_CLOCK), if there is none. The
    /// statement that writes makes the fence.
    ///
    /// A record that is deleted just now is there, or the floor is above it: prepared, the floor is locked, so that it stays, and an
    /// insertion beside a deletion fails. In texts, floor and absence are of one snapshot, and neither is locked: where a statement may
    /// wait, one claim that waits would hold up all others.
    pub(crate) fn insert_alone(&self, key: &RecordKey, record: &Record, prepares: bool) -> Alone {
        if prepares {
            let mut text = Prepared::default();
            text.push(AT_ONCE);
            self.insert_one(&mut text, key, record);
            text.push(IS_ONE);
            text.push(" LOCK IN SHARE MODE");
            return Alone::Prepared(text);
        }
        let mut text = self.alone(key);
        self.insert_one(&mut text, key, record);
        text.push_str(" AND NOT EXISTS (SELECT 1 FROM ");
        text.push_str(&self.names.records);
        text.push_str(" WHERE ");
        text.is_key(key);
        text.push(')');
        Alone::Texts(text)
    }

    fn insert_one(&self, text: &mut impl Text, key: &RecordKey, record: &Record) {
        let Names { meta, .. } = &self.names;
        let mut values = values_by(record, on_the_server);
        // The first fence is the time, or one more than the floor: see `protocol::claim`.
        values[FENCE] = Value::Expression(format!("LAST_INSERT_ID(GREATEST({NOW}, 1 + floor.value))"));
        self.insert_into(text);
        text.push("SELECT ");
        name_and_values(text, key, &values);
        text.push(&format!(", NULL FROM {meta} floor WHERE floor.name = 'fence_floor'"));
    }

    /// Completes the record in flight of this owner and fence, if it is alive and has no steps. Both records were judged by
    /// [`BLANK_CLOCK`](crate::rows::BLANK_CLOCK); the one `before` has only what the request says.
    pub(crate) fn complete_alone(
        &self,
        key: &RecordKey,
        before: &Record,
        after: &Record,
        prepares: bool,
    ) -> Alone {
        if prepares {
            let mut text = Prepared::default();
            text.push(AT_ONCE);
            self.complete_one(&mut text, key, before, after);
            text.push(IS_ONE);
            return Alone::Prepared(text);
        }
        let mut text = self.alone(key);
        self.complete_one(&mut text, key, before, after);
        Alone::Texts(text)
    }

    fn complete_one(&self, text: &mut impl Text, key: &RecordKey, before: &Record, after: &Record) {
        text.push(&format!("UPDATE {} SET ", self.names.records));
        let (old, new) = (values_by(before, on_the_server), values_by(after, on_the_server));
        for ((column, old), new) in COLUMNS.iter().zip(old).zip(new) {
            if old != new {
                text.push(column);
                text.push(" = ");
                text.value(&new);
                text.push(", ");
            }
        }
        text.push("result = ");
        text.value(&result_of(after));
        text.push(" WHERE ");
        text.is_key(key);
        has(text, before, &["state", "owner", "fence", "steps"]);
        text.push(&format!(" AND (expires_at IS NULL OR expires_at > {NOW})"));
    }
}

#[cfg(test)]
mod tests {
    use idem_core::protocol::{Fence, Owner, State};
    use idem_test_servers::MariaDb;

    use super::super::test_session::{key_of, opened};
    use super::*;
    use crate::db::failure::Stage;
    use crate::rows;

    fn key() -> RecordKey {
        key_of("1")
    }

    /// Another client of a pooler may have left it so: it would roll back what was answered as done, or a replica would not have it.
    #[tokio::test]
    async fn nothing_is_written_in_a_session_that_is_not_as_it_was() {
        let server = MariaDb::start();
        let (mut session, statements) = opened(&server).await;
        let key = key();
        let before = Record::new(State::InFlight, Owner::random(), Fence::new(7));
        let after = Record::new(State::Completed, before.owner, before.fence);
        for open in ["START TRANSACTION", "SET autocommit = 0", "SET binlog_format = 'STATEMENT'"] {
            session.run(open.to_owned(), Stage::Open).await.unwrap();
            for alone in [
                statements.insert_alone(&key, &before, true),
                statements.complete_alone(&key, &before, &after, true),
            ] {
                let Alone::Prepared(statement) = alone else { panic!("not prepared") };
                let given = session.run_prepared(statement, Stage::Committing).await.unwrap();
                assert_eq!(given.written(0), 0, "{open}");
            }
            let back = "ROLLBACK; SET autocommit = 1; SET binlog_format = 'ROW'".to_owned();
            session.run(back, Stage::Open).await.unwrap();
        }
        let inserted = match statements.insert_alone(&key, &before, true) {
            Alone::Prepared(statement) => session.run_prepared(statement, Stage::Committing).await.unwrap(),
            Alone::Texts(_) => panic!("not prepared"),
        };
        assert_eq!(inserted.written(0), 1);
        assert_eq!(server.sql("select count(*) from records"), "1");
    }

    #[tokio::test]
    async fn a_record_is_read_in_every_character_set_and_not_from_an_old_snapshot() {
        let server = MariaDb::start();
        let (mut session, statements) = opened(&server).await;
        let record = Record::new(State::InFlight, Owner::random(), Fence::new(7));
        let Alone::Texts(text) = statements.insert_alone(&key(), &record, false) else { panic!("prepared") };
        session.run(text, Stage::Committing).await.unwrap();
        for charset in ["utf8mb4", "latin1", "utf16", "ucs2"] {
            let set = format!("SET character_set_connection = {charset}, character_set_results = {charset}");
            session.run(set, Stage::Open).await.unwrap();
            let found = session.run(statements.look([key()].iter(), true), Stage::Open).await.unwrap();
            let read = rows::read(&found.rows(1)[0], 2).unwrap();
            assert_eq!((read.record.state, read.record.owner), (record.state, record.owner), "{charset}");
            assert!(rows::fence(&found.rows(1)[0], 2).is_some_and(|fence| fence > record.fence));
        }
        session.run("SET NAMES utf8mb4; START TRANSACTION".to_owned(), Stage::Open).await.unwrap();
        let found = session.run_prepared(statements.look_at_one(&key()), Stage::Open).await.unwrap();
        assert!(found.rows(0).is_empty(), "it may be an old one");
        session.roll_back().await;
        let found = session.run_prepared(statements.look_at_one(&key()), Stage::Open).await.unwrap();
        assert_eq!(rows::read(&found.rows(0)[0], 0).unwrap().record.owner, record.owner);
    }
}
