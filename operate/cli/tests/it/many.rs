//! Many records at once, results that are known from elsewhere, closed pipes, and the audit trail.

use std::time::Duration;

use idem::protocol::State;
use idem::{KeyRing, OnCrash, Operation, Store as _, StoreExt as _};
use serde_json::json;

use crate::idem_command::*;

#[tokio::test]
async fn many_keys_in_doubt_are_listed_first_and_then_resolved() {
    let shop = Shop::new();
    for name in ["a", "b", "c"] {
        bring(&shop.store, &key(name), State::InDoubt).await;
    }
    bring(&shop.store, &key_of("another", "d"), State::InDoubt).await;
    bring(&shop.store, &key("e"), State::InFlight).await;
    let words = ["resolve", "--all", "--scope", SCOPE, "--release"];
    let dry = shop.idem.run(&[&words[..], &["--dry-run"]].concat()).ended(0);
    assert!(dry.out.contains("3 records") && dry.out.contains("dry run"), "{dry:?}");
    let dry = shop.idem.run(&[&["--json"], &words[..], &["--dry-run"]].concat()).ended(0).json();
    assert_eq!((dry.len(), &dry[0]["would_be"]), (3, &json!("released")));
    // Without a terminal nobody can confirm.
    shop.idem.run(&words).ended(6);
    assert_eq!(shop.idem.digests(&["--state", "in-doubt"]).len(), 4);
    let done = shop.idem.run(&[&words[..], &["--yes", "--by", "mara"]].concat()).ended(0);
    assert!(done.out.contains("3 settled"), "{done:?}");
    assert_eq!(shop.idem.digests(&["--state", "in-doubt"]).len(), 1);
    assert_eq!(state_of(&shop.store, &key("a")).await, Some(State::Released));
    let trail = shop.idem.run(&["--json", "audit"]).ended(0).json();
    assert_eq!(trail.len(), 3);
    assert!(trail.iter().all(|entry| entry["by"] == "mara" && entry["action"] == "released"), "{trail:?}");
    shop.idem.run(&[&words[..], &["--yes"]].concat()).ended(1);
}

#[tokio::test]
async fn keys_whose_lease_ran_out_under_in_doubt_are_resolved_with_those_in_doubt() {
    let shop = Shop::new();
    bring(&shop.store, &key("doubtful"), State::InDoubt).await;
    bring(&shop.store, &key("running"), State::InFlight).await;
    lapse(&shop.store, &key("gone"), OnCrash::InDoubt, DAY).await;
    lapse(&shop.store, &key("rerun"), OnCrash::Rerun, DAY).await;
    let words = ["resolve", "--all", "--scope", SCOPE, "--completed", "\"by hand\"", "--unencrypted"];
    // `--lapsed` takes only records in flight whose workers are gone.
    let lapsed = [&words[..], &["--lapsed", "--yes"]].concat();
    assert!(shop.idem.run(&lapsed).ended(0).out.contains("1 settled"));
    assert_eq!(state_of(&shop.store, &key("gone")).await, Some(State::Completed));
    assert_eq!(state_of(&shop.store, &key("doubtful")).await, Some(State::InDoubt));
    assert!(shop.idem.run(&[&words[..], &["--yes"]].concat()).ended(0).out.contains("1 settled"));
    for (name, state) in
        [("running", State::InFlight), ("rerun", State::InFlight), ("doubtful", State::Completed)]
    {
        assert_eq!(state_of(&shop.store, &key(name)).await, Some(state), "{name}");
    }
    let trail = shop.idem.run(&["--json", "audit"]).ended(0).json();
    assert!(trail.len() == 2 && trail.iter().all(|entry| entry["outcome"] == "done"), "{trail:?}");
}

#[tokio::test]
async fn what_changes_while_a_person_thinks_is_left_alone() {
    let shop = Shop::new();
    for name in ["a", "b"] {
        bring(&shop.store, &key(name), State::Completed).await;
    }
    let words = ["forget", "--all", "--scope", SCOPE, "--state", "completed"];
    let ended = shop.idem.run_on_terminal(&words, "yes", async {
        idem::Store::forget(&shop.store, &key("b")).await.unwrap();
        bring(&shop.store, &key("b"), State::Completed).await;
    });
    let ended = ended.await.ended(3);
    assert!(ended.out.contains("1 settled, 1 had changed"), "{ended:?}");
    assert_eq!(state_of(&shop.store, &key("a")).await, None);
    assert_eq!(state_of(&shop.store, &key("b")).await, Some(State::Completed));
}

