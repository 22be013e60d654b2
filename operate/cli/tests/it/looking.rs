//! `list`, `show`, `stats`, `purge`: what they find, and their exit codes where they find nothing.

use std::io::Read as _;
use std::time::Duration;

use idem::protocol::{ClaimAnswer, RecordStep, RecordedStep, State, StoredResult};
use idem::{OnCrash, Store as _};

use crate::idem_command::*;

const STATES: [(&str, State); 5] = [
    ("in-flight", State::InFlight),
    ("completed", State::Completed),
    ("failed", State::Failed),
    ("released", State::Released),
    ("in-doubt", State::InDoubt),
];

#[tokio::test]
async fn records_are_listed_by_state_and_operation() {
    let shop = Shop::new();
    for (name, state) in STATES {
        bring(&shop.store, &key(name), state).await;
        bring(&shop.store, &key_of("shop.refund", name), state).await;
    }
    assert_eq!(shop.idem.digests(&[]).len(), 10);
    for (name, state) in STATES {
        let both = digests(&[&key(name), &key_of("shop.refund", name)]);
        assert_eq!(shop.idem.digests(&["--state", name]), both, "{state:?}");
        let one = shop.idem.digests(&["--state", name, "--scope", SCOPE]);
        assert_eq!(one, digests(&[&key(name)]), "{state:?}");
    }
    let two = shop.idem.digests(&["--scope", SCOPE, "--state", "failed,in_flight"]);
    assert_eq!(two, digests(&[&key("failed"), &key("in-flight")]));
    shop.idem.run(&["list", "--scope", "shop.nothing"]).ended(1);
}

#[tokio::test]
async fn a_list_is_of_the_old_and_of_the_lapsed_where_that_is_asked_for() {
    let shop = Shop::new();
    bring(&shop.store, &key("runs"), State::InFlight).await;
    lapse(&shop.store, &key("lapsed"), OnCrash::Rerun, Duration::from_secs(60)).await;
    lapse(&shop.store, &key("over"), OnCrash::Rerun, Duration::from_millis(1)).await;
    assert_eq!(shop.idem.digests(&["--lapsed"]), digests(&[&key("lapsed")]));
    assert_eq!(shop.idem.digests(&["--older", "1ms"]), digests(&[&key("lapsed"), &key("runs")]));
    assert!(shop.idem.digests(&["--older", "1h"]).is_empty());
    let listed = shop.idem.run(&["--json", "list", "--state", "in-flight"]).ended(0);
    let lapsed: Vec<bool> = listed.json().iter().map(|record| record["lapsed"] == true).collect();
    assert_eq!(lapsed.iter().filter(|lapsed| **lapsed).count(), 1, "{listed:?}");
}

#[tokio::test]
async fn a_list_ends_at_its_limit_and_says_so() {
    let shop = Shop::new();
    for number in 0..5 {
        bring(&shop.store, &key(&format!("key {number}")), State::InFlight).await;
    }
    let three = shop.idem.run(&["list", "--limit", "3"]).ended(0);
    assert_eq!(three.out.matches("in_flight").count(), 3, "{three:?}");
    assert!(three.err.contains("more than 3"), "{three:?}");
    let all = shop.idem.run(&["list", "--limit", "0"]).ended(0);
    assert!(all.out.matches("in_flight").count() == 5 && all.err.is_empty(), "{all:?}");
}

#[tokio::test]
async fn a_record_is_shown_by_its_key_and_by_the_digest_of_a_log() {
    let shop = Shop::new();
    bring(&shop.store, &key("order-1"), State::Completed).await;
    bring(&shop.store, &key_of("shop.refund", "order-2"), State::InDoubt).await;
    let digest = key("order-1").digest().to_string();
    for by in [&["order-1"][..], &["order-1", "--scope", SCOPE], &["--digest", &digest.to_uppercase()]] {
        let mut words = vec!["--json", "show"];
        words.extend(by);
        let shown = shop.idem.run(&words).ended(0).one();
        assert_eq!(shown["digest"], *digest, "{by:?}");
        assert_eq!(shown["state"], "completed");
        assert_eq!(shown["attempt"], 1);
        assert_eq!(shown["result"]["bytes"], 18);
        assert_eq!(shown["result"]["format"], "JSON");
        assert!(shown["completed_at"].as_str().unwrap().ends_with('Z'));
    }
    let text = shop.idem.run(&["show", "order-2"]).ended(0).out;
    assert!(text.contains("in_doubt") && text.contains("until it is resolved"), "{text}");
    shop.idem.run(&["show", "order-3"]).ended(1);
    shop.idem.run(&["show", "order-2", "--scope", SCOPE]).ended(1);
    shop.idem.run(&["show", "--digest", "0000000000000000"]).ended(1);
}

#[tokio::test]
async fn a_key_of_several_operations_must_be_said_with_its_scope() {
    let shop = Shop::new();
    bring(&shop.store, &key("order-1"), State::Completed).await;
    bring(&shop.store, &key_of("shop.refund", "order-1"), State::Completed).await;
    let asked = shop.idem.run(&["show", "order-1"]).ended(3);
    assert!(asked.err.contains(SCOPE) && asked.err.contains("shop.refund"), "{asked:?}");
}

