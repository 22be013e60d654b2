//! Checks that results come back unchanged, up to the limit, and that larger ones are refused.

use bytes::Bytes;
use futures_util::future::join_all;

use crate::conformance::stage::Stage;
use crate::conformance::trial::{Broken, Checked, Trial, same, that, value};
use idem_core::Store;
use idem_core::StoreErrorKind;
use idem_core::protocol::{
    CompleteAnswer, Resolution, ResolveAnswer, State, StoredResult, Tombstone, Verdict,
};

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

pub(crate) async fn an_empty_result_is_a_result(t: &Trial) -> Checked {
    comes_back(t, "empty", Bytes::new()).await
}

pub(crate) async fn every_byte_comes_back(t: &Trial) -> Checked {
    let each = (0..=u8::MAX)
        .map(|byte| async move { comes_back(t, &format!("{byte}"), Bytes::copy_from_slice(&[byte])).await });
    join_all(each).await.into_iter().collect::<Checked>()?;
    comes_back(t, "all", (0..=u8::MAX).collect()).await
}

pub(crate) async fn bytes_that_are_no_text_come_back(t: &Trial) -> Checked {
    let odd: [&[u8]; 6] = [b"\xff\xfe", b"\xc3\x28", b"\xed\xa0\x80", b"\0\0\0", b"a\0b", b"\x80"];
    for (number, bytes) in odd.into_iter().enumerate() {
        comes_back(t, &format!("{number}"), Bytes::from_static(bytes)).await?;
    }
    Ok(())
}

pub(crate) async fn bytes_that_mean_something_elsewhere_come_back(t: &Trial) -> Checked {
    let words = [
        "null",
        "NULL",
        "nil",
        "false",
        "0",
        "",
        " ",
        "\"\"",
        "{}",
        "[]",
        "\n",
        "\r\n",
        "+OK\r\n",
        "$-1\r\n",
        "*0\r\n",
        "'; DROP TABLE idem_records; --",
        "x'00'",
        "\\x00",
        "\\0",
        "%s%n",
        "NaN",
        "1e999",
        "\u{feff}",
    ];
    for (number, word) in words.into_iter().enumerate() {
        comes_back(t, &format!("{number}"), Bytes::from_static(word.as_bytes())).await?;
    }
    Ok(())
}

pub(crate) async fn results_of_every_size_come_back(t: &Trial) -> Checked {
    let most = t.store.max_result_bytes().unwrap_or(usize::MAX);
    for power in 0..=16 {
        for size in [(1_usize << power) - 1, 1 << power, (1 << power) + 1] {
            if size <= most {
                comes_back(t, &format!("{power} {size}"), noise(size)).await?;
            }
        }
    }
    Ok(())
}

pub(crate) async fn the_largest_result_comes_back(t: &Trial) -> Checked {
    let size = t.store.max_result_bytes().unwrap_or(t.profile.largest_result);
    comes_back(t, "noise", noise(size)).await?;
    comes_back(t, "zeros", Bytes::from(vec![0; size])).await
}

/// A result that is one byte over the limit, if there is a limit that fits into memory.
fn too_large(t: &Trial) -> Option<StoredResult> {
    let limit = t.store.max_result_bytes()?;
    (limit < 1 << 28).then(|| value(vec![1; limit + 1]))
}

pub(crate) async fn a_result_over_the_limit_is_refused_and_nothing_applied(t: &Trial) -> Checked {
    let Some(result) = too_large(t) else { return Ok(()) };
    for verdict in [Verdict::Completed, Verdict::Failed] {
        let key = t.key(format!("{verdict:?}"))?;
        let held = t.take(&key).await?;
        let before = t.get(&key).await?;
        let request = held.completion("").with_verdict(verdict).with_result(result.clone());
        let kind = t.store.complete(&key, &request).await.map_err(|error| error.kind());
        same("complete", kind, Err(StoreErrorKind::TooLarge))?;
        t.unchanged(&key, &before).await?;
    }
    Ok(())
}

pub(crate) async fn a_tombstone_is_taken_in_place_of_a_result_over_the_limit(t: &Trial) -> Checked {
    let Some(result) = too_large(t) else { return Ok(()) };
    let key = t.key("a")?;
    let held = t.take(&key).await?;
    let _ = t.store.complete(&key, &held.completion("").with_result(result)).await;
    let tombstone = StoredResult::Tombstone(Tombstone::TooLarge);
    let request = held.completion("").with_result(tombstone.clone());
    same("complete", t.complete_with(&key, &request).await?, CompleteAnswer::Done)?;
    same("result", t.replay(&key).await?.result, tombstone)
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

pub(crate) async fn many_results_do_not_mix(t: &Trial) -> Checked {
    for number in 0..100_u32 {
        let key = t.key(format!("{number}"))?;
        let held = t.take(&key).await?;
        let result = value(number.to_be_bytes().repeat(10));
        t.complete_with(&key, &held.completion("").with_result(result)).await?;
    }
    for number in (0..100_u32).rev() {
        let result = t.replay(&t.key(format!("{number}"))?).await?.result;
        same("result", result, value(number.to_be_bytes().repeat(10)))?;
    }
    Ok(())
}
