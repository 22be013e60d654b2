//! The command asks before it destroys; where it cannot ask, it changes nothing.

use idem::protocol::State;

use crate::idem_command::*;

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
