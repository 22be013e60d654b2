//! Calls that are dropped while the writes of their bodies are undone.

use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::task::Poll;

use futures_util::FutureExt as _;
use sqlx::postgres::PgPoolOptions;

use super::{Bank, Then, effect, pay};

#[tokio::test]
async fn a_call_that_is_dropped_while_it_is_undone_leaves_the_connection_sound() {
    let bank = Bank::open().await;
    // One connection, so that the next caller gets the same one.
    let pool = PgPoolOptions::new().max_connections(1).connect(&bank.server.url()).await.unwrap();
    let mut broken_off = 0;
    for (kind, then) in [Then::Fail(false), Then::Fail(true), Then::Panic].into_iter().enumerate() {
        for polls in 0..40 {
            let order = format!("{kind}-{polls}");
            let mut tx = pool.begin().await.unwrap();
            let ended = {
                let call = AssertUnwindSafe(pay(&bank.store, &mut tx, &order, then.clone())).catch_unwind();
                let mut call = pin!(call);
                let mut left = polls;
                poll_fn(|cx| {
                    if left == 0 {
                        return Poll::Ready(false);
                    }
                    left -= 1;
                    call.as_mut().poll(cx).map(|_| true)
                })
                .await
            };
            broken_off += usize::from(!ended && polls > 0);
            drop(tx);
            let next = format!("after {order}");
            let mut tx = pool.begin().await.unwrap();
            effect(&mut tx, &next).await.unwrap();
            tx.commit().await.unwrap();
            let there = bank.server.sql(&format!("select count(*) from effects where id = '{next}'"));
            assert_eq!(there, "1", "{next}");
        }
    }
    // The number of polls of a call depends on the machine: an answer may arrive before the first poll.
    assert!(broken_off > 0);
}
