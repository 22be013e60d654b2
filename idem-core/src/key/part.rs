//! Which types can be part of a key.

use std::borrow::Cow;
use std::num::NonZero;
use std::rc::Rc;
use std::sync::Arc;

use super::{Key, KeyBuilder};

/// A value that can be part of a key. Its rendering is stable, and two values have the same rendering only if they are
/// equal.
///
/// It is not implemented for every type that is `Display`, because most of those renderings keep neither promise. It is
/// implemented for integers, non-zero integers, `bool`, `char`, strings, tuples of two to eight parts, and references
/// and smart pointers to parts. With the feature named after the crate, it is implemented for `uuid::Uuid`,
/// `ulid::Ulid`, `rust_decimal::Decimal`, and the dates `chrono::NaiveDate`, `jiff::civil::Date` and `time::Date`.
/// Derive it for your own newtypes, structs and enums.
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
    /// Adds this value to the key: each atomic value with [`KeyBuilder::value`], and a [`KeyBuilder::separator`]
    /// between two values. A type must always add the same number of values, or its first values must determine the
    /// number, as the variant of an enum does.
    fn render(&self, key: &mut KeyBuilder);
}

/// Every [`KeyPart`], as the bound of functions. rustc lists the impls of the trait that a function asks for.
/// This trait has one impl, for all types, so rustc lists none; the impls of `KeyPart` include the
/// [`refused`] types.
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

/// As a part of another key, a key is encoded like any text. As the only value, it is used as it is.
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

/// Types that cannot be part of a key, with the reason. Each has an impl under a bound that never holds and carries the
/// message. The bound is on another type, because for the same type rustc prefers the message of `KeyPart`. The bound
/// has a lifetime, so that rustc does not check it where it is written.
macro_rules! refused {
    ($($reason:ident($label:literal, $note:literal): $([$($generics:tt)*] $ty:ty;)+)*) => {$(
        #[diagnostic::on_unimplemented(message = "`{T}` cannot be part of a key", label = $label, note = $note)]
        pub trait $reason<T: ?Sized> {}

        $(
            #[doc(hidden)]
            impl<$($generics)*> KeyPart for $ty
            where
                for<'never> &'never Key: $reason<$ty>,
            {
                fn render(&self, _: &mut KeyBuilder) {}
            }
        )+
    )*};
}

mod refused {
    use std::collections::{HashMap, HashSet};
    use std::time::{Duration, Instant, SystemTime};

    use super::{Key, KeyBuilder, KeyPart};

    #[cfg(feature = "secrecy")]
    refused! {
        IsNoSecret(
            "a secret is not kept in a store",
            "a key is kept as it is, for as long as its record: use an identifier of what the secret belongs to"
        ):
            [S: secrecy::zeroize::Zeroize + ?Sized] secrecy::SecretBox<S>;
    }

    refused! {
        IsNoFloat(
            "a float has no one rendering",
            "two computations of the same amount may differ in the last digit, and NaN differs from itself: \
             use a whole number of the smallest unit, such as cents"
        ):
            [] f32;
            [] f64;
        IsAlwaysThere(
            "this may be missing",
            "all calls without a value would share one key: write `missing_key = \"reject\"` in the attribute to \
             refuse them, or `missing_key = \"run\"` to run their body unprotected; elsewhere take the value out \
             before the call"
        ):
            [T] Option<T>;
        HasFixedLength(
            "a collection has no fixed number of values",
            "two different collections could give the same key: use an identifier of what it stands for"
        ):
            [T] Vec<T>;
            [T] [T];
            [T, const N: usize] [T; N];
            [T, S] HashSet<T, S>;
            [K, V, S] HashMap<K, V, S>;
        IsNoTime(
            "a time is no identity",
            "a duplicate comes at another time, and a rounded time is shared by calls that are no duplicates: \
             use an identifier; where the time itself is meant, a whole number of it, such as its milliseconds"
        ):
            [] Duration;
            [] Instant;
            [] SystemTime;
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
    }
}
