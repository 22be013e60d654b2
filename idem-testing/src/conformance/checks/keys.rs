//! Checks of hostile keys: different texts are different keys.

use std::collections::BTreeSet;

use bytes::Bytes;
use futures_util::future::join_all;

use crate::conformance::stage::Stage;
use crate::conformance::trial::{Broken, Checked, LONG, Trial, same, value};
use idem_core::protocol::{
    CompleteAnswer, ReleaseAnswer, ReleaseCause, RenewAnswer, Resolution, ResolveAnswer,
};
use idem_core::{MAX_KEY_BYTES, MAX_SCOPE_BYTES, RecordKey};

/// Claims all keys, completes each with its own result, and checks all replays.
async fn all_distinct(t: &Trial, keys: Vec<RecordKey>) -> Checked {
    let told = |key: &RecordKey, broken: Broken| {
        Broken(format!("scope {:?}, key {:?}: {}", key.scope().as_str(), key.key().as_str(), broken.0))
    };
    let result = |number: usize| Bytes::from(format!("result {number}"));
    let granted = join_all(keys.iter().map(|key| t.take(key))).await;
    let mut held = Vec::new();
    for (key, granted) in keys.iter().zip(granted) {
        held.push(granted.map_err(|broken| told(key, broken))?);
    }
    let requests: Vec<_> = held
        .iter()
        .enumerate()
        .map(|(number, held)| held.completion("").with_result(value(result(number))))
        .collect();
    let completed =
        join_all(keys.iter().zip(&requests).map(|(key, request)| t.complete_with(key, request))).await;
    for (key, answer) in keys.iter().zip(completed) {
        answer
            .and_then(|answer| same("complete", answer, CompleteAnswer::Done))
            .map_err(|broken| told(key, broken))?;
    }
    let replayed = join_all(keys.iter().map(|key| t.replay(key))).await;
    for (number, (key, replay)) in keys.iter().zip(replayed).enumerate() {
        replay
            .and_then(|replay| same("result", replay.result, value(result(number))))
            .map_err(|broken| told(key, broken))?;
    }
    Ok(())
}

async fn texts<T: AsRef<str>>(t: &Trial, texts: impl IntoIterator<Item = T>) -> Checked {
    let keys: Checked<Vec<_>> = texts.into_iter().map(|text| t.key(text)).collect();
    all_distinct(t, keys?).await
}

/// Texts with a character at the start, in the middle, at the end, twice and alone, and one without it.
fn around(character: char) -> Vec<String> {
    let c = character;
    vec![format!("{c}"), format!("{c}ab"), format!("a{c}b"), format!("ab{c}"), format!("a{c}{c}b")]
}

fn chars(first: u32, last: u32) -> BTreeSet<String> {
    (first..=last).filter_map(char::from_u32).flat_map(around).chain(["ab".to_owned()]).collect()
}

pub(crate) async fn each_control_character_makes_a_key_of_its_own(t: &Trial) -> Checked {
    texts(t, chars(0x00, 0x1f)).await
}

pub(crate) async fn each_later_control_character_makes_a_key_of_its_own(t: &Trial) -> Checked {
    texts(t, chars(0x7f, 0x9f)).await
}

pub(crate) async fn each_printable_character_makes_a_key_of_its_own(t: &Trial) -> Checked {
    texts(t, chars(0x20, 0x7e)).await
}

pub(crate) async fn a_key_does_not_end_at_nul(t: &Trial) -> Checked {
    texts(t, ["a", "a\0", "a\0\0", "a\0b", "a\0c", "\0", "\0\0", "\0a"]).await
}

pub(crate) async fn quotes_are_kept(t: &Trial) -> Checked {
    texts(t, ["'", "''", "\"", "\"\"", "`", "a'b", "a''b", "a\"b", "a\\'b", "a\\\"b", "\\", "\\\\", "’", "“"])
        .await
}

