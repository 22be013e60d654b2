//! Many running bodies: the memory of each call beyond its body, and the cost of keeping its lease.
//!
//! Owns the bodies that wait without end and the counting; the program chooses the stores.

use std::cell::Cell;
use std::future::{pending, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use idem::protocol::{Claim, Owner};
use idem::{Error, Key, MemoryStore, RecordKey, Scope, Store, idempotent};
use tokio::runtime::{Builder, Runtime};
use tokio::task::{LocalSet, yield_now};
use tokio::time::{advance, pause};

/// The length of each lease in this bench, which is the default.
pub const LEASE: Duration = Duration::from_secs(30);

/// An order that is paid for.
#[derive(Clone, Debug)]
pub struct Order {
    /// Its number.
    pub id: u64,
    started: Rc<Cell<u64>>,
}

/// A body that does not end.
///
/// # Errors
///
/// Returns none, because it does not end.
pub async fn body(order: &Order) -> Result<(), Error> {
    order.started.set(order.started.get() + 1);
    pending().await
}

/// The same body under a claim.
///
/// # Errors
///
/// The library's own errors.
#[idempotent(key = "order/{order.id}", store = store, scope = "upkeep")]
pub async fn guarded<S: Store>(store: &S, order: &Order) -> Result<(), Error> {
    body(order).await
}

/// The cost of this number of running calls.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    /// The number of calls.
    pub calls: u64,
    /// Bytes of all calls, as requested from the allocator.
    pub bytes: i64,
    /// Allocations of all calls.
    pub allocations: i64,
    /// How often a call was polled while its lease was kept for the length of one lease.
    pub polls: f64,
    /// Processor time to keep all leases for that long.
    pub keeping: Duration,
}

impl Held {
    /// Bytes of one call.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    pub fn bytes_each(&self) -> f64 {
        self.bytes as f64 / self.calls as f64
    }
}

/// A runtime with one thread and a paused clock.
fn runtime() -> std::io::Result<Runtime> {
    Builder::new_current_thread().enable_time().build()
}

/// Starts this number of calls of `make`, each in a task, and counts what they hold once all bodies have begun.
///
/// # Errors
///
/// The system's errors.
pub fn held<F>(calls: u64, make: impl Fn(Order) -> F) -> std::io::Result<Held>
where
    F: Future<Output = Result<(), Error>> + 'static,
{
    let runtime = runtime()?;
    let tasks = LocalSet::new();
    let (started, polls) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0_u64)));
    let counted = allocation_counter::measure(|| {
        tasks.block_on(&runtime, async {
            pause();
            for id in 0..calls {
                let (order, polls) = (Order { id, started: started.clone() }, polls.clone());
                let call = make(order);
                tasks.spawn_local(async move {
                    let mut call = pin!(call);
                    poll_fn(|cx| {
                        polls.set(polls.get() + 1);
                        call.as_mut().poll(cx)
                    })
                    .await
                });
            }
            until_idle(&started, calls).await;
        });
    });
    polls.set(0);
    let keeping = tasks.block_on(&runtime, keep(&polls));
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    let polls = polls.get() as f64 / calls as f64;
    let (bytes, allocations) = (counted.bytes_current, counted.count_current);
    Ok(Held { calls, bytes, allocations, polls, keeping: keeping? })
}

/// Lets all tasks run until every body has begun.
async fn until_idle(started: &Cell<u64>, calls: u64) {
    while started.get() < calls {
        yield_now().await;
    }
    yield_now().await;
}

/// Lets the length of one lease pass, and returns the processor time that this thread needed meanwhile.
async fn keep(polls: &Cell<u64>) -> std::io::Result<Duration> {
    const STEPS: u32 = 30;
    let before = processor()?;
    for _ in 0..STEPS {
        advance(LEASE / STEPS).await;
        // The runtime polls only a few tasks in one turn.
        let mut quiet = 0;
        while quiet < 8 {
            let seen = polls.get();
            yield_now().await;
            quiet = if polls.get() == seen { quiet + 1 } else { 0 };
        }
    }
    Ok(processor()?.saturating_sub(before))
}

/// The bytes that the records of this number of calls take in a `MemoryStore`.
///
/// # Errors
///
/// The errors of the system and of the library.
pub fn records(calls: u64) -> Result<i64, Box<dyn std::error::Error>> {
    let runtime = runtime()?;
    let store = MemoryStore::new();
    let mut claimed = Ok(());
    let counted = allocation_counter::measure(|| {
        claimed = runtime.block_on(async {
            for id in 0..calls {
                claim(&store, id).await?;
            }
            Ok(())
        });
    });
    claimed.map(|()| counted.bytes_current)
}

async fn claim(store: &MemoryStore, id: u64) -> Result<(), Box<dyn std::error::Error>> {
    let key = RecordKey::new(Scope::new("upkeep")?, Key::new(format!("order/{id}"))?);
    let request = Claim::new(Owner::random(), LEASE, Duration::from_secs(24 * 60 * 60));
    store.claim(&key, &request).await?;
    Ok(())
}

/// The processor time that this thread has used so far.
fn processor() -> std::io::Result<Duration> {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanos = stat.split(' ').next().and_then(|nanos| nanos.parse().ok()).unwrap_or_default();
    Ok(Duration::from_nanos(nanos))
}
