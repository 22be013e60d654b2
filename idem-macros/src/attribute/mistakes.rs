//! Tests of the errors that the attribute reports itself. The folder `mistakes` has one file for each theme,
//! with uses of the attribute. Below each use are its messages, and below each message is the source at which
//! it is shown. A use without an attribute gets `ATTRIBUTE`, and a use without an item gets `ITEM`. The body
//! of a function is empty, unless its code matters. Errors that rustc reports are in the workspace's
//! `tests/ui`.
//!
//! `UPDATE_EXPECT=1` rewrites the files. Read every change.

use expect_test::expect_file;

use super::faults;
use super::tests::{files, parts};

const FAULT: &str = "//~ ";

const ATTRIBUTE: &str = "#[idempotent(key = \"{id}\", store = store)]";

const ITEM: &str = "async fn charge(store: &MemoryStore, id: u8) -> Result<u8, idem::Error> {}";

/// The faults of one use, as lines that begin with `FAULT`.
fn shown(code: &str) -> String {
    let attribute = if code.starts_with("#[idempotent") { "" } else { ATTRIBUTE };
    let item = if code.ends_with(']') { ITEM } else { "" };
    let (attribute, item) = parts(&[attribute, code, item].concat());
    let faults = faults(attribute, &item).shown();
    faults.lines().map(|line| format!("{FAULT}{line}\n")).collect()
}

#[test]
fn every_mistake_is_explained_at_its_place() {
    let mut cases = 0;
    for file in files("mistakes") {
        let text = std::fs::read_to_string(&file).unwrap();
        let mut now = String::new();
        for case in text.split("\n// ") {
            let (name, rest) = case.trim_start_matches("// ").split_once('\n').unwrap();
            let code: String = rest
                .lines()
                .filter(|line| !line.starts_with(FAULT))
                .map(|line| format!("{line}\n"))
                .collect();
            let code = code.trim();
            let faults = shown(code);
            assert!(!faults.is_empty(), "{name} is no mistake");
            let separator = if now.is_empty() { "" } else { "\n" };
            now += &format!("{separator}// {name}\n{code}\n{faults}");
            cases += 1;
        }
        expect_file![&file].assert_eq(&now);
    }
    assert!(cases >= 60, "{cases}");
}
