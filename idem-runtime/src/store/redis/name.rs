//! The name of a record's key on the server: prefix, scope and key, such that no two records meet.

use std::sync::Arc;

use crate::error::StoreError;
use crate::key::RecordKey;

/// The longest prefix, in bytes.
const LONGEST: usize = 128;

/// What every key of a store begins with.
#[derive(Clone, Debug)]
pub(super) struct Prefix(Arc<str>);

impl Prefix {
    /// A prefix must not hold braces, which begin and end what a cluster hashes.
    pub(super) fn new(prefix: &str) -> Result<Self, StoreError> {
        if prefix.contains(['{', '}']) || prefix.len() > LONGEST {
            return Err(StoreError::configuration(format!(
                "the key prefix must be at most {LONGEST} bytes and hold no `{{` and no `}}`"
            )));
        }
        Ok(Self(Arc::from(prefix)))
    }

    /// `PREFIX{SCOPE|KEY}`, with `%`, `|`, `{` and `}` of the scope written as `%25` and so on: the first
    /// `{` ends the prefix and the first `|` after it the scope, whatever the key holds.
    pub(super) fn name(&self, key: &RecordKey) -> Vec<u8> {
        let (scope, key) = (key.scope().as_str(), key.key().as_str());
        let mut name = Vec::with_capacity(self.0.len() + scope.len() + key.len() + 3);
        name.extend_from_slice(self.0.as_bytes());
        name.push(b'{');
        for byte in scope.bytes() {
            match byte {
                b'%' => name.extend_from_slice(b"%25"),
                b'|' => name.extend_from_slice(b"%7C"),
                b'{' => name.extend_from_slice(b"%7B"),
                b'}' => name.extend_from_slice(b"%7D"),
                byte => name.push(byte),
            }
        }
        name.push(b'|');
        name.extend_from_slice(key.as_bytes());
        name.push(b'}');
        name
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::key::{Key, Scope};

    fn name(prefix: &str, scope: &'static str, key: &str) -> String {
        let key = RecordKey::new(Scope::new(scope).unwrap(), Key::new(key).unwrap());
        String::from_utf8(Prefix::new(prefix).unwrap().name(&key)).unwrap()
    }

    #[test]
    fn a_usual_key_is_read_as_it_is() {
        assert_eq!(name("idem:", "shop::charge", "order/42"), "idem:{shop::charge|order/42}");
    }

    #[test]
    fn no_two_records_have_one_name() {
        let parts = ["a", "a|", "|a", "a|b", "%7C", "a%7Cb", "{", "}", "{a}", "a}{", "\0", "%"];
        let mut names = BTreeSet::new();
        for prefix in ["", "a", "a|", "%"] {
            for scope in parts {
                for key in parts {
                    assert!(names.insert(name(prefix, scope, key)), "{prefix:?} {scope:?} {key:?}");
                }
            }
        }
    }

    #[test]
    fn a_prefix_that_would_steer_a_cluster_is_refused() {
        assert!(Prefix::new("{idem}").is_err());
        assert!(Prefix::new("a}").is_err());
        assert!(Prefix::new(&"a".repeat(LONGEST + 1)).is_err());
    }
}
