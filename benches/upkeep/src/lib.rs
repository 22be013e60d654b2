//! Many bodies in flight: what each call holds in memory beyond its body, and what its lease costs to keep.
//!
//! Owns the bodies that wait for ever and the counting; which stores are asked is the program's.

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

/// How long each lease is here, as it is unless set.
pub const LEASE: Duration = Duration::from_secs(30);

/// What is paid for.
#[derive(Clone, Debug)]
pub struct Order {
    /// Its number.
    pub id: u64,
    started: Rc<Cell<u64>>,
}

/// A body that has begun and does not end.
///
/// # Errors
///
/// None.
pub async fn body(order: &Order) -> Result<(), Error> {
    order.started.set(order.started.get() + 1);
    pending().await
}

/// The same under a claim.
///
/// # Errors
///
/// Those of the library.
#[idempotent(key = "order/{order.id}", store = store, scope = "upkeep")]
pub async fn guarded<S: Store>(store: &S, order: &Order) -> Result<(), Error> {
    body(order).await
}

/// What so many calls in flight take.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    /// How many there are.
    pub calls: u64,
    /// Bytes of all, as they were asked of the allocator.
    pub bytes: i64,
    /// Allocations of all.
    pub allocations: i64,
    /// How often a call was polled while the leases were kept for one length of theirs.
    pub polls: f64,
    /// Processor time of keeping all of them for so long.
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

/// A runtime of one thread whose clock is paused.
fn runtime() -> std::io::Result<Runtime> {
    Builder::new_current_thread().enable_time().build()
}

/// Starts so many calls that `make` makes, each a task, and counts what they hold once all bodies have begun.
///
/// # Errors
///
/// Those of the system.
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

/// Lets one length of a lease pass, and says how much processor time this thread needed for it.
async fn keep(polls: &Cell<u64>) -> std::io::Result<Duration> {
    const STEPS: u32 = 30;
    let before = processor()?;
    for _ in 0..STEPS {
        advance(LEASE / STEPS).await;
        // Few tasks are polled in one turn.
        let mut quiet = 0;
        while quiet < 8 {
            let seen = polls.get();
            yield_now().await;
            quiet = if polls.get() == seen { quiet + 1 } else { 0 };
        }
    }
    Ok(processor()?.saturating_sub(before))
}

/// The bytes of the records of so many calls in a `MemoryStore`.
///
/// # Errors
///
/// Those of the system and of the library.
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

/// The processor time of this thread until now.
fn processor() -> std::io::Result<Duration> {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanos = stat.split(' ').next().and_then(|nanos| nanos.parse().ok()).unwrap_or_default();
    Ok(Duration::from_nanos(nanos))
}
