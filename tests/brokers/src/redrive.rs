//! Dead letters that are listed and sent back.

use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use idem_messages::{Disposition, Reason, Redrive, StoredLetter};
use idem_runtime::{MemoryStore, Operation};
use tokio::time::timeout;

use crate::cases::work_off;
use crate::{Failed, Handler, Queue, Shop, until};

/// Names of operations. A name may be any text.
const SHIP: &str = "100 % orders.größe";
const RETURN: &str = "orders.return";

/// Ships each order: under [`RETURN`] if its name begins with `r`, otherwise under [`SHIP`]. Until the
/// carrier opens, every order fails and uses up its one attempt.
fn carries(shop: &Shop, store: &MemoryStore, is_open: &Arc<AtomicBool>) -> Handler {
    let (to, store, is_open) = (shop.clone(), store.clone(), is_open.clone());
    shop.notes(move |order| {
        let (shop, store, is_open) = (to.clone(), store.clone(), is_open.clone());
        async move {
            let scope = if order.starts_with('r') { RETURN } else { SHIP };
            let operation = Operation::new(scope).max_attempts(1);
            let call = operation.run(&store, order.clone(), || async {
                if !is_open.load(Ordering::SeqCst) {
                    return Err(Failed::Says("closed".to_owned()));
                }
                shop.ship(order, Duration::ZERO).await
            });
            call.await
        }
    })
}

pub(crate) async fn letters(queue: &impl Queue, number: usize) -> Vec<StoredLetter> {
    let mut letters = Vec::new();
    until("the dead letters are there", async || {
        letters = queue.letters().await;
        letters.len() == number
    })
    .await;
    letters.sort_by(|one, other| one.operation.cmp(&other.operation));
    letters
}

/// Two messages use up their attempts and become dead letters. For the first message, the redrive forgets the
/// record, so the message is handled. For the second message, the first redrive keeps the record, so the call
/// is refused again. The next redrive forgets the record, and the message is handled, too.
pub(crate) async fn a_dead_letter_is_listed_sent_back_and_handled_once(queue: &impl Queue) {
    let (shop, store, is_open) = (Shop::default(), MemoryStore::new(), Arc::<AtomicBool>::default());
    let carries = || carries(&shop, &store, &is_open);
    for order in ["1", "r2"] {
        queue.send(order).await;
    }
    let summary = work_off(queue, Shop::settings(), carries()).await;
    assert_eq!(summary.rejected, 2, "{summary:?}");
    let listed = letters(queue, 2).await;
    let reasons: Vec<_> =
        listed.iter().map(|letter| (letter.operation.as_deref(), letter.reason.as_deref())).collect();
    let exhausted = Some("exhausted");
    assert_eq!(reasons, [(Some(SHIP), exhausted), (Some(RETURN), exhausted)]);
    for letter in &listed {
        assert!(letter.key.is_some() && letter.origin.is_some() && letter.error.is_some(), "{letter:?}");
        assert!(!letter.id.is_empty(), "{letter}");
    }
    // Listing changes nothing.
    assert_eq!(letters(queue, 2).await.len(), 2);

    is_open.store(true, Ordering::SeqCst);
    let of = |operation: &'static str| {
        Redrive::matching(move |letter| letter.operation.as_deref() == Some(operation))
    };
    let done = queue.redrive(of(SHIP).forgetting(&store)).await;
    assert_eq!((done.sent, done.forgotten, done.kept, done.failed), (1, 1, 1, 0), "{done:?}");
    work_off(queue, Shop::settings(), carries()).await;
    assert_eq!(shop.effects(), ["1"]);
    let left = letters(queue, 1).await;
    assert_eq!(left[0].operation.as_deref(), Some(RETURN));

    let done = queue.redrive(Redrive::all()).await;
    assert_eq!((done.sent, done.forgotten), (1, 0), "{done:?}");
    work_off(queue, Shop::settings(), carries()).await;
    assert_eq!(shop.effects(), ["1"], "the record refuses it");
    letters(queue, 1).await;
    let done = queue.redrive(Redrive::all().forgetting(&store)).await;
    assert_eq!((done.sent, done.forgotten), (1, 1), "{done:?}");
    work_off(queue, Shop::settings(), carries()).await;
    assert_eq!(shop.effects(), ["1", "r2"]);
    assert!(shop.are_traced(), "a message lost its header among the dead letters");
    letters(queue, 0).await;
}

/// Drops one redrive after another, each a little later than the one before, until all messages are back in
/// the queue.
pub(crate) async fn a_redrive_that_is_dropped_anywhere_loses_nothing(queue: &impl Queue) {
    let shop = Shop::default();
    let orders = ["1", "2", "3"];
    for order in orders {
        queue.send(order).await;
    }
    let poison = shop.notes(|_| ready(Err(Failed::Becomes(Disposition::reject(Reason::Terminal)))));
    work_off(queue, Shop::settings(), poison).await;
    letters(queue, 3).await;
    let (mut drops, mut patience) = (0, Duration::ZERO);
    // Some brokers hide a letter for a while after a redrive has read it, even if the redrive was dropped.
    until("all messages are in the queue", async || {
        let is_dropped = timeout(patience, queue.redrive(Redrive::all())).await.is_err();
        drops += u32::from(is_dropped);
        patience = patience * 5 / 4 + Duration::from_millis(1);
        !is_dropped && queue.left().await.is_some_and(|left| left >= 3)
    })
    .await;
    println!("    dropped {drops} times");
    assert!(drops > 2);
    until("all are shipped", async || {
        queue.redrive(Redrive::all()).await;
        work_off(queue, Shop::settings(), shop.ships(Duration::ZERO)).await;
        shop.effects().len() == orders.len()
    })
    .await;
    assert_eq!(shop.effects(), orders);
}
