//! The positions of the fields in a record, and the meaning of each byte. Each number is defined only here.
//!
//! `layout` reads and writes records by these positions. The scripts get the positions by name ([`names`]),
//! and a test compares them with the table in `docs/stores/redis.md`. Numbers in a record are big-endian;
//! instants and durations are in microseconds.

use std::ops::Range;

/// Defines constants, and a list of them with their names.
macro_rules! named {
    ($all:ident: $type:ty; $($(#[$doc:meta])* $name:ident = $value:expr;)*) => {
        $($(#[$doc])* pub(super) const $name: $type = $value;)*
        const $all: &[(&str, $type)] = &[$((stringify!($name), $name)),*];
    };
}

named! {
    FIELDS: Range<usize>;

    VERSION = 0..1;
    STATE = 1..2;
    /// The kind of the result.
    KIND = 2..3;
    FLAGS = 3..4;
    OWNER = 4..20;
    FENCE = 20..28;
    ATTEMPT = 28..32;
    LEASE_UNTIL = 32..40;
    RETRY_AT = 40..48;
    CREATED_AT = 48..56;
    TTL = 56..64;
    /// 0 for never.
    COMPLETED_AT = 64..72;
    /// 0 for never.
    EXPIRES_AT = 72..80;
    /// Present if [`FLAG_FINGERPRINT`] is set. The record's value follows. If the record has no value, its
    /// steps follow, each after 4 bytes with its length.
    FINGERPRINT = 80..112;
}

/// The number of bytes that every record has.
pub(super) const HEADER: usize = EXPIRES_AT.end;
/// The longest string a server takes by default.
pub(super) const LARGEST: usize = 512 << 20;

/// A script that does not need a whole record reads only this many bytes. If it gets fewer bytes, it has the
/// whole record.
const WINDOW: usize = 4_096;
/// The year 5138, in milliseconds. If a record has no expiry, `unchanged.lua` sets this expiry and removes it
/// at once. So `WAIT` has a write to wait for.
const FAR_AWAY: usize = 99_999_999_999_999;

named! {
    BYTES: u8;

    THIS_VERSION = 1;

    IN_FLIGHT = b'I';
    COMPLETED = b'C';
    FAILED = b'F';
    RELEASED = b'R';
    IN_DOUBT = b'D';

    KIND_NONE = 0;
    KIND_VALUE = 1;
    KIND_TOO_LARGE = 2;
    KIND_NOT_ENCODABLE = 3;
    KIND_EXHAUSTED = 4;

    FLAG_RECOVERED = 1;
    /// The key was claimed under the policy `in_doubt`.
    FLAG_IN_DOUBT = 2;
    FLAG_FINGERPRINT = 4;
}

/// The names that the scripts use for the constants of this file, with their values. A field has two names,
/// for the positions of its first and last byte as Lua counts them (`OWNER_FROM`, `OWNER_TO`). A byte has two
/// names, for its number and for its string (`IN_FLIGHT`, `AS_IN_FLIGHT`).
pub(super) fn names() -> Vec<(String, String)> {
    let fields = FIELDS.iter().flat_map(|(name, range)| {
        [(format!("{name}_FROM"), range.start + 1), (format!("{name}_TO"), range.end)]
    });
    let others = [
        ("HEADER".to_owned(), HEADER),
        ("BEHIND_HEADER".to_owned(), HEADER + 1),
        ("BEHIND_FINGERPRINT".to_owned(), FINGERPRINT.end + 1),
        ("LARGEST".to_owned(), LARGEST),
        ("WINDOW".to_owned(), WINDOW),
        ("LAST_OF_WINDOW".to_owned(), WINDOW - 1),
        ("FAR_AWAY".to_owned(), FAR_AWAY),
    ];
    let numbers = fields.chain(others).map(|(name, number)| (name, number.to_string()));
    let bytes = BYTES.iter().flat_map(|(name, byte)| {
        [((*name).to_owned(), byte.to_string()), (format!("AS_{name}"), format!("'\\{byte:03}'"))]
    });
    numbers.chain(bytes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_for_operators_has_these_places() {
        let page =
            std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/stores/redis.md"));
        let page = page.unwrap();
        for (name, range) in FIELDS {
            let place = match range.len() {
                1 => format!("| {} |", range.start),
                _ => format!("{}-{}", range.start, range.end - 1),
            };
            assert!(page.contains(&place), "docs/stores/redis.md lacks {name}: {place}");
        }
        for (byte, what) in [
            (THIS_VERSION, "version: 1"),
            (KIND_EXHAUSTED, "4 attempts ran out"),
            (FLAG_IN_DOUBT, "2 claimed under `in_doubt`"),
            (FLAG_FINGERPRINT, "4 has a fingerprint"),
        ] {
            assert!(
                what.contains(&byte.to_string()) && page.contains(what),
                "docs/stores/redis.md lacks: {what}"
            );
        }
        for (byte, state) in [
            (IN_FLIGHT, "in flight"),
            (COMPLETED, "completed"),
            (FAILED, "failed"),
            (RELEASED, "released"),
            (IN_DOUBT, "in doubt"),
        ] {
            let state = format!("`{}` {state}", char::from(byte));
            assert!(page.contains(&state), "docs/stores/redis.md lacks: {state}");
        }
        let read = format!("order/42}}' {HEADER} -1 ");
        assert!(page.contains(&read), "docs/stores/redis.md lacks: {read}");
    }
}
