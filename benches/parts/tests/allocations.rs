//! Tests how many allocations a call makes. Unlike a measured time, this number is the same on every machine,
//! so the tests detect even one additional allocation.

use futures_util::FutureExt as _;
use idem::MemoryStore;
use idem_part_costs::{Order, by_attribute, runtime, with_fingerprint};

/// Returns the number of allocations of one call, and their bytes. Does not count allocations that are made
/// only once, or only in some calls.
fn of<'o, F>(orders: &'o [Order], mut call: impl FnMut(&'o Order) -> F) -> (u64, u64)
where
    F: Future<Output = Result<(), idem::Error>>,
{
    runtime().unwrap().block_on(async {
        let (before, counted) = orders.split_at(orders.len() / 2);
        for order in before {
            call(order).await.unwrap();
        }
        // Returns the minimum of all calls, because in some calls the store's table grows, and that
        // allocation must not count.
        let counts = counted.iter().map(|order| {
            let mut outcome = None;
            let counts = allocation_counter::measure(|| outcome = call(order).now_or_never());
            outcome.expect("nothing in it waits").unwrap();
            (counts.count_total, counts.bytes_total)
        });
        counts.min().unwrap()
    })
}

#[test]
fn a_call_allocates_no_more_than_it_did() {
    let store = MemoryStore::new();
    let fresh: Vec<Order> = (0..2_000).map(Order::new).collect();
    let replayed = vec![Order::new(0); 2_000];
    let measured = [&fresh, &replayed].map(|orders| {
        [of(orders, |order| by_attribute(&store, order)), of(orders, |order| with_fingerprint(&store, order))]
    });
    let counted = measured.map(|calls| calls.map(|(count, _)| count));
    // The counts of a fresh call and of a replayed call, each without and with a fingerprint. With the
    // feature `metrics`, the counts are higher, because each metric allocates its labels. One allocation of a
    // fresh call is the future that records the result. Without this allocation, the call's own future would
    // need room for the recording while the body runs.
    let (without, with) = ([[7, 15], [4, 12]], [[12, 20], [6, 14]]);
    assert!(counted == without || counted == with, "{counted:?}");
    // The bytes depend most on the call's future. This allocation has room for everything that the call may
    // wait for.
    let [[(_, fresh), ..], [(_, replayed), ..]] = measured;
    println!("{fresh}, {replayed} bytes");
    let bounds = if counted == without { (2_000, 1_450) } else { (2_660, 1_780) };
    assert!(fresh <= bounds.0 && replayed <= bounds.1, "{fresh}, {replayed} bytes");
}

#[idem::idempotent(key = "{id}", store = store, scope = "parts.long")]
async fn long(store: &MemoryStore, id: u64, bytes: usize) -> Result<String, idem::Error> {
    Ok("a".repeat(bytes))
}

#[test]
fn a_long_result_is_encoded_once_and_a_replay_copies_nothing_but_the_value_itself() {
    const LONG: usize = 512 * 1024;
    let store = MemoryStore::new();
    let bytes_of = |id: u64| {
        let mut outcome = None;
        let counted = allocation_counter::measure(|| {
            outcome = long(&store, id, LONG).now_or_never();
        });
        assert_eq!(outcome.expect("nothing in it waits").unwrap().len(), LONG);
        usize::try_from(counted.bytes_total).unwrap()
    };
    runtime().unwrap().block_on(async {
        let (fresh, replayed) = (bytes_of(1), bytes_of(1));
        // A fresh call allocates the value and a buffer for the encoded value. The buffer doubles its size
        // when it is full.
        assert!(fresh < LONG * 5, "{fresh}");
        assert!(replayed < LONG + 16 * 1024, "{replayed}");
    });
}
