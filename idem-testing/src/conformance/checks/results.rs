//! Checks that results come back unchanged, up to the limit, and that larger results are refused.

use bytes::Bytes;
use futures_util::future::join_all;

use crate::conformance::stage::Stage;
use crate::conformance::trial::{Broken, Checked, Trial, same, that, value};
use idem_core::Store;
use idem_core::StoreErrorKind;
use idem_core::protocol::{
    CompleteAnswer, Resolution, ResolveAnswer, State, StoredResult, Tombstone, Verdict,
};

/// The largest result that the checks use if the store has no limit.
const LARGEST: usize = 1 << 20;

/// Checks that this result comes back in a replay and in the record.
async fn comes_back(t: &Trial, name: &str, result: Bytes) -> Checked {
    let key = t.key(name)?;
    let held = t.take(&key).await?;
    let request = held.completion("").with_result(value(result.clone()));
    same("complete", t.complete_with(&key, &request).await?, CompleteAnswer::Done)?;
    let told = |bytes: &StoredResult| format!("{name}: another result came back: {bytes:?}");
    let replayed = t.replay(&key).await?.result;
    that(replayed == request.result, told(&replayed))?;
    match t.record(&key).await?.result {
        Some(recorded) => that(recorded == request.result, told(&recorded)),
        None => Err(Broken(format!("{name}: there is no result in the record"))),
    }
}

/// Bytes that cannot be compressed.
fn noise(length: usize) -> Bytes {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    (0..length).map(next).collect()
}

pub(crate) async fn every_byte_comes_back(t: &Trial) -> Checked {
    let each = (0..=u8::MAX)
        .map(|byte| async move { comes_back(t, &format!("{byte}"), Bytes::copy_from_slice(&[byte])).await });
    join_all(each).await.into_iter().collect::<Checked>()?;
    comes_back(t, "all", (0..=u8::MAX).collect()).await
}

pub(crate) async fn bytes_that_mean_something_elsewhere_come_back(t: &Trial) -> Checked {
    let words: [&[u8]; 12] = [
        b"",
        b"null",
        b"NULL",
        b"\"\"",
        b"{}",
        b"+OK\r\n",
        b"$-1\r\n",
        b"x'00'",
        b"\\x00",
        b"%s%n",
        b"\xff\xfe\xc3\x28",
        b"\0a\0b",
    ];
    for (number, word) in words.into_iter().enumerate() {
        comes_back(t, &format!("{number}"), Bytes::from_static(word)).await?;
    }
    Ok(())
}

pub(crate) async fn results_of_every_size_come_back(t: &Trial) -> Checked {
    let largest = t.store.max_result_bytes().unwrap_or(LARGEST);
    let sizes = (0..=16).flat_map(|power| [(1_usize << power) - 1, 1 << power, (1 << power) + 1]);
    for (number, size) in sizes.chain([largest]).filter(|size| *size <= largest).enumerate() {
        comes_back(t, &format!("{number}: {size}"), noise(size)).await?;
    }
    comes_back(t, "zeros", Bytes::from(vec![0; largest])).await
}

/// A result that is one byte over the limit. `None` without a limit, or if the result would need too much
/// memory.
fn too_large(t: &Trial) -> Option<StoredResult> {
    let limit = t.store.max_result_bytes()?;
    (limit < 1 << 28).then(|| value(vec![1; limit + 1]))
}

pub(crate) async fn a_result_over_the_limit_is_refused_and_its_tombstone_taken(t: &Trial) -> Checked {
    let Some(result) = too_large(t) else { return Ok(()) };
    for verdict in [Verdict::Completed, Verdict::Failed] {
        let key = t.key(format!("{verdict:?}"))?;
        let held = t.take(&key).await?;
        let before = t.get(&key).await?;
        let request = held.completion("").with_verdict(verdict).with_result(result.clone());
        let kind = t.store.complete(&key, &request).await.map_err(|error| error.kind());
        same("complete", kind, Err(StoreErrorKind::TooLarge))?;
        t.unchanged(&key, &before).await?;
        let tombstone = StoredResult::Tombstone(Tombstone::TooLarge);
        let request = held.completion("").with_verdict(verdict).with_result(tombstone.clone());
        same("complete", t.complete_with(&key, &request).await?, CompleteAnswer::Done)?;
        same("result", t.replay(&key).await?.result, tombstone)?;
    }
    Ok(())
}

pub(crate) async fn an_operators_result_over_the_limit_is_refused(t: &Trial) -> Checked {
    let Some(result) = too_large(t) else { return Ok(()) };
    let key = t.key("a")?;
    t.bring(&key, Stage::InDoubt).await?;
    let word = Resolution::Record(Verdict::Completed, result);
    let kind = t.store.resolve(&key, &word).await.map_err(|error| error.kind());
    same("resolve", kind, Err(StoreErrorKind::TooLarge))?;
    same("state", t.record(&key).await?.state, State::InDoubt)?;
    let word = Resolution::Record(Verdict::Completed, value("word"));
    same("resolve", t.resolve(&key, &word).await?, ResolveAnswer::Resolved)
}
