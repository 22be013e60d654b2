//! The main job across processes: the program `pay`, started, killed, stopped and continued.

use std::collections::HashMap;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::shop::Shop;
use idem_test_servers::program::{Ended, Process};

fn count(ended: &[Ended], outcome: &str) -> usize {
    ended.iter().filter(|ended| ended.outcome() == outcome).count()
}

#[test]
fn of_processes_started_together_one_executes_and_the_others_are_refused() {
    let shop = Shop::new();
    // Long enough for the last of them to start.
    let started: Vec<_> = (0..20).map(|_| shop.start("o1", "--work-ms 6000")).collect();
    let ended: Vec<_> = started.into_iter().map(Process::end).collect();
    assert_eq!((count(&ended, "executed"), count(&ended, "in_flight")), (1, 19), "{ended:#?}");
    for ended in ended.iter().filter(|ended| ended.outcome() == "in_flight") {
        assert_eq!(ended.code, Some(75));
        let left = ended.json()["retry_after_ms"].as_u64().unwrap();
        assert!((1..=30_000).contains(&left), "{left}");
    }
    assert_eq!(shop.lines("o1"), ["o1 100 1"]);
}

#[test]
fn of_processes_that_wait_one_executes_and_the_others_replay_its_receipt() {
    let shop = Shop::new();
    let started: Vec<_> = (0..20).map(|_| shop.start("o1", "--work-ms 300 --wait-ms 20000")).collect();
    let ended: Vec<_> = started.into_iter().map(Process::end).collect();
    assert_eq!((count(&ended, "executed"), count(&ended, "replayed")), (1, 19), "{ended:#?}");
    for one in &ended {
        assert_eq!((one.code, one.receipt()), (Some(0), ended[0].receipt()));
        assert_eq!(one.json()["attempt"], 1);
    }
    assert_eq!(shop.lines("o1"), ["o1 100 1"]);
}

#[test]
fn forty_orders_over_eight_processes_are_charged_once_each() {
    let shop = Shop::new();
    let receipts: Vec<(String, String)> = std::thread::scope(|scope| {
        let lanes: Vec<_> = (0..8)
            .map(|lane| {
                let shop = &shop;
                // Two lanes pay each order, one of them from the last order to the first.
                scope.spawn(move || {
                    let mine = (0..40).filter(|order| order % 4 == lane % 4);
                    let mine: Vec<u32> = if lane < 4 { mine.collect() } else { mine.rev().collect() };
                    let paid = mine.into_iter().map(|order| {
                        let order = format!("order-{order}");
                        let receipt = shop.pay(&order, "--wait-ms 20000").receipt();
                        (order, receipt)
                    });
                    paid.collect::<Vec<_>>()
                })
            })
            .collect();
        lanes.into_iter().flat_map(|lane| lane.join().unwrap()).collect()
    });
    assert_eq!(receipts.len(), 80);
    let mut by_order: HashMap<&str, &str> = HashMap::new();
    for (order, receipt) in &receipts {
        assert_eq!(*by_order.entry(order).or_insert(receipt), receipt.as_str());
        assert_eq!(shop.lines(order).len(), 1, "{order}");
    }
    assert_eq!(by_order.len(), 40);
    assert_eq!(shop.integrity(), "ok");
}