#[tokio::test]
async fn stats_count_by_state_and_operation() {
    let shop = Shop::new();
    assert_eq!(shop.idem.run(&["--json", "stats"]).ended(1).one()["all"]["live"], 0);
    for (name, state) in STATES {
        bring(&shop.store, &key(name), state).await;
    }
    bring(&shop.store, &key_of("shop.refund", "r"), State::InDoubt).await;
    lapse(&shop.store, &key("lapsed"), OnCrash::Rerun, Duration::from_secs(60)).await;
    let counted = shop.idem.run(&["--json", "stats"]).ended(0).one();
    assert_eq!(counted["all"]["live"], 7);
    assert_eq!((&counted["all"]["in_flight"], &counted["all"]["lapsed"]), (&2.into(), &1.into()));
    assert_eq!(counted["all"]["in_doubt"], 2);
    assert_eq!(counted["all"]["result_bytes"], 36);
    assert_eq!(counted["scopes"]["shop.refund"]["in_doubt"], 1);
    assert!(counted["all"]["longest_lapse_seconds"].as_f64().unwrap() > 0.0);
    let one = shop.idem.run(&["--json", "stats", "--scope", "shop.refund"]).ended(0).one();
    assert_eq!(one["all"]["live"], 1);
    let table = shop.idem.run(&["stats"]).ended(0).out;
    assert!(table.contains("SCOPE") && table.contains("shop.refund") && table.contains("(all)"), "{table}");
}

#[tokio::test]
async fn a_watch_looks_as_often_as_it_is_told_and_shows_what_is_open() {
    let shop = Shop::new();
    bring(&shop.store, &key("d"), State::InDoubt).await;
    bring(&shop.store, &key("done"), State::Completed).await;
    let seen = shop.idem.run(&["stats", "--watch", "--times", "2", "--interval", "0.1"]).ended(0).out;
    assert_eq!(seen.matches(&key("d").digest().to_string()).count(), 2, "{seen}");
    assert!(!seen.contains(&key("done").digest().to_string()), "{seen}");
    assert!(!seen.contains('\u{1b}'), "without a terminal nothing is drawn: {seen:?}");
    let frames =
        shop.idem.run(&["--json", "stats", "--watch", "--times", "2", "--interval", "0.1"]).ended(0).json();
    assert_eq!(frames.len(), 2);
    assert_eq!(frames[1]["open"][0]["state"], "in_doubt");
    let drawn = shop.idem.run_on_terminal(&["stats", "--watch", "--times", "1"], "").ended(0).out;
    assert!(drawn.contains("\u{1b}[H\u{1b}[2J"), "{drawn:?}");
}

#[tokio::test]
async fn what_is_past_its_time_is_purged_and_nothing_else() {
    let shop = Shop::new();
    bring(&shop.store, &key("kept"), State::Completed).await;
    assert_eq!(shop.idem.run(&["--json", "purge"]).ended(0).one()["deleted"], 0);
    // The store also purges by itself, but later.
    lapse(&shop.store, &key("over"), OnCrash::Rerun, Duration::from_millis(1)).await;
    shop.idem.run(&["purge", "--limit", "5"]).ended(0);
    shop.idem.run(&["list", "--expired", "--state", "in-flight"]).ended(1);
    assert_eq!(state_of(&shop.store, &key("kept")).await, Some(State::Completed));
}

#[tokio::test]
async fn a_record_that_cannot_be_read_is_listed_and_can_be_forgotten() {
    let shop = Shop::new();
    bring(&shop.store, &key("fine"), State::Completed).await;
    bring(&shop.store, &key("odd"), State::Completed).await;
    let file = shop.folder().join("idem.db");
    let sql = "UPDATE idem_records SET state = 'eaten' WHERE key = 'odd'";
    assert_eq!(rusqlite::Connection::open(file).unwrap().execute(sql, ()).unwrap(), 1);
    let listed = shop.idem.run(&["--json", "list"]).ended(0).json();
    let states: Vec<_> = listed.iter().map(|record| record["state"].as_str().unwrap()).collect();
    assert!(states.contains(&"unreadable") && states.contains(&"completed"), "{listed:?}");
    let digest = key("odd").digest().to_string();
    shop.idem.run(&["show", "--digest", &digest]).ended(5);
    shop.idem.run(&["forget", "--digest", &digest, "--yes"]).ended(0);
    assert_eq!(shop.idem.digests(&[]), digests(&[&key("fine")]));
}

