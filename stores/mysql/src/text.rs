//! Builds the text of statements. The values are in the text, or separate in a [`Prepared`].
//!
//! This module knows nothing about sessions.

use std::fmt::{Arguments, Write as _};

use sqlx::mysql::{MySql, MySqlArguments};
use sqlx::{Arguments as _, Encode, Type};

use crate::rows::{NOW_IN_ROWS, Value};
use idem_core::RecordKey;
use idem_store_kit::sql::Name;

/// The largest number of keys in one list. For lists of 1,000 keys, MariaDB creates temporary tables.
const LONGEST_LIST: usize = 500;

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

    /// Adds the condition that finds a row by its name.
    fn is_name(&mut self, (scope, key): Name<'_>) {
        self.push("scope = ");
        self.bytes(scope);
        self.push(" AND `key` = ");
        self.bytes(key);
    }

    /// Adds the values of the columns `scope` and `key`.
    fn name(&mut self, (scope, key): Name<'_>) {
        self.bytes(scope);
        self.push(", ");
        self.bytes(key);
    }

    /// Adds the condition that finds the rows of these keys. Adjacent keys of one scope form one list,
    /// because separate conditions take the server 1.5 times as long.
    fn are_keys<'k>(&mut self, keys: impl Iterator<Item = &'k RecordKey>) {
        let mut list: Option<(&str, usize)> = None;
        for key in keys {
            let scope = key.scope().as_str();
            list = match list {
                Some((listed, count)) if listed == scope && count < LONGEST_LIST => {
                    self.push(", ");
                    Some((scope, count + 1))
                }
                before => {
                    self.push(if before.is_some() { ")) OR (scope = " } else { "((scope = " });
                    self.bytes(scope.as_bytes());
                    self.push(" AND `key` IN (");
                    Some((scope, 1))
                }
            };
            self.bytes(key.key().as_str().as_bytes());
        }
        self.push(")))");
    }
}

/// Values are literals, and bytes are hexadecimal digits, because these mean the same in every SQL mode and
/// character set.
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

/// One statement that the server keeps prepared, and its values. Each value is a parameter, except an empty
/// string. So different records share one prepared statement.
#[derive(Default)]
pub(super) struct Prepared {
    pub(super) text: String,
    pub(super) values: MySqlArguments,
}

impl Prepared {
    fn parameter<'v>(&mut self, value: impl Encode<'v, MySql> + Type<MySql>) {
        self.text.push('?');
        // The driver can encode all these types. If it could not, the text would have more placeholders than
        // values, and the driver would return an error.
        let _ = self.values.add(value);
    }
}

impl Text for Prepared {
    fn push(&mut self, text: &str) {
        self.text.push_str(text);
    }

    fn null(&mut self) {
        self.parameter(None::<&[u8]>);
    }

    fn number(&mut self, number: u64) {
        self.parameter(number);
    }

    fn bytes(&mut self, bytes: &[u8]) {
        // As a parameter, an empty string is NULL in some SQL modes.
        if bytes.is_empty() {
            return self.text.push_str("x''");
        }
        self.parameter(bytes);
    }
}

/// Appends formatted text. Writing to a `String` cannot fail.
pub(super) fn add(text: &mut String, arguments: Arguments<'_>) {
    let _ = text.write_fmt(arguments);
}
