//! Tests that every valid use in `tests/ui/pass` compiles and that its functions can be called.
//!
//! They are modules of one crate, because linking a crate for each takes minutes. Uses that need a crate of their own
//! are in `tests/ui/pass/crates`.

/// The functions of these files, one module each.
macro_rules! shapes {
    ($($name:ident)*) => {
        #[path = "../ui/pass"]
        #[allow(
            clippy::upper_case_acronyms,
            clippy::await_holding_lock,
            clippy::redundant_allocation,
            reason = "users write them"
        )]
        mod pass {
            $(mod $name;)*

            #[test]
            fn every_function_can_be_called() {
                $($name::main();)*
            }
        }

        const NAMES: &[&str] = &[$(stringify!($name)),*];
    };
}

shapes! {
    all_options associated_function async_trait_with_associated_types body_that_diverges
    body_with_control_flow conditional const_parameter constants_with_usual_names derived_key_in_the_body
    destructured_arguments detached_bodies durations durations_of_expressions expected_lints fingerprints
    fingerprints_of_expressions free_function generic_function generic_type inside_a_function instrumented
    key_functions key_of_derived_parts key_of_every_part key_of_expressions key_of_one_place key_of_own_impl
    key_of_places key_that_may_be_missing lifetimes method_by_arc method_by_mutable_reference
    method_by_reference method_by_value method_of_async_trait method_of_trait mutable_argument not_send
    on_one_line out_of_a_macro public_function raw_identifiers recover recursive return_types
    return_types_of_traits spawned_and_joined store_behind_deref store_behind_pointers store_of_any_kind
    store_of_expression terminal_functions
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
