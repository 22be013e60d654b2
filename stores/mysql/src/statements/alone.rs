//! The statements that claim or complete one record alone, in an exchange of their own.

use idem_core::RecordKey;
use idem_core::protocol::Record;

use super::{Statements, has, values};
use crate::db::session::ONE;
use crate::layout::Names;
use crate::rows::{COLUMNS, FENCE, NOW, add, is_key, literals_by, on_the_server, result_literal};

/// Which statement of an exchange writes a record alone.
pub(crate) const WRITE_ALONE: usize = 2;

impl Statements {
    /// Fails at once if another transaction has the row of this key locked, then begins a transaction of one statement. Fails
    /// there if a transaction is open.
    fn alone(&self, key: &RecordKey) -> String {
        let mut text = "SELECT 1".to_owned();
        self.of_keys(&mut text, [key].into_iter());
        add(&mut text, format_args!(" FOR UPDATE NOWAIT; {ONE}"));
        text
    }

    /// Inserts the record of a claim that was judged by [`BLANK_CLOCK`](crate::rows::BLANK_CLOCK), if there is none. The
    /// statement at [`WRITE_ALONE`] makes the fence.
    ///
    /// Floor and absence are of one snapshot: a record that is deleted just now is there, or the floor is above it. Neither is
    /// locked, so one claim that waits holds up no other.
    pub(crate) fn insert_alone(&self, key: &RecordKey, record: &Record) -> String {
        let Names { records, meta, .. } = &self.names;
        let mut literals = literals_by(record, on_the_server);
        // The first fence is the time, or one more than the floor: see `protocol::claim`.
        literals[FENCE] = format!("LAST_INSERT_ID(GREATEST({NOW}, 1 + floor.value))");
        let mut text = self.alone(key);
        self.insert_into(&mut text);
        text.push_str("SELECT ");
        values(&mut text, key, &literals);
        add(
            &mut text,
            format_args!(
                ", NULL FROM {meta} floor WHERE floor.name = 'fence_floor' \
                 AND NOT EXISTS (SELECT 1 FROM {records} WHERE "
            ),
        );
        is_key(&mut text, key);
        text.push(')');
        text
    }

    /// Completes the record in flight of this owner and fence, if it is alive and has no steps. Both records were judged by
    /// [`BLANK_CLOCK`](crate::rows::BLANK_CLOCK); the one `before` has only what the request says.
    pub(crate) fn complete_alone(&self, key: &RecordKey, before: &Record, after: &Record) -> String {
        let mut text = self.alone(key);
        add(&mut text, format_args!("UPDATE {} SET ", self.names.records));
        let (old, new) = (literals_by(before, on_the_server), literals_by(after, on_the_server));
        for ((column, old), new) in COLUMNS.iter().zip(old).zip(new) {
            if old != new {
                add(&mut text, format_args!("{column} = {new}, "));
            }
        }
        text.push_str("result = ");
        result_literal(&mut text, after);
        text.push_str(" WHERE ");
        is_key(&mut text, key);
        has(&mut text, before, &["state", "owner", "fence", "steps"]);
        add(&mut text, format_args!(" AND (expires_at IS NULL OR expires_at > {NOW})"));
        text
    }
}
