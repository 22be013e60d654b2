//! The text of statements, with their values in it or beside it.
//!
//! Knows nothing of sessions.

use std::fmt::{Arguments, Write as _};

use sqlx::Arguments as _;
use sqlx::mysql::MySqlArguments;

use crate::rows::{NOW_IN_ROWS, Value};
use idem_core::RecordKey;

/// A text to which values are added.
pub(super) trait Text {
    fn push(&mut self, text: &str);
    fn null(&mut self);
    fn number(&mut self, number: u64);
    fn bytes(&mut self, bytes: &[u8]);

    fn value(&mut self, value: &Value<'_>) {
        match value {
            Value::Null => self.null(),
            Value::Number(number) => self.number(*number),
            Value::Bytes(bytes) => self.bytes(bytes),
            Value::Later(later) => {
                self.push(NOW_IN_ROWS);
                self.push(" + ");
                self.number(*later);
            }
        }
    }

    /// Adds the condition that finds a row by its key.
    fn is_key(&mut self, key: &RecordKey) {
        self.push("scope = ");
        self.bytes(key.scope().as_str().as_bytes());
        self.push(" AND `key` = ");
        self.bytes(key.key().as_str().as_bytes());
    }
}

/// Values are literals, bytes in digits: these mean the same in every SQL mode and character set.
impl Text for String {
    fn push(&mut self, text: &str) {
        self.push_str(text);
    }

    fn null(&mut self) {
        self.push_str("NULL");
    }

    fn number(&mut self, number: u64) {
        add(self, format_args!("{number}"));
    }

    fn bytes(&mut self, bytes: &[u8]) {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        self.reserve(bytes.len() * 2 + 3);
        self.push_str("x'");
        for byte in bytes {
            self.push(char::from(DIGITS[usize::from(byte >> 4)]));
            self.push(char::from(DIGITS[usize::from(byte & 15)]));
        }
        self.push('\'');
    }
}

/// One statement that the server keeps prepared, and its values. Its text does not depend on them, so that records of all kinds share it.
#[derive(Default)]
pub(super) struct Prepared {
    pub(super) text: String,
    pub(super) values: MySqlArguments,
    /// Whether a value could not be encoded, so that the statement cannot be sent.
    pub(super) is_broken: bool,
}

impl Text for Prepared {
    fn push(&mut self, text: &str) {
        self.text.push_str(text);
    }

    fn null(&mut self) {
        self.text.push('?');
        self.is_broken |= self.values.add(None::<&[u8]>).is_err();
    }

    fn number(&mut self, number: u64) {
        self.text.push('?');
        self.is_broken |= self.values.add(number).is_err();
    }

    fn bytes(&mut self, bytes: &[u8]) {
        // As a parameter, it is NULL to some SQL modes.
        if bytes.is_empty() {
            return self.text.push_str("x''");
        }
        self.text.push('?');
        self.is_broken |= self.values.add(bytes).is_err();
    }
}

/// Appends formatted text, which cannot fail.
pub(super) fn add(text: &mut String, arguments: Arguments<'_>) {
    let _ = text.write_fmt(arguments);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text_of(value: &Value<'_>) -> (String, String) {
        let (mut text, mut prepared) = (String::new(), Prepared::default());
        text.value(value);
        prepared.value(value);
        (text, prepared.text)
    }

    #[test]
    fn a_value_is_a_literal_of_digits_alone_or_a_parameter() {
        assert_eq!(text_of(&Value::Bytes(b"a'\\\0\xff")), ("x'61275c00ff'".to_owned(), "?".to_owned()));
        assert_eq!(text_of(&Value::Bytes(b"")), ("x''".to_owned(), "x''".to_owned()));
        assert_eq!(text_of(&Value::Number(7)), ("7".to_owned(), "?".to_owned()));
        assert_eq!(text_of(&Value::Null), ("NULL".to_owned(), "?".to_owned()));
        assert_eq!(text_of(&Value::Later(0)), (format!("{NOW_IN_ROWS} + 0"), format!("{NOW_IN_ROWS} + ?")));
    }
}
