//! Compiles the files in `tests/ui/pass`, which use the attribute correctly.
//!
//! The files are modules of one crate, because linking a crate for each file would take minutes. The files in
//! `tests/lints` use the attribute under the lints of a strict crate.

macro_rules! shapes {
    ($($name:ident)*) => {
        #[path = "../ui/pass"]
        #[allow(
            dead_code,
            clippy::upper_case_acronyms,
            clippy::await_holding_lock,
            clippy::redundant_allocation,
            reason = "users write them; here nobody calls them"
        )]
        mod pass {
            $(mod $name;)*
        }

        const NAMES: &[&str] = &[$(stringify!($name)),*];
    };
}

shapes! {
    async_trait_with_associated_types bodies conditional constants_with_usual_names
    crate_behind_another detached_bodies durations_of_expressions
    fingerprints_of_expressions futures_are_send key_functions key_of_derived_parts methods
    names_do_not_collide out_of_a_macro recover return_types stores
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
