//! The formats of recorded results.
//!
//! Owns the register of formats. The first bytes of a result identify its format. So no store needs a field
//! for the format, and an older version of idem can report that it does not know a newer format.
//!
//! | first bytes | format |
//! |---|---|
//! | white space of JSON, `{`, `[`, `"`, `-`, a digit, `t`, `f`, `n` | JSON |
//! | 0x01 | a response of the HTTP layer |
//! | 0x28, then 0xb5 0x2f 0xfd | a Zstandard frame around another format |
//! | 0xab, then `id` | a sealed result, of any format |
//! | any other | an unknown format; later versions may use 0x02 to 0x08 and 0x0e to 0x1f for new formats |

use std::fmt;

use super::StoredResult;

/// The format of a recorded result or step: see [`StoredResult::format`].
///
/// ```
/// # use idem_core as idem;
/// use idem::protocol::{ResultFormat, StoredResult};
///
/// assert_eq!(StoredResult::Value("{\"id\":7}".into()).format(), Some(ResultFormat::Json));
/// assert_eq!(ResultFormat::of(b"\x05.."), Some(ResultFormat::Other(5)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ResultFormat {
    /// JSON text: what the attribute and `Operation` write.
    Json,
    /// A response of the HTTP layer.
    Response,
    /// A Zstandard frame around another format: what `StoreExt::compressed` writes.
    Zstandard,
    /// An encrypted result of any format: what `StoreExt::encrypted` writes.
    Sealed,
    /// A format that this version does not know, with its first byte.
    Other(u8),
}

impl ResultFormat {
    /// The format of these bytes; `None` if there are no bytes.
    #[must_use]
    pub const fn of(bytes: &[u8]) -> Option<Self> {
        Some(match bytes {
            [] => return None,
            [
                b' ' | b'\t' | b'\n' | b'\r' | b'{' | b'[' | b'"' | b'-' | b'0'..=b'9' | b't' | b'f' | b'n',
                ..,
            ] => Self::Json,
            [1, ..] => Self::Response,
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Self::Zstandard,
            [0xab, b'i', b'd', ..] => Self::Sealed,
            [other, ..] => Self::Other(*other),
        })
    }
}

impl fmt::Display for ResultFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Json => f.write_str("JSON"),
            Self::Response => f.write_str("a response of the HTTP layer"),
            Self::Zstandard => f.write_str("a Zstandard frame"),
            Self::Sealed => f.write_str("an encrypted result"),
            Self::Other(byte) => write!(f, "format 0x{byte:02x}, which this version of idem does not know"),
        }
    }
}

impl StoredResult {
    /// The format of the value; `None` for a tombstone and for an empty value.
    #[must_use]
    pub fn format(&self) -> Option<ResultFormat> {
        match self {
            Self::Value(bytes) => ResultFormat::of(bytes),
            Self::Tombstone(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_json_text_is_json_and_no_control_character_begins_one() {
        for text in ["null", "true", "false", "0", "-1", "\"\"", "[]", "{}", " 1", "\n{}", "\t[]", "\r1"] {
            assert_eq!(ResultFormat::of(text.as_bytes()), Some(ResultFormat::Json), "{text:?}");
        }
        for byte in (2..=8).chain(0x0e..=0x1f) {
            assert_eq!(ResultFormat::of(&[byte, b'{']), Some(ResultFormat::Other(byte)));
        }
        assert_eq!(ResultFormat::of(b""), None);
        // If several bytes identify a format, the first of them alone does not.
        assert_eq!(ResultFormat::of(b"(1)"), Some(ResultFormat::Other(b'(')));
        assert_eq!(ResultFormat::of(b"\xab"), Some(ResultFormat::Other(0xab)));
    }
}
