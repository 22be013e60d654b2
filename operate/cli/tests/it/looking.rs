//! `list`, `show`, `stats` and `purge`: what they find, and their exit codes if they find nothing.

use std::time::Duration;

use idem::OnCrash;
use idem::protocol::State;

use crate::idem_command::*;

const STATES: [(&str, State); 5] = [
    ("in-flight", State::InFlight),
    ("completed", State::Completed),
    ("failed", State::Failed),
    ("released", State::Released),
    ("in-doubt", State::InDoubt),
];

#[tokio::test]
async fn records_are_listed_and_counted_by_state_operation_age_and_lease() {
    let shop = Shop::new();
    assert_eq!(shop.idem.run(&["--json", "stats"]).ended(1).one()["all"]["live"], 0);
    for (name, state) in STATES {
        bring(&shop.store, &key(name), state).await;
        bring(&shop.store, &key_of("shop.refund", name), state).await;
    }
    for (name, state) in STATES {
        let both = digests(&[&key(name), &key_of("shop.refund", name)]);
        assert_eq!(shop.idem.digests(&["--state", name]), both, "{state:?}");
        let one = shop.idem.digests(&["--state", name, "--scope", SCOPE]);
        assert_eq!(one, digests(&[&key(name)]), "{state:?}");
    }
    let two = shop.idem.digests(&["--scope", SCOPE, "--state", "failed,in_flight"]);
    assert_eq!(two, digests(&[&key("failed"), &key("in-flight")]));
    shop.idem.run(&["list", "--scope", "shop.nothing"]).ended(1);
    lapse(&shop.store, &key("lapsed"), OnCrash::Rerun, Duration::from_secs(60)).await;
    lapse(&shop.store, &key("over"), OnCrash::Rerun, Duration::from_millis(1)).await;
    assert_eq!(shop.idem.digests(&["--lapsed"]), digests(&[&key("lapsed")]));
    assert_eq!(shop.idem.digests(&["--older", "1ms"]).len(), 11);
    assert!(shop.idem.digests(&["--older", "1h"]).is_empty());
    let counted = shop.idem.run(&["--json", "stats"]).ended(0).one();
    let figures =
        ["live", "in_flight", "lapsed", "in_doubt", "result_bytes"].map(|name| &counted["all"][name]);
    assert_eq!(figures, [11, 3, 1, 2, 72]);
    assert!(counted["all"]["longest_lapse_seconds"].as_f64().unwrap() > 0.0);
    let one = shop.idem.run(&["--json", "stats", "--scope", "shop.refund"]).ended(0).one();
    assert_eq!((&one["all"]["live"], &one["scopes"]["shop.refund"]["in_doubt"]), (&5.into(), &1.into()));
    let table = shop.idem.run(&["stats"]).ended(0).out;
    assert!(table.contains("SCOPE") && table.contains("shop.refund") && table.contains("(all)"), "{table}");
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
    bring(&shop.store, &key_of("shop.refund", "order-1"), State::Completed).await;
    let asked = shop.idem.run(&["show", "order-1"]).ended(3);
    assert!(asked.err.contains(SCOPE) && asked.err.contains("shop.refund"), "{asked:?}");
}

#[tokio::test]
async fn a_watch_looks_as_often_as_it_is_told_and_shows_what_is_open() {
    let shop = Shop::new();
    bring(&shop.store, &key("d"), State::InDoubt).await;
    bring(&shop.store, &key("done"), State::Completed).await;
    let seen = shop.idem.run(&["stats", "--watch", "--times", "2", "--interval", "100ms"]).ended(0).out;
    assert_eq!(seen.matches(&key("d").digest().to_string()).count(), 2, "{seen}");
    assert!(!seen.contains(&key("done").digest().to_string()), "{seen}");
    assert!(!seen.contains('\u{1b}'), "without a terminal nothing is drawn: {seen:?}");
    let frames =
        shop.idem.run(&["--json", "stats", "--watch", "--times", "2", "--interval", "100ms"]).ended(0).json();
    assert_eq!(frames.len(), 2);
    assert_eq!(frames[1]["open"][0]["state"], "in_doubt");
    let drawn =
        shop.idem.run_on_terminal(&["stats", "--watch", "--times", "1"], "", async {}).await.ended(0).out;
    assert!(drawn.contains("\u{1b}[H\u{1b}[2J"), "{drawn:?}");
}

