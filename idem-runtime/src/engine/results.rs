//! A body's result on its way to the record, and a record's result on its way to the caller.

use super::attempt::Attempt;
use super::call::Prepared;
use super::codec::{Codec, Encoded, NotDecoded};
use super::context::{CallEnd, Outcome};
use super::report::Event;
use super::returns::Failure;
use crate::error::Error;
use idem_core::Store;
use idem_core::protocol::{Replay, StoredResult, Tombstone, Verdict};

/// Whether there is something to record, which the attempt has then.
pub(super) fn is_finished<S: Store, C, T, E>(
    attempt: &mut Attempt<S>,
    codec: &C,
    result: &Result<T, E>,
) -> bool
where
    C: Codec<T, E>,
{
    if attempt.is_decided() {
        return false;
    }
    match encode(attempt.call(), attempt.grant().attempt, codec, result) {
        Some(encoded) => {
            attempt.finished(encoded);
            true
        }
        None => {
            if result.is_ok() {
                attempt.not_kept();
            }
            false
        }
    }
}

/// What to record for a result. If a duplicate cannot get it, that is reported here and not when a duplicate comes.
pub(super) fn encode<S: Store, C, T, E>(
    call: &Prepared<S>,
    attempt: u32,
    codec: &C,
    result: &Result<T, E>,
) -> Option<Encoded>
where
    C: Codec<T, E>,
{
    let encoded = codec.encode(result, call.max_result_bytes())?;
    if let Some(fault) = &encoded.stored.fault {
        call.report(Event::NotStored(fault), attempt);
    }
    // Decoding doubles the work, so it is checked in debug builds only.
    if let (true, StoredResult::Value(bytes)) = (cfg!(debug_assertions), &encoded.stored.result)
        && let Err(fault) = codec.decode(encoded.verdict, bytes)
    {
        call.report(Event::NotReplayable(fault.reason()), attempt);
    }
    Some(encoded)
}

pub(super) fn decode<S: Store, C, T, E>(
    call: &Prepared<S>,
    codec: &C,
    replay: &Replay,
) -> Result<T, Failure<E>>
where
    C: Codec<T, E>,
{
    decoded(call, replay, |verdict, bytes| codec.decode(verdict, bytes))?.map_err(Failure::Body)
}

/// What `decode` makes of a recorded result, or the error that its caller gets.
pub(super) fn decoded<S: Store, T>(
    call: &Prepared<S>,
    replay: &Replay,
    decode: impl FnOnce(Verdict, &[u8]) -> Result<T, NotDecoded>,
) -> Result<T, Error> {
    match &replay.result {
        StoredResult::Value(bytes) => match decode(replay.verdict, bytes) {
            Ok(result) => {
                call.observe(Outcome::replayed(replay));
                call.report(Event::Replayed, replay.attempt);
                if replay.verdict == Verdict::Failed {
                    call.end(CallEnd::Terminal);
                }
                Ok(result)
            }
            Err(fault) => {
                call.report(Event::Undecodable(fault.reason()), replay.attempt);
                Err(call.refuse(Error::Undecodable { call: call.id(), reason: fault.reason().clone() }))
            }
        },
        StoredResult::Tombstone(Tombstone::Exhausted) => {
            Err(call.refuse(Error::Exhausted { call: call.id(), attempts: replay.attempt }))
        }
        StoredResult::Tombstone(reason) => {
            call.observe(Outcome::replayed(replay));
            call.report(Event::Replayed, replay.attempt);
            Err(call.refuse(Error::ResultNotStored { call: call.id(), reason: (*reason).into() }))
        }
    }
}
