//! Small runs: they kill workers on a real broker and a real store.

use std::process::Command;

use serde_json::Value;

use crate::PROGRAM;

/// Runs the demo, and returns the line that it printed.
fn run(arguments: &str) -> Value {
    let output = Command::new(PROGRAM).args(arguments.split_whitespace()).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{} {errors}", String::from_utf8_lossy(&output.stdout));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn number(line: &Value, name: &str) -> u64 {
    line[name].as_u64().unwrap_or_else(|| panic!("no {name} in {line}"))
}

/// Runs the demo with this many messages, 30 percent of them sent twice, and checks its figures. The three
/// workers, with ten handlers each, work longer than the time between two kills. So at least one kill
/// interrupts them.
fn run_and_judge(messages: u64, arguments: &str) -> Value {
    let line = run(&format!("--messages {messages} --duplicates 30 {arguments}"));
    assert_eq!((number(&line, "messages"), number(&line, "violations")), (messages, 0), "{line}");
    // With most brokers, the dead letter is sent before the message is settled. So a kill between the two
    // causes a second letter.
    assert!(number(&line, "dead_letters") >= 10, "{line}");
    let duplicates = messages * 30 / 100;
    assert!(number(&line, "effects") >= messages && number(&line, "replays") >= duplicates, "{line}");
    assert!(number(&line, "deliveries") >= messages + duplicates + 10, "{line}");
    assert!(number(&line, "interruptions") > 0, "{line}");
    line
}

#[test]
fn killed_workers_on_nats_ship_every_order_with_one_answer() {
    let line = run_and_judge(600, "--broker nats --kill-every 400 --work 60");
    assert_eq!(number(&line, "dead_letters"), 10, "{line}");
}

#[test]
fn killed_workers_on_rabbitmq_ship_every_order_with_one_answer() {
    run_and_judge(500, "--broker rabbitmq --kill-every 700 --work 100");
}

#[test]
fn killed_workers_on_kafka_ship_every_order_with_one_answer() {
    run_and_judge(600, "--broker kafka --kill-every 7000 --work 500");
}

#[test]
fn killed_workers_on_sqs_ship_every_order_with_one_answer() {
    run_and_judge(500, "--broker sqs --kill-every 1000 --work 100");
}

#[test]
fn killed_lambda_functions_ship_every_order_with_one_answer() {
    run_and_judge(120, "--broker lambda --kill-every 500 --work 150");
}

/// Each job is sent three times, and its service is made idempotent by `idem::tower`.
#[test]
fn killed_workers_of_apalis_ship_every_order_with_one_answer() {
    let line = run("--broker apalis --messages 300 --duplicates 200 --kill-every 2500 --work 300");
    assert_eq!((number(&line, "violations"), number(&line, "dead_letters")), (0, 10), "{line}");
    assert!(number(&line, "replays") >= 600 && number(&line, "interruptions") > 0, "{line}");
}

/// Runs the demo with 600 messages and an outage. Checks that no order is lost, and that only orders that can
/// never be shipped are set aside.
fn run_through(outage: &str) {
    let line = run(&format!("--messages 600 {outage}"));
    assert_eq!((number(&line, "violations"), number(&line, "healthy_dead_letters")), (0, 0), "{line}");
    assert!(number(&line, "effects") >= 600 && number(&line, "dead_letters") >= 10, "{line}");
}

#[test]
fn an_outage_of_the_store_in_the_middle_loses_no_order_and_sets_no_healthy_one_aside() {
    run_through("--broker nats --kill-every 500 --store postgres --store-stop 5");
}

#[test]
fn a_broker_that_is_killed_in_the_middle_and_starts_again_loses_no_order() {
    // The tests of each broker's crate restart the broker while a worker runs, but not with quorum queues.
    run_through("--broker rabbitmq --quorum --kill-every 700 --broker-stop 2");
}
