//! Tests of `twice` around functions and consumers: it finds and names each planted fault, and reports
//! nothing about code without faults. The tests of `twice` around services are in `twice_http`, and for gRPC
//! in `web/tonic/tests/it/twice.rs`.

use std::any::Any;
use std::collections::BTreeSet;
use std::fmt;
use std::future::ready;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::{FutureExt as _, stream};
use idem_messages::{Consumer, DeadLetter, Delivery};
use idem_runtime::{Error, MemoryStore, Operation, context};
use idem_testing::{Twice, twice};
use serde::{Deserialize, Serialize};
use tokio::task::yield_now;

/// A shop with a payment service. The service makes one payment for each key.
#[derive(Clone, Default)]
pub(crate) struct Shop {
    pub(crate) store: MemoryStore,
    payments: Arc<Mutex<BTreeSet<String>>>,
    calls: Arc<AtomicU64>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Failure {
    Declined,
    Down,
    #[serde(skip)]
    Idem(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Idem(error)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl Shop {
    /// Pays as a slow service does: it waits before and after the payment.
    async fn pay(&self, key: String) -> Result<String, Failure> {
        yield_now().await;
        self.pay_at_once(&key);
        yield_now().await;
        Ok("paid".to_owned())
    }

    pub(crate) fn pay_at_once(&self, key: &str) {
        self.payments.lock().unwrap().insert(key.to_owned());
    }

    /// Pays with a new key each time.
    pub(crate) async fn pay_anew(&self) -> Result<String, Failure> {
        self.pay(self.call().to_string()).await
    }

    /// Pays with the key that is derived from the call's key.
    async fn pay_by_call(&self) -> Result<String, Failure> {
        self.pay(context().unwrap().downstream_key("payments")).await
    }

    async fn guarded<F>(&self, key: &str, body: impl FnOnce() -> F) -> Result<String, Failure>
    where
        F: Future<Output = Result<String, Failure>>,
    {
        let is_declined = |failure: &Failure| matches!(failure, Failure::Declined);
        Operation::new("shop.pay").terminal(is_declined).run(&self.store, key, body).await
    }

    /// Counts a call, and returns its number, from 0.
    pub(crate) fn call(&self) -> u64 {
        self.calls.fetch_add(1, Ordering::SeqCst)
    }

    pub(crate) fn payments(&self) -> usize {
        self.payments.lock().unwrap().len()
    }

    pub(crate) fn watched<S>(&self, inner: S) -> Twice<S> {
        let shop = self.clone();
        twice(inner).effects(move || ready(shop.payments() as u64))
    }
}

async fn fault<T>(test: impl Future<Output = T>) -> String {
    let Err(panic) = AssertUnwindSafe(test).catch_unwind().await else { panic!("no fault") };
    message(panic)
}

pub(crate) fn message(panic: Box<dyn Any + Send>) -> String {
    let message = match panic.downcast::<String>() {
        Ok(message) => *message,
        Err(panic) => (*panic.downcast::<&str>().unwrap()).to_owned(),
    };
    println!("{message}");
    message
}

#[tokio::test]
async fn a_function_whose_payment_service_takes_the_derived_key_passes_and_its_test_sees_one_answer() {
    let shop = Shop::default();
    let call = || shop.guarded("order-42", || shop.pay_by_call());
    assert_eq!(shop.watched(call).answer().await.unwrap(), "paid");
    assert_eq!(shop.payments(), 1);
}

#[tokio::test]
async fn a_function_without_a_guard_is_found() {
    let shop = Shop::default();
    let message = fault(shop.watched(|| shop.pay_anew()).unbroken().answer()).await;
    let expected = "the call did something twice: the effects went from 0 to 2 when it came twice at the same time, and to 3 when it came \
                    again; one call may raise them by one";
    assert_eq!(message, expected);
}

#[tokio::test]
async fn a_function_that_is_dropped_after_its_effect_and_has_it_again_is_found() {
    let shop = Shop::default();
    let call = || shop.guarded("order-42", || shop.pay_anew());
    let message = fault(shop.watched(call).answer()).await;
    let expected = "the call of shop.pay did something twice: the effects went from 0 to 2 when it came twice at the same time and \
                    was dropped ";
    assert!(message.starts_with(expected), "{message}");
    let shop = Shop::default();
    let call = || shop.guarded("order-42", || shop.pay_anew());
    assert_eq!(shop.watched(call).unbroken().answer().await.unwrap(), "paid");
}

#[tokio::test]
async fn another_value_or_terminal_error_of_a_repeated_call_is_found() {
    let shop = Shop::default();
    let number = || async { Ok::<_, Failure>(shop.call()) };
    let message = fault(twice(number).answer()).await;
    assert_eq!(message, "the call answered otherwise when it came again: `Ok(0)` and then `Ok(1)`");
    let declines_later = || {
        let is_early = shop.call() < 4;
        let answer = if is_early { Ok("paid".to_owned()) } else { Err(Failure::Declined) };
        shop.guarded(if is_early { "first" } else { "second" }, || ready(answer))
    };
    let message = fault(twice(declines_later).answer()).await;
    assert!(message.ends_with("came again: `Ok(\"paid\")` and then `Err(Declined)`"), "{message}");
}

#[tokio::test(start_paused = true)]
async fn a_key_in_flight_is_waited_for_and_at_last_refused() {
    let shop = Shop::default();
    let (begun, other) = (tokio::time::Instant::now(), shop.guarded("order-42", std::future::pending));
    let call = || shop.guarded("order-42", || shop.pay_by_call());
    tokio::select! {
        biased;
        answer = other => panic!("an answer: {answer:?}"),
        answer = twice(call).answer() => {
            assert!(matches!(answer, Err(Failure::Idem(Error::InFlight { .. }))), "{answer:?}");
        }
    }
    assert!(begun.elapsed() >= Duration::from_secs(20), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_slow_call_is_dropped_at_each_wait_and_then_answered_twice() {
    let shop = Shop::default();
    let reached = Mutex::new(Vec::new());
    let call = || async {
        let number = shop.call();
        for wait in 0..3 {
            reached.lock().unwrap().push(wait);
            tokio::time::sleep(Duration::from_secs(6)).await;
        }
        Ok::<_, Failure>(if number == 7 { "paid again" } else { "paid" })
    };
    let message = fault(twice(call).answer()).await;
    assert_eq!(
        message,
        "the call answered otherwise when it came again: `Ok(\"paid\")` and then `Ok(\"paid again\")`"
    );
    // Three pairs are dropped, one pair is answered, and one call comes again.
    let reached = reached.into_inner().unwrap();
    assert_eq!([0, 1, 2].map(|wait| reached.iter().filter(|&&reached| reached == wait).count()), [9, 7, 5]);
}

#[tokio::test]
async fn no_more_than_sixteen_pairs_are_dropped() {
    let shop = Shop::default();
    let call = || async {
        for _ in 0..20 {
            yield_now().await;
        }
        shop.pay_anew().await
    };
    let message = fault(shop.watched(call).answer()).await;
    assert!(
        message
            .contains(" from 0 to 2 when it came twice at the same time and was dropped 16 times, and to 3 "),
        "{message}"
    );
}

#[tokio::test]
async fn an_effect_after_the_answer_is_found_though_it_is_the_only_one() {
    let shop = Shop::default();
    let call = || async { if shop.call() < 2 { Ok("paid".to_owned()) } else { shop.pay_anew().await } };
    let message = fault(shop.watched(call).answer()).await;
    assert!(message.contains(" from 0 to 0 when it came twice at the same time, and to 1 "), "{message}");
}

#[tokio::test]
async fn the_fault_of_a_test_is_its_own() {
    let own = fault(async {
        let _unused = twice(|| ready(Ok::<_, Failure>("paid")));
        panic!("its own")
    });
    assert_eq!(own.await, "its own");
}

#[tokio::test]
async fn a_test_in_which_nothing_could_be_found_fails() {
    let message = fault(twice(|| ready(Ok::<_, Failure>("paid"))).answer()).await;
    let expected = "`twice` checked nothing: it repeats requests with the header of the key, messages and calls, and none of them made an \
                    idempotent call or raised the effects; put `#[idempotent]` or the layer around what they do, or count it with \
                    `effects`";
    assert_eq!(message, expected);
    let shop = Shop::default();
    let upsert = || shop.pay("order-42".to_owned());
    assert_eq!(shop.watched(upsert).answer().await.unwrap(), "paid");
}

/// A message of a broker, and how it was settled.
struct Message {
    order: &'static str,
    settled: Arc<Mutex<Vec<String>>>,
}

impl Message {
    fn settle(&self, word: &str) -> Result<(), &'static str> {
        if self.order == "lost" {
            return Err("the broker is gone");
        }
        self.settled.lock().unwrap().push(format!("{} {word}", self.order));
        Ok(())
    }
}

impl Delivery for Message {
    type Error = &'static str;

    async fn acknowledge(&self) -> Result<(), &'static str> {
        self.settle("acknowledged")
    }

    async fn retry(&self, after: Duration) -> Result<(), &'static str> {
        self.settle(&format!("again after {after:?}"))
    }

    async fn reject(&self, letter: &DeadLetter) -> Result<(), &'static str> {
        self.settle(&format!("rejected: {}", letter.reason.as_str()))
    }

    async fn give_back(&self) -> Result<(), &'static str> {
        self.settle("given back")
    }

