//! Checks of hostile keys: different texts are different keys.

use std::collections::BTreeSet;

use futures_util::future::try_join_all;

use crate::conformance::stage::Stage;
use crate::conformance::trial::{Broken, Checked, LONG, Trial, same, value};
use idem_core::protocol::{
    ClaimAnswer, CompleteAnswer, Fingerprint, ReleaseAnswer, ReleaseCause, RenewAnswer, Resolution,
    ResolveAnswer,
};
use idem_core::{MAX_KEY_BYTES, MAX_SCOPE_BYTES, RecordKey};

pub(crate) async fn fingerprints_are_told_apart_by_every_byte(t: &Trial) -> Checked {
    let key = t.key("a")?;
    let request = |bytes| t.ask().with_fingerprint(Some(Fingerprint::from_bytes(bytes)));
    t.grant(&key, &request([1; 32])).await?;
    for place in 0..32 {
        let mut other = [1; 32];
        other[place] = 2;
        same("claim", t.claim(&key, &request(other)).await?, ClaimAnswer::Mismatch)?;
    }
    Ok(())
}

/// Claims all keys, completes each with its own result, and checks all replays.
async fn all_distinct(t: &Trial, keys: Vec<RecordKey>) -> Checked {
    let told = |key: &RecordKey, broken: Broken| {
        Broken(format!("scope {:?}, key {:?}: {}", key.scope().as_str(), key.key().as_str(), broken.0))
    };
    let granted = keys.iter().map(|key| async move { t.take(key).await.map_err(|broken| told(key, broken)) });
    let held = try_join_all(granted).await?;
    let result = |number: usize| value(format!("result {number}"));
    let completed = held.iter().enumerate().map(|(number, held)| async move {
        let request = held.completion("").with_result(result(number));
        let done = t.complete_with(&held.key, &request).await;
        done.and_then(|answer| same("complete", answer, CompleteAnswer::Done))
            .map_err(|broken| told(&held.key, broken))
    });
    try_join_all(completed).await?;
    let replayed = held.iter().enumerate().map(|(number, held)| async move {
        let replay = t.replay(&held.key).await;
        replay
            .and_then(|replay| same("result", replay.result, result(number)))
            .map_err(|broken| told(&held.key, broken))
    });
    try_join_all(replayed).await.map(drop)
}

async fn texts<T: AsRef<str>>(t: &Trial, texts: impl IntoIterator<Item = T>) -> Checked {
    let keys: Checked<Vec<_>> = texts.into_iter().map(|text| t.key(text)).collect();
    all_distinct(t, keys?).await
}

/// Texts with a character at the start, in the middle, at the end, twice and alone.
fn around(c: char) -> [String; 5] {
    [format!("{c}"), format!("{c}ab"), format!("a{c}b"), format!("ab{c}"), format!("a{c}{c}b")]
}

pub(crate) async fn each_character_makes_a_key_of_its_own(t: &Trial) -> Checked {
    let around: BTreeSet<String> = ('\0'..='\u{9f}').flat_map(around).chain(["ab".to_owned()]).collect();
    texts(t, around).await?;
    let places = [0x00a0, 0x00ff, 0x4e00, 0x8000, 0xd7ff, 0xe000, 0xfffd, 0xfffe, 0xffff];
    let planes = (0..=0x10_u32).flat_map(|plane| places.map(|place| (plane << 16) | place));
    texts(t, planes.filter_map(char::from_u32).map(String::from)).await
}

/// Texts with a meaning in the language of a server: quotes, wildcards, escapes, hash tags, commands.
const SYNTAX: [&str; 16] = [
    "''",
    "\\\\",
    "{a}",
    "{a}b",
    "b{a}",
    "{}",
    "[abc]",
    "a%20b",
    "a%2520b",
    "a%2Fb",
    "a%2fb",
    "../a",
    "./a",
    "' OR '1'='1",
    "/* */",
    "NULL",
];

/// Texts that a system treats as equal if it ignores case, white space, or the forms of numbers or of
/// Unicode.
const EQUAL_ELSEWHERE: [&str; 30] = [
    "a",
    "A",
    " a",
    "a ",
    "a\n",
    "a\u{a0}",
    "a\u{200b}",
    "\u{feff}a",
    " ",
    "1",
    "01",
    "1.0",
    "１",
    "١",
    "0",
    "-0",
    "straße",
    "strasse",
    "i",
    "ı",
    "İ",
    "ς",
    "Σ",
    "k",
    "\u{212a}",
    "\u{e9}",
    "e\u{301}",
    "\u{430}",
    "\u{fb01}",
    "fi",
];

