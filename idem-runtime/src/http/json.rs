//! The canonical form of a JSON body, if the body is unambiguous.
//!
//! Owns the rule which JSON is unambiguous. A library implements RFC 8785 itself.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use crate::fingerprint::LARGEST_EXACT;

/// How many values a body may have, including nested ones. Each value takes many times the memory of its text.
const MOST_VALUES: usize = 50_000;

/// With its feature `arbitrary_precision` in the user's build, `serde_json` represents a number as an object with this
/// member. Such a number cannot be distinguished from a real object of that form.
const NUMBER: &str = "$serde_json::private::Number";

/// A member of a JSON document, by its pointer.
#[derive(Clone, Debug)]
pub(super) struct Member(pub(super) String);

impl Member {
    pub(super) fn remove_from(&self, document: &mut Value) {
        let Some((parent, name)) = self.0.rsplit_once('/') else { return };
        if let Some(Value::Object(members)) = document.pointer_mut(parent) {
            members.remove(&name.replace("~1", "/").replace("~0", "~"));
        }
    }
}

/// The canonical JSON (RFC 8785) of `body` without `left_out`; `None` if it is not JSON, or could be read in two ways
/// (members of one name, a number that a double cannot represent, a lone surrogate), or has more than [`MOST_VALUES`].
pub(super) fn canonical(body: &[u8], left_out: &[Member]) -> Option<Vec<u8>> {
    let mut seen = Seen { left: MOST_VALUES, plain: true };
    let mut json = serde_json::Deserializer::from_slice(body);
    let mut value = Unambiguous(&mut seen).deserialize(&mut json).ok()?;
    json.end().ok()?;
    if !seen.plain && !numbers(body).all(is_carried) {
        return None;
    }
    for member in left_out {
        member.remove_from(&mut value);
    }
    if seen.plain {
        // In a build with serde_json's feature `preserve_order` the members are as they came.
        value.sort_all_objects();
        serde_json::to_vec(&value).ok()
    } else {
        serde_json_canonicalizer::to_vec(&value).ok()
    }
}

/// What is known of a document while it is read.
struct Seen {
    /// How many more values may come.
    left: usize,
    /// Whether all numbers are integers that a double represents and all names are ASCII. RFC 8785 then asks for what `serde_json`
    /// writes, in the order of the bytes of the names, and that takes a fifth of the library's time.
    plain: bool,
}

/// Reads JSON, and fails if an object has two members of one name.
struct Unambiguous<'a>(&'a mut Seen);

impl<'de> DeserializeSeed<'de> for Unambiguous<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.0.left = self.0.left.checked_sub(1).ok_or_else(|| D::Error::custom("too many values"))?;
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
        self.0.plain &= value.unsigned_abs() <= LARGEST_EXACT;
        Ok(Value::from(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        self.0.plain &= value <= LARGEST_EXACT;
        Ok(Value::from(value))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        self.0.plain = false;
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("a number that is not finite"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
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
            self.0.plain &= name.is_ascii();
            let value = entries.next_value_seed(Unambiguous(self.0))?;
            if members.insert(name, value).is_some() {
                return Err(A::Error::custom("two members of one name"));
            }
        }
        Ok(Value::Object(members))
    }
}

/// The numbers in valid JSON, as they are written.
fn numbers(json: &[u8]) -> impl Iterator<Item = &str> {
    let mut rest = json;
    std::iter::from_fn(move || {
        loop {
            let (&first, after) = rest.split_first()?;
            match first {
                b'"' => rest = after_string(after),
                b'-' | b'0'..=b'9' => {
                    let part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
                    let end = rest.iter().position(|byte| !part(byte)).unwrap_or(rest.len());
                    let (number, others) = rest.split_at(end);
                    rest = others;
                    return std::str::from_utf8(number).ok();
                }
                _ => rest = after,
            }
        }
    })
}

fn after_string(mut rest: &[u8]) -> &[u8] {
    while let Some((&first, after)) = rest.split_first() {
        rest = match first {
            b'"' => return after,
            b'\\' => after.get(1..).unwrap_or_default(),
            _ => after,
        };
    }
    rest
}

