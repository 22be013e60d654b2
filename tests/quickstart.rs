//! The README's first command tells its story.

#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

use std::process::Command;

#[test]
fn the_story_is_told_in_one_command() {
    let test = std::env::current_exe().unwrap();
    // Cargo builds the examples of a package with its tests.
    let example = test.parent().and_then(|deps| deps.parent()).unwrap().join("examples/quickstart");
    let output = Command::new(example).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let told = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<_> = told.lines().collect();
    assert_eq!(lines.len(), 5, "{told}");
    for (line, words) in lines.iter().zip([
        "made by attempt 1",
        "made by attempt 1 (replayed: true)",
        "other arguments",
        "1 charge, 1 receipt",
        "made by attempt 2",
    ]) {
        assert!(line.contains(words), "{line}");
    }
}
