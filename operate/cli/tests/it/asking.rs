//! The command asks before it destroys; where it cannot ask, it changes nothing.

use idem::protocol::State;

use crate::idem_command::*;

const DESTROY: [&[&str]; 3] = [
    &["forget", "order-1"],
    &["resolve", "order-1", "--release"],
    &["resolve", "order-1", "--completed", "1", "--unencrypted"],
];

#[tokio::test]
async fn without_a_terminal_and_without_yes_nothing_is_done() {
    for words in DESTROY {
        let shop = Shop::new();
        bring(&shop.store, &key("order-1"), State::InDoubt).await;
        for refused in [shop.idem.run(words), shop.idem.run_with(words, "yes\n")] {
            let refused = refused.ended(6);
            assert!(refused.err.contains("--yes"), "{refused:?}");
        }
        assert_eq!(state_of(&shop.store, &key("order-1")).await, Some(State::InDoubt), "{words:?}");
    }
}

#[tokio::test]
async fn a_person_who_does_not_say_yes_means_no() {
    for words in DESTROY {
        let shop = Shop::new();
        bring(&shop.store, &key("order-1"), State::InDoubt).await;
        for said in ["no", "", "yep"] {
            let refused = shop.idem.run_on_terminal(words, said).ended(6);
            assert!(
                refused.out.contains("Type yes") && refused.out.contains("nothing was done"),
                "{refused:?}"
            );
        }
        assert_eq!(state_of(&shop.store, &key("order-1")).await, Some(State::InDoubt), "{words:?}");
    }
}

#[tokio::test]
async fn a_person_who_says_yes_has_it_done() {
    for (words, state) in DESTROY.into_iter().zip([None, Some(State::Released), Some(State::Completed)]) {
        let shop = Shop::new();
        bring(&shop.store, &key("order-1"), State::InDoubt).await;
        let done = shop.idem.run_on_terminal(words, "yes").ended(0);
        assert!(done.out.contains("Type yes"), "{done:?}");
        assert_eq!(state_of(&shop.store, &key("order-1")).await, state, "{words:?}");
    }
}
