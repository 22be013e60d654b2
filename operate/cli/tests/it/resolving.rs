//! `resolve` and `forget`. After a person has confirmed, later calls get the result that the operator
//! recorded.

use std::time::Duration;

use idem::protocol::{State, StoredResult};
use idem::{OnCrash, Store as _};

use crate::idem_command::*;

#[tokio::test]
async fn a_result_is_kept_and_shown_as_it_was_written() {
    let shop = Shop::new();
    let number = r#"{"n": 123456789012345678901234567890.1250}"#;
    for (name, option, from, state) in [
        ("given", "--completed", number, State::Completed),
        ("read", "--completed", "-", State::Completed),
        ("error", "--failed", number, State::Failed),
    ] {
        bring(&shop.store, &key(name), State::InDoubt).await;
        let words = ["resolve", name, option, from, "--unencrypted", "--yes"];
        shop.idem.run_with(&words, &format!("{number}\n")).ended(0);
        let record = shop.store.get(&key(name)).await.unwrap().unwrap();
        assert_eq!((record.state, record.result), (state, Some(StoredResult::Value(number.into()))));
        let shown = shop.idem.run(&["--json", "show", name, "--result"]).ended(0);
        assert!(shown.out.contains(&format!("\"value\":{number}")), "{shown:?}");
        shown.one();
    }
}

#[tokio::test]
async fn what_is_not_in_doubt_is_not_resolved() {
    let shop = Shop::new();
    for (name, state) in [("f", State::InFlight), ("c", State::Completed), ("r", State::Released)] {
        bring(&shop.store, &key(name), state).await;
        shop.idem.run(&["resolve", name, "--completed", "1", "--yes"]).ended(3);
        assert_eq!(state_of(&shop.store, &key(name)).await, Some(state));
    }
    lapse(&shop.store, &key("again"), OnCrash::Rerun, Duration::from_secs(60)).await;
    shop.idem.run(&["resolve", "again", "--completed", "1", "--yes"]).ended(3);
    shop.idem.run(&["resolve", "nothing", "--scope", SCOPE, "--completed", "1", "--yes"]).ended(1);
    assert_eq!(state_of(&shop.store, &key("nothing")).await, None);
}

#[tokio::test]
async fn a_dry_run_and_a_no_do_not_even_claim_a_lapsed_key() {
    let shop = Shop::new();
    lapse(&shop.store, &key("order-1"), OnCrash::InDoubt, DAY).await;
    let words = ["resolve", "order-1", "--release"];
    shop.idem.run(&[&words[..], &["--dry-run"]].concat()).ended(0);
    assert_eq!(state_of(&shop.store, &key("order-1")).await, Some(State::InFlight));
    shop.idem.run_on_terminal(&words, "no", async {}).await.ended(6);
    assert_eq!(state_of(&shop.store, &key("order-1")).await, Some(State::InFlight));
    // Another call claims the key before the person answers.
    let ended = shop.idem.run_on_terminal(&words, "yes", async {
        shop.store.forget(&key("order-1")).await.unwrap();
        lapse(&shop.store, &key("order-1"), OnCrash::InDoubt, DAY).await;
    });
    ended.await.ended(3);
    assert_eq!(state_of(&shop.store, &key("order-1")).await, Some(State::InFlight));
    shop.idem.run_on_terminal(&words, "yes", async {}).await.ended(0);
    assert_eq!(state_of(&shop.store, &key("order-1")).await, Some(State::Released));
}

#[tokio::test]
async fn nothing_is_done_before_a_person_says_yes_on_a_terminal_or_by_an_option() {
    let decisions: [(&[&str], Option<State>); 3] = [
        (&["forget", "order-1"], None),
        (&["resolve", "order-1", "--release"], Some(State::Released)),
        (&["resolve", "order-1", "--completed", "1", "--unencrypted"], Some(State::Completed)),
    ];
    for (words, state) in decisions {
        let shop = Shop::new();
        bring(&shop.store, &key("order-1"), State::InDoubt).await;
        for refused in [shop.idem.run(words), shop.idem.run_with(words, "yes\n")] {
            let refused = refused.ended(6);
            assert!(refused.err.contains("--yes"), "{refused:?}");
        }
        for said in ["no", "", "yep"] {
            let refused = shop.idem.run_on_terminal(words, said, async {}).await.ended(6);
            assert!(refused.out.contains("nothing was done"), "{refused:?}");
        }
        assert_eq!(state_of(&shop.store, &key("order-1")).await, Some(State::InDoubt), "{words:?}");
        let done = shop.idem.run_on_terminal(words, "yes", async {}).await.ended(0);
        assert!(done.out.contains("Type yes"), "{done:?}");
        assert_eq!(state_of(&shop.store, &key("order-1")).await, state, "{words:?}");
    }
}
