//! Digests in the keys of records, as hexadecimal digits.

use std::fmt::Write as _;

use idem_core::framed_digest;

/// The SHA-256 of these parts, in 64 digits.
pub(super) fn digest(parts: &[&str]) -> String {
    hex(&framed_digest(parts))
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a `String` cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