#[tokio::test]
async fn what_belongs_to_one_customer_is_found_by_the_beginning_of_its_keys() {
    let shop = Shop::new();
    for name in ["customer/7/a", "customer/7/b", "customer/70/a"] {
        bring(&shop.store, &key(name), State::Completed).await;
    }
    bring(&shop.store, &key_of("another", "customer/7/c"), State::InDoubt).await;
    assert_eq!(shop.idem.digests(&["--key-prefix", "customer/7/"]).len(), 3);
    assert_eq!(shop.idem.digests(&["--key-prefix", "customer/7/", "--scope", SCOPE]).len(), 2);
    shop.idem.run(&["list", "--key-prefix", "customer/8"]).ended(1);
    shop.idem.run(&["forget", "customer/7/a", "--key-prefix", "customer/7/", "--yes"]).ended(2);
    shop.idem.run(&["forget", "--all", "--key-prefix", "customer/7/", "--yes"]).ended(0);
    assert_eq!(shop.idem.digests(&[]), digests(&[&key("customer/70/a")]));
    // A digest does not show how its key begins.
    let secret = "09".repeat(32);
    let digested = shop.store.clone().digest_keys(&[9; 32]);
    bring(&digested, &key("customer/9/a"), State::Completed).await;
    for idem in [&shop.idem, &Idem::new(shop.idem.store.clone()).with_environment("IDEM_KEY_SECRET", &secret)]
    {
        for words in [&["list"][..], &["forget", "--all", "--yes"]] {
            let refused = idem.run(&[words, &["--key-prefix", "customer/"]].concat()).ended(5);
            assert!(refused.err.contains("digests in place of keys"), "{refused:?}");
        }
    }
}

#[tokio::test]
async fn a_result_that_is_known_from_elsewhere_is_recorded_and_replayed() {
    let shop = Shop::new();
    let words = ["record", "order-1", "--scope", SCOPE, "--completed", "\"r-17\"", "--yes"];
    // Nothing shows whether the service encrypts its results, so the command refuses.
    shop.idem.run(&words).ended(3);
    let words = [&words[..], &["--unencrypted", "--ttl", "7d"]].concat();
    shop.idem.run(&words).ended(0);
    let charge = Operation::new(SCOPE).on_crash(OnCrash::InDoubt);
    let body = || async { Ok::<_, idem::Error>(json!("the body ran")) };
    assert_eq!(charge.run(&shop.store, "order-1", body).await.unwrap(), json!("r-17"));
    let record = idem::Store::get(&shop.store, &key("order-1")).await.unwrap().unwrap();
    assert_eq!(record.ttl, Duration::from_secs(7 * 86_400));
    shop.idem.run(&words).ended(3);
    for state in [State::InFlight, State::Released, State::InDoubt] {
        let name = format!("{state:?}");
        bring(&shop.store, &key(&name), state).await;
        let words = ["record", &name, "--scope", SCOPE, "--completed", "1", "--yes", "--unencrypted"];
        shop.idem.run(&words).ended(3);
        assert_eq!(state_of(&shop.store, &key(&name)).await, Some(state));
    }
    shop.idem.run(&["record", "x", "--scope", SCOPE, "--release", "--yes"]).ended(2);
    shop.idem.run(&["record", "x", "--completed", "1", "--yes"]).ended(2);
}

#[tokio::test]
async fn a_result_is_recorded_after_a_try_that_was_too_large() {
    let shop = Shop::new();
    let file = shop.folder().join("large.json");
    std::fs::write(&file, format!("\"{}\"", "x".repeat(20 << 20))).unwrap();
    let large = format!("@{}", file.display());
    let record = |result: &str| {
        let words = ["record", "order-1", "--scope", SCOPE, "--completed", result, "--unencrypted", "--yes"];
        shop.idem.run(&words)
    };
    assert!(record(&large).ended(5).err.contains("at most"));
    record("1").ended(0);
    assert_eq!(state_of(&shop.store, &key("order-1")).await, Some(State::Completed));
}

