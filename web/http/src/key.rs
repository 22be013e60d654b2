//! The value of the key header: an RFC 8941 string, or the bare form.
//!
//! Owns the syntax. Knows nothing about the use of the key, and never shows it.

use http::{HeaderMap, HeaderName};

/// The header for the key, unless a layer has another.
pub(super) const HEADER: HeaderName = HeaderName::from_static("idempotency-key");

/// The longest key, in bytes without its quotes and escapes.
pub(super) const LONGEST: usize = 255;

/// Which forms of the key are accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Syntax {
    /// `"abc"` only.
    Strict,
    /// `"abc"`, and `abc` as the same key.
    Lenient,
}

/// Why a header has no valid key. Its text is for the client, and does not contain the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(transparent)]
pub struct MalformedKey(#[from] Malformed);

/// The kinds of [`MalformedKey`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Malformed {
    #[error("it was sent more than once; send one value")]
    Several,
    #[error("it holds a character outside the visible ASCII characters and space")]
    NotAscii,
    #[error("it is empty")]
    Empty,
    #[error("it must be a string in double quotes (RFC 8941, section 3.3.3), such as \"8e03978e-40d5\"")]
    NotQuoted,
    #[error("its closing double quote is missing")]
    Unterminated,
    #[error("a backslash in it stands before neither a double quote nor a backslash")]
    Escape,
    #[error("something follows its closing double quote; send one string and nothing else")]
    Trailing,
    #[error(
        "without double quotes it cannot hold a space, a double quote, a comma, a semicolon or a backslash"
    )]
    Bare,
    #[error("it is longer than {LONGEST} bytes")]
    TooLong,
}

/// The key in the header `Idempotency-Key` of a request, without its quotes and escapes; `None` if there is no such header.
///
/// For a handler that calls an idempotent function under the client's key, without a layer. `"abc"` and `abc` are the
/// same key.
///
/// ```
/// use http::HeaderMap;
/// use idem::http::idempotency_key;
///
/// let mut headers = HeaderMap::new();
/// assert_eq!(idempotency_key(&headers)?, None);
/// headers.insert("idempotency-key", r#""8e03978e-40d5""#.parse()?);
/// assert_eq!(idempotency_key(&headers)?.as_deref(), Some("8e03978e-40d5"));
/// headers.insert("idempotency-key", r#""8e03978e-40d5"#.parse()?);
/// assert_eq!(idempotency_key(&headers).unwrap_err().to_string(), "its closing double quote is missing");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// Why the header has no valid key, such as several values, no text, or more than 255 bytes.
pub fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, MalformedKey> {
    Ok(read(headers, &HEADER, Syntax::Lenient)?)
}

/// The key in these headers; `None` if there is no such header.
pub(super) fn read(
    headers: &HeaderMap,
    name: &HeaderName,
    syntax: Syntax,
) -> Result<Option<String>, Malformed> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(Malformed::Several);
    }
    let key = parse(value.as_bytes(), syntax)?;
    if key.is_empty() {
        return Err(Malformed::Empty);
    }
    if key.len() > LONGEST {
        return Err(Malformed::TooLong);
    }
    Ok(Some(key))
}

fn parse(value: &[u8], syntax: Syntax) -> Result<String, Malformed> {
    // White space around a value is not part of it (RFC 9110, section 5.5).
    let value = trim(value);
    let text = match std::str::from_utf8(value) {
        Ok(text) if value.iter().all(|byte| matches!(byte, b' '..=b'~')) => text,
        _ => return Err(Malformed::NotAscii),
    };
    match text.strip_prefix('"') {
        Some(quoted) => unquote(quoted),
        None if text.is_empty() => Err(Malformed::Empty),
        None if syntax == Syntax::Strict => Err(Malformed::NotQuoted),
        None if text.contains([' ', '"', ',', ';', '\\']) => Err(Malformed::Bare),
        None => Ok(text.to_owned()),
    }
}

fn trim(value: &[u8]) -> &[u8] {
    let blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let start = value.iter().position(|byte| !blank(byte)).unwrap_or(value.len());
    let end = value.iter().rposition(|byte| !blank(byte)).map_or(start, |last| last + 1);
    &value[start..end]
}

