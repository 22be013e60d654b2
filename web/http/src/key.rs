//! The value of the key header: an RFC 8941 string, or the bare form, which is a key without quotes.
//!
//! Owns the syntax. Knows nothing about the use of a key. No message of this module contains a key.

use http::{HeaderMap, HeaderName, HeaderValue};

pub(super) const HEADER: HeaderName = HeaderName::from_static("idempotency-key");

/// The longest key, in bytes without its quotes and escapes.
pub(super) const LONGEST: usize = 255;

/// Why a header has no valid key. Its text is for the client, and does not contain the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct MalformedKey(&'static str);

const EMPTY: MalformedKey = MalformedKey("it is empty");
const UNTERMINATED: MalformedKey = MalformedKey("its closing double quote is missing");
const ESCAPE: MalformedKey =
    MalformedKey("a backslash in it stands before neither a double quote nor a backslash");
const TRAILING: MalformedKey =
    MalformedKey("something follows its closing double quote; send one string and nothing else");
const NOT_ASCII: MalformedKey =
    MalformedKey("it holds a character outside the visible ASCII characters and space");
const NOT_QUOTED: MalformedKey =
    MalformedKey("it must be a string in double quotes (RFC 8941, section 3.3.3), such as \"8e03978e-40d5\"");
const BARE: MalformedKey = MalformedKey(
    "without double quotes it cannot hold a space, a double quote, a comma, a semicolon or a backslash",
);

/// The key in the header `Idempotency-Key` of a request, without its quotes and escapes; `None` if there is
/// no such header.
///
/// Use this function in a handler without the layer, to call an idempotent function under the client's key.
/// `"abc"` and `abc` are the same key.
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
/// [`MalformedKey`] if the header has no valid key: for example, it has several values, no text, or a key of
/// more than 255 bytes.
pub fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, MalformedKey> {
    read(headers, false)
}

/// The key in these headers; `None` if there is no such header. If `quoted` is `true`, the bare form is
/// refused.
pub(super) fn read(headers: &HeaderMap, quoted: bool) -> Result<Option<String>, MalformedKey> {
    let mut values = headers.get_all(HEADER).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(MalformedKey("it was sent more than once; send one value"));
    }
    let key = parse(value, quoted)?;
    match key.len() {
        0 => Err(EMPTY),
        1..=LONGEST => Ok(Some(key)),
        _ => Err(MalformedKey("it is longer than 255 bytes")),
    }
}

fn parse(value: &HeaderValue, quoted: bool) -> Result<String, MalformedKey> {
    // White space around a value is not part of the value (RFC 9110, section 5.5).
    let text = value.to_str().map_err(|_| NOT_ASCII)?.trim_matches([' ', '\t']);
    if text.contains('\t') {
        return Err(NOT_ASCII);
    }
    match text.strip_prefix('"') {
        Some(rest) => unquote(rest),
        None if text.is_empty() => Err(EMPTY),
        None if quoted => Err(NOT_QUOTED),
        None if text.contains([' ', '"', ',', ';', '\\']) => Err(BARE),
        None => Ok(text.to_owned()),
    }
}

/// The content of a string, given the text after its opening quote: RFC 8941, section 4.2.5.
fn unquote(quoted: &str) -> Result<String, MalformedKey> {
    let mut key = String::with_capacity(quoted.len());
    let mut rest = quoted.chars();
    loop {
        match rest.next() {
            None => return Err(UNTERMINATED),
            Some('"') if rest.as_str().is_empty() => return Ok(key),
            Some('"') => return Err(TRAILING),
            Some('\\') => match rest.next() {
                Some(escaped @ ('"' | '\\')) => key.push(escaped),
                Some(_) => return Err(ESCAPE),
                None => return Err(UNTERMINATED),
            },
            Some(other) => key.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read_one(value: &[u8], quoted: bool) -> Result<Option<String>, MalformedKey> {
        let mut headers = HeaderMap::new();
        headers.append(HEADER, HeaderValue::from_bytes(value).unwrap());
        read(&headers, quoted)
    }

    #[test]
    fn what_is_no_string_says_why() {
        for (value, fault) in [
            (r#""""#, EMPTY),
            (r#""abc"#, UNTERMINATED),
            (r#"""#, UNTERMINATED),
            (r#""abc\""#, UNTERMINATED),
            (r#""abc\"#, UNTERMINATED),
            (r#""a\nb""#, ESCAPE),
            (r#""a" "b""#, TRAILING),
            (r#""a", "b""#, TRAILING),
            (r#""a";p=1"#, TRAILING),
            (r#""a"b"#, TRAILING),
            ("", EMPTY),
            ("   ", EMPTY),
            ("\"a\tb\"", NOT_ASCII),
            ("\"\u{e4}\"", NOT_ASCII),
            ("\u{e4}", NOT_ASCII),
        ] {
            for quoted in [true, false] {
                assert_eq!(read_one(value.as_bytes(), quoted), Err(fault), "{value}");
            }
        }
        assert_eq!(read_one(b"\"\xff\"", false), Err(NOT_ASCII));
    }

    #[test]
    fn the_bare_form_names_the_same_key_where_it_is_taken() {
        let bare = b"8e03978e-40d5-43e8-bc93-6894a57f9324";
        let quoted = br#""8e03978e-40d5-43e8-bc93-6894a57f9324""#;
        assert_eq!(read_one(bare, false), read_one(quoted, false));
        assert_eq!(read_one(bare, true), Err(NOT_QUOTED));
        for value in ["a b", "a,b", "a, b", "a\"b", "a\\b", "abc\"", "a;p=1"] {
            assert_eq!(read_one(value.as_bytes(), false), Err(BARE), "{value}");
        }
    }

    #[test]
    fn the_length_is_counted_after_unquoting() {
        let escaped = |count| format!("\"{}\"", r#"\""#.repeat(count));
        assert_eq!(read_one(escaped(255).as_bytes(), true), Ok(Some("\"".repeat(255))));
        assert_eq!(read_one(escaped(256).as_bytes(), true), Err(MalformedKey("it is longer than 255 bytes")));
        assert_eq!(
            read_one("x".repeat(256).as_bytes(), false),
            Err(MalformedKey("it is longer than 255 bytes"))
        );
    }

    proptest! {
        #[test]
        fn every_text_of_ascii_comes_back_from_its_string(key in "[ -~]{1,255}") {
            let string = format!("  \"{}\" ", key.replace('\\', r"\\").replace('"', r#"\""#));
            for quoted in [true, false] {
                prop_assert_eq!(read_one(string.as_bytes(), quoted), Ok(Some(key.clone())));
            }
        }
    }
}
