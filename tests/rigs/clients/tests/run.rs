//! The rig on a small scale.

#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

use std::process::Command;

#[test]
fn payments_over_connections_that_break_are_made_once_with_each_framework() {
    let rig = Command::new(env!("CARGO_BIN_EXE_clients")).args(["--payments", "60"]).output().unwrap();
    let story = String::from_utf8(rig.stdout).unwrap();
    assert!(rig.status.success(), "{story}");
    for framework in ["Axum", "Actix", "Tonic"] {
        assert!(
            story.contains(&format!("{framework}: 60 payments, 14 of 74 connections cut, 60 runs")),
            "{story}"
        );
    }
}
