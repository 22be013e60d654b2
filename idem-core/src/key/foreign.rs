//! Types of other crates that can be part of a key, each behind a feature with the name of its crate.
//!
//! The text of such a value is part of the keys of stored records. So this text must never change, even if a
//! later version of the crate prints its values differently.

#[allow(unused_imports, reason = "which of them are used depends on the features")]
use super::{KeyBuilder, KeyPart};

#[cfg(feature = "uuid")]
impl KeyPart for uuid::Uuid {
    fn render(&self, key: &mut KeyBuilder) {
        key.value(self.hyphenated().encode_lower(&mut uuid::Uuid::encode_buffer()));
    }
}

/// A calendar date in ISO 8601 form: `2024-02-29`. A year outside 0 to 9999 has a sign.
#[cfg(any(feature = "chrono", feature = "jiff", feature = "time"))]
fn date(key: &mut KeyBuilder, year: i32, month: u8, day: u8) {
    use std::fmt::Write as _;

    key.begin_next();
    // The text needs no encoding: it is digits, `-` and a `+` that is already encoded. Writing to a `String`
    // cannot fail.
    let _ = match year {
        0..=9_999 => write!(key.text, "{year:04}-{month:02}-{day:02}"),
        10_000.. => write!(key.text, "%2B{year}-{month:02}-{day:02}"),
        _ => write!(key.text, "-{:04}-{month:02}-{day:02}", year.unsigned_abs()),
    };
}

#[cfg(feature = "chrono")]
impl KeyPart for chrono::NaiveDate {
    fn render(&self, key: &mut KeyBuilder) {
        use chrono::Datelike as _;

        // Months and days are at most 31, so the conversions lose nothing.
        date(key, self.year(), self.month() as u8, self.day() as u8);
    }
}

#[cfg(feature = "jiff")]
impl KeyPart for jiff::civil::Date {
    fn render(&self, key: &mut KeyBuilder) {
        date(key, self.year().into(), self.month().unsigned_abs(), self.day().unsigned_abs());
    }
}

#[cfg(feature = "time")]
impl KeyPart for time::Date {
    fn render(&self, key: &mut KeyBuilder) {
        date(key, self.year(), self.month().into(), self.day());
    }
}

/// The 26 characters of the ULID's text form.
#[cfg(feature = "ulid")]
impl KeyPart for ulid::Ulid {
    fn render(&self, key: &mut KeyBuilder) {
        key.value(self.array_to_str(&mut [0; ulid::ULID_LEN]));
    }
}

/// The number without trailing zeros after the decimal point: `1.50` and `1.5` give the same text, and so do
/// `0` and `-0`.
#[cfg(feature = "rust_decimal")]
impl KeyPart for rust_decimal::Decimal {
    fn render(&self, key: &mut KeyBuilder) {
        use std::fmt::Write as _;

        key.begin_next();
        // Digits, `-` and `.` need no encoding, and writing to a `String` cannot fail.
        let _ = write!(key.text, "{}", self.normalize());
    }
}

#[cfg(test)]
#[allow(dead_code, unused_imports, reason = "which of them are used depends on the features")]
mod tests {
    use super::*;

    fn rendered<P: KeyPart>(part: P) -> String {
        KeyBuilder::new().part(&part).finish().unwrap().as_str().to_owned()
    }

    #[cfg(feature = "uuid")]
    #[test]
    fn a_uuid_is_rendered_in_small_letters_with_hyphens() {
        let id = uuid::Uuid::from_u128(0x67E5_5044_10B1_426F_9247_BB68_0E5F_E0C8);
        assert_eq!(rendered(id), "67e55044-10b1-426f-9247-bb680e5fe0c8");
        assert_eq!(rendered(uuid::Uuid::nil()), "00000000-0000-0000-0000-000000000000");
        assert_eq!(rendered((1_u8, &id)), format!("1/{id}"));
    }

    #[cfg(feature = "ulid")]
    #[test]
    fn a_ulid_is_rendered_as_its_text() {
        let id: ulid::Ulid = "01arz3ndektsv4rrffq69g5fav".parse().unwrap();
        assert_eq!(rendered(id), "01ARZ3NDEKTSV4RRFFQ69G5FAV");
        assert_eq!(rendered(ulid::Ulid(0)), "00000000000000000000000000");
        assert_eq!(rendered(ulid::Ulid(u128::MAX)), "7ZZZZZZZZZZZZZZZZZZZZZZZZZ");
    }

    #[cfg(feature = "rust_decimal")]
    #[test]
    fn a_decimal_is_rendered_as_its_number() {
        for (written, text) in [
            ("1.50", "1.5"),
            ("1.5", "1.5"),
            ("100", "100"),
            ("100.00", "100"),
            ("0", "0"),
            ("-0.00", "0"),
            ("-12.340", "-12.34"),
            ("0.0000000000000000000000000001", "0.0000000000000000000000000001"),
            ("79228162514264337593543950335", "79228162514264337593543950335"),
        ] {
            assert_eq!(rendered(written.parse::<rust_decimal::Decimal>().unwrap()), text, "{written}");
        }
    }

    #[cfg(feature = "chrono")]
    #[test]
    fn a_date_of_chrono_is_rendered_as_iso_8601_has_it() {
        let date = |year, month, day| rendered(chrono::NaiveDate::from_ymd_opt(year, month, day).unwrap());
        assert_eq!(date(2024, 2, 29), "2024-02-29");
        assert_eq!(date(1, 12, 1), "0001-12-01");
        assert_eq!(date(0, 1, 1), "0000-01-01");
        assert_eq!(date(-1, 1, 1), "-0001-01-01");
        assert_eq!(date(12_345, 1, 1), "%2B12345-01-01");
    }

    #[cfg(feature = "jiff")]
    #[test]
    fn a_date_of_jiff_is_rendered_as_iso_8601_has_it() {
        assert_eq!(rendered(jiff::civil::date(2024, 2, 29)), "2024-02-29");
        assert_eq!(rendered(jiff::civil::date(-44, 3, 15)), "-0044-03-15");
        assert_eq!(rendered(jiff::civil::date(9_999, 12, 31)), "9999-12-31");
    }

    #[cfg(feature = "time")]
    #[test]
    fn a_date_of_time_is_rendered_as_iso_8601_has_it() {
        let date = |year, month, day| {
            let month = time::Month::try_from(month).unwrap();
            rendered(time::Date::from_calendar_date(year, month, day).unwrap())
        };
        assert_eq!(date(2024, 2, 29), "2024-02-29");
        assert_eq!(date(0, 1, 1), "0000-01-01");
        assert_eq!(date(-9_999, 1, 1), "-9999-01-01");
    }
}
