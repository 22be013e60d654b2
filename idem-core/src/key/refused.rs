//! Types that cannot be part of a key, with the reason.
//!
//! Each of these types has an impl of `KeyPart` with a bound that never holds. If a program uses the type in
//! a key, rustc shows the message of the trait in that bound. If the bound were on the type itself, rustc
//! would show the message of `KeyPart`. So the bound is on `&Key`. Without the lifetime (`for<'never>`),
//! rustc would report the bound here, at the impl, and not at the use.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant, SystemTime};

use super::{Key, KeyBuilder, KeyPart};

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
