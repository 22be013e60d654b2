//! Payments by several processes: the program `pay`, started, killed, stopped and continued.

use std::time::Duration;

use crate::shop::Shop;
use idem_test_servers::program::{Ended, Process};

fn count(ended: &[Ended], outcome: &str) -> usize {
    ended.iter().filter(|ended| ended.outcome() == outcome).count()
}

#[test]
fn of_processes_started_together_one_executes_and_the_others_are_refused_or_wait_for_its_receipt() {
    // A payment of 6 s ends only after the last process has started.
    for (options, loser) in [("--work-ms 6000", "in_flight"), ("--work-ms 300 --wait-ms 20000", "replayed")] {
        let shop = Shop::new();
        let started: Vec<_> = (0..20).map(|_| shop.start("o1", options)).collect();
        let ended: Vec<_> = started.into_iter().map(Process::end).collect();
        assert_eq!((count(&ended, "executed"), count(&ended, loser)), (1, 19), "{ended:#?}");
        for ended in ended.iter().filter(|ended| ended.outcome() == "in_flight") {
            assert_eq!(ended.code, Some(75));
            let left = ended.json()["retry_after_ms"].as_u64().unwrap();
            assert!((1..=30_000).contains(&left), "{left}");
        }
        let mut paid: Vec<_> = ended.iter().filter(|ended| ended.outcome() != "in_flight").collect();
        assert!(paid.iter().all(|ended| ended.code == Some(0) && ended.json()["attempt"] == 1), "{paid:#?}");
        paid.dedup_by_key(|ended| ended.receipt());
        assert_eq!(paid.len(), 1, "{paid:#?}");
        assert_eq!(shop.lines("o1"), ["o1 100 1"]);
    }
}

#[test]
fn a_killed_workers_order_is_refused_until_the_lease_ends_and_then_one_rival_takes_over() {
    let shop = Shop::new();
    let worker = shop.start("o1", "--work-ms 60000 --lease-ms 6000");
    shop.until_charged("o1");
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
    // The payment takes long enough that the signal comes in the middle of it.
    let late = shop.start("o1", "--work-ms 4000 --lease-ms 700");
    shop.until_charged("o1");
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
