//! The requests of the protocol as calls of scripts, and the answers of the scripts.
//!
//! This module knows nothing about connections.

use std::num::NonZeroU32;

use redis::Value;

use super::failure::misunderstood;
use super::fields::{LARGEST, THIS_VERSION};
use super::layout::{self, micros};
use super::scripts::{self, CLAIM, COMPLETE, RECORD_STEP, RELEASE, RENEW, RESOLVE};
use idem_core::StoreError;
use idem_core::protocol::{
    self, Answer, Claim, ClaimAnswer, CompleteAnswer, Fence, Record, RecordStepAnswer, ReleaseAnswer,
    ReleaseCause, RenewAnswer, Request, Resolution, ResolveAnswer, Timestamp,
};

/// Builds the script call for a request on the record `name`. With `is_replicated`, a script also writes if
/// an earlier request has already made the change that the answer reports: a grant, a step or a result.
/// `WAIT` waits only for the writes of its own connection. So a request that is repeated on another
/// connection must write there, too.
pub(super) fn call(
    name: &[u8],
    request: &Request,
    is_replicated: bool,
) -> Result<scripts::Request, StoreError> {
    let holder = layout::holder;
    let replicated = is_replicated.then_some(1);
    Ok(match request {
        Request::Claim(request) => {
            let print = request.fingerprint.as_ref().map_or(&[][..], |fingerprint| fingerprint.as_bytes());
            let most_attempts = request.max_attempts.map_or(0, NonZeroU32::get);
            // Each argument costs time on the server, so trailing default arguments are left out.
            let is_usual = print.is_empty() && !request.recovers && most_attempts == 0 && !is_replicated;
            let unusual = (!is_usual).then_some((print, u8::from(request.recovers), most_attempts));
            let first = layout::first_grant(request);
            CLAIM.call(name, 0, (first, micros(request.lease), micros(request.ttl), unusual, replicated))
        }
        Request::Renew(request) => {
            RENEW.call(name, 0, (holder(&request.owner, request.fence), micros(request.lease)))
        }
        Request::RecordStep(request) => {
            let (holder, step) = (holder(&request.owner, request.fence), layout::step(&request.step));
            RECORD_STEP.call(name, step.len(), (holder, request.position, &step, replicated))
        }
        Request::Complete(request) => {
            let ([state, kind], result) = layout::terminal(request.verdict, &request.result);
            let (holder, begin) = (holder(&request.owner, request.fence), &[THIS_VERSION, state, kind]);
            COMPLETE.call(name, result.len(), (holder, begin, micros(request.ttl), result, replicated))
        }
        Request::Release(request) => {
            let cause = match request.cause {
                ReleaseCause::Failed => "F",
                ReleaseCause::Abandoned => "A",
                ReleaseCause::Doubtful => "D",
                ReleaseCause::Unused => "U",
                ReleaseCause::NothingHappened => "N",
                _ => return Err(unknown("cause")),
            };
            let holder = holder(&request.owner, request.fence);
            RELEASE.call(name, 0, (holder, cause, micros(request.retry_after)))
        }
        Request::Resolve(resolution) => {
            let terminal;
            let (what, result): (&[u8], &[u8]) = match resolution {
                Resolution::Record(verdict, result) | Resolution::RecordSeen(_, verdict, result) => {
                    terminal = layout::terminal(*verdict, result);
                    (&terminal.0, terminal.1)
                }
                Resolution::Release | Resolution::ReleaseSeen(_) => (b"", b""),
                Resolution::ForgetSeen(_) => (b"forget", b""),
                _ => return Err(unknown("resolution")),
            };
            let seen = resolution.seen().map(layout::seen).unwrap_or_default();
            RESOLVE.call(name, result.len(), (what, result, seen))
        }
        _ => return Err(unknown("request")),
    })
}

fn unknown(what: &str) -> StoreError {
    StoreError::configuration(format!("this version of the Redis store does not know that {what}"))
}

/// The answer to a request, from the value that its script returned.
pub(super) fn answer(request: &Request, answer: Value) -> Result<Answer, StoreError> {
    Ok(match request {
        Request::Claim(request) => claimed(answer, request)?.into(),
        Request::Renew(_) => match number(&answer)? {
            1 => RenewAnswer::Held.into(),
            2 => RenewAnswer::HeldInDoubt.into(),
            _ => RenewAnswer::Lost.into(),
        },
        Request::RecordStep(request) => match number(&answer)? {
            1 => RecordStepAnswer::Recorded.into(),
            -2 => {
                let size = layout::step(&request.step).len();
                return Err(StoreError::no_room_for_step(size, LARGEST));
            }
            _ => RecordStepAnswer::Lost.into(),
        },
        Request::Complete(_) => match number(&answer)? {
            1 => CompleteAnswer::Done.into(),
            _ => CompleteAnswer::Lost.into(),
        },
        Request::Release(_) => match number(&answer)? {
            1 => ReleaseAnswer::Released.into(),
            2 => ReleaseAnswer::InDoubt.into(),
            _ => ReleaseAnswer::Lost.into(),
        },
        _ => resolved(number(&answer)?)?.into(),
    })
}

pub(super) fn record(answer: Value) -> Result<Option<Record>, StoreError> {
    match answer {
        Value::Nil => Ok(None),
        Value::BulkString(record) => layout::decode(record).map(Some),
        _ => Err(misunderstood()),
    }
}

fn resolved(answer: i64) -> Result<ResolveAnswer, StoreError> {
    let state = |number: i64| u8::try_from(number).ok().and_then(layout::state).ok_or_else(layout::damaged);
    match answer {
        0 => Ok(ResolveAnswer::Absent),
        1 => Ok(ResolveAnswer::Resolved),
        changed @ ..=-2 => state(-changed).map(ResolveAnswer::Changed),
        other => state(other).map(ResolveAnswer::NotInDoubt),
    }
}

/// The number in a script's answer.
pub(super) fn number(answer: &Value) -> Result<i64, StoreError> {
    match answer {
        Value::Int(-1) => Err(layout::damaged()),
        Value::Int(number) => Ok(*number),
        _ => Err(misunderstood()),
    }
}

/// The answer to a claim: the protocol's function decides it from the record and the time that the script
/// returned.
fn claimed(answer: Value, request: &Claim) -> Result<ClaimAnswer, StoreError> {
    let (record, now) = match answer {
        Value::Int(now) => (None, now),
        // The record is live, and is completed, failed or in doubt, so the answer does not depend on the
        // time.
        Value::BulkString(record) => (Some(layout::decode(record)?), 0),
        Value::Array(parts) => match <[Value; 2]>::try_from(parts) {
            Ok([Value::BulkString(record), Value::Int(now)]) => (Some(layout::decode(record)?), now),
            _ => return Err(misunderstood()),
        },
        _ => return Err(misunderstood()),
    };
    let now = u64::try_from(now).map_err(|_| misunderstood())?;
    let now = Timestamp::from_micros(now);
    Ok(protocol::claim(record.as_ref(), Fence::default(), request, now).answer)
}