#[test]
fn a_killed_workers_order_is_refused_until_the_lease_ends_and_then_one_rival_takes_over() {
    let shop = Shop::new();
    let worker = shop.start("o1", "--work-ms 60000 --lease-ms 6000");
    shop.until_charged("o1", 1);
    worker.signal("-KILL");
    worker.end();

    let refused = shop.pay("o1", "--lease-ms 6000");
    assert_eq!(refused.outcome(), "in_flight");
    let left = refused.json()["retry_after_ms"].as_u64().unwrap();
    assert!((1..=6_000).contains(&left), "{left}");
    // The sleep is the subject of this test: `retry_after_ms` must be long enough.
    std::thread::sleep(Duration::from_millis(left));
    let rivals: Vec<_> = (0..5).map(|_| shop.start("o1", "--work-ms 5000")).collect();
    let ended: Vec<_> = rivals.into_iter().map(Process::end).collect();
    assert_eq!(count(&ended, "executed"), 1, "{ended:#?}");
    assert_eq!(count(&ended, "in_flight"), 4, "{ended:#?}");
    let winner = ended.iter().find(|ended| ended.outcome() == "executed").unwrap();
    assert_eq!(winner.json()["attempt"], 2);
    assert_eq!(shop.lines("o1"), ["o1 100 1", "o1 100 2"]);
    let replayed = shop.pay("o1", "");
    assert_eq!((replayed.receipt(), replayed.json()["attempt"].as_u64()), (winner.receipt(), Some(2)));
}

#[test]
fn a_waiter_takes_over_when_the_worker_is_killed() {
    let shop = Shop::new();
    let worker = shop.start("o1", "--work-ms 60000 --lease-ms 1000");
    shop.until_charged("o1", 1);
    let waiter = shop.start("o1", "--wait-ms 20000");
    worker.signal("-KILL");
    let waited = waiter.end();
    assert_eq!(waited.outcome(), "executed");
    assert_eq!(waited.json()["attempt"], 2);
}

#[test]
fn a_waiter_takes_over_when_the_worker_fails() {
    let shop = Shop::new();
    let worker = shop.start("o1", "--work-ms 1000 --fail transient");
    shop.until_charged("o1", 1);
    let waited = shop.pay("o1", "--wait-ms 20000");
    assert_eq!(worker.end().code, Some(1));
    assert_eq!(waited.outcome(), "executed");
    assert_eq!(waited.json()["attempt"], 2);
}

#[test]
fn a_worker_stopped_past_its_lease_does_not_overwrite_its_successor() {
    let shop = Shop::new();
    // Its work is long enough for the signal to come in the middle of it.
    let late = shop.start("o1", "--work-ms 4000 --lease-ms 700");
    shop.until_charged("o1", 1);
    late.signal("-STOP");
    let successor = shop.pay("o1", "--wait-ms 20000");
    assert_eq!(successor.outcome(), "executed");
    assert_eq!(successor.json()["attempt"], 2);
    late.signal("-CONT");
    let late = late.end();
    match late.outcome().as_str() {
        "replayed" => assert_eq!(late.receipt(), successor.receipt()),
        "error" => assert_eq!(late.json()["kind"], "lease_lost"),
        other => panic!("{other}: {late:?}"),
    }
    assert_eq!(shop.pay("o1", "").receipt(), successor.receipt());
}

#[test]
fn a_worker_stopped_past_its_lease_keeps_its_claim_if_nobody_took_it() {
    let shop = Shop::new();
    let late = shop.start("o1", "--work-ms 300 --lease-ms 300");
    shop.until_charged("o1", 1);
    late.signal("-STOP");
    std::thread::sleep(Duration::from_millis(700));
    late.signal("-CONT");
    let late = late.end();
    assert_eq!(late.outcome(), "executed");
    assert_eq!(shop.pay("o1", "").receipt(), late.receipt());
    assert_eq!(shop.lines("o1").len(), 1);
}

