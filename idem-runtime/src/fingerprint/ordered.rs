//! Refuses hash sets in fingerprinted values, at any depth.
//!
//! A hash set serializes in its iteration order, which differs between equal sets, so a retry would look like a call
//! with other arguments. Serialization can distinguish a set from a list only by the name of its type. The name is only
//! used to refuse: if the compiler prints the name in another way, the set is not refused.

use std::any::type_name;
use std::fmt::Display;

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

/// Whether this is the name of a hash set or of a pointer to one.
fn is_hash_set(name: &str) -> bool {
    let name = name.trim_start_matches(['&', ' ']);
    let name = name.strip_prefix("mut ").unwrap_or(name);
    let (path, arguments) = name.split_once('<').unwrap_or((name, ""));
    let last = path.rsplit("::").next().unwrap_or(path);
    match last {
        "Box" | "Rc" | "Arc" | "Cow" | "Cell" | "RefCell" | "Mutex" | "RwLock" | "Reverse" | "Saturating"
        | "Wrapping" => {
            let inner = arguments.split_once(", ").filter(|(first, _)| first.starts_with('\''));
            is_hash_set(inner.map_or(arguments, |(_, inner)| inner))
        }
        last => last.ends_with("HashSet") || last == "DashSet",
    }
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

    fn collect_str<T: Display + ?Sized>(self, value: &T) -> Result<Self::Ok, Self::Error> {
        self.0.collect_str(value)
    }

    fn is_human_readable(&self) -> bool {
        self.0.is_human_readable()
    }
}

macro_rules! unnamed {
    ($($part:ident::$method:ident;)*) => {$(
        impl<S: $part> $part for Checking<S> {
            type Ok = S::Ok;
            type Error = S::Error;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Self::Error> {
                self.0.$method(&Ordered(value))
            }

            fn end(self) -> Result<Self::Ok, Self::Error> {
                self.0.end()
            }
        }
    )*};
}

unnamed! {
    SerializeSeq::serialize_element;
    SerializeTuple::serialize_element;
    SerializeTupleStruct::serialize_field;
    SerializeTupleVariant::serialize_field;
}

macro_rules! named {
    ($($part:ident)*) => {$(
        impl<S: $part> $part for Checking<S> {
            type Ok = S::Ok;
            type Error = S::Error;

            fn serialize_field<T: Serialize + ?Sized>(
                &mut self,
                name: &'static str,
                value: &T,
            ) -> Result<(), Self::Error> {
                self.0.serialize_field(name, &Ordered(value))
            }

            fn skip_field(&mut self, name: &'static str) -> Result<(), Self::Error> {
                self.0.skip_field(name)
            }

            fn end(self) -> Result<Self::Ok, Self::Error> {
                self.0.end()
            }
        }
    )*};
}

named!(SerializeStruct SerializeStructVariant);

impl<S: SerializeMap> SerializeMap for Checking<S> {
    type Ok = S::Ok;
    type Error = S::Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Self::Error> {
        self.0.serialize_key(&Ordered(key))
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Self::Error> {
        self.0.serialize_value(&Ordered(value))
    }

    fn end(self) -> Result<Self::Ok, Self::Error> {
        self.0.end()
    }
}
