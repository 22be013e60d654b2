//! The name of a record's key on the server: prefix, scope and key, encoded so that two records never have
//! the same name.

use std::sync::Arc;

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};

use idem_core::StoreError;
use idem_core::listing;
use idem_core::{RecordKey, Scope};

/// The longest prefix, in bytes.
const LONGEST: usize = 128;

/// The characters that are encoded in a scope, besides all characters that are not ASCII.
const IN_SCOPE: &AsciiSet = &CONTROLS.add(b'%').add(b'|').add(b'{').add(b'}');

/// The prefix of every key of a store.
#[derive(Clone, Debug)]
pub(super) struct Prefix(Arc<str>);

impl Prefix {
    /// Fails if the prefix is too long, or contains braces, which delimit the part of a key that a cluster
    /// hashes.
    pub(super) fn new(prefix: &str) -> Result<Self, StoreError> {
        if prefix.contains(['{', '}']) || prefix.len() > LONGEST {
            return Err(StoreError::configuration(format!(
                "the key prefix must be at most {LONGEST} bytes and hold no `{{` and no `}}`"
            )));
        }
        Ok(Self(Arc::from(prefix)))
    }

    /// `PREFIX{SCOPE|KEY}`. In the scope, the characters [`IN_SCOPE`] are percent-encoded, such as `%25`. The
    /// first `{` ends the prefix, and the first `|` after it ends the scope, whatever the key contains.
    pub(super) fn name(&self, key: &RecordKey) -> Vec<u8> {
        let scope = utf8_percent_encode(key.scope().as_str(), IN_SCOPE);
        format!("{}{{{scope}|{}}}", self.0, key.key().as_str()).into_bytes()
    }

    /// The key of the record with this name; `None` if no record can have this name.
    pub(super) fn key(&self, name: &[u8]) -> Option<RecordKey> {
        let inside = name.strip_prefix(self.0.as_bytes())?.strip_prefix(b"{")?.strip_suffix(b"}")?;
        let (scope, key) = std::str::from_utf8(inside).ok()?.split_once('|')?;
        let scope = percent_decode_str(scope).decode_utf8().ok()?;
        let key = listing::name(&scope, key)?;
        // A name that this store would write differently belongs to another program.
        (self.name(&key) == name).then_some(key)
    }

    /// The pattern for all names, or for the names in a scope. The pattern may also match other names.
    pub(super) fn pattern(&self, scope: Option<&Scope>) -> String {
        let scope = scope.map(|scope| utf8_percent_encode(scope.as_str(), IN_SCOPE).to_string() + "|");
        let mut pattern = String::new();
        for character in self.0.chars().chain("{".chars()).chain(scope.unwrap_or_default().chars()) {
            if "*?[]^-\\".contains(character) {
                pattern.push('\\');
            }
            pattern.push(character);
        }
        pattern + "*}"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_back_and_what_is_no_name_is_not() {
        for prefix in ["idem:", "", "a*b"] {
            let prefix = Prefix::new(prefix).unwrap();
            for (scope, key) in [("s", "k"), ("a%7C|{}", "|}{%25"), ("ü", "\0")] {
                let key = listing::name(scope, key).unwrap();
                assert_eq!(prefix.key(&prefix.name(&key)), Some(key));
            }
        }
        let prefix = Prefix::new("idem:").unwrap();
        for (scope, key, name) in [
            ("shop::charge", "order/42", "idem:{shop::charge|order/42}"),
            ("a%|{}", "order/42", "idem:{a%25%7C%7B%7D|order/42}"),
        ] {
            assert_eq!(prefix.name(&listing::name(scope, key).unwrap()), name.as_bytes(), "{name}");
        }
        for name in [
            "idem:",
            "idem:{}",
            "idem:{s}",
            "idem:{s|}",
            "idem:{|k}",
            "x:{s|k}",
            "idem:{s|k} ",
            "idem:{%41|k}",
        ] {
            assert_eq!(prefix.key(name.as_bytes()), None, "{name}");
        }
    }
}