#[tokio::test]
async fn what_is_past_its_time_is_purged_and_nothing_else() {
    let shop = Shop::new();
    bring(&shop.store, &key("kept"), State::Completed).await;
    assert_eq!(shop.idem.run(&["--json", "purge"]).ended(0).one()["deleted"], 0);
    // The store also purges expired records by itself, but later.
    lapse(&shop.store, &key("over"), OnCrash::Rerun, Duration::from_millis(1)).await;
    shop.idem.run(&["purge", "--limit", "5"]).ended(0);
    shop.idem.run(&["list", "--expired", "--state", "in-flight"]).ended(1);
    assert_eq!(state_of(&shop.store, &key("kept")).await, Some(State::Completed));
}

#[tokio::test]
async fn records_that_cannot_be_read_are_found_behind_any_number_of_others_and_can_be_forgotten() {
    let shop = Shop::new();
    for number in 0..150 {
        bring(&shop.store, &key(&format!("key {number}")), State::InFlight).await;
    }
    for name in ["zy", "zz"] {
        bring(&shop.store, &key(name), State::Completed).await;
        shop.eat(name);
    }
    assert_eq!(shop.idem.digests(&["--state", "unreadable"]), digests(&[&key("zy"), &key("zz")]));
    assert_eq!(shop.idem.digests(&["--state", "unreadable,in-flight", "--limit", "0"]).len(), 152);
    assert_eq!(shop.idem.digests(&["--state", "in-flight", "--limit", "0"]).len(), 150);
    let stats = shop.idem.run(&["stats"]).ended(0).out;
    assert!(stats.contains("`idem list --state unreadable`"), "{stats}");
    for full in [&[][..], &["--full"]] {
        let words = ["--json", "list", "--state", "unreadable", "--limit", "1"];
        let one = shop.idem.run(&[&words[..], full].concat()).ended(0);
        assert!(one.json()[0]["state"] == "unreadable" && one.err.contains("more than 1"), "{one:?}");
    }
    let digest = key("zz").digest().to_string();
    shop.idem.run(&["show", "--digest", &digest]).ended(5);
    shop.idem.run(&["forget", "--digest", &digest, "--yes"]).ended(0);
    assert_eq!(shop.idem.digests(&["--state", "unreadable"]), digests(&[&key("zy")]));
}

#[tokio::test]
async fn operations_that_no_catalogue_claims_are_counted() {
    let shop = Shop::new();
    bring(&shop.store, &key("order-1"), State::Completed).await;
    bring(&shop.store, &key_of("shop.refund", "order-2"), State::Completed).await;
    let file = |name: &str, text: &str| {
        let file = shop.folder().join(name);
        std::fs::write(&file, text).unwrap();
        file.to_str().unwrap().to_owned()
    };
    let charge = file("shop.catalogue", &format!(r#"{{"operations": [{{"scope": "{SCOPE}"}}]}}"#));
    let refund = file("refunds.catalogue", r#"{"operations": [{"scope": "shop.refund"}]}"#);
    let unclaimed = shop.idem.run(&["--json", "stats", "--catalogue", &charge]).ended(0).one();
    let scopes = unclaimed["scopes"].as_object().unwrap();
    assert!(scopes.len() == 1 && scopes["shop.refund"]["live"] == 1, "{unclaimed}");
    let table = shop.idem.run(&["scopes", "--catalogue", &charge]).ended(0).out;
    assert!(
        table.contains("shop.refund") && !table.contains("(all)") && unclaimed["all"].is_null(),
        "{table}"
    );
    shop.idem.run(&["stats", "--catalogue", &charge, "--catalogue", &refund]).ended(1);
    shop.eat("order-1");
    shop.idem.run(&["stats", "--catalogue", &charge, "--catalogue", &refund]).ended(1);

    let broken = file("broken.catalogue", r#"{"operations": [{"tll": 3}]}"#);
    let refused = shop.idem.run(&["stats", "--catalogue", &broken]).ended(2);
    assert!(refused.err.contains("it is not a catalogue: unknown field `tll`"), "{refused:?}");
    shop.idem.run(&["stats", "--catalogue", "nowhere"]).ended(2);
}
