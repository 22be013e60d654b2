//! Keys and results are private: no command shows them without the option for it.

use idem::protocol::State;
use serde_json::json;

use crate::idem_command::*;

#[tokio::test]
async fn no_command_shows_a_key_or_a_result_that_was_not_told_to() {
    let shop = Shop::new();
    let name = format!("{SECRET}-1");
    let digest = key(&name).digest().to_string();
    bring(&shop.store, &key(&name), State::Completed).await;
    bring(&shop.store, &key(&format!("{SECRET}-2")), State::InDoubt).await;
    let doubt = key(&format!("{SECRET}-2")).digest().to_string();
    let shown =
        shop.idem.run(&["list", "--full", "--state", "completed", "--keys", "--results"]).ended(0).one();
    assert_eq!((&shown["key"], &shown["result"]["value"]["receipt"]), (&json!(name), &json!(SECRET)));
    shop.idem.run(&["list", "--full", "--scope", "none"]).ended(1);
    let commands: [&[&str]; 11] = [
        &["list"],
        &["list", "--full"],
        &["show", &name],
        &["show", "--digest", &digest],
        &["stats"],
        &["stats", "--watch", "--times", "1"],
        &["doctor"],
        &["forget", "--digest", &digest],
        &["resolve", "--digest", &doubt, "--release"],
        &["resolve", "--digest", &doubt, "--release", "--yes"],
        &["forget", &name, "--yes"],
    ];
    for words in commands {
        for json in [false, true] {
            let mut all = if json { vec!["--json"] } else { Vec::new() };
            all.extend(words);
            let ended = shop.idem.run(&all);
            assert!(!ended.out.contains(SECRET) && !ended.err.contains(SECRET), "{all:?}: {ended:?}");
        }
    }
}

#[tokio::test]
async fn a_name_that_would_steer_the_terminal_is_shown_escaped() {
    let shop = Shop::new();
    bring(&shop.store, &key_of("shop\u{1b}[2J", "a\u{1b}]0;b\u{7}"), State::InFlight).await;
    for words in
        [&["list", "--keys"][..], &["stats"], &["stats", "--watch", "--times", "1", "--keys"], &["list"]]
    {
        let shown = shop.idem.run(words).ended(0).out;
        assert!(!shown.contains('\u{1b}') && shown.contains("\\u{1b}"), "{shown:?}");
    }
}