/// The content of a string, given the text after its opening quote: RFC 8941, section 4.2.5.
fn unquote(quoted: &str) -> Result<String, Malformed> {
    let mut key = String::with_capacity(quoted.len());
    let mut rest = quoted.chars();
    loop {
        match rest.next() {
            None => return Err(Malformed::Unterminated),
            Some('"') if rest.as_str().is_empty() => return Ok(key),
            Some('"') => return Err(Malformed::Trailing),
            Some('\\') => match rest.next() {
                Some(escaped @ ('"' | '\\')) => key.push(escaped),
                Some(_) => return Err(Malformed::Escape),
                None => return Err(Malformed::Unterminated),
            },
            Some(other) => key.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    fn read_one(value: &[u8], syntax: Syntax) -> Result<Option<String>, Malformed> {
        let mut headers = HeaderMap::new();
        headers.append(HEADER, HeaderValue::from_bytes(value).unwrap());
        read(&headers, &HEADER, syntax)
    }

    #[test]
    fn a_string_is_what_stands_between_its_quotes_with_escapes_undone() {
        for (value, key) in [
            (r#""abc""#, "abc"),
            (r#"  "abc"  "#, "abc"),
            (r#""a b,c;d""#, "a b,c;d"),
            (r#""a\"b""#, r#"a"b"#),
            (r#""a\\b""#, r"a\b"),
            (r#""\\\"""#, r#"\""#),
            (r#"" ""#, " "),
        ] {
            for syntax in [Syntax::Strict, Syntax::Lenient] {
                assert_eq!(read_one(value.as_bytes(), syntax), Ok(Some(key.to_owned())), "{value}");
            }
        }
    }

    #[test]
    fn what_is_no_string_says_why() {
        for (value, fault) in [
            (r#""""#, Malformed::Empty),
            (r#""abc"#, Malformed::Unterminated),
            (r#"""#, Malformed::Unterminated),
            (r#""abc\""#, Malformed::Unterminated),
            (r#""abc\"#, Malformed::Unterminated),
            (r#""a\nb""#, Malformed::Escape),
            (r#""a" "b""#, Malformed::Trailing),
            (r#""a", "b""#, Malformed::Trailing),
            (r#""a";p=1"#, Malformed::Trailing),
            (r#""a"b"#, Malformed::Trailing),
            ("", Malformed::Empty),
            ("   ", Malformed::Empty),
            ("\"a\tb\"", Malformed::NotAscii),
            ("\"\u{e4}\"", Malformed::NotAscii),
            ("\u{e4}", Malformed::NotAscii),
        ] {
            for syntax in [Syntax::Strict, Syntax::Lenient] {
                assert_eq!(read_one(value.as_bytes(), syntax), Err(fault), "{value}");
            }
        }
        assert_eq!(read_one(b"\"\xff\"", Syntax::Lenient), Err(Malformed::NotAscii));
    }

    #[test]
    fn the_bare_form_names_the_same_key_where_it_is_taken() {
        let bare = b"8e03978e-40d5-43e8-bc93-6894a57f9324";
        let quoted = br#""8e03978e-40d5-43e8-bc93-6894a57f9324""#;
        assert_eq!(read_one(bare, Syntax::Lenient), read_one(quoted, Syntax::Lenient));
        assert_eq!(read_one(bare, Syntax::Strict), Err(Malformed::NotQuoted));
        for value in ["a b", "a,b", "a, b", "a\"b", "a\\b", "abc\"", "a;p=1"] {
            assert_eq!(read_one(value.as_bytes(), Syntax::Lenient), Err(Malformed::Bare), "{value}");
        }
    }

    #[test]
    fn the_length_is_counted_after_unquoting() {
        let escaped = |count| format!("\"{}\"", r#"\""#.repeat(count));
        assert_eq!(read_one(escaped(255).as_bytes(), Syntax::Strict), Ok(Some("\"".repeat(255))));
        assert_eq!(read_one(escaped(256).as_bytes(), Syntax::Strict), Err(Malformed::TooLong));
        assert_eq!(read_one("x".repeat(256).as_bytes(), Syntax::Lenient), Err(Malformed::TooLong));
    }

    proptest! {
        #[test]
        fn every_text_of_ascii_comes_back_from_its_string(key in "[ -~]{1,255}") {
            let quoted = format!("\"{}\"", key.replace('\\', r"\\").replace('"', r#"\""#));
            prop_assert_eq!(read_one(quoted.as_bytes(), Syntax::Strict), Ok(Some(key)));
        }
    }
}
