//! Keys in which a value may be missing.
//!
//! Owns how generated code makes such a key. The type of the key says whether a value in it can be missing.
//! If none can be missing, the option `missing_key` does not compile.

use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::Arc;

use idem_core::{AnyPart, KeyBuilder, KeyPart};

/// Whether a piece of a key, or any piece of a whole key, can be missing.
pub trait Presence {
    /// The presence of a key after a piece with this presence was added to it. `Before` is the presence that
    /// the key had before.
    type After<Before>;
}

/// The presence of a piece that is not an `Option`: never missing.
#[derive(Debug)]
pub struct Always;

/// The presence of an `Option`: missing if it is `None`.
#[derive(Debug)]
pub struct Sometimes;

impl Presence for Always {
    type After<Before> = Before;
}

impl Presence for Sometimes {
    type After<Before> = Self;
}

/// A [`KeyPart`], an `Option` of one, or a pointer to such an `Option`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be part of a key",
    label = "this is no `KeyPart`, and no `Option` of one",
    note = "a key is there or missing: an `Option` in it holds what may stand in a key, and no second `Option`; flatten it"
)]
pub trait Piece<P> {
    /// Adds the piece to the key, and returns whether the piece was there.
    fn add(&self, key: &mut KeyBuilder) -> bool;
}

impl<T: KeyPart + ?Sized> Piece<Always> for T {
    fn add(&self, key: &mut KeyBuilder) -> bool {
        AnyPart::add_to(self, key);
        true
    }
}

impl<T: KeyPart> Piece<Sometimes> for Option<T> {
    fn add(&self, key: &mut KeyBuilder) -> bool {
        let Some(part) = self else { return false };
        AnyPart::add_to(part, key);
        true
    }
}

/// The bound of functions that take any [`Piece`]. If a bound does not hold, rustc lists the impls of its
/// trait. This trait has only one impl, for all types, so rustc lists none.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be part of a key",
    label = "this is no `KeyPart`, and no `Option` of one",
    note = "a key is there or missing: an `Option` in it holds what may stand in a key, and no second `Option`; flatten it"
)]
pub trait AnyPiece<P> {
    /// As [`Piece::add`].
    fn add_to(&self, key: &mut KeyBuilder) -> bool;
}

impl<P, T: Piece<P> + ?Sized> AnyPiece<P> for T {
    fn add_to(&self, key: &mut KeyBuilder) -> bool {
        self.add(key)
    }
}

// One impl for each pointer type, because one impl for all of them would hide the message that rustc shows
// for a float.
macro_rules! pointers {
    ($($ty:ty)*) => {$(
        #[diagnostic::do_not_recommend]
        impl<T: KeyPart> Piece<Sometimes> for $ty {
            fn add(&self, key: &mut KeyBuilder) -> bool {
                (**self).add(key)
            }
        }
    )*};
}

pointers!(&Option<T> &mut Option<T> Box<Option<T>> Arc<Option<T>> Rc<Option<T>>);

/// A key in which a value can be missing, so that `missing_key` makes sense.
#[diagnostic::on_unimplemented(
    message = "no value in this key can be missing",
    label = "this decides nothing: leave `missing_key` out",
    note = "it is for a key with an `Option` in it"
)]
pub trait MayBeMissing {}

impl MayBeMissing for Sometimes {}

/// Builds a key in which a value may be missing.
#[derive(Debug)]
pub struct OptionalKey<P = Always> {
    key: KeyBuilder,
    there: bool,
    presence: PhantomData<fn() -> P>,
}

impl OptionalKey {
    /// An empty key.
    #[expect(clippy::new_without_default, reason = "only generated code makes one")]
    #[must_use]
    pub fn new() -> Self {
        Self { key: KeyBuilder::new(), there: true, presence: PhantomData }
    }
}

impl<P> OptionalKey<P> {
    /// Adds text as it is.
    #[must_use]
    pub fn literal(mut self, text: &str) -> Self {
        self.key = self.key.literal(text);
        self
    }

    /// Adds a value that may be missing, or a value that is always there.
    pub fn part<Q: Presence, T: AnyPiece<Q> + ?Sized>(mut self, part: &T) -> OptionalKey<Q::After<P>> {
        self.there &= part.add_to(&mut self.key);
        OptionalKey { key: self.key, there: self.there, presence: PhantomData }
    }

    /// The key. If a value in it is missing, the whole key is missing, and the call is refused.
    pub fn reject_missing(mut self) -> KeyBuilder
    where
        P: MayBeMissing,
    {
        if !self.there {
            // An empty value makes the whole key missing.
            self.key.value("");
        }
        self.key
    }

    /// As [`reject_missing`](Self::reject_missing), but a call with a missing key runs unguarded.
    pub fn run_missing(self) -> CallKey
    where
        P: MayBeMissing,
    {
        CallKey { unguarded: !self.there, key: self.key }
    }
}

/// The key of one call, and whether the call runs unguarded because the key is missing.
#[derive(Debug)]
pub struct CallKey {
    pub(crate) key: KeyBuilder,
    pub(crate) unguarded: bool,
}

impl From<KeyBuilder> for CallKey {
    fn from(key: KeyBuilder) -> Self {
        Self { key, unguarded: false }
    }
}
