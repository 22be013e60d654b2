//! Keys: how the values that identify a call become text, and how that text is kept private.
//!
//! Owns the rendering of values, the limits, and the list of types that can be part of a key. Knows nothing
//! of stores or of the protocol.

mod foreign;
mod refused;

use std::borrow::Cow;
use std::cell::Cell;
use std::fmt::{self, Write as _};
use std::hash::{Hash, Hasher};
use std::mem;
use std::num::NonZero;
use std::rc::Rc;
use std::sync::Arc;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use sha2::{Digest, Sha256};

/// The longest key, in bytes of its rendered form.
pub const MAX_KEY_BYTES: usize = 1_024;

/// The longest scope, in bytes.
pub const MAX_SCOPE_BYTES: usize = 512;

/// The scopes of the records that idem itself keeps in a store: the audit trail of what operators did, and
/// the marks of the store's wrappers. No operation may have one of these scopes.
pub const RESERVED_SCOPES: [&str; 2] = ["idem.audit", "idem.layers"];

/// Why a key or scope cannot be used. The error never holds the key itself.
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
/// The attribute and `Operation::run` make keys from values through [`KeyPart`]; `Key::new` takes text as it
/// is. `Debug` shows only the length, because keys are private.
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

/// All characters except the unreserved characters of RFC 3986, section 2.3: `[A-Za-z0-9_.~-]`.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'_').remove(b'.').remove(b'~').remove(b'-');

thread_local! {
    /// The buffer in which a thread renders its keys. The thread reuses it, so that only finished keys are
    /// allocated.
    static PLACE: Cell<String> = const { Cell::new(String::new()) };
}

/// A buffer with a larger capacity than this, in bytes, is not kept.
const LARGEST_PLACE: usize = 4 * MAX_KEY_BYTES;

/// Makes a [`Key`] of literal text and values.
///
/// In values, all characters outside the set `[A-Za-z0-9_.~-]` are percent-encoded. The only exception is a
/// [`Key`] to which nothing else is added. Put literal text between two values, with at least one character
/// that is neither in that set nor `%`. Then the same literals with different values never give the same key.
///
/// ```
/// # use idem_core as idem;
/// let key = idem::KeyBuilder::new().literal("order/").part("4/2").finish()?;
/// assert_eq!(key.as_str(), "order/4%2F2");
/// # Ok::<(), idem::KeyError>(())
/// ```
#[derive(Default)]
pub struct KeyBuilder {
    text: String,
    missing: bool,
    /// Whether the text is one whole [`Key`]. Such a key is used unchanged, unless something else is added.
    is_whole: bool,
}

impl KeyBuilder {
    /// An empty key.
    #[must_use]
    pub fn new() -> Self {
        // If the thread is ending, its buffer is already dropped. Then the text starts as a new `String`.
        Self { text: PLACE.try_with(Cell::take).unwrap_or_default(), missing: false, is_whole: false }
    }

    /// Adds text as it is.
    #[must_use]
    pub fn literal(mut self, text: &str) -> Self {
        self.begin_next();
        self.text.push_str(text);
        self
    }

    /// Adds a value: any [`KeyPart`].
    #[must_use]
    pub fn part<P: AnyPart + ?Sized>(mut self, part: &P) -> Self {
        part.add_to(&mut self);
        self
    }

    /// Adds one atomic value, encoded. An implementation of [`KeyPart`] adds each of its values with this
    /// method. If `text` is empty, [`finish`](Self::finish) returns [`KeyError::Missing`].
    pub fn value(&mut self, text: &str) {
        self.begin_next();
        self.missing |= text.is_empty();
        self.text.extend(utf8_percent_encode(text, ESCAPED));
    }

    /// Adds a key. It stays unchanged if nothing else is added; otherwise it is encoded like any value.
    fn whole(&mut self, key: &str) {
        if self.text.is_empty() {
            self.text.push_str(key);
            self.is_whole = true;
        } else {
            self.value(key);
        }
    }

    /// Adds the separator between two values of one composite part.
    pub fn separator(&mut self) {
        self.begin_next();
        self.text.push('/');
    }