pub(crate) async fn braces_do_not_hide_a_part_of_a_key(t: &Trial) -> Checked {
    let keys =
        ["a", "{a}", "{a}b", "{a}c", "b{a}", "{}", "{}a", "{{a}}", "{a", "a}", "}{", "{a}{b}", "{b}{a}"];
    texts(t, keys).await
}

pub(crate) async fn wildcards_match_nothing_but_themselves(t: &Trial) -> Checked {
    texts(
        t,
        ["abc", "a*", "*", "a?c", "???", "[abc]", "a[b]c", "a%", "%", "a_c", "___", ".*", "a.c", "^a", "a$"],
    )
    .await
}

pub(crate) async fn percent_signs_are_not_decoded(t: &Trial) -> Checked {
    texts(t, ["a b", "a%20b", "a%2520b", "a+b", "a%2Fb", "a/b", "a%2fb", "%00", "%", "%%", "%2", "%zz"]).await
}

pub(crate) async fn separators_are_not_parsed(t: &Trial) -> Checked {
    let keys = [
        "a:b", "a::b", ":ab", "ab:", "a/b", "a//b", "/ab", "ab/", "a|b", "a,b", "a;b", "a#b", "a@b", "a&b",
        "a=b", "a\\b", "../a", "./a", "a/../a", "a\tb", "a\u{1f}b",
    ];
    texts(t, keys).await
}

pub(crate) async fn text_that_is_a_command_elsewhere_is_kept(t: &Trial) -> Checked {
    let keys = [
        "'; DROP TABLE idem_records; --",
        "' OR '1'='1",
        "1; DELETE FROM idem_records",
        "/* */",
        "--",
        "*3\r\n$3\r\nSET\r\n",
        "\r\nFLUSHALL\r\n",
        "$(reboot)",
        "`reboot`",
        "${jndi:ldap://x}",
        "{{7*7}}",
        "<script>",
        "{\"S\":\"a\"}",
        "null",
        "NULL",
        "nil",
        "undefined",
        "true",
        "-0",
    ];
    texts(t, keys).await
}

pub(crate) async fn white_space_is_neither_trimmed_nor_folded(t: &Trial) -> Checked {
    let keys = [
        "a",
        " a",
        "a ",
        " a ",
        "  a",
        "a\t",
        "a\n",
        "a\r",
        "a\r\n",
        "\na",
        "a\u{a0}",
        "a\u{2003}",
        "a\u{3000}",
        "a\u{200b}",
        "a\u{feff}",
        "\u{feff}a",
        " ",
        "  ",
        "\t",
        "\n",
        "a\u{85}",
        "a\u{2028}",
    ];
    texts(t, keys).await
}

pub(crate) async fn numbers_that_are_equal_elsewhere_are_different_keys(t: &Trial) -> Checked {
    texts(
        t,
        ["1", "01", "1.0", "1.", "+1", "1e0", "0x1", "１", "١", "-1", "1 ", "1n", "true", "0", "-0", "0.0"],
    )
    .await
}

pub(crate) async fn case_is_kept(t: &Trial) -> Checked {
    texts(
        t,
        [
            "a", "A", "straße", "STRASSE", "strasse", "i", "I", "ı", "İ", "σ", "ς", "Σ", "ǆ", "ǅ", "Ǆ", "K",
            "k", "\u{212a}",
        ],
    )
    .await
}

pub(crate) async fn look_alikes_are_different_keys(t: &Trial) -> Checked {
    let keys = [
        // Composed and decomposed, Latin, Greek and Cyrillic, wide, mathematical, ligatures, joiners.
        "\u{e9}",
        "e\u{301}",
        "\u{212b}",
        "\u{c5}",
        "A\u{30a}",
        "a",
        "\u{430}",
        "\u{251}",
        "\u{ff41}",
        "\u{1d41a}",
        "\u{fb01}",
        "fi",
        "f\u{200d}i",
        "f\u{200c}i",
        "f\u{ad}i",
        "\u{1e9b}\u{323}",
        "\u{1e69}",
        "s\u{323}\u{307}",
        "s\u{307}\u{323}",
        "\u{ac00}",
        "\u{1100}\u{1161}",
        "o",
        "0",
        "\u{3bf}",
        "\u{43e}",
        "l",
        "1",
        "I",
        "|",
        "a\u{202e}b",
        "ab",
        "\u{2066}ab",
        "-",
        "\u{2010}",
        "\u{2212}",
        "\u{f900}",
        "\u{8c48}",
    ];
    texts(t, keys).await
}

