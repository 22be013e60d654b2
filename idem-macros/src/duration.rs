//! Durations as text: `"30s"`, `"1h 30m"`.
//!
//! Owns the grammar and its limits. Knows nothing about the use of a duration.

use std::time::Duration;

use crate::limits::MAX_DURATION_MILLIS;

const UNITS: [(&str, u64); 6] =
    [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000), ("w", 604_800_000)];

const EXAMPLE: &str =
    "write whole numbers with `ms`, `s`, `m`, `h`, `d` or `w`, such as \"30s\" or \"1h 30m\"";

/// The duration in `text`, or the message that says why `text` is not a duration.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(format!("this duration is empty: {EXAMPLE}"));
    }
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let (millis, after) = step(rest)?;
        total = total.checked_add(millis).ok_or_else(too_long)?;
        rest = after.trim_start();
    }
    match total {
        0 => Err("this duration is zero: give it a length, such as \"30s\"".into()),
        1..=MAX_DURATION_MILLIS => Ok(Duration::from_millis(total)),
        _ => Err(too_long()),
    }
}

/// The first number and unit of `text` in milliseconds, and the rest of the text.
fn step(text: &str) -> Result<(u64, &str), String> {
    let (digits, after) = split(text, |c| c.is_ascii_digit());
    if digits.is_empty() {
        return Err(no_number(text));
    }
    if after.starts_with(['.', ',', '_']) {
        return Err(format!("`{text}` has a fraction or a separator: {EXAMPLE}"));
    }
    let (unit, after) = split(after.trim_start(), char::is_alphabetic);
    let millis = UNITS.iter().find(|(name, _)| *name == unit).map(|(_, millis)| *millis);
    let millis = millis.ok_or_else(|| no_unit(digits, unit))?;
    let number: u64 = digits.parse().map_err(|_| too_long())?;
    Ok((number.checked_mul(millis).ok_or_else(too_long)?, after))
}

fn split(text: &str, in_head: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !in_head(c)).unwrap_or(text.len()))
}

fn no_number(text: &str) -> String {
    if text.starts_with('-') {
        return "a duration cannot be negative".into();
    }
    format!("`{text}` does not begin with a number: {EXAMPLE}")
}

fn no_unit(number: &str, unit: &str) -> String {
    match unit {
        "" => format!("`{number}` has no unit: write `{number}s` for seconds, or `ms`, `m`, `h`, `d`, `w`"),
        "M" => format!(
            "`{number}M` may mean minutes or months: write `{number}m` for minutes, and months as days"
        ),
        _ => format!("unknown unit `{unit}`: use ms, s, m, h, d or w"),
    }
}

fn too_long() -> String {
    "this duration is longer than 100 years".into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_with_units_are_added_up() {
        for (text, millis) in [
            ("250ms", 250),
            ("30s", 30_000),
            ("24h", 86_400_000),
            ("1h 30m", 5_400_000),
            ("1w2d", 9 * 86_400_000),
            ("  5 m ", 300_000),
            ("36525d", u128::from(MAX_DURATION_MILLIS)),
        ] {
            assert_eq!(parse(text).unwrap().as_millis(), millis, "{text:?}");
        }
    }

    #[test]
    fn what_is_no_duration_is_refused_with_its_own_words() {
        for (text, words) in [
            ("", "empty"),
            (" ", "empty"),
            ("0s", "zero"),
            ("0h 0m", "zero"),
            ("30", "`30` has no unit"),
            ("1h 30", "`30` has no unit"),
            ("-5s", "negative"),
            ("1.5h", "fraction"),
            ("1_000ms", "fraction or a separator"),
            ("1M", "minutes or months"),
            ("1month", "unknown unit `month`"),
            ("10 minutes", "unknown unit `minutes`"),
            ("3 parsecs", "unknown unit `parsecs`: use ms, s, m, h, d or w"),
            ("h", "number"),
            ("1 2s", "`1` has no unit"),
            ("36526d", "100 years"),
            ("18446744073709551616s", "100 years"),
            ("18446744073709551615w", "100 years"),
            ("5s!", "number"),
        ] {
            let message = parse(text).unwrap_err();
            assert!(message.contains(words), "{text:?}: {message}");
        }
    }
}