    /// The key.
    ///
    /// # Errors
    ///
    /// [`KeyError::Missing`] if the key or a value in it is empty, [`KeyError::TooLong`] if the key is longer
    /// than 1,024 bytes.
    pub fn finish(self) -> Result<Key, KeyError> {
        if self.missing { Err(KeyError::Missing) } else { Key::new(&self.text) }
    }

    /// Called before a literal, a separator or an encoded value is added. If the text so far is a whole key,
    /// encodes it, because a key beside other values is encoded like any value.
    fn begin_next(&mut self) {
        if mem::take(&mut self.is_whole) {
            let key = mem::take(&mut self.text);
            self.value(&key);
        }
    }
}

impl Drop for KeyBuilder {
    fn drop(&mut self) {
        let mut place = mem::take(&mut self.text);
        if place.capacity() <= LARGEST_PLACE {
            place.clear();
            // A thread that is ending cannot keep the buffer, and does not need it.
            let _ = PLACE.try_with(|kept| kept.set(place));
        }
    }
}

impl fmt::Debug for KeyBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyBuilder({} bytes)", self.text.len())
    }
}

/// A value that can be part of a key. Its rendering is stable, and two values have the same rendering only if
/// they are equal.
///
/// The trait is not implemented for every `Display` type, because most `Display` renderings keep neither
/// promise. It is implemented for integers, non-zero integers, `bool`, `char`, strings, [`Key`], tuples of
/// two to eight parts, and references and smart pointers to parts. With the feature named after the crate, it
/// is implemented for `uuid::Uuid`, `ulid::Ulid`, `rust_decimal::Decimal`, and the dates `chrono::NaiveDate`,
/// `jiff::civil::Date` and `time::Date`. Derive it for your own newtypes, structs and enums.
///
/// ```
/// # use idem_core as idem;
/// use idem::{KeyBuilder, KeyPart};
///
/// struct Sku { warehouse: u16, item: String }
///
/// // What `#[derive(KeyPart)]` writes:
/// impl KeyPart for Sku {
///     fn render(&self, key: &mut KeyBuilder) {
///         self.warehouse.render(key);
///         key.separator();
///         self.item.render(key);
///     }
/// }
///
/// let sku = Sku { warehouse: 7, item: "a/b".into() };
/// assert_eq!(KeyBuilder::new().part(&sku).finish()?.as_str(), "7/a%2Fb");
/// # Ok::<(), idem::KeyError>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be part of a key",
    label = "this is no `KeyPart`",
    note = "a key is made of integers, `bool`, `char`, strings, `Uuid` (feature `uuid`), and types with `#[derive(KeyPart)]`"
)]
pub trait KeyPart {
    /// Adds this value to the key: each atomic value with [`KeyBuilder::value`], and a
    /// [`KeyBuilder::separator`] between two values. Either all values of a type add the same number of
    /// atomic values, or the first atomic values determine the number, as the variant of an enum does.
    fn render(&self, key: &mut KeyBuilder);
}

/// Functions that take any [`KeyPart`] have this trait as their bound instead. If a bound does not hold,
/// rustc lists the impls of its trait. `KeyPart` has impls for the [`refused`] types, and rustc would list
/// them. This trait has a single impl, which covers every `KeyPart`, and rustc does not list such an impl.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be part of a key",
    label = "this is no `KeyPart`",
    note = "a key is made of integers, `bool`, `char`, strings, `Uuid` (feature `uuid`), and types with `#[derive(KeyPart)]`"
)]
pub trait AnyPart {
    fn add_to(&self, key: &mut KeyBuilder);
}

impl<T: KeyPart + ?Sized> AnyPart for T {
    fn add_to(&self, key: &mut KeyBuilder) {
        self.render(key);
    }
}

macro_rules! integers {
    ($($ty:ty)*) => {$(
        impl KeyPart for $ty {
            fn render(&self, key: &mut KeyBuilder) {
                key.begin_next();
                // Digits and `-` need no encoding.
                key.text.push_str(itoa::Buffer::new().format(*self));
            }
        }

        impl KeyPart for NonZero<$ty> {
            fn render(&self, key: &mut KeyBuilder) {
                self.get().render(key);
            }
        }
    )*};
}

integers!(u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize);

impl KeyPart for bool {
    fn render(&self, key: &mut KeyBuilder) {
        key.value(if *self { "true" } else { "false" });
    }
}

