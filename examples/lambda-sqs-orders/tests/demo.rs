//! A small run of the demo: kills workers on an emulated queue and table.

use std::process::Command;

use serde_json::Value;

/// Runs the demo, and returns the line that it printed.
fn run(arguments: &[&str]) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_lambda-orders-demo")).args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{} {said}", String::from_utf8_lossy(&output.stdout));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_machine_without_servers_is_told_how_to_get_them() {
    idem_test_servers::says_what_is_missing(env!("CARGO_BIN_EXE_lambda-orders-demo"), &[(&[], &["aws"])]);
}

#[test]
fn an_outage_of_the_table_in_the_middle_loses_no_order_and_sets_none_aside() {
    let line = run(&["--messages", "120", "--kill-every", "1000", "--store-stop", "5"]);
    assert_eq!((line["dead_letters"].as_u64(), line["violations"].as_u64()), (Some(0), Some(0)), "{line}");
}

#[test]
fn killed_functions_ship_every_order_and_tell_everybody_the_same() {
    let line = run(&["--messages", "120", "--duplicates", "30", "--kill-every", "500"]);
    let number = |name: &str| line[name].as_u64().unwrap_or_else(|| panic!("no {name} in {line}"));
    assert_eq!((number("messages"), number("dead_letters"), number("violations")), (120, 0, 0), "{line}");
    assert!(number("effects") >= 120 && number("replays") >= 30 && number("deliveries") >= 156, "{line}");
}