#[test]
fn another_amount_is_refused_at_once_in_every_state_and_in_spite_of_waiting() {
    let shop = Shop::new();
    let refused = |order: &str| {
        let started = Instant::now();
        let refused = shop.pay_amount(order, "101", "--wait-ms 20000");
        assert!(started.elapsed() < Duration::from_secs(10));
        assert_eq!((refused.code, refused.stdout.trim()), (Some(65), r#"{"outcome":"mismatch"}"#));
    };
    let worker = shop.start("o1", "--work-ms 60000 --lease-ms 60000");
    shop.until_charged("o1", 1);
    refused("o1");
    worker.signal("-KILL");
    refused("o1");
    shop.pay("o2", "");
    refused("o2");
    shop.pay("o3", "--fail transient");
    refused("o3");
    shop.pay("o4", "--fail final");
    refused("o4");
}

#[test]
fn failures_are_kept_or_released_and_every_attempt_writes_its_line() {
    let shop = Shop::new();
    for replayed in [false, true, true] {
        let failed = shop.pay("final", "--fail final");
        assert_eq!(failed.code, Some(1));
        let line =
            serde_json::json!({"outcome": "failed", "error": "the card was declined", "replayed": replayed});
        assert_eq!(failed.json(), line);
    }
    assert_eq!(shop.lines("final"), ["final 100 1"]);

    for _ in 0..2 {
        let failed = shop.pay("transient", "--fail transient");
        assert_eq!((failed.code, failed.json()["replayed"].as_bool()), (Some(1), Some(false)));
    }
    assert_eq!(shop.pay("transient", "").json()["attempt"], 3);
    assert_eq!(shop.lines("transient").len(), 3);

    let panicked = shop.pay("panic", "--fail panic");
    assert!(panicked.code != Some(0) && panicked.stdout.is_empty(), "{panicked:?}");
    assert_eq!(shop.pay("panic", "").json()["attempt"], 2);
    assert_eq!(shop.lines("panic").len(), 2);
}

#[test]
fn wrong_arguments_end_with_64_a_usage_line_and_nothing_on_stdout() {
    let shop = Shop::new();
    let db = shop.db();
    let db = db.to_str().unwrap();
    for arguments in [
        vec!["pay"],
        vec!["bogus"],
        vec!["--db", db, "--order", "o1"],
        vec!["--db", db, "--order", "o1", "--amount", "-5"],
        vec!["--db", db, "--order", "o1", "--amount=-5"],
        vec!["--db", db, "--order", "o1", "--amount", "1.5"],
        vec!["--db", db, "--order", "o1", "--amount", "x"],
        vec!["--db", db, "--order", "o1", "--amount", ""],
        vec!["--db", db, "--order", "o1", "--amount", "99999999999999999999999"],
        vec!["--db", db, "--order", "o1", "--amount", "1", "--amount", "2"],
        vec!["--db", db, "--order", "o1", "--amount", "1", "--lease-ms", "0"],
        vec!["--db", db, "--order", "o1", "--amount", "1", "--work-ms", "soon"],
        vec!["--db", db, "--order", "o1", "--amount", "1", "--fail", "often"],
        vec!["--db", db, "--order", "o1", "--amount", "1", "surplus"],
    ] {
        let ended = Process::start(Command::new(env!("CARGO_BIN_EXE_pay")).args(&arguments)).end();
        assert_eq!(ended.code, Some(64), "{arguments:?}: {ended:?}");
        assert!(ended.stdout.is_empty() && ended.stderr.contains("Usage:"), "{arguments:?}: {ended:?}");
    }
    assert!(!shop.db().exists());
}

#[test]
fn an_order_that_is_no_key_is_an_error_of_idem() {
    let shop = Shop::new();
    for (order, kind) in [(String::new(), "missing_key"), ("x".repeat(2_000), "invalid_key")] {
        let ended = shop.pay(&order, "");
        assert_eq!(
            (ended.code, ended.json()["kind"].as_str().unwrap().to_owned()),
            (Some(70), kind.to_owned())
        );
    }
    assert!(!shop.ledger().exists());
}

#[test]
fn no_log_line_shows_an_order_or_a_receipt() {
    let shop = Shop::new();
    let order = "order-4711-private";
    let mut logged = 0;
    for options in ["", "", "--fail final", "--wait-ms 10"] {
        let ended = shop.pay(order, options);
        assert!(!ended.stderr.contains(order), "{}", ended.stderr);
        assert!(!ended.stderr.contains(&ended.receipt()), "{}", ended.stderr);
        logged += ended.stderr.lines().count();
    }
    assert!(logged > 4, "there was nothing to look at");
}
