//! One claim of a new key or one completion, alone, as one statement.
//!
//! Restates no rule: the protocol's own functions judge by a blank clock, and each instant in what they write is sent as a sum with the
//! server's. What this does not settle goes the long way.

use super::Judged;
use crate::db::failure::{Failure, Stage};
use crate::db::session::Session;
use crate::rows::BLANK_CLOCK;
use crate::setting::Setting;
use crate::statements::{Alone, large_result};
use idem_core::protocol::{self, ClaimAnswer, CompleteAnswer, Fence, Record, Request, State, Transition};
use idem_store_kit::group_commit::{Answer, Op, Operation};

/// An operation that is one statement.
pub(super) struct Short {
    statement: Alone,
    /// What the statement has done if it wrote one row.
    done: Done,
}

enum Done {
    /// The answer, but for the fence, which the server made.
    Granted(ClaimAnswer),
    Completed,
}

impl Short {
    /// `None` if it is another operation, has steps that must be deleted, or a result that does not fit in a statement's text.
    pub(super) fn of(setting: &Setting, asked: &Operation, prepares: bool) -> Option<Self> {
        let (key, statements) = (&asked.key, &setting.statements);
        let Op::Apply(request) = &asked.op else { return None };
        match request {
            Request::Claim(claim) => {
                let Transition { write, answer, .. } =
                    protocol::claim(None, Fence::default(), claim, BLANK_CLOCK);
                let statement = statements.insert_alone(key, &write?, prepares);
                Some(Self { statement, done: Done::Granted(answer) })
            }
            Request::Complete(complete) if !setting.stepped.has(setting.stepped.mark(key)) => {
                // What else is in the record stays.
                let before = Record::new(State::InFlight, complete.owner, complete.fence);
                let after = protocol::complete(Some(&before), complete, BLANK_CLOCK).write?;
                if large_result(&after).is_some() {
                    return None;
                }
                let statement = statements.complete_alone(key, &before, &after, prepares);
                Some(Self { statement, done: Done::Completed })
            }
            _ => None,
        }
    }

    /// Runs it. `None` if it changed nothing.
    pub(super) async fn run(self, session: &mut Session) -> Result<Judged, Failure> {
        let (given, place) = match self.statement {
            Alone::Texts(text) => (session.run(text, Stage::Committing).await, Alone::PLACE),
            Alone::Prepared(statement) => (session.run_prepared(statement, Stage::Committing).await, 0),
        };
        let given = match given {
            Ok(given) => given,
            // There is a record, or another transaction has it locked.
            Err(Failure::Raced(_)) => return Ok(None),
            // The long way tells whether it is the statement or that it is prepared.
            Err(Failure::Refused(_)) if !session.prepares() => return Ok(None),
            Err(failed) => return Err(failed),
        };
        if given.written(place) != 1 {
            return Ok(None);
        }
        let answer = match self.done {
            Done::Completed => CompleteAnswer::Done.into(),
            Done::Granted(ClaimAnswer::Granted(mut grant)) if given.made(place) > 0 => {
                grant.fence = Fence::new(given.made(place));
                ClaimAnswer::Granted(grant).into()
            }
            // The record has its fence, and the long way reads it.
            Done::Granted(_) => return Ok(None),
        };
        Ok(Some(Ok(Answer::Applied(answer))))
    }
}
