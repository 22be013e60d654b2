//! Tests that the tables of the book agree with the code.

#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn page(name: &str) -> String {
    fs::read_to_string(root().join("docs").join(name)).unwrap()
}

/// The names between `begin` and `end` in a text.
fn between<'t>(text: &'t str, begin: &str, end: &str) -> BTreeSet<&'t str> {
    let is_name = |name: &&str| !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    text.split(begin).skip(1).filter_map(|rest| Some(rest.split_once(end)?.0)).filter(is_name).collect()
}

/// The variants of an enum, from its source.
fn variants<'t>(source: &'t str, declaration: &str) -> BTreeSet<&'t str> {
    let body = source.split_once(declaration).unwrap().1.split_once("\n}").unwrap().0;
    let variant = |line: &'t str| {
        let name = line.strip_prefix("    ")?.split([' ', ',', '(', '{']).next()?;
        name.starts_with(|first: char| first.is_ascii_uppercase()).then_some(name)
    };
    body.lines().filter_map(variant).collect()
}

/// The names in the first column of the table with this heading.
fn rows<'t>(page: &'t str, heading: &str) -> BTreeSet<&'t str> {
    let table = page.split_once(heading).unwrap().1.split("\n\n").next().unwrap();
    table.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect()
}

fn sources(folder: &Path, found: &mut String) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push_str(&fs::read_to_string(path).unwrap());
        }
    }
}

/// The source code that is compiled into users' programs.
fn shipped() -> String {
    let mut found = String::new();
    for folder in ["idem-core", "idem-runtime", "outbox", "wrappers"] {
        sources(&root().join(folder).join("src"), &mut found);
    }
    for folder in ["messaging", "stores", "web"] {
        for each in fs::read_dir(root().join(folder)).unwrap() {
            sources(&each.unwrap().path().join("src"), &mut found);
        }
    }
    found
}

#[test]
fn the_page_of_errors_has_a_row_for_each() {
    let errors = page("errors.md");
    let source = fs::read_to_string(root().join("idem-runtime/src/error.rs")).unwrap();
    assert_eq!(rows(&errors, "| `Error::`"), variants(&source, "pub enum Error {"));
    let source = fs::read_to_string(root().join("idem-core/src/error.rs")).unwrap();
    assert_eq!(rows(&errors, "| `StoreErrorKind::`"), variants(&source, "pub enum StoreErrorKind {"));
}

#[test]
fn the_page_of_events_has_every_event_and_every_metric() {
    let (events, shipped) = (page("events.md"), shipped());
    let calls = fs::read_to_string(root().join("idem-runtime/src/engine/report.rs")).unwrap();
    let mut names = between(&shipped, "event = \"", "\"");
    // Finds `Level::DEBUG, "claimed"`, even if a line break follows the comma.
    let of_calls = calls.split("Level::").filter_map(|rest| {
        let name = rest.split_once(',')?.1.trim_start().strip_prefix('"')?;
        name.split_once('"').map(|(name, _)| name)
    });
    let before = names.len();
    names.extend(of_calls);
    assert!(names.len() > before + 25, "{names:?}");
    for level in ["debug", "info", "warn", "error"] {
        names.extend(between(&shipped, &format!("say!({level}, \""), "\""));
    }
    for kind in ["counter", "histogram", "gauge"] {
        names.extend(between(&shipped, &format!("metrics::{kind}!(\""), "\""));
    }
    assert!(names.len() > 40, "{names:?}");
    let missing: Vec<_> = names.iter().filter(|name| !events.contains(&format!("`{name}`"))).collect();
    assert!(missing.is_empty(), "docs/events.md lacks {missing:?}");
}
