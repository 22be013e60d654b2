//! A small run of the demo: kills workers on a real broker and a real store.

use std::process::Command;

use serde_json::Value;

#[test]
fn killed_workers_ship_every_order_and_tell_everybody_the_same() {
    let arguments = ["--messages", "2000", "--duplicates", "30", "--kill-every", "7000", "--work", "100"];
    let output = Command::new(env!("CARGO_BIN_EXE_kafka-worker")).args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{} {said}", String::from_utf8_lossy(&output.stdout));
    let line: Value = serde_json::from_slice(&output.stdout).unwrap();
    let number = |name: &str| line[name].as_u64().unwrap_or_else(|| panic!("no {name} in {line}"));
    assert_eq!((number("messages"), number("violations")), (2_000, 0), "{line}");
    // A copy is sent before its message is committed: a kill in between leaves the message twice.
    assert!(number("dead_letters") >= 10, "{line}");
    assert!(number("effects") >= 2_000 && number("replays") >= 600, "{line}");
    assert!(number("deliveries") >= 2_610, "{line}");
}

#[test]
fn a_machine_without_servers_is_told_how_to_get_them() {
    idem_test_servers::says_what_is_missing(
        env!("CARGO_BIN_EXE_kafka-worker"),
        &[
            (&[], &["kafka", "redis"]),
            (&["--store", "postgres"], &["kafka", "postgres"]),
            (&["--store", "sqlite"], &["kafka"]),
        ],
    );
}
