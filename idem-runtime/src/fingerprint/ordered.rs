//! Refuses hash sets in fingerprinted values, at any depth.
//!
//! A hash set serializes in its iteration order, and equal sets may have different orders. So a retry would
//! look like a call with other arguments. Serialization can distinguish a set from a list only by the name of
//! its type. If the compiler prints this name in another way, the set is not refused, and nothing else
//! changes.

use std::any::type_name;

use serde::ser::{
    Error as _, Serialize, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant,
    SerializeTuple, SerializeTupleStruct, SerializeTupleVariant, Serializer,
};

/// The error of a serialization that found a hash set.
pub(super) const HASH_SET: &str = "idem: a hash set in a fingerprint";

/// A value that fails to serialize if it contains a hash set.
pub(super) struct Ordered<'v, T: ?Sized>(pub(super) &'v T);

impl<T: Serialize + ?Sized> Serialize for Ordered<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if is_hash_set(type_name::<T>()) {
            return Err(S::Error::custom(HASH_SET));
        }
        self.0.serialize(Checking(serializer))
    }
}

/// The names of types that serialize exactly as the value inside them. `mut` is here for `&mut`.
const POINTERS: [&str; 12] = [
    "mut",
    "Box",
    "Rc",
    "Arc",
    "Cow",
    "Cell",
    "RefCell",
    "Mutex",
    "RwLock",
    "Reverse",
    "Saturating",
    "Wrapping",
];

/// Whether this is the name of a hash set or of a pointer to one.
fn is_hash_set(name: &str) -> bool {
    let mut names = name.split(['<', ',', '&', ' ']).map(|name| name.rsplit("::").next().unwrap_or(name));
    let first = names.find(|name| !(name.is_empty() || name.starts_with('\'') || POINTERS.contains(name)));
    first.is_some_and(|name| name.trim_end_matches('>').ends_with("HashSet") || name == "DashSet")
}

/// Passes everything to the inner serializer, and checks each value.
struct Checking<S>(S);

macro_rules! pass {
    ($($method:ident($($argument:ident: $ty:ty),*);)*) => {$(
        fn $method(self $(, $argument: $ty)*) -> Result<Self::Ok, Self::Error> {
            self.0.$method($($argument),*)
        }
    )*};
}

macro_rules! open {
    ($($method:ident($($argument:ident: $ty:ty),*) -> $part:ident;)*) => {$(
        fn $method(self, $($argument: $ty),*) -> Result<Self::$part, Self::Error> {
            self.0.$method($($argument),*).map(Checking)
        }
    )*};
}

impl<S: Serializer> Serializer for Checking<S> {
    type Ok = S::Ok;
    type Error = S::Error;
    type SerializeSeq = Checking<S::SerializeSeq>;
    type SerializeTuple = Checking<S::SerializeTuple>;
    type SerializeTupleStruct = Checking<S::SerializeTupleStruct>;
    type SerializeTupleVariant = Checking<S::SerializeTupleVariant>;
    type SerializeMap = Checking<S::SerializeMap>;
    type SerializeStruct = Checking<S::SerializeStruct>;
    type SerializeStructVariant = Checking<S::SerializeStructVariant>;

    pass! {
        serialize_bool(value: bool);
        serialize_i8(value: i8);
        serialize_i16(value: i16);
        serialize_i32(value: i32);
        serialize_i64(value: i64);
        serialize_i128(value: i128);
        serialize_u8(value: u8);
        serialize_u16(value: u16);
        serialize_u32(value: u32);
        serialize_u64(value: u64);
        serialize_u128(value: u128);
        serialize_f32(value: f32);
        serialize_f64(value: f64);
        serialize_char(value: char);
        serialize_str(value: &str);
        serialize_bytes(value: &[u8]);
        serialize_none();
        serialize_unit();
        serialize_unit_struct(name: &'static str);
        serialize_unit_variant(name: &'static str, index: u32, variant: &'static str);
    }

    open! {
        serialize_seq(length: Option<usize>) -> SerializeSeq;
        serialize_tuple(length: usize) -> SerializeTuple;
        serialize_tuple_struct(name: &'static str, length: usize) -> SerializeTupleStruct;
        serialize_tuple_variant(name: &'static str, index: u32, variant: &'static str, length: usize)
            -> SerializeTupleVariant;
        serialize_map(length: Option<usize>) -> SerializeMap;
        serialize_struct(name: &'static str, length: usize) -> SerializeStruct;
        serialize_struct_variant(name: &'static str, index: u32, variant: &'static str, length: usize)
            -> SerializeStructVariant;
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<Self::Ok, Self::Error> {
        self.0.serialize_some(&Ordered(value))
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        value: &T,
    ) -> Result<Self::Ok, Self::Error> {
        self.0.serialize_newtype_struct(name, &Ordered(value))
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<Self::Ok, Self::Error> {
        self.0.serialize_newtype_variant(name, index, variant, &Ordered(value))
    }
}

macro_rules! parts {
    ($($part:ident: $($method:ident($($name:ident)?)),+;)*) => {$(
        impl<S: $part> $part for Checking<S> {
            type Ok = S::Ok;
            type Error = S::Error;

            $(fn $method<T: Serialize + ?Sized>(
                &mut self,
                $($name: &'static str,)?
                value: &T,
            ) -> Result<(), Self::Error> {
                self.0.$method($($name,)? &Ordered(value))
            })+

            fn end(self) -> Result<Self::Ok, Self::Error> {
                self.0.end()
            }
        }
    )*};
}

parts! {
    SerializeSeq: serialize_element();
    SerializeTuple: serialize_element();
    SerializeTupleStruct: serialize_field();
    SerializeTupleVariant: serialize_field();
    SerializeStruct: serialize_field(name);
    SerializeStructVariant: serialize_field(name);
    SerializeMap: serialize_key(), serialize_value();
}
