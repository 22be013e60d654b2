//! The metrics of a consumer.

use std::collections::BTreeMap;

use idem::message::Consumer;
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};

use crate::message_support::Shop;

/// The values of a metric since the last snapshot, by their labels.
fn values(snapshots: &Snapshotter, name: &str) -> BTreeMap<String, f64> {
    let all = snapshots.snapshot().into_vec();
    let values = all.into_iter().filter(|(key, ..)| key.key().name() == name).map(|(key, _, _, value)| {
        let labels: Vec<String> =
            key.key().labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        match value {
            DebugValue::Counter(count) => (labels.join(" "), count as f64),
            DebugValue::Gauge(value) => (labels.join(" "), value.0),
            other => panic!("{other:?}"),
        }
    });
    values.collect()
}

#[tokio::test(start_paused = true)]
async fn each_message_is_counted_by_what_became_of_it_and_why() {
    let recorder = DebuggingRecorder::new();
    let snapshots = recorder.snapshotter();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let shop = Shop::new();
    shop.consume(Consumer::new(), &["1 ok", "2 ok", "3 transient", "4 final", "5 panic"]).await;
    let expected = [
        ("disposition=acknowledge reason=done queue=orders", 2.0),
        ("disposition=reject reason=terminal queue=orders", 1.0),
        ("disposition=retry reason=failed queue=orders", 1.0),
        ("disposition=retry reason=panicked queue=orders", 1.0),
    ];
    let mut counted = values(&snapshots, "idem_messages_total");
    // An alert notices the first event of each kind, because each counter starts at 0.
    for labels in ["disposition=hold reason=store", "disposition=reject reason=panicked"] {
        assert_eq!(counted.get(&format!("{labels} queue=orders")), Some(&0.0), "{labels}");
    }
    counted.retain(|_, count| *count > 0.0);
    assert_eq!(counted, expected.map(|(labels, count)| (labels.to_owned(), count)).into());
}

#[tokio::test(start_paused = true)]
async fn a_gauge_says_how_many_groups_wait_behind_a_message() {
    let recorder = DebuggingRecorder::new();
    let snapshots = recorder.snapshotter();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let shop = Shop::new();
    let held_up = || values(&snapshots, "idem_message_groups_held_up").into_values().collect::<Vec<_>>();
    let consumer = shop.consume(Consumer::new(), &["a1 twice a", "b1 twice b", "c ok"]);
    let look = async {
        // The first message of each group has failed once, and is tried again a second after that failure.
        tokio::time::sleep(std::time::Duration::from_millis(1_500)).await;
        held_up()
    };
    let (_, waiting) = tokio::join!(consumer, look);
    assert_eq!((waiting, held_up()), (vec![2.0], vec![-2.0]));
}