pub(crate) async fn every_plane_of_unicode_makes_keys_of_its_own(t: &Trial) -> Checked {
    let places = [0x0021, 0x00ff, 0x4e00, 0x8000, 0xd7ff, 0xe000, 0xfffd, 0xfffe, 0xffff];
    let planes = (0..=0x10_u32).flat_map(|plane| places.map(|place| (plane << 16) | place));
    texts(t, planes.filter_map(char::from_u32).map(String::from)).await
}

pub(crate) async fn the_longest_keys_are_told_apart_by_every_byte(t: &Trial) -> Checked {
    let longest = "k".repeat(MAX_KEY_BYTES);
    let changed = [0, 1, 63, 64, 254, 255, 256, 511, 512, 767, 1_000, MAX_KEY_BYTES - 1].map(|place| {
        let mut key = longest.clone();
        key.replace_range(place..=place, "x");
        key
    });
    let shorter = [255, 256, 512, MAX_KEY_BYTES - 1].map(|length| longest[..length].to_owned());
    texts(t, changed.into_iter().chain(shorter).chain([longest.clone()])).await
}

pub(crate) async fn the_longest_keys_may_be_of_any_characters(t: &Trial) -> Checked {
    let widths = ["é", "中", "😀", "\0", "\u{10ffff}", "\"", "\\", "%"];
    texts(t, widths.map(|character| character.repeat(MAX_KEY_BYTES / character.len()))).await
}

pub(crate) async fn a_scope_and_a_key_do_not_flow_into_each_other(t: &Trial) -> Checked {
    let pairs = [
        ("a", "b/c"),
        ("a/b", "c"),
        ("a:b", "c"),
        ("a", "b:c"),
        ("a", "bc"),
        ("ab", "c"),
        ("a\0b", "c"),
        ("a", "b\0c"),
        ("a", "\0b"),
        ("a\0", "b"),
        ("a.b", "c"),
        ("a", "b.c"),
        ("a|b", "c"),
        ("a", "b|c"),
        ("a#b", "c"),
        ("a", "b#c"),
        ("a}", "b"),
        ("a", "}b"),
        ("a ", "b"),
        ("a", " b"),
        ("a\n", "b"),
        ("a", "\nb"),
        ("a1", "2"),
        ("a", "12"),
        ("1:a", "b"),
        ("a", "1:ab"),
    ];
    let keys: Checked<Vec<_>> =
        pairs.into_iter().map(|(scope, key)| t.key_in(&format!(".{scope}"), key)).collect();
    all_distinct(t, keys?).await
}

pub(crate) async fn the_same_key_under_another_scope_is_another(t: &Trial) -> Checked {
    let room = MAX_SCOPE_BYTES - t.key("k")?.scope().as_str().len();
    let longest = [".".to_owned() + &"s".repeat(room - 1), ".".to_owned() + &"s".repeat(room - 2) + "t"];
    let odd =
        ["", ".a", ".A", ".a ", ".{a}", ".*", ".%", ".é", ".e\u{301}", ".\0", ".😀", ".'"].map(str::to_owned);
    let keys: Checked<Vec<_>> = odd.iter().chain(&longest).map(|scope| t.key_in(scope, "the same")).collect();
    all_distinct(t, keys?).await
}

pub(crate) async fn a_key_that_begins_another_is_another(t: &Trial) -> Checked {
    texts(t, (1..=40).map(|length| "a".repeat(length))).await
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
    let names = ["a", "a/b", "a/", "A", "ab", "a%", "a*", "a_"];
    let mut kept = Vec::new();
    for name in names {
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
