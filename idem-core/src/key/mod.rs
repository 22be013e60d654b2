//! Keys: how the values that name an operation become text, and how that text is kept private.
//!
//! Owns rendering and limits. Knows nothing of stores or of the protocol.

mod builder;
mod foreign;
mod part;

use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use sha2::{Digest, Sha256};

pub use builder::KeyBuilder;
pub use part::{AnyPart, KeyPart};

/// The longest key, in bytes of its rendered form.
pub const MAX_KEY_BYTES: usize = 1_024;

/// The longest scope, in bytes.
pub const MAX_SCOPE_BYTES: usize = 512;

/// The scopes of what idem itself keeps in a store: the trail of what people did, and the marks of how the store is wrapped. No
/// operation takes them.
pub const RESERVED_SCOPES: [&str; 2] = ["idem.audit", "idem.layers"];

/// Why a key or scope cannot be used. It never holds the key itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The key, or one of the values in it, is empty.
    #[error("the key or a value in it is empty, so it would be shared by calls that are not duplicates")]
    Missing,
    /// The rendered key is too long.
    #[error("the key is {bytes} bytes long and {MAX_KEY_BYTES} is the most; use an identifier or a digest")]
    TooLong {
        /// Its length in bytes.
        bytes: usize,
    },
    /// The scope is blank.
    #[error("the scope is blank; give the operation a name such as \"payments.charge\"")]
    BlankScope,
    /// The scope is one of [`RESERVED_SCOPES`].
    #[error("the scope is one that idem keeps for itself; give the operation another name")]
    ReservedScope,
    /// The scope is too long.
    #[error("the scope is {bytes} bytes long and {MAX_SCOPE_BYTES} is the most")]
    ScopeTooLong {
        /// Its length in bytes.
        bytes: usize,
    },
}

/// Identifies one call of an operation: non-empty text of at most 1,024 bytes.
///
/// The attribute and `Operation::run` make keys from values through [`KeyPart`]; `Key::new` takes text as it is.
/// `Debug` shows only the length, because keys are private.
///
/// ```
/// # use idem_core as idem;
/// let key = idem::Key::new("order/42")?;
/// assert_eq!(format!("{key:?}"), "Key(8 bytes)");
/// # Ok::<(), idem::KeyError>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Arc<str>);

impl Key {
    /// The key with exactly this text.
    ///
    /// # Errors
    ///
    /// [`KeyError::Missing`] if the text is empty, [`KeyError::TooLong`] if it is longer than 1,024 bytes.
    pub fn new(text: impl AsRef<str>) -> Result<Self, KeyError> {
        let text = text.as_ref();
        if text.is_empty() {
            return Err(KeyError::Missing);
        }
        if text.len() > MAX_KEY_BYTES {
            return Err(KeyError::TooLong { bytes: text.len() });
        }
        Ok(Self(Arc::from(text)))
    }

    /// The text. It is private data: log the [`RecordKey::digest`] instead.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({} bytes)", self.0.len())
    }
}

/// The stable name of an operation. The same key in two scopes names two records. Cheap to clone.
#[derive(Clone)]
pub struct Scope(Name);

#[derive(Clone)]
enum Name {
    Static(&'static str),
    Shared(Arc<str>),
}

impl Scope {
    /// The scope with this name.
    ///
    /// # Errors
    ///
    /// [`KeyError::BlankScope`] if the name is empty or only white space, and [`KeyError::ScopeTooLong`] if it is
    /// longer than 512 bytes.
    pub fn new(name: impl Into<Cow<'static, str>>) -> Result<Self, KeyError> {
        Self::check(match name.into() {
            Cow::Borrowed(name) => Name::Static(name),
            Cow::Owned(name) => Name::Shared(Arc::from(name)),
        })
    }

    /// As [`new`](Self::new), for a shared name.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn shared(name: Arc<str>) -> Result<Self, KeyError> {
        Self::check(Name::Shared(name))
    }

    fn check(name: Name) -> Result<Self, KeyError> {
        let scope = Self(name);
        let text = scope.as_str();
        if text.trim().is_empty() {
            return Err(KeyError::BlankScope);
        }
        if text.len() > MAX_SCOPE_BYTES {
            return Err(KeyError::ScopeTooLong { bytes: text.len() });
        }
        Ok(scope)
    }

    /// Whether it is one of [`RESERVED_SCOPES`], which no operation may have.
    #[must_use]
    pub fn is_reserved(&self) -> bool {
        // A cheap first test: few names begin like that.
        self.as_str().starts_with("idem.") && RESERVED_SCOPES.contains(&self.as_str())
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match &self.0 {
            Name::Static(name) => name,
            Name::Shared(name) => name,
        }
    }

    /// The name in the form it is stored in, for code that keeps it without a copy.
    ///
    /// # Errors
    ///
    /// The shared text, if the name is not a constant.
    pub fn to_shared(&self) -> Result<&'static str, Arc<str>> {
        match &self.0 {
            Name::Static(name) => Ok(name),
            Name::Shared(name) => Err(name.clone()),
        }
    }
}

impl PartialEq for Scope {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for Scope {}

impl Hash for Scope {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The name of one record in a store: scope and key. Cheap to clone.
///
/// `Debug` shows the scope and the key's digest.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct RecordKey {
    scope: Scope,
    key: Key,
}

impl RecordKey {
    /// The record of `key` under `scope`.
    #[must_use]
    pub const fn new(scope: Scope, key: Key) -> Self {
        Self { scope, key }
    }

    /// The operation's name.
    #[must_use]
    pub const fn scope(&self) -> &Scope {
        &self.scope
    }

    /// The key, which is private data.
    #[must_use]
    pub const fn key(&self) -> &Key {
        &self.key
    }

    /// What logs and errors show instead of the key.
    #[must_use]
    pub fn digest(&self) -> KeyDigest {
        let full = framed_digest(&[self.scope.as_str(), self.key.as_str()]);
        let mut short = [0; 8];
        short.copy_from_slice(&full[..8]);
        KeyDigest(short)
    }
}

impl fmt::Debug for RecordKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordKey").field("scope", &self.scope).field("digest", &self.digest()).finish()
    }
}

/// SHA-256 over the parts, each preceded by its length, so that two different lists of parts are different input.
#[must_use]
pub fn framed_digest(parts: &[&str]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    hash.finalize().into()
}

/// These bytes as hexadecimal digits, two each.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // Writing to a `String` cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The first eight bytes of the SHA-256 of scope and key, as logs, errors and spans show it.
///
/// It shows which log lines belong together without showing the key. It is not a secret: anyone who guesses a key can
/// confirm the guess.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyDigest([u8; 8]);

impl fmt::Display for KeyDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for KeyDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyDigest({self})")
    }
}
