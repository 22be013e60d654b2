//! Tests that two calls share a key only if all values in it are equal.
//!
//! Most values consist of a few characters that a rendering may use itself, as separators or escapes. So if a
//! rendering is not injective, two values soon give the same key.

use idem::{KeyBuilder, KeyPart};
use proptest::prelude::*;

#[derive(Clone, Debug, PartialEq, KeyPart)]
struct Tenant(String);

#[derive(Clone, Debug, PartialEq, KeyPart)]
struct Line {
    tenant: Tenant,
    number: u8,
}

#[derive(Clone, Debug, PartialEq, KeyPart)]
enum Place {
    Nowhere,
    Shop(Tenant),
    #[key_part(rename = "Shop/a")]
    Shelf(Tenant, u8),
    Web {
        host: String,
        page: Box<Place>,
    },
    #[key_part(rename = "a")]
    Line(Line),
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![6 => "[/a]{1,3}", 3 => "(%2F|/|a|%){1,3}", 1 => "[/%:,2Fab. \u{0}é-]{1,4}", 1 => "\\PC{1,6}"]
}

fn tenant() -> impl Strategy<Value = Tenant> {
    text().prop_map(Tenant)
}

fn line() -> impl Strategy<Value = Line> {
    (tenant(), 0..30_u8).prop_map(|(tenant, number)| Line { tenant, number })
}

/// Values of `Place` whose data often looks like the name of another variant.
fn place() -> impl Strategy<Value = Place> {
    let name = || prop_oneof![tenant(), "(Nowhere|Shop|Shelf|Web|a)(/a)?".prop_map(Tenant)];
    let flat = prop_oneof![
        Just(Place::Nowhere),
        name().prop_map(Place::Shop),
        (name(), 0..3_u8).prop_map(|(name, shelf)| Place::Shelf(name, shelf)),
        line().prop_map(Place::Line),
    ];
    flat.prop_recursive(2, 4, 1, move |page| {
        (name(), page).prop_map(|(Tenant(host), page)| Place::Web { host, page: Box::new(page) })
    })
}

/// Valid text between two placeholders of a template.
fn separator() -> impl Strategy<Value = String> {
    ("[a%2.-]{0,2}", "[/:#|, ]", "[a%2.-]{0,2}")
        .prop_map(|(before, between, after)| before + &between + &after)
}

fn alone<P: KeyPart>(value: &P) -> String {
    KeyBuilder::new().part(value).finish().unwrap().as_str().to_owned()
}

#[test]
fn a_variant_is_its_name_and_then_its_data() {
    for (place, text) in [
        (Place::Web { host: "a".into(), page: Box::new(Place::Nowhere) }, "Web/a/Nowhere"),
        (Place::Shop(Tenant("a/b".into())), "Shop/a%2Fb"),
        (Place::Shelf(Tenant("x".into()), 1), "Shop%2Fa/x/1"),
    ] {
        assert_eq!(alone(&place), text);
    }
}

/// Asserts that two values give the same key if and only if they are equal.
fn told_apart<P: KeyPart + PartialEq>(one: &P, other: &P) -> Result<(), TestCaseError> {
    prop_assert_eq!(alone(one) == alone(other), one == other);
    Ok(())
}

/// Two values that are often equal.
fn two<T: Clone + std::fmt::Debug>(value: impl Strategy<Value = T> + Clone) -> impl Strategy<Value = (T, T)> {
    prop_oneof![
        4 => (value.clone(), value.clone()),
        1 => value.prop_map(|value| (value.clone(), value)),
    ]
}

/// Two pairs that would give the same key if the boundary between the values were lost.
fn boundary_moved(sign: impl Strategy<Value = String>) -> impl Strategy<Value = [(String, String); 2]> {
    (text(), text(), text(), sign).prop_map(|(first, middle, last, sign)| {
        let begins = (first.clone() + &sign + &middle, last.clone());
        [begins, (first, middle + &sign + &last)]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// Variants are told apart even if the text after a variant looks like data of the variant.
    #[test]
    fn variants_with_data_are_told_apart(
        place in two(place().boxed()),
        before in two((text(), place()).boxed()),
        after in two((place(), text(), place()).boxed()),
        moved in boundary_moved("[/a.~_-]"),
    ) {
        told_apart(&place.0, &place.1)?;
        told_apart(&before.0, &before.1)?;
        told_apart(&after.0, &after.1)?;
        told_apart(&moved[0], &moved[1])?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn values_in_a_template_are_told_apart(
        begin in text(),
        (between, moved) in separator().prop_flat_map(|sign| (Just(sign.clone()), boundary_moved(Just(sign)))),
        end in text(),
        values in two((text(), text()).boxed()),
    ) {
        let key = |(first, second): &(String, String)| {
            let key = KeyBuilder::new().literal(&begin).part(first).literal(&between).part(second).literal(&end);
            key.finish().unwrap().as_str().to_owned()
        };
        prop_assert_eq!(key(&values.0) == key(&values.1), values.0 == values.1);
        prop_assert!(key(&moved[0]) != key(&moved[1]) || moved[0] == moved[1]);
    }
}
