//! The requests of the protocol as calls of scripts, and the answers of the scripts.
//!
//! It knows nothing of connections.

use redis::Value;

use super::failure::misunderstood;
use super::fields;
use super::layout;
use super::scripts::{self, CLAIM, COMPLETE, RECORD_STEP, RELEASE, RENEW, RESOLVE};
use idem_core::StoreError;
use idem_core::protocol::{
    self, Answer, Claim, ClaimAnswer, CompleteAnswer, Fence, RecordStepAnswer, ReleaseAnswer, ReleaseCause,
    RenewAnswer, Request, Resolution, ResolveAnswer, Timestamp,
};

/// The call of the script for a request about the record with this name. A script that is replicated writes even if it
/// changes nothing: `WAIT` counts from the last write of its connection, so the answer to a repeated request on another
/// connection needs a write.
pub(super) fn call(
    name: &[u8],
    request: &Request,
    is_replicated: bool,
) -> Result<scripts::Request, StoreError> {
    let (script, mut call) = match request {
        Request::Claim(request) => {
            let mut call = CLAIM.call(name, 160);
            call.arg(&layout::first_grant(request));
            call.arg(layout::micros(request.lease)).arg(layout::micros(request.ttl));
            let print = request.fingerprint.as_ref().map_or(&[][..], |fingerprint| fingerprint.as_bytes());
            let most_attempts = request.max_attempts.map_or(0, std::num::NonZeroU32::get);
            // Each argument costs time on the server, so trailing default arguments are left out.
            if is_replicated || request.recovers || most_attempts != 0 {
                call.arg(print).arg(u8::from(request.recovers)).arg(most_attempts);
            } else if !print.is_empty() {
                call.arg(print);
            }
            (&CLAIM, call)
        }
        Request::Renew(request) => {
            let mut call = RENEW.call(name, 64);
            call.arg(&layout::holder(&request.owner, request.fence)).arg(layout::micros(request.lease));
            (&RENEW, call)
        }
        Request::RecordStep(request) => {
            let step = layout::step(&request.step);
            let mut call = RECORD_STEP.call(name, 64 + step.len());
            call.arg(&layout::holder(&request.owner, request.fence)).arg(request.position).arg(step);
            (&RECORD_STEP, call)
        }
        Request::Complete(request) => {
            let (kind, result) = layout::terminal(request.verdict, &request.result);
            let mut call = COMPLETE.call(name, 96 + result.len());
            call.arg(&layout::holder(&request.owner, request.fence)).arg(&[
                fields::FIRST_VERSION,
                kind[0],
                kind[1],
            ]);
            call.arg(layout::micros(request.ttl)).arg(result);
            (&COMPLETE, call)
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
            let mut call = RELEASE.call(name, 64);
            call.arg(&layout::holder(&request.owner, request.fence)).arg(cause);
            call.arg(layout::micros(request.retry_after));
            (&RELEASE, call)
        }
        Request::Resolve(resolution) => {
            let mut call = RESOLVE.call(name, 64);
            match resolution {
                Resolution::Record(verdict, result) | Resolution::RecordSeen(_, verdict, result) => {
                    let (kind, result) = layout::terminal(*verdict, result);
                    call.arg(&kind).arg(result);
                }
                Resolution::Release | Resolution::ReleaseSeen(_) => {
                    call.arg("").arg("");
                }
                Resolution::ForgetSeen(_) => {
                    call.arg("forget").arg("");
                }
                _ => return Err(unknown("resolution")),
            }
            call.arg(resolution.seen().map(layout::seen).unwrap_or_default());
            (&RESOLVE, call)
        }
        _ => return Err(unknown("request")),
    };
    if is_replicated && matches!(request, Request::Claim(_) | Request::RecordStep(_) | Request::Complete(_)) {
        call.arg(1);
    }
    Ok(scripts::Request::of(script, call))
}

fn unknown(what: &str) -> StoreError {
    StoreError::configuration(format!("this version of the Redis store does not know that {what}"))
}

/// The answer to a request, of what its script returned.
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
                return Err(StoreError::no_room_for_step(size, fields::LARGEST));
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

/// The answer to a claim: the protocol's function, applied to the record that the script found and its time.
fn claimed(answer: Value, request: &Claim) -> Result<ClaimAnswer, StoreError> {
    let (record, now) = match answer {
        Value::Int(now) => (None, now),
        // A live record that is completed, failed or in doubt: the answer does not depend on the time.
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
