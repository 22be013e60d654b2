//! Tests how much memory a running call and its record hold in addition to the call's body. Unlike a measured
//! time, this number of bytes is nearly the same on every machine, so the test detects an increase.

use std::cell::Cell;
use std::future::pending;
use std::rc::Rc;

use idem::{Error, MemoryStore, idempotent};
use idem_part_costs::runtime;
use tokio::task::{LocalSet, yield_now};

/// The number of calls. It is so high that the tables of the store's shards have the same size in each run,
/// although each run spreads the calls over the shards at random.
const CALLS: u64 = 10_000;

/// A body that does not end.
async fn body(started: Rc<Cell<u64>>) -> Result<(), Error> {
    started.set(started.get() + 1);
    pending().await
}

/// The same body as an idempotent call.
#[idempotent(key = "order/{id}", store = store, scope = "parts.in_flight")]
async fn guarded(store: &MemoryStore, id: u64, started: Rc<Cell<u64>>) -> Result<(), Error> {
    body(started).await
}

/// The bytes that the calls of `make` hold after all bodies have begun. Each call has its own task.
fn held<F: Future<Output = Result<(), Error>> + 'static>(make: impl Fn(u64, Rc<Cell<u64>>) -> F) -> i64 {
    let (runtime, tasks) = (runtime().unwrap(), LocalSet::new());
    let started = Rc::new(Cell::new(0));
    let counted = allocation_counter::measure(|| {
        tasks.block_on(&runtime, async {
            tokio::time::pause();
            for id in 0..CALLS {
                tasks.spawn_local(make(id, started.clone()));
            }
            while started.get() < CALLS {
                yield_now().await;
            }
            yield_now().await;
        });
    });
    counted.bytes_current
}

#[test]
fn a_call_in_flight_with_its_record_holds_less_than_two_and_a_half_kibibytes_beyond_its_body() {
    let plain = held(|_, started| body(started));
    let store = MemoryStore::new();
    let calls = held(|id, started| {
        let store = store.clone();
        async move { guarded(&store, id, started).await }
    });
    let beyond = (calls - plain) / i64::try_from(CALLS).unwrap();
    println!("{beyond} bytes");
    assert!((1..2_560).contains(&beyond), "{beyond} bytes");
}