/// Whether a double represents this number: its shortest text is the same number.
fn is_carried(text: &str) -> bool {
    let Ok(double) = text.parse::<f64>() else { return false };
    let Some(written) = Decimal::read(text) else { return false };
    double.is_finite() && Decimal::read(&format!("{double:e}")) == Some(written)
}

/// A number as it is written: 0.`digits` times ten to the power `exponent`, without leading or trailing zeros.
#[derive(PartialEq)]
struct Decimal {
    negative: bool,
    digits: String,
    exponent: i64,
}

impl Decimal {
    fn read(text: &str) -> Option<Self> {
        let (negative, text) = text.strip_prefix('-').map_or((false, text), |text| (true, text));
        let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let all = format!("{whole}{fraction}");
        let digits = all.trim_start_matches('0');
        if digits.is_empty() {
            return Some(Self { negative: false, digits: String::new(), exponent: 0 });
        }
        let leading = i64::try_from(all.len() - digits.len()).ok()?;
        let point = i64::try_from(whole.len()).ok()?;
        let exponent = exponent.parse::<i64>().ok()?.checked_add(point)?.checked_sub(leading)?;
        Some(Self { negative, digits: digits.trim_end_matches('0').to_owned(), exponent })
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
            (r#"{"a":1,"b":2}"#, " { \"b\" : 2.0 ,\n\"a\": 1e0 } "),
            (r#"{"a":"\u00e9\/"}"#, "{\"a\":\"\u{e9}/\"}"),
            ("[1.10]", "[1.1]"),
            ("[100]", "[1E+2]"),
            ("[0.000001]", "[1e-6]"),
            ("[100000000000000000000]", "[1e20]"),
            ("[9007199254740992]", "[9007199254740992.0]"),
            (r#""\ud83d\ude00""#, "\"\u{1f600}\""),
        ] {
            let canonical = canonical_text(one);
            assert!(canonical.is_some(), "{one}");
            assert_eq!(canonical, canonical_text(other), "{one} {other}");
        }
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
            "[9007199254740993]",
            "[-9007199254740993]",
            "[18446744073709551617]",
            "[0.10000000000000000001]",
            "[1.00000000000000000001]",
            "[1e400]",
            "[-1e400]",
            "[1e-400]",
            "[1e99999999999999999999]",
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

    #[test]
    fn digits_in_a_text_are_no_number() {
        assert!(canonical_text(r#"{"9007199254740993":"\"9007199254740993\\"}"#).is_some());
    }

    /// Documents of the kinds of values that are written in two ways.
    fn documents() -> impl Strategy<Value = Value> {
        let name = "[a-c\u{e9}\u{20ac}\u{1f600}\u{fb33}\"\\\\/\u{0}-\u{20}]{0,4}";
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (-9_007_199_254_740_992_i64..=9_007_199_254_740_992).prop_map(Value::from),
            (-100_i64..100).prop_map(Value::from),
            (-100.0_f64..100.0).prop_map(Value::from),
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
        fn the_canonical_form_is_the_librarys_whoever_writes_it(document in documents()) {
            let canonical = canonical(document.to_string().as_bytes(), &[]);
            prop_assert_eq!(canonical, serde_json_canonicalizer::to_vec(&document).ok());
        }

        #[test]
        fn every_double_is_carried_by_its_own_text(double in proptest::num::f64::NORMAL | proptest::num::f64::ZERO) {
            let texts = [double.to_string(), format!("{double:e}")];
            prop_assert!(texts.iter().all(|text| is_carried(text)));
        }

        #[test]
        fn every_double_comes_through_the_canonical_form(double in proptest::num::f64::NORMAL) {
            let canonical = canonical_text(&format!("{double:e}"));
            prop_assert_eq!(canonical.and_then(|text| text.parse::<f64>().ok()), Some(double));
        }

        #[test]
        fn of_two_integers_that_are_carried_no_double_is_the_same(one: i64, offset in 1_i64..64) {
            let other = one.wrapping_add(offset);
            let [one, other] = [one, other].map(|integer| integer.to_string());
            let same = one.parse::<f64>() == other.parse::<f64>();
            prop_assert!(!same || !is_carried(&one) || !is_carried(&other));
        }

        #[test]
        fn an_integer_up_to_2_to_the_53_is_carried(integer in -(1_i64 << 53)..=1 << 53) {
            prop_assert!(is_carried(&integer.to_string()));
        }
    }
}
