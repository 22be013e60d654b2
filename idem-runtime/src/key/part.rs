//! Which types may stand in a key.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::num::NonZero;
use std::rc::Rc;
use std::sync::Arc;

use super::{Key, KeyBuilder};

/// A value that may stand in a key: its rendering is stable, and equal only for equal values.
///
/// It is not implemented for everything that is `Display`, because most such renderings keep
/// neither promise. Integers, `bool`, `char`, strings, non-zero integers, tuples of two to eight
/// parts, references and smart pointers to parts, and `uuid::Uuid` (feature `uuid`) are; derive it
/// for your own newtypes, structs and fieldless enums.
///
/// ```
/// # use idem_runtime as idem;
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
    /// Adds this value to the key: each atomic value by [`KeyBuilder::value`], and a
    /// [`KeyBuilder::separator`] between two. For one type, always the same number of values.
    fn render(&self, key: &mut KeyBuilder);
}

macro_rules! integers {
    ($($ty:ty)*) => {$(
        impl KeyPart for $ty {
            fn render(&self, key: &mut KeyBuilder) {
                decimal(key, *self);
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

fn decimal(key: &mut KeyBuilder, number: impl std::fmt::Display) {
    // Digits and `-` need no encoding, and writing to a `String` cannot fail.
    let _ = write!(key.text, "{number}");
}

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

/// A key as a part of another is a value like any text.
impl KeyPart for Key {
    fn render(&self, key: &mut KeyBuilder) {
        key.value(self.as_str());
    }
}

#[cfg(feature = "uuid")]
impl KeyPart for uuid::Uuid {
    fn render(&self, key: &mut KeyBuilder) {
        key.value(self.hyphenated().encode_lower(&mut uuid::Uuid::encode_buffer()));
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