pub(crate) async fn texts_that_mean_something_elsewhere_are_keys_of_their_own(t: &Trial) -> Checked {
    texts(t, SYNTAX).await?;
    texts(t, EQUAL_ELSEWHERE).await?;
    texts(t, (2..=40).map(|length| "a".repeat(length))).await
}

pub(crate) async fn the_longest_keys_are_told_apart_by_every_byte(t: &Trial) -> Checked {
    let longest = "k".repeat(MAX_KEY_BYTES);
    let changed = [0, 1, 63, 64, 254, 255, 256, 511, 512, 767, 1_000, MAX_KEY_BYTES - 1].map(|place| {
        let mut key = longest.clone();
        key.replace_range(place..=place, "x");
        key
    });
    let shorter = [255, 256, 512, MAX_KEY_BYTES - 1].map(|length| longest[..length].to_owned());
    let widths = ["é", "中", "😀", "\0", "\u{10ffff}", "\"", "\\", "%"];
    let wide = widths.map(|character| character.repeat(MAX_KEY_BYTES / character.len()));
    texts(t, changed.into_iter().chain(shorter).chain(wide).chain([longest.clone()])).await
}

pub(crate) async fn a_scope_and_a_key_do_not_flow_into_each_other(t: &Trial) -> Checked {
    let mut pairs = vec![("".to_owned(), "abc".to_owned())];
    for between in ["", "/", ":", "\0", ".", "|", "#", "}", " ", "\n", "1:"] {
        pairs.push((format!(".a{between}b"), "c".to_owned()));
        pairs.push((".a".to_owned(), format!("b{between}c")));
        pairs.push((format!(".a{between}"), "bc".to_owned()));
        pairs.push((".a".to_owned(), format!("{between}bc")));
    }
    let room = MAX_SCOPE_BYTES - t.key("k")?.scope().as_str().len();
    for scope in [".A", ".a ", ".{a}", ".*", ".%", ".é", ".e\u{301}", ".\0", ".😀", ".'"] {
        pairs.push((scope.to_owned(), "the same".to_owned()));
    }
    for end in ["s", "t"] {
        pairs.push((".".to_owned() + &"s".repeat(room - 2) + end, "the same".to_owned()));
    }
    pairs.sort();
    pairs.dedup();
    let keys: Checked<Vec<_>> = pairs.into_iter().map(|(scope, key)| t.key_in(&scope, key)).collect();
    all_distinct(t, keys?).await
}

pub(crate) async fn every_operation_reaches_a_hostile_key(t: &Trial) -> Checked {
    for text in ["\0", "a'b", "{a}*%_", "\u{10ffff}", "\r\n", "\\"] {
        let key = t.key_in(text, text)?;
        let held = t.grant(&key, &t.ask_in_doubt()).await?;
        same("renew", t.renew(&held, LONG).await?, RenewAnswer::Held)?;
        same("release", t.release(&held, ReleaseCause::Abandoned).await?, ReleaseAnswer::InDoubt)?;
        same("resolve", t.resolve(&key, &Resolution::Release).await?, ResolveAnswer::Resolved)?;
        let held = t.take(&key).await?;
        same("complete", t.complete(&held, b"r").await?, CompleteAnswer::Done)?;
        same("result", t.record(&key).await?.result, Some(value("r")))?;
        same("forget", t.forget(&key).await?, true)?;
        same("record", t.get(&key).await?, None)?;
    }
    Ok(())
}

pub(crate) async fn forgetting_one_key_leaves_the_others(t: &Trial) -> Checked {
    let mut kept = Vec::new();
    for name in ["a", "a/b", "a/", "A", "ab", "a%", "a*", "a_"] {
        let key = t.key(name)?;
        t.bring(&key, Stage::Completed).await?;
        kept.push((t.get(&key).await?, key));
    }
    for name in ["a*", "a%", "a_", "a"] {
        same("forget", t.forget(&t.key(name)?).await?, true)?;
        kept.retain(|(_, key)| key.key().as_str() != name);
        for (before, key) in &kept {
            t.unchanged(key, before).await?;
        }
    }
    Ok(())
}
