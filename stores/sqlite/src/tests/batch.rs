//! The transactions of the writer, one after another: what it remembers about the file, and when it purges.

use std::time::Duration;

use super::{claim_request, completion, key, open};
use crate::batch::Session;
use crate::now;
use crate::queue::{Answer, Op, Purged};
use crate::rows;
use idem_core::protocol::{
    self, Claim, ClaimAnswer, CompleteAnswer, Fence, OnCrash, Owner, Renew, RenewAnswer, Request,
};

fn apply(session: &mut Session<'_>, name: &str, request: impl Into<Request>) -> protocol::Answer {
    match session.apply(&Op::Apply(key(name), request.into())) {
        Ok(Ok(Answer::Applied(answer))) => answer,
        _ => panic!("no answer"),
    }
}

fn granted(session: &mut Session<'_>, name: &str, claim: &Claim) -> (Owner, Fence) {
    session.begin(Duration::ZERO).unwrap();
    let protocol::Answer::Claim(ClaimAnswer::Granted(grant)) = apply(session, name, claim.clone()) else {
        panic!("not granted")
    };
    (claim.owner, grant.fence)
}

#[test]
fn what_was_not_committed_is_forgotten() {
    let (_folder, _, connection) = open();
    let mut session = Session::prepare(&connection).unwrap();
    let (owner, fence) = granted(&mut session, "a", &claim_request());
    // SQLite may do this by itself when a commit fails.
    connection.execute_batch("ROLLBACK").unwrap();
    session.begin(Duration::ZERO).unwrap();
    let answer = apply(&mut session, "a", Renew::new(owner, fence, claim_request().lease));
    assert_ne!(answer, protocol::Answer::Renew(RenewAnswer::Held));
    assert!(session.roll_back());
}

#[test]
fn a_record_that_lives_longer_than_its_claim_said_is_deleted_when_it_ends() {
    let (_folder, _, connection) = open();
    let mut session = Session::prepare(&connection).unwrap();
    granted(&mut session, "longer", &claim_request());
    session.commit().unwrap();
    granted(&mut session, "in doubt", &claim_request().with_on_crash(OnCrash::InDoubt));
    let set = |columns: &str| connection.execute(&format!("UPDATE idem_records SET {columns}"), ()).unwrap();
    // Makes both records due for a purge, although they have not expired.
    set("purge_at = 1");
    assert!(matches!(session.purge(10), Ok(Purged { count: 0, all: true })));
    let later = "SELECT count(*) FROM idem_records WHERE purge_at > ?1";
    let later: i64 = connection.query_row(later, [rows::instant(now())], |row| row.get(0)).unwrap();
    assert_eq!(later, 2, "both are due later");
    set("purge_at = 1, expires_at = iif(expires_at IS NULL, NULL, 1)");
    assert!(matches!(session.purge(1), Ok(Purged { count: 1, all: false })));
    assert!(matches!(session.purge(10), Ok(Purged { count: 0, all: true })), "a doubt has no end");
    session.commit().unwrap();
}

#[test]
fn a_record_whose_end_is_brought_forward_is_deleted_then() {
    let (_folder, _, connection) = open();
    let mut session = Session::prepare(&connection).unwrap();
    let (owner, fence) = granted(&mut session, "shorter", &claim_request());
    let mut short = completion(owner, fence, b"x");
    short.ttl = Duration::ZERO;
    assert_eq!(apply(&mut session, "shorter", short), protocol::Answer::Complete(CompleteAnswer::Done));
    session.commit().unwrap();
    session.begin(Duration::ZERO).unwrap();
    assert!(matches!(session.purge(10), Ok(Purged { count: 1, all: true })));
    session.commit().unwrap();
}