    fn deliveries(&self) -> Option<u32> {
        (self.order == "tenth").then_some(10)
    }

    fn is_last_delivery(&self) -> bool {
        self.order == "last"
    }

    fn group(&self) -> Option<String> {
        (self.order == "grouped").then(|| "group".to_owned())
    }

    fn retries_in_place(&self) -> bool {
        self.order == "in place"
    }
}

type Settled = Arc<Mutex<Vec<String>>>;

/// Messages with these orders, and how they were settled.
fn messages(orders: &[&'static str]) -> (Vec<Result<Message, &'static str>>, Settled) {
    let settled = Settled::default();
    (orders.iter().map(|order| Ok(Message { order, settled: settled.clone() })).collect(), settled)
}

#[tokio::test]
async fn a_consumer_that_pays_by_the_derived_key_passes_and_each_message_is_settled_once() {
    let shop = Shop::default();
    let (messages, settled) = messages(&["1", "2", "1", "none"]);
    let handler = |message: &Message| {
        let (shop, order) = (shop.clone(), message.order);
        async move {
            let body =
                || async { if order == "none" { Err(Failure::Declined) } else { shop.pay_by_call().await } };
            shop.guarded(order, body).await
        }
    };
    shop.watched(Consumer::new()).run(stream::iter(messages), handler).await;
    let settled = settled.lock().unwrap();
    assert_eq!(*settled, ["1 acknowledged", "2 acknowledged", "1 acknowledged", "none rejected: terminal"]);
    assert_eq!(shop.payments(), 2);
}

#[tokio::test]
async fn a_handler_that_pays_for_each_delivery_is_found() {
    let shop = Shop::default();
    let (messages, settled) = messages(&["1"]);
    let handler = |_: &Message| {
        let shop = shop.clone();
        async move { shop.pay_anew().await }
    };
    let message = fault(shop.watched(Consumer::new()).run(stream::iter(messages), handler)).await;
    assert!(message.starts_with("the message did something twice: the effects went from 0 to "), "{message}");
    assert!(settled.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_message_that_is_acknowledged_and_then_rejected_is_found_and_one_that_fails_is_retried() {
    let shop = Shop::default();
    let (two, settled) = messages(&["fails", "declines later"]);
    let handler = |message: &Message| {
        let (shop, order, number) = (shop.clone(), message.order, shop.call());
        async move {
            match order {
                "fails" => shop.guarded(order, || ready(Err(Failure::Down))).await,
                _ if number % 2 == 0 => shop.guarded("first", || ready(Err(Failure::Declined))).await,
                _ => shop.guarded("second", || ready(Ok("paid".to_owned()))).await,
            }
        }
    };
    let message = fault(twice(Consumer::new()).run(stream::iter(two), handler)).await;
    let expected = "the message of shop.pay answered otherwise when it came again: ";
    assert!(message.starts_with(expected), "{message}");
    assert!(message.contains("rejected (terminal)") && message.contains("acknowledged"), "{message}");
    assert_eq!(*settled.lock().unwrap(), ["fails again after 1s"]);
}

#[tokio::test(start_paused = true)]
async fn a_message_is_settled_as_its_broker_demands() {
    let shop = Shop::default();
    let (four, settled) = messages(&["tenth", "last", "grouped", "in place"]);
    let handler = |message: &Message| {
        let (shop, order) = (shop.clone(), message.order);
        async move {
            // The messages `grouped` and `in place` are retried in place. Each succeeds at its sixth attempt.
            let fails = || match order {
                "grouped" => shop.call() < 5,
                "in place" => shop.call() < 11,
                _ => true,
            };
            let body = || async { if fails() { Err(Failure::Down) } else { Ok("paid".to_owned()) } };
            if order == "tenth" { Err(Failure::Down) } else { shop.guarded(order, body).await }
        }
    };
    twice(Consumer::new()).unbroken().run(stream::iter(four), handler).await;
    let expected = [
        "tenth rejected: exhausted",
        "last rejected: exhausted",
        "grouped acknowledged",
        "in place acknowledged",
    ];
    assert_eq!(*settled.lock().unwrap(), expected);
}

#[tokio::test]
async fn a_stream_that_fails_and_a_message_that_cannot_be_settled_are_faults() {
    let shop = Shop::default();
    let handler = |message: &Message| {
        let (shop, order) = (shop.clone(), message.order);
        async move { shop.guarded(order, || shop.pay_by_call()).await }
    };
    let failing = stream::iter([Err::<Message, _>("the connection is closed")]);
    let message = fault(twice(Consumer::new()).run(failing, handler)).await;
    assert_eq!(message, "the stream failed: the connection is closed");
    let (lost, _) = messages(&["lost"]);
    let message = fault(twice(Consumer::new()).run(stream::iter(lost), handler)).await;
    assert_eq!(message, "a message cannot be settled: the broker is gone");
}
