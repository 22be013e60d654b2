//! The rig on a small scale.

#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

use std::process::Command;

#[test]
fn payments_over_connections_that_break_are_made_once_with_each_framework() {
    let rig = Command::new(env!("CARGO_BIN_EXE_clients")).args(["--payments", "60"]).output().unwrap();
    let story = String::from_utf8(rig.stdout).unwrap();
    assert!(rig.status.success(), "{story}{}", String::from_utf8_lossy(&rig.stderr));
    // The proxy cuts one connection in five, so it cuts at least 12 of the first 60. A client usually
    // connects again after a cut. It does not if the part of the answer that it got is enough.
    for framework in ["Axum", "Actix", "Tonic"] {
        let line =
            story.lines().find(|line| line.starts_with(&format!("{framework}: 60 payments, "))).unwrap();
        let numbers: Vec<u64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
        let [_, cut, connections, runs, ..] = numbers[..] else { panic!("{line}") };
        assert!(cut >= 12 && connections > 60, "the proxy cut too little: {line}");
        assert_eq!(runs, 60, "{line}");
    }
}