impl KeyPart for char {
    fn render(&self, key: &mut KeyBuilder) {
        key.value(self.encode_utf8(&mut [0; 4]));
    }
}

impl KeyPart for str {
    fn render(&self, key: &mut KeyBuilder) {
        key.value(self);
    }
}

impl KeyPart for String {
    fn render(&self, key: &mut KeyBuilder) {
        key.value(self);
    }
}

/// A key beside literal text or other values is encoded like any text. A key alone is used unchanged.
impl KeyPart for Key {
    fn render(&self, key: &mut KeyBuilder) {
        key.whole(self.as_str());
    }
}

macro_rules! pointers {
    ($($ty:ty)*) => {$(
        impl<T: KeyPart + ?Sized> KeyPart for $ty {
            fn render(&self, key: &mut KeyBuilder) {
                (**self).render(key);
            }
        }
    )*};
}

pointers!(&T &mut T Box<T> Arc<T> Rc<T>);

impl<T: KeyPart + ToOwned + ?Sized> KeyPart for Cow<'_, T> {
    fn render(&self, key: &mut KeyBuilder) {
        (**self).render(key);
    }
}

macro_rules! tuples {
    ($(($first:ident $($rest:ident)+))*) => {$(
        impl<$first: KeyPart, $($rest: KeyPart),+> KeyPart for ($first, $($rest),+) {
            #[allow(non_snake_case)]
            fn render(&self, key: &mut KeyBuilder) {
                let ($first, $($rest),+) = self;
                $first.render(key);
                $(key.separator(); $rest.render(key);)+
            }
        }
    )*};
}

tuples!((A B)(A B C)(A B C D)(A B C D E)(A B C D E F)(A B C D E F G)(A B C D E F G H));

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
    /// [`KeyError::BlankScope`] if the name is empty or only white space, and [`KeyError::ScopeTooLong`] if
    /// it is longer than 512 bytes.
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

    /// Whether this scope is one of [`RESERVED_SCOPES`], which no operation may have.
    #[must_use]
    pub fn is_reserved(&self) -> bool {
        // The prefix is a cheap first test, because few names have it.
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

    /// The name as a constant or as shared text, for code that keeps the name without a copy.
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
    /// The name of the record of `key` under `scope`.
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

/// SHA-256 over the parts. The hash gets the length of each part before the part, so two different lists of
/// parts never give it the same input.
#[must_use]
pub fn framed_digest(parts: &[&str]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    hash.finalize().into()
}

/// These bytes as hexadecimal digits, two for each byte.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // Writing to a `String` cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The first eight bytes of the SHA-256 of scope and key. Logs, errors and spans show them instead of the
/// key.
///
/// The digest shows which log lines belong together, and does not contain the key. But it is not a secret:
/// anyone who guesses a key can confirm the guess.
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

#[cfg(test)]
mod tests {
    use std::num::NonZeroU8;

    use super::*;

    fn rendered<P: KeyPart>(part: P) -> String {
        KeyBuilder::new().part(&part).finish().unwrap().as_str().to_owned()
    }

    /// These texts identify stored records, so none of them may ever change.
    #[test]
    fn every_type_has_the_rendering_it_always_had() {
        assert_eq!(rendered(u64::MAX), "18446744073709551615");
        assert_eq!(rendered(i8::MIN), "-128");
        assert_eq!(rendered(NonZeroU8::MIN), "1");
        assert_eq!(rendered(true), "true");
        assert_eq!(rendered('/'), "%2F");
        assert_eq!(rendered("a/b c~ä"), "a%2Fb%20c~%C3%A4");
        assert_eq!(rendered(String::from("A_.-9")), "A_.-9");
        assert_eq!(rendered((1_u8, "a/b", ('x', false))), "1/a%2Fb/x/false");
        assert_eq!(rendered(Cow::Borrowed("a:b")), "a%3Ab");
        assert_eq!(rendered(Arc::new(Box::new(7_u8))), "7");
        assert_eq!(rendered(Key::new("order/4%2F2").unwrap()), "order/4%2F2");
        assert_eq!(rendered((Key::new("order/4%2F2").unwrap(), 1_u8)), "order%2F4%252F2/1");
        assert_eq!(KeyBuilder::new().part(&Key::new("a/b").unwrap()).part(&1_u8).text, "a%2Fb1");
    }
}
