//! The cases that every broker's crate must pass.

use std::collections::BTreeMap;
use std::future::{pending, ready};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use idem_messages::{Disposition, Progress, Reason, Summary};
use tokio::sync::{Semaphore, oneshot};

use crate::redrive::{
    a_dead_letter_is_listed_sent_back_and_handled_once, a_redrive_that_is_dropped_anywhere_loses_nothing,
    letters,
};
use crate::{Delivered, Failed, Handler, Queue, Settings, Shop, emptied, until};

/// How long the broker may take to refuse a dead letter.
const REFUSED: Duration = Duration::from_secs(2);

/// How long a slow handler takes: longer than the 5 s that NATS and SQS wait for an acknowledgement in these
/// tests. If they waited for less than 5 s, a worker that pauses for a moment would lose its messages.
const KEPT: Duration = Duration::from_secs(7);

/// Runs every case, each on a separate queue.
pub async fn every<Q: Queue>(open: impl AsyncFn(&'static str) -> Q) {
    macro_rules! cases {
        ($($case:ident,)*) => {$(
            println!("{}", stringify!($case));
            $case(&open(stringify!($case)).await).await;
        )*};
    }
    cases! {
        a_pause_is_kept_and_holds_up_no_other_message,
        a_message_that_always_fails_is_set_aside_with_its_last_error,
        a_worker_that_is_shut_down_finishes_what_runs_and_the_rest_is_there_at_once,
        a_dead_letter_is_listed_sent_back_and_handled_once,
        a_redrive_that_is_dropped_anywhere_loses_nothing,
    }
}

/// Runs a worker until `over` returns. `work` gets the future that shuts the worker down.
pub async fn until_over<W: Future>(
    work: impl FnOnce(BoxFuture<'static, ()>) -> W,
    over: impl Future<Output = ()>,
) -> W::Output {
    let (end, ended) = oneshot::channel::<()>();
    let work = Box::pin(work(ended.map(drop).boxed()));
    let (output, ()) = tokio::join!(work, async {
        over.await;
        end.send(()).unwrap();
    });
    output
}

/// Runs the consumer until `over` returns, and returns its summary.
pub async fn work_until(
    queue: &impl Queue,
    settings: Settings,
    handler: Handler,
    over: impl Future<Output = ()>,
) -> Summary {
    // The future of a broker's worker is boxed, because it has many kilobytes.
    Box::pin(until_over(|shutdown| queue.work(shutdown, settings, handler), over)).await
}

/// Runs the consumer until the queue is empty, and returns its summary.
pub async fn work_off(queue: &impl Queue, settings: Settings, handler: Handler) -> Summary {
    work_until(queue, settings, handler, emptied(queue)).await
}

async fn a_pause_is_kept_and_holds_up_no_other_message(queue: &impl Queue) {
    let (shop, pause) = (Shop::default(), Duration::from_secs(5));
    let seen = shop.clone();
    let handler = shop.notes(move |order| {
        let first = seen.begun(&order).len() == 1;
        let after = if order == "slow" { pause } else { Duration::from_millis(500) };
        let again = Failed::Becomes(Disposition::retry(after));
        ready(if first && order != "plain" { Err(again) } else { Ok(String::new()) })
    });
    for order in ["slow", "fast", "plain"] {
        queue.send(order).await;
    }
    let summary = work_off(queue, Shop::settings(), handler).await;
    assert_eq!((summary.acknowledged, summary.retried), (3, 2), "{summary:?}");
    let (slow, fast) = (shop.begun("slow"), shop.begun("fast"));
    assert_eq!((slow.len(), fast.len()), (2, 2));
    // The server's clock may be coarse, so the pause may be up to 50 ms shorter.
    assert!(slow[1] - slow[0] > pause - Duration::from_millis(50), "{:?}", slow[1] - slow[0]);
    assert!(fast[1] < slow[1], "the shorter pause ends first");
    assert_eq!(shop.begun("plain").len(), 1);
}

async fn a_message_that_always_fails_is_set_aside_with_its_last_error(queue: &impl Queue) {
    let shop = Shop::default();
    let seen = shop.clone();
    let handler = shop.notes(move |order| {
        let first = seen.begun(&order).len() == 1;
        let text = match order.as_str() {
            _ if first => "of the first try".to_owned(),
            "short" => "the bank said:\r\n100% of Müller’s € are gone\u{0}".to_owned(),
            _ => "€".repeat(100_000),
        };
        ready(Err(Failed::Says(text)))
    });
    for order in ["long", "short"] {
        queue.send(order).await;
    }
    let summary = work_off(queue, Shop::settings().max_tries(2), handler).await;
    assert_eq!((summary.retried, summary.rejected, shop.deliveries()), (2, 2, 4), "{summary:?}");
    let letters = letters(queue, 2).await;
    assert!(letters.iter().all(|letter| letter.reason.as_deref() == Some("exhausted")), "{letters:?}");
    // Each error is one line of bounded length.
    let mut errors: Vec<_> = letters.into_iter().filter_map(|letter| letter.error).collect();
    errors.sort();
    assert_eq!(errors, ["the bank said:  100% of Müller’s € are gone", &format!("{}...", "€".repeat(340))]);
}

async fn a_worker_that_is_shut_down_finishes_what_runs_and_the_rest_is_there_at_once(queue: &impl Queue) {
    let shop = Shop::default();
    for order in 100..130 {
        queue.send(&order.to_string()).await;
    }
    let (gate, ships) = (Arc::new(Semaphore::new(0)), shop.clone());
    let may_end = gate.clone();
    let handler = shop.notes(move |order| {
        let (gate, shop) = (gate.clone(), ships.clone());
        async move {
            let _ = gate.acquire().await;
            shop.ship(order, Duration::ZERO).await
        }
    });
    // No handler ends before the worker knows of its shutdown.
    let shutdown = |end: BoxFuture<'static, ()>| end.map(move |()| may_end.close()).boxed();
    let all_run = until("all handlers run", async || shop.deliveries() == 10);
    let summary = until_over(|end| queue.work(shutdown(end), Shop::settings(), handler), all_run).await;
    assert_eq!((summary.acknowledged, shop.effects().len()), (10, 10), "{summary:?}");
    assert_eq!(summary.broker_errors, 0);
    let begin = Instant::now();
    let rest = work_off(queue, Shop::settings().concurrency(20), shop.ships(Duration::ZERO)).await;
    println!("    the rest took {:?}", begin.elapsed());
    assert_eq!((shop.effects().len(), rest.replayed), (30, 0), "{rest:?}");
}

/// `broken` is the same queue, but the queue or topic for its dead letters does not exist. A message that is
/// rejected must be neither lost nor acknowledged.
pub async fn a_message_stays_while_it_cannot_be_set_aside<Q: Queue>(queue: &Q, broken: &Q) {
    let (shop, progress) = (Shop::default(), Progress::new());
    queue.send("1").await;
    let poison = shop.notes(|_| ready(Err(Failed::Becomes(Disposition::reject(Reason::Terminal)))));
    let settings = Shop::settings().broker_timeout(REFUSED).progress(&progress);
    // The broker may refuse late, or the wait for its refusal may time out.
    let refused = until("it is refused", async || progress.summary().broker_errors >= 1);
    let summary = work_until(broken, settings, poison, refused).await;
    assert!(summary.broker_errors >= 1 && summary.rejected == 0, "{summary:?}");
    work_off(queue, Shop::settings(), shop.ships(Duration::ZERO)).await;
    assert_eq!(shop.effects(), ["1"]);
}

/// Runs a worker of ten handlers over fifteen messages. The handler of the first message takes half a second;
/// the others take longer than the broker waits for an acknowledgement. A message that was delivered must not
/// be delivered again while it waits for a handler.
pub async fn a_message_that_waits_for_a_handler_is_kept_by_its_worker(queue: &impl Queue) {
    let (deliveries, progress) = (Arc::new(Mutex::new(BTreeMap::new())), Progress::new());
    for order in 0..15 {
        queue.send(&order.to_string()).await;
    }
    let seen = deliveries.clone();
    let handler: Handler = Box::new(move |Delivered { body: order, deliveries, .. }| {
        let work = if order == "0" { Duration::from_millis(500) } else { KEPT };
        let mut seen = seen.lock().unwrap();
        let highest = seen.entry(order).or_insert(deliveries);
        *highest = deliveries.max(*highest);
        Box::pin(async move {
            tokio::time::sleep(work).await;
            Ok("parcel 7".to_owned())
        })
    });
    let settings = Shop::settings().progress(&progress);
    let handled = until("all are handled", async || progress.summary().acknowledged >= 15);
    let summary = work_until(queue, settings, handler, handled).await;
    assert_eq!(summary.taken, 15, "{summary:?}");
    assert!(deliveries.lock().unwrap().values().all(|highest| *highest == 1), "{deliveries:?}");
}

/// `restart` kills the broker and starts it again on its data, while a worker is in the middle of the
/// messages.
pub async fn a_broker_that_is_restarted_loses_nothing_and_the_worker_goes_on<Q: Queue + 'static>(
    queue: Q,
    restart: impl AsyncFnOnce(),
) {
    let (queue, shop) = (Arc::new(queue), Shop::default());
    for order in 0..200 {
        queue.send(&order.to_string()).await;
    }
    // The worker runs in its own task, which also shows that the future of `run_until` is `Send`.
    let (worker, handler) = (queue.clone(), shop.ships(Duration::from_millis(50)));
    let worker = tokio::spawn(async move { worker.work(pending().boxed(), Shop::settings(), handler).await });
    until("it works", async || shop.effects().len() > 20).await;
    restart().await;
    emptied(&*queue).await;
    assert!(!worker.is_finished());
    worker.abort();
    let mut all: Vec<_> = (0..200).map(|order| order.to_string()).collect();
    all.sort();
    assert_eq!(shop.effects(), all);
}
