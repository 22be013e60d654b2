//! The canonical form of a JSON body, if the body is unambiguous.
//!
//! Owns the rule for which JSON is unambiguous. `serde_json` sorts the members and writes the canonical form.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// How many values a body may have, including nested values. There is a limit because a value in memory takes
/// many times the bytes of its text.
const MOST_VALUES: usize = 50_000;

/// If the user's build enables the feature `arbitrary_precision` of `serde_json`, then `serde_json`
/// represents a number as an object with this member. Such a number cannot be distinguished from a real
/// object of that form.
const NUMBER: &str = "$serde_json::private::Number";

/// The JSON of `body` with sorted members, without white space, and without the members at the pointers
/// `left_out`.
///
/// `None` in four cases: `body` is not JSON, has more than [`MOST_VALUES`] values, has a number that is not
/// an integer of 64 bits, or could be read in two ways. There are two ways to read it if an object has two
/// members of one name or the member [`NUMBER`], or if a text has a lone surrogate.
///
/// Exception: if `left_out` is not empty, all numbers are allowed, because otherwise no member could be left
/// out of a body that has a fraction. Numbers that are not integers of 64 bits are then read as doubles, so
/// two different numbers may become the same double.
pub(super) fn canonical(body: &[u8], left_out: &[String]) -> Option<Vec<u8>> {
    let mut traits = Traits { values_left: MOST_VALUES, has_doubles: false };
    let mut json = serde_json::Deserializer::from_slice(body);
    let mut value = Unambiguous(&mut traits).deserialize(&mut json).ok()?;
    json.end().ok()?;
    if traits.has_doubles && left_out.is_empty() {
        return None;
    }
    for pointer in left_out {
        if let Some((parent, name)) = pointer.rsplit_once('/')
            && let Some(Value::Object(members)) = value.pointer_mut(parent)
        {
            members.remove(&name.replace("~1", "/").replace("~0", "~"));
        }
    }
    // Needed in a build with serde_json's feature `preserve_order`, where the members are still in the order
    // of the body.
    value.sort_all_objects();
    serde_json::to_vec(&value).ok()
}

/// Facts about a document, collected while it is read.
struct Traits {
    /// How many more values are allowed.
    values_left: usize,
    /// Whether the document has a number that is not an integer of 64 bits.
    has_doubles: bool,
}

/// Reads JSON. Fails if an object has two members of one name or the member [`NUMBER`], or if there are too
/// many values.
struct Unambiguous<'a>(&'a mut Traits);

impl<'de> DeserializeSeed<'de> for Unambiguous<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.0.values_left =
            self.0.values_left.checked_sub(1).ok_or_else(|| D::Error::custom("too many values"))?;
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Unambiguous<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        self.0.has_doubles = true;
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("a number that is not finite"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = items.next_element_seed(Unambiguous(self.0))? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut members = Map::new();
        while let Some(name) = entries.next_key::<String>()? {
            if name == NUMBER {
                return Err(A::Error::custom("a number, or an object that looks like one"));
            }
            let value = entries.next_value_seed(Unambiguous(self.0))?;
            if members.insert(name, value).is_some() {
                return Err(A::Error::custom("two members of one name"));
            }
        }
        Ok(Value::Object(members))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn canonical_text(body: &str) -> Option<String> {
        canonical(body.as_bytes(), &[]).map(|bytes| String::from_utf8(bytes).unwrap())
    }

    #[test]
    fn spelling_does_not_matter_where_the_meaning_is_one() {
        for (one, other) in [
            (r#"{"a":1,"b":{"d":2,"c":-3}}"#, " { \"b\" : {\"c\":-3,\"d\":2} ,\n\"a\": 1 } "),
            (r#"{"a":"\u00e9\/"}"#, "{\"a\":\"\u{e9}/\"}"),
            (r#""\ud83d\ude00""#, "\"\u{1f600}\""),
        ] {
            let canonical = canonical_text(one);
            assert!(canonical.is_some(), "{one}");
            assert_eq!(canonical, canonical_text(other), "{one} {other}");
        }
        assert_eq!(
            canonical_text(r#"{"b":2, "a":18446744073709551615}"#).unwrap(),
            r#"{"a":18446744073709551615,"b":2}"#
        );
    }

    #[test]
    fn what_can_be_read_in_two_ways_has_no_canonical_form() {
        for body in [
            "",
            "{",
            "{} {}",
            "nul",
            r#"{"a":1,"a":1}"#,
            r#"[{"b":{"a":1,"\u0061":2}}]"#,
            "[18446744073709551617]",
            "[0.1]",
            "[1.0]",
            "[1e400]",
            r#""\ud800""#,
            r#""\udc00\ud800""#,
            "\u{feff}{}",
        ] {
            assert_eq!(canonical_text(body), None, "{body}");
        }
        assert_eq!(canonical(b"\"\xff\"", &[]), None);
        assert_eq!(canonical("[".repeat(10_000).as_bytes(), &[]), None);
    }

    #[test]
    fn a_body_of_more_values_than_are_built_has_no_canonical_form() {
        let flat = |items: usize| format!("[{}0]", "0,".repeat(items - 1));
        let named = |items: usize| {
            let members: Vec<_> = (0..items).map(|number| format!("\"{number}\":{{}}")).collect();
            format!("{{{}}}", members.join(","))
        };
        for of in [&flat as &dyn Fn(usize) -> String, &named] {
            // The array around the items is a value too.
            assert!(canonical_text(&of(MOST_VALUES - 1)).is_some());
            assert_eq!(canonical_text(&of(MOST_VALUES)), None);
        }
        let nested = format!("[{}]", vec![flat(MOST_VALUES / 2); 2].join(","));
        assert_eq!(canonical_text(&nested), None);
    }

    #[test]
    fn an_object_that_passes_for_a_number_in_some_builds_has_no_canonical_form() {
        assert_eq!(canonical_text(r#"{"a":{"$serde_json::private::Number":"1.5"}}"#), None);
        assert!(canonical_text(r#"{"a":{"$serde_json::private::number":"1.5"}}"#).is_some());
    }

    /// Documents without doubles. Their names and texts have characters that JSON must or may escape.
    fn documents() -> impl Strategy<Value = Value> {
        let name = "[a-c\u{e9}\u{20ac}\u{1f600}\u{fb33}\"\\\\/\u{0}-\u{20}]{0,4}";
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            name.prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 24, 4, move |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::hash_map(name, inner, 0..4)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn two_documents_have_one_canonical_form_only_if_they_are_equal(one in documents(), other in documents()) {
            let of = |document: &Value| canonical(document.to_string().as_bytes(), &[]);
            let pretty = serde_json::to_string_pretty(&one).unwrap();
            prop_assert_eq!(of(&one), canonical(pretty.as_bytes(), &[]));
            prop_assert_eq!(of(&one) == of(&other), one == other);
        }
    }
}