#[tokio::test]
async fn a_closed_pipe_leaves_no_decision_undone() {
    let shop = Shop::new();
    // The report about these records does not fit into the buffer of the command.
    for number in 0..200 {
        bring(&shop.store, &key(&format!("key {number}")), State::InDoubt).await;
    }
    let (reader, closed) = std::io::pipe().unwrap();
    drop(reader);
    let mut resolve = shop.idem.command(&["--json", "resolve", "--all", "--release", "--yes"]);
    let ended = resolve.stdout(closed).spawn().unwrap().wait_with_output().unwrap();
    assert_ne!(ended.status.code(), Some(0), "its report is not whole");
    shop.idem.run(&["list", "--state", "in-doubt"]).ended(1);
    // A command that changes nothing ends without an error, whether its output fits into the buffer or not.
    for words in
        [&["stats"][..], &["list", "--full"], &["forget", "--all", "--state", "released", "--dry-run"]]
    {
        let (reader, closed) = std::io::pipe().unwrap();
        drop(reader);
        let ended = shop.idem.command(words).stdout(closed).output().unwrap();
        assert!(ended.status.success(), "{words:?} {ended:?}");
    }
}

#[tokio::test]
async fn the_trail_says_what_was_refused_and_is_in_no_list_of_records() {
    let shop = Shop::new();
    bring(&shop.store, &key("order-1"), State::Completed).await;
    shop.idem.run(&["audit"]).ended(1);
    shop.idem.run(&["forget", "order-1", "--yes", "--by", "mara\u{1b}[2J", "--reason", "ticket 7"]).ended(0);
    let shown = shop.idem.run(&["audit"]).ended(0);
    assert!(shown.out.contains("forgotten") && shown.out.contains("ticket 7"), "{shown:?}");
    assert!(!shown.out.contains('\u{1b}') && !shown.out.contains("order-1"), "{shown:?}");
    let digest = key("order-1").digest().to_string();
    shop.idem.run(&["audit", "--digest", &digest]).ended(0);
    shop.idem.run(&["audit", "--digest", "0000000000000000"]).ended(1);
    shop.idem.run(&["list"]).ended(1);
    // Purges, because a forgotten record counts as expired until then. The store may also have purged it by
    // itself.
    shop.store.purge(10).await.unwrap();
    shop.idem.run(&["stats"]).ended(1);
    assert_eq!(shop.idem.run(&["--json", "list", "--scope", "idem.audit"]).ended(0).json().len(), 1);
}

#[tokio::test]
async fn the_trail_is_shown_also_where_an_older_key_of_the_ring_is_gone() {
    let shop = Shop::new();
    let (older, newer) = ([7; 32], [8; 32]);
    let idem = |ring: &str| Idem::new(&*shop.idem.store).with_environment("IDEM_KEY_RING", ring);
    let (first, second) = (format!("1 {}", "07".repeat(32)), format!("2 {}", "08".repeat(32)));
    let before = shop.store.clone().encrypted(KeyRing::new(1, &older));
    bring(&before, &key("order-1"), State::InDoubt).await;
    idem(&first).run(&["resolve", "order-1", "--release", "--yes"]).ended(0);
    let ring = KeyRing::new(2, &newer).and_reads(1, &older).unwrap();
    bring(&shop.store.clone().encrypted(ring), &key("order-2"), State::InDoubt).await;
    idem(&second).run(&["resolve", "order-2", "--release", "--yes"]).ended(0);
    let trail = idem(&second).run(&["--json", "audit"]).ended(0).json();
    assert_eq!((trail.len(), &trail[0]["outcome"], &trail[1]["sealed"]), (2, &json!("done"), &json!(true)));
    assert!(trail[1]["at"].as_str().unwrap().ends_with('Z'), "{trail:?}");
}

#[test]
fn completions_and_the_manual_page_know_every_command() {
    let idem = Idem::new("");
    for words in [&["completions", "bash"][..], &["completions", "zsh"], &["completions", "fish"], &["man"]] {
        let shown = idem.run(words).ended(0).out;
        for command in ["resolve", "forget", "record", "list", "audit", "outbox"] {
            assert!(shown.contains(command), "{words:?}: {command}");
        }
    }
}
