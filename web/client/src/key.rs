//! The key of a logical request.

use std::fmt;

use http::HeaderValue;
use sha2::{Digest as _, Sha256};

/// The key of a logical request. Put it into the request's extensions:
/// `request.extensions_mut().insert(key)`, or reqwest-middleware's `with_extension(key)`.
#[derive(Clone, PartialEq, Eq)]
pub struct Key(Kind);

#[derive(Clone, PartialEq, Eq)]
enum Kind {
    Value(String),
    Named(String),
}

impl Key {
    /// A key with exactly this text. The text may have only visible ASCII characters and spaces; otherwise
    /// the request fails before it is sent.
    #[must_use]
    pub fn new(key: impl Into<String>) -> Self {
        Self(Kind::Value(key.into()))
    }

    /// A key derived from what identifies the request. The same parts give the same key, in every process and
    /// every version. The key has 32 hexadecimal characters (128 bits of a SHA-256), which do not reveal the
    /// parts.
    ///
    /// Include everything that distinguishes this request from others, and nothing that changes between
    /// tries: `["order", order_id, "charge"]`, not the time.
    #[must_use]
    pub fn derived<P: AsRef<str>>(parts: impl IntoIterator<Item = P>) -> Self {
        let mut hash = Sha256::new();
        for part in parts {
            // Each part is preceded by its length. Without the lengths, `["a", "bc"]` and `["ab", "c"]` would
            // have the same hash.
            let part = part.as_ref().as_bytes();
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        let digest = hash.finalize();
        Self::new(hex(u128::from_be_bytes(std::array::from_fn(|at| digest[at]))))
    }

    /// The key of one of the requests that an idempotent body sends: `context().downstream_key(name)`,
    /// whatever method, host and path the request has. So a body that runs again after a failure sends the
    /// same key, even if it now sends the request to another host of the provider. Name every request that
    /// moves money. Outside an idempotent body, or without the feature `idem`, the key is random.
    #[must_use]
    pub fn named(name: impl Into<String>) -> Self {
        Self(Kind::Named(name.into()))
    }

    /// The key of a request. `key` is the key among its extensions, if any; `target` is the request's method,
    /// host and path.
    pub(crate) fn of(key: Option<&Self>, target: &str) -> String {
        let name = match key.map(|key| &key.0) {
            Some(Kind::Value(key)) => return key.clone(),
            Some(Kind::Named(name)) => name,
            None => target,
        };
        downstream(name).unwrap_or_else(random)
    }
}

/// The value of the header: a string of RFC 8941.
pub(crate) fn header(key: &str) -> Result<HeaderValue, http::Error> {
    // An RFC 8941 string allows fewer characters than a header value. Each character that is not allowed
    // becomes a line break, which `from_str` refuses.
    let escaped = key.replace('\\', r"\\").replace('"', r#"\""#);
    let escaped = escaped.replace(|c: char| !matches!(c, ' '..='~'), "\n");
    let mut value = HeaderValue::from_str(&format!("\"{escaped}\""))?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(feature = "idem")]
fn downstream(name: &str) -> Option<String> {
    Some(idem_runtime::context()?.downstream_key(name))
}

#[cfg(not(feature = "idem"))]
const fn downstream(_: &str) -> Option<String> {
    None
}

fn random() -> String {
    hex(rand::random())
}

fn hex(bits: u128) -> String {
    format!("{bits:032x}")
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The key is not shown, because anyone with the key can read the response.
        f.write_str("Key(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::{Key, header};

    fn of(key: &Key) -> String {
        Key::of(Some(key), "POST example.com/payments")
    }

    #[test]
    fn a_derived_key_never_changes_and_tells_lists_of_parts_apart() {
        let key = of(&Key::derived(["order", "42", "charge"]));
        // The expected text must not change, because a client that derives another key after an update pays
        // twice.
        assert_eq!(key, "1ffb61250146028a68eee815d398668e");
        assert_ne!(key, of(&Key::derived(["order", "42c", "harge"])));
        assert_ne!(key, of(&Key::derived(["order42charge"])));
    }

    #[test]
    fn a_key_is_sent_as_a_string_and_shown_nowhere() {
        let sent = header(r#"a"b\c"#).unwrap();
        assert_eq!(sent.to_str().unwrap(), r#""a\"b\\c""#);
        assert!(sent.is_sensitive() && !format!("{:?}", Key::new("secret")).contains("secret"));
        for text in ["ä", "a\tb", "a\nb", "\u{7f}"] {
            assert!(header(text).is_err(), "{text:?}");
        }
    }
}
