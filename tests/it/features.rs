//! Tests of the compiler's message for a program that uses an item whose feature is not enabled.

use std::fs;
use std::path::Path;
use std::process::Command;

/// The output of `cargo check` for a program that depends on this library with only this `feature`.
fn check(name: &str, feature: &str, program: &str) -> String {
    let root = &Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    let package = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(package.join("src")).unwrap();
    let library = format!("{{ path = {root:?}, default-features = false, features = [{feature:?}] }}");
    let manifest = format!(
        "[package]\nname = \"{name}\"\nedition = \"2024\"\n[workspace]\n[dependencies]\nidem-rs = {library}\n"
    );
    fs::write(package.join("Cargo.toml"), manifest).unwrap();
    fs::write(package.join("src/main.rs"), program).unwrap();
    // The same versions as in the workspace, so that cargo asks no registry.
    fs::copy(root.join("Cargo.lock"), package.join("Cargo.lock")).unwrap();
    let output = Command::new(env!("CARGO"))
        .args(["check", "--offline", "--color", "never"])
        .current_dir(&package)
        .env("CARGO_TARGET_DIR", package.with_file_name("features-target"))
        .output()
        .unwrap();
    String::from_utf8(output.stderr).unwrap()
}

#[test]
#[ignore = "it starts a compiler: `scripts/test features`"]
fn a_store_whose_feature_is_off_is_named_with_its_feature() {
    let program = "use idem::SqliteStore;\nfn main() { let _ = SqliteStore::open(\"idem.db\"); }\n";
    let said = check("without-sqlite", "macros", program);
    assert!(said.contains("the item is gated behind the `sqlite` feature"), "{said}");
}
