//! Compares the catalogue of a program with a committed file.
//!
//! Reads and writes the committed file. `differences` says what a difference means for existing records.

mod differences;

use std::path::Path;

use idem_runtime::{Catalogue, catalogue};

pub use differences::differences;

/// Compares the catalogue of this program with the file at `path`, and reports what each difference does to
/// existing records. With `IDEM_UPDATE=1` in the environment, this function writes the file instead. Review
/// the changes of the file before you commit it.
///
/// The path is relative to the package, because cargo runs tests there. Annotated functions in the test
/// binary itself are part of its catalogue; see [`assert_catalogue_of`] to leave them out. A crate that the
/// test never names is not linked and not in the catalogue; name it with `use my_service as _;`.
///
/// ```no_run
/// #[test]
/// fn records_of_yesterday_are_found() {
///     idem_testing::assert_catalogue("idem.catalogue");
/// }
/// ```
///
/// # Panics
///
/// - if the catalogue and the file differ
/// - if the file cannot be read or written
/// - if an operation has no scope, or two operations with the same scope have different keys or return types
#[track_caller]
pub fn assert_catalogue(path: impl AsRef<Path>) {
    assert_catalogue_of(&catalogue(), path);
}

/// As [`assert_catalogue`], for a part of the catalogue: `catalogue().within("my_service")`.
///
/// # Panics
///
/// As [`assert_catalogue`].
#[track_caller]
pub fn assert_catalogue_of(catalogue: &Catalogue, path: impl AsRef<Path>) {
    let path = path.as_ref();
    let faults = differences::contradictions(catalogue);
    assert!(faults.is_empty(), "the catalogue contradicts itself:\n{}", listed(&faults));
    if std::env::var_os("IDEM_UPDATE").is_some_and(|update| update == "1") {
        if let Err(error) = std::fs::write(path, catalogue.to_string()) {
            panic!("cannot write {}: {error}", path.display());
        }
        return;
    }
    let committed = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) => panic!("cannot read {}: {error}; IDEM_UPDATE=1 writes it", path.display()),
    };
    let committed = match Catalogue::parse(&committed) {
        Ok(committed) => committed,
        Err(error) => panic!("cannot read {}: {error}", path.display()),
    };
    let found = differences(&committed, catalogue);
    assert!(
        found.is_empty(),
        "this program differs from {}:\n{}\nif that is meant, IDEM_UPDATE=1 writes the file anew",
        path.display(),
        listed(&found)
    );
}

fn listed(lines: &[String]) -> String {
    lines.iter().map(|line| format!("* {line}\n")).collect()
}