#[tokio::test]
async fn records_that_cannot_be_read_are_found_behind_any_number_of_others() {
    let shop = Shop::new();
    for number in 0..150 {
        bring(&shop.store, &key(&format!("key {number}")), State::InFlight).await;
    }
    let damage = |name: &str| {
        let file = rusqlite::Connection::open(shop.folder().join("idem.db")).unwrap();
        assert_eq!(
            file.execute("UPDATE idem_records SET state = 'eaten' WHERE key = ?1", [name]).unwrap(),
            1
        );
    };
    bring(&shop.store, &key("zz"), State::Completed).await;
    damage("zz");
    assert_eq!(shop.idem.digests(&["--state", "unreadable"]), digests(&[&key("zz")]));
    assert_eq!(shop.idem.digests(&["--state", "unreadable,in-flight", "--limit", "0"]).len(), 151);
    assert_eq!(shop.idem.digests(&["--state", "in-flight", "--limit", "0"]).len(), 150);
    let stats = shop.idem.run(&["stats"]).ended(0).out;
    assert!(stats.contains("`idem list --state unreadable`"), "{stats}");
    damage("key 0");
    damage("key 1");
    for full in [&[][..], &["--full"]] {
        let words = ["--json", "list", "--state", "unreadable", "--limit", "1"];
        let one = shop.idem.run(&[&words[..], full].concat()).ended(0);
        assert!(one.json().len() == 1 && one.err.contains("more than 1"), "{one:?}");
    }
}

#[tokio::test]
async fn a_reader_that_has_read_enough_is_no_error() {
    let shop = Shop::new();
    for number in 0..400 {
        bring(&shop.store, &key(&format!("key {number}")), State::InFlight).await;
    }
    let mut child = shop.idem.command(&["--json", "list", "--limit", "0"]).spawn().unwrap();
    let mut first = [0; 16];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    assert!(ended.stderr.is_empty(), "{ended:?}");
}

#[tokio::test]
async fn the_doctor_looks_at_a_file_and_leaves_nothing_behind() {
    let shop = Shop::new();
    let seen = shop.idem.run(&["--json", "doctor"]).ended(0).one();
    assert!(seen["server"].as_str().unwrap().starts_with("SQLite 3."), "{seen}");
    for operation in ["claim", "renew", "get", "release", "resolve", "complete", "replay", "forget"] {
        assert!(seen["seconds"][operation].as_f64().unwrap() > 0.0, "{operation} of {seen}");
    }
    shop.idem.run(&["list", "--expired"]).ended(1);
    let read = shop.idem.run(&["doctor", "--read-only"]).ended(0).out;
    assert!(read.contains("synchronous") && !read.contains("MEDIAN"), "{read}");
    assert!(shop.idem.run(&["doctor"]).ended(0).out.contains("MEDIAN"));
    assert_eq!(shop.store.purge(usize::MAX).await.unwrap(), 0);
}

#[tokio::test]
async fn the_steps_of_a_record_are_shown_by_name_and_size() {
    let shop = Shop::new();
    let (key, request) = (key("order-1"), claim());
    let ClaimAnswer::Granted(grant) = shop.store.claim(&key, &request).await.unwrap() else { panic!() };
    let result = StoredResult::Value(format!("\"{SECRET}\"").into());
    let step = RecordedStep::new("reserve".to_owned(), None, result);
    let record = RecordStep::new(request.owner, grant.fence, 0, step);
    shop.store.record_step(&key, &record).await.unwrap();
    let shown = shop.idem.run(&["--json", "show", "order-1", "--result"]).ended(0);
    assert_eq!(shown.one()["steps"][0]["name"], "reserve");
    assert_eq!(shown.one()["steps"][0]["result"]["bytes"], 6);
    let text = shop.idem.run(&["show", "order-1", "--result"]).ended(0).out;
    assert!(text.contains("step 1") && text.contains("reserve  6 B"), "{text}");
    assert!(!text.contains(SECRET) && !shown.out.contains(SECRET), "{text}");
}

#[tokio::test]
async fn operations_that_no_catalogue_claims_are_listed() {
    let shop = Shop::new();
    bring(&shop.store, &key("order-1"), State::Completed).await;
    bring(&shop.store, &key_of("shop.refund", "order-1"), State::InFlight).await;
    bring(&shop.store, &key_of("shop.refund", "order-2"), State::Completed).await;
    let all = shop.idem.run(&["scopes"]).ended(0).out;
    assert!(all.contains(SCOPE) && all.contains("shop.refund"), "{all}");

    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let file = folder.path().join(name);
        std::fs::write(&file, text).unwrap();
        file.to_str().unwrap().to_owned()
    };
    let charge = file("shop.catalogue", &format!(r#"{{"operations": [{{"scope": "{SCOPE}"}}]}}"#));
    let refund = file("refunds.catalogue", r#"{"operations": [{"scope": "shop.refund"}]}"#);
    let unclaimed = shop.idem.run(&["--json", "scopes", "--catalogue", &charge]).ended(0).one();
    assert_eq!(unclaimed, serde_json::json!({ "scope": "shop.refund", "records": 2 }));
    shop.idem.run(&["scopes", "--catalogue", &charge, "--catalogue", &refund]).ended(1);

    let broken = file("broken.catalogue", r#"{"operations": [{"tll": 3}]}"#);
    let refused = shop.idem.run(&["scopes", "--catalogue", &broken]).ended(2);
    assert!(refused.err.contains("it is no catalogue: unknown field `tll`"), "{refused:?}");
    shop.idem.run(&["scopes", "--catalogue", "nowhere"]).ended(2);
}
