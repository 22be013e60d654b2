//! The demo, in small: workers killed over a real broker and a real store.

use std::process::Command;

use serde_json::Value;

/// Runs it, and gives what it printed.
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
