//! A small run of the demo: kills workers on a real broker and a real store.

use std::process::Command;

use serde_json::Value;

#[test]
fn killed_workers_ship_every_order_and_tell_everybody_the_same() {
    let arguments = ["--messages", "1000", "--duplicates", "30", "--workers", "3", "--kill-every", "700"];
    let output = Command::new(env!("CARGO_BIN_EXE_rabbitmq-worker")).args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{} {said}", String::from_utf8_lossy(&output.stdout));
    let line: Value = serde_json::from_slice(&output.stdout).unwrap();
    let number = |name: &str| line[name].as_u64().unwrap_or_else(|| panic!("no {name} in {line}"));
    assert_eq!((number("messages"), number("violations")), (1_000, 0), "{line}");
    // A copy is sent before its message is acknowledged: a kill in between leaves the message twice.
    assert!(number("dead_letters") >= 10, "{line}");
    assert!(number("effects") >= 1_000 && number("replays") >= 300, "{line}");
    assert!(number("deliveries") >= 1_310, "{line}");
}

#[test]
fn a_machine_without_servers_is_told_how_to_get_them() {
    idem_test_servers::says_what_is_missing(
        env!("CARGO_BIN_EXE_rabbitmq-worker"),
        &[
            (&[], &["rabbitmq", "redis"]),
            (&["--store", "postgres"], &["rabbitmq", "postgres"]),
            (&["--store", "sqlite"], &["rabbitmq"]),
        ],
    );
}
