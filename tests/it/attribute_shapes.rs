//! Tests that every valid use in `tests/ui/pass` compiles and that its functions can be called.
//!
//! They are modules of one crate, because linking a crate for each takes minutes. Uses that need a crate of their own
//! are in `tests/ui/pass/crates`.

macro_rules! shapes {
    ($(#[path = $path:literal] mod $name:ident;)*) => {
        $(
            #[path = $path]
            #[allow(
                clippy::upper_case_acronyms,
                clippy::await_holding_lock,
                clippy::redundant_allocation,
                reason = "users write them"
            )]
            mod $name;
        )*

        const NAMES: &[&str] = &[$(stringify!($name)),*];

        #[test]
        fn every_function_can_be_called() {
            $($name::main();)*
        }
    };
}

shapes! {
    #[path = "../ui/pass/all_options.rs"]
    mod all_options;
    #[path = "../ui/pass/associated_function.rs"]
    mod associated_function;
    #[path = "../ui/pass/async_trait_with_associated_types.rs"]
    mod async_trait_with_associated_types;
    #[path = "../ui/pass/body_that_diverges.rs"]
    mod body_that_diverges;
    #[path = "../ui/pass/body_with_control_flow.rs"]
    mod body_with_control_flow;
    #[path = "../ui/pass/conditional.rs"]
    mod conditional;
    #[path = "../ui/pass/const_parameter.rs"]
    mod const_parameter;
    #[path = "../ui/pass/constants_with_usual_names.rs"]
    mod constants_with_usual_names;
    #[path = "../ui/pass/derived_key_in_the_body.rs"]
    mod derived_key_in_the_body;
    #[path = "../ui/pass/destructured_arguments.rs"]
    mod destructured_arguments;
    #[path = "../ui/pass/detached_bodies.rs"]
    mod detached_bodies;
    #[path = "../ui/pass/durations.rs"]
    mod durations;
    #[path = "../ui/pass/durations_of_expressions.rs"]
    mod durations_of_expressions;
    #[path = "../ui/pass/expected_lints.rs"]
    mod expected_lints;
    #[path = "../ui/pass/fingerprints.rs"]
    mod fingerprints;
    #[path = "../ui/pass/fingerprints_of_expressions.rs"]
    mod fingerprints_of_expressions;
    #[path = "../ui/pass/free_function.rs"]
    mod free_function;
    #[path = "../ui/pass/generic_function.rs"]
    mod generic_function;
    #[path = "../ui/pass/generic_type.rs"]
    mod generic_type;
    #[path = "../ui/pass/inside_a_function.rs"]
    mod inside_a_function;
    #[path = "../ui/pass/instrumented.rs"]
    mod instrumented;
    #[path = "../ui/pass/key_functions.rs"]
    mod key_functions;
    #[path = "../ui/pass/key_of_derived_parts.rs"]
    mod key_of_derived_parts;
    #[path = "../ui/pass/key_of_every_part.rs"]
    mod key_of_every_part;
    #[path = "../ui/pass/key_of_expressions.rs"]
    mod key_of_expressions;
    #[path = "../ui/pass/key_of_one_place.rs"]
    mod key_of_one_place;
    #[path = "../ui/pass/key_of_own_impl.rs"]
    mod key_of_own_impl;
    #[path = "../ui/pass/key_of_places.rs"]
    mod key_of_places;
    #[path = "../ui/pass/key_that_may_be_missing.rs"]
    mod key_that_may_be_missing;
    #[path = "../ui/pass/lifetimes.rs"]
    mod lifetimes;
    #[path = "../ui/pass/method_by_arc.rs"]
    mod method_by_arc;
    #[path = "../ui/pass/method_by_mutable_reference.rs"]
    mod method_by_mutable_reference;
    #[path = "../ui/pass/method_by_reference.rs"]
    mod method_by_reference;
    #[path = "../ui/pass/method_by_value.rs"]
    mod method_by_value;
    #[path = "../ui/pass/method_of_async_trait.rs"]
    mod method_of_async_trait;
    #[path = "../ui/pass/method_of_trait.rs"]
    mod method_of_trait;
    #[path = "../ui/pass/mutable_argument.rs"]
    mod mutable_argument;
    #[path = "../ui/pass/not_send.rs"]
    mod not_send;
    #[path = "../ui/pass/on_one_line.rs"]
    mod on_one_line;
    #[path = "../ui/pass/out_of_a_macro.rs"]
    mod out_of_a_macro;
    #[path = "../ui/pass/public_function.rs"]
    mod public_function;
    #[path = "../ui/pass/raw_identifiers.rs"]
    mod raw_identifiers;
    #[path = "../ui/pass/recover.rs"]
    mod recover;
    #[path = "../ui/pass/recursive.rs"]
    mod recursive;
    #[path = "../ui/pass/return_types.rs"]
    mod return_types;
    #[path = "../ui/pass/return_types_of_traits.rs"]
    mod return_types_of_traits;
    #[path = "../ui/pass/spawned_and_joined.rs"]
    mod spawned_and_joined;
    #[path = "../ui/pass/store_behind_deref.rs"]
    mod store_behind_deref;
    #[path = "../ui/pass/store_behind_pointers.rs"]
    mod store_behind_pointers;
    #[path = "../ui/pass/store_of_any_kind.rs"]
    mod store_of_any_kind;
    #[path = "../ui/pass/store_of_expression.rs"]
    mod store_of_expression;
    #[path = "../ui/pass/terminal_functions.rs"]
    mod terminal_functions;
}

#[test]
fn no_shape_is_forgotten() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../ui/pass");
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let files = entries.filter(|path| path.extension().is_some_and(|extension| extension == "rs"));
    let mut names: Vec<String> =
        files.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect();
    names.sort();
    assert_eq!(names, NAMES);
}
