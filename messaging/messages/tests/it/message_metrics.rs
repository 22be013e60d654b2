//! What a consumer counts.

use std::collections::BTreeMap;

use idem::message::Consumer;
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};

use crate::message_support::Shop;

/// The dispositions and reasons that were counted since the last look.
fn counted(snapshots: &Snapshotter) -> BTreeMap<String, u64> {
    let all = snapshots.snapshot().into_vec();
    let messages = all.into_iter().filter(|(key, ..)| key.key().name() == "idem_messages_total");
    let counted = messages.map(|(key, _, _, value)| {
        let labels: Vec<String> =
            key.key().labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        let DebugValue::Counter(count) = value else { panic!("{value:?}") };
        (labels.join(" "), count)
    });
    counted.collect()
}

/// How much the number of groups that are held up changed since the last look.
fn held_up(snapshots: &Snapshotter) -> f64 {
    let all = snapshots.snapshot().into_vec();
    let gauge = all.into_iter().find(|(key, ..)| key.key().name() == "idem_message_groups_held_up");
    match gauge {
        Some((_, _, _, DebugValue::Gauge(value))) => value.0,
        None => 0.0,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn each_message_is_counted_by_what_became_of_it_and_why() {
    let recorder = DebuggingRecorder::new();
    let snapshots = recorder.snapshotter();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let shop = Shop::new();
    shop.consume(Consumer::new(), &["1 ok", "2 ok", "3 transient", "4 final", "5 panic"]).await;
    let expected = [
        ("disposition=acknowledge reason=done queue=orders", 2),
        ("disposition=reject reason=terminal queue=orders", 1),
        ("disposition=retry reason=failed queue=orders", 1),
        ("disposition=retry reason=panicked queue=orders", 1),
    ];
    let mut counted = counted(&snapshots);
    // An alert sees the first of each kind, because its counter began at 0.
    let zeros: Vec<String> =
        counted.iter().filter(|(_, count)| **count == 0).map(|(labels, _)| labels.clone()).collect();
    assert!(zeros.contains(&"disposition=hold reason=store queue=orders".to_owned()), "{zeros:?}");
    assert!(zeros.contains(&"disposition=reject reason=panicked queue=orders".to_owned()), "{zeros:?}");
    counted.retain(|_, count| *count > 0);
    assert_eq!(counted, expected.map(|(labels, count)| (labels.to_owned(), count)).into());
}

#[tokio::test(start_paused = true)]
async fn a_gauge_says_how_many_groups_wait_behind_a_message() {
    let recorder = DebuggingRecorder::new();
    let snapshots = recorder.snapshotter();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let (shop, waiting) = (Shop::new(), std::cell::Cell::new(0.0));
    let consumer = shop.consume(Consumer::new(), &["a1 twice a", "b1 twice b", "c ok"]);
    let look = async {
        // Both failed once, and are tried again a second later.
        tokio::time::sleep(std::time::Duration::from_millis(1_500)).await;
        waiting.set(held_up(&snapshots));
    };
    futures_util::future::join(consumer, look).await;
    assert_eq!([waiting.get(), held_up(&snapshots)].map(|groups| format!("{groups}")), ["2", "-2"]);
}
