//! Rendering of values into a key.

use std::cell::Cell;
use std::{fmt, mem};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

#[cfg(doc)]
use super::KeyPart;
use super::part::AnyPart;
use super::{Key, KeyError, MAX_KEY_BYTES};

/// Everything but `[A-Za-z0-9_.~-]`, the unreserved characters of RFC 3986 section 2.3.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'_').remove(b'.').remove(b'~').remove(b'-');

thread_local! {
    /// The buffer in which a thread renders its keys, one after another, so that only the finished key is allocated.
    static PLACE: Cell<String> = const { Cell::new(String::new()) };
}

/// A buffer with a larger capacity than this is not kept.
const LARGEST_PLACE: usize = 4 * MAX_KEY_BYTES;

/// Makes a [`Key`] of literal text and values.
///
/// Characters of values outside `[A-Za-z0-9_.~-]` are percent-encoded. Put literal text between two values, with at
/// least one character that is neither in that set nor `%`. Then the same literals with different values never give the
/// same key.
///
/// ```
/// # use idem_core as idem;
/// let key = idem::KeyBuilder::new().literal("order/").part("4/2").finish()?;
/// assert_eq!(key.as_str(), "order/4%2F2");
/// # Ok::<(), idem::KeyError>(())
/// ```
#[derive(Default)]
pub struct KeyBuilder {
    pub(super) text: String,
    missing: bool,
    /// Whether the text is one whole [`Key`], which is used unchanged if nothing is added.
    is_whole: bool,
}

impl KeyBuilder {
    /// An empty key.
    #[must_use]
    pub fn new() -> Self {
        // A thread that ends has no buffer any more.
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

    /// Adds one atomic value, encoded. Every [`KeyPart`] implementation calls this in the end. With an empty text,
    /// [`finish`](Self::finish) returns [`KeyError::Missing`].
    pub fn value(&mut self, text: &str) {
        self.begin_next();
        self.missing |= text.is_empty();
        self.text.extend(utf8_percent_encode(text, ESCAPED));
    }

    /// Adds a key: unchanged if it is the only value, encoded like any value if there are others.
    pub(super) fn whole(&mut self, key: &str) {
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
    /// [`KeyError::Missing`] if the key or a value in it is empty, [`KeyError::TooLong`] if the key is longer than
    /// 1,024 bytes.
    pub fn finish(self) -> Result<Key, KeyError> {
        if self.missing { Err(KeyError::Missing) } else { Key::new(&self.text) }
    }

    /// Beside other values, a key is encoded like any value.
    fn begin_next(&mut self) {
        if mem::take(&mut self.is_whole) {
            let key = mem::take(&mut self.text);
            self.value(&key);
        }
    }
}

impl Drop for KeyBuilder {
    fn drop(&mut self) {
        let mut place = std::mem::take(&mut self.text);
        if place.capacity() <= LARGEST_PLACE {
            place.clear();
            // A thread that is ending has no buffer to give it back to, and needs none.
            let _ = PLACE.try_with(|kept| kept.set(place));
        }
    }
}

impl fmt::Debug for KeyBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyBuilder({} bytes)", self.text.len())
    }
}
