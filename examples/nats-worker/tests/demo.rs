//! A small run of the demo: kills workers on a real broker and a real store.

use std::process::Command;

use serde_json::Value;

/// Runs the demo, and returns the line that it printed.
fn run(arguments: &[&str]) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_nats-worker")).args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{} {said}", String::from_utf8_lossy(&output.stdout));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn number(line: &Value, name: &str) -> u64 {
    line[name].as_u64().unwrap_or_else(|| panic!("no {name} in {line}"))
}

#[test]
fn killed_workers_ship_every_order_and_tell_everybody_the_same() {
    let line = run(&["--messages", "2000", "--duplicates", "30", "--workers", "3", "--kill-every", "400"]);
    assert_eq!((number(&line, "messages"), number(&line, "violations")), (2_000, 0), "{line}");
    assert_eq!(number(&line, "dead_letters"), 10, "{line}");
    assert!(number(&line, "effects") >= 2_000 && number(&line, "replays") >= 600, "{line}");
    assert!(number(&line, "deliveries") >= 2_610, "{line}");
}

#[test]
fn effects_in_the_transaction_of_their_result_are_there_once_whatever_is_killed() {
    let line = run(&["--messages", "300", "--kill-every", "300", "--work", "20", "--store", "postgres"]);
    assert_eq!((number(&line, "effects"), number(&line, "violations")), (300, 0), "{line}");
}

#[test]
fn an_outage_of_the_store_in_the_middle_loses_no_order_and_sets_no_healthy_one_aside() {
    for store in ["redis", "postgres"] {
        let line = run(&["--messages", "600", "--kill-every", "500", "--store-stop", "5", "--store", store]);
        assert_eq!((number(&line, "messages"), number(&line, "violations")), (600, 0), "{line}");
        assert_eq!((number(&line, "dead_letters"), number(&line, "healthy_dead_letters")), (10, 0), "{line}");
    }
}

#[test]
fn a_machine_without_servers_is_told_how_to_get_them() {
    idem_test_servers::says_what_is_missing(
        env!("CARGO_BIN_EXE_nats-worker"),
        &[
            (&[], &["nats", "redis"]),
            (&["--store", "postgres"], &["nats", "postgres"]),
            (&["--store", "sqlite"], &["nats"]),
        ],
    );
}
