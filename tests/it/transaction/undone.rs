//! Bodies that fail, panic or are dropped: the caller may still commit, and nothing of them is left behind.

use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::task::Poll;

use futures_util::FutureExt as _;
use sqlx::postgres::PgPoolOptions;

use super::{Bank, Failure, Then, effect, pay};

#[tokio::test]
async fn a_body_that_fails_leaves_nothing_behind_though_the_caller_commits() {
    let bank = Bank::open().await;
    let mut tx = bank.begin().await;
    effect(&mut tx, "the caller's").await.unwrap();
    let error = pay(&bank.store, &mut tx, "1", Then::Fail(false)).await.unwrap_err();
    assert!(matches!(error, Failure::Transient));
    tx.commit().await.unwrap();
    assert_eq!((bank.effects(), bank.records().as_str()), (1, ""));
    assert_eq!(bank.pay("1").await.unwrap(), 7);
    assert_eq!(bank.effects(), 2);
}

#[tokio::test]
async fn a_terminal_error_keeps_its_record_but_not_its_effects() {
    let bank = Bank::open().await;
    let mut tx = bank.begin().await;
    let error = pay(&bank.store, &mut tx, "1", Then::Fail(true)).await.unwrap_err();
    assert!(error.is_final());
    tx.commit().await.unwrap();
    assert_eq!((bank.effects(), bank.records().as_str()), (0, "failed"));
    assert!(bank.pay("1").await.unwrap_err().is_final());
    assert_eq!(bank.effects(), 0);
}

#[tokio::test]
async fn a_panic_leaves_nothing_behind_though_the_caller_commits() {
    let bank = Bank::open().await;
    let mut tx = bank.begin().await;
    let call = AssertUnwindSafe(pay(&bank.store, &mut tx, "1", Then::Panic)).catch_unwind();
    assert!(call.await.is_err());
    effect(&mut tx, "the caller's").await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!((bank.effects(), bank.records().as_str()), (1, ""));
}

#[tokio::test]
async fn a_call_that_is_dropped_at_any_point_leaves_nothing_or_all_though_the_caller_commits() {
    let bank = Bank::open().await;
    let (mut whole, mut going_on) = (0, 0);
    for polls in 0..60 {
        let order = format!("{polls}");
        let mut tx = bank.begin().await;
        let finished = {
            let mut call = pin!(pay(&bank.store, &mut tx, &order, Then::Return));
            let mut left = polls;
            poll_fn(|cx| {
                if left == 0 {
                    return Poll::Ready(false);
                }
                left -= 1;
                call.as_mut().poll(cx).map(|paid| paid.is_ok())
            })
            .await
        };
        // What the caller does next in its transaction is committed, unless the call was cancelled while it was ending,
        // which makes the transaction unusable.
        let own = format!("own {polls}");
        let goes_on = effect(&mut tx, &own).await.is_ok();
        let committed = tx.commit().await.is_ok();
        let owned = bank.server.sql(&format!("delete from effects where id = '{own}' returning 1"));
        assert_eq!(goes_on && committed, owned == "1", "after {polls} polls");
        going_on += usize::from(goes_on);
        let effects = format!("select count(*) from effects where id = '{order}'");
        let records = format!("select count(*) from idem_records_readable where key like 'order/{order}'");
        let (effects, records) = (bank.server.sql(&effects), bank.server.sql(&records));
        assert_eq!(effects, records, "after {polls} polls");
        assert!(!finished || effects == "1", "after {polls} polls");
        whole += usize::from(finished);
        assert_eq!(bank.pay(&order).await.unwrap(), 7, "after {polls} polls");
    }
    assert!(whole > 0 && whole < 60 && going_on > 50, "{whole} {going_on}");
    assert_eq!(bank.effects(), 60);
}

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
