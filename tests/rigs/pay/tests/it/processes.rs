//! The main job across processes: the program `pay`, started, killed, stopped and continued.

use std::time::Duration;

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
