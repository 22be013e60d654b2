//! Makes one kind of call many times, so that valgrind can count its instructions: see `scripts/instructions`.

use idem::MemoryStore;
use idem_part_costs::{Instant, Order, by_attribute, runtime, with_fingerprint};

const USAGE: &str = "usage: idem-part-costs KIND CALLS\n\
    KIND is fresh, replay, fresh-memory, replay-memory or fingerprint";

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let kind = arguments.next().ok_or(USAGE)?;
    let calls: u64 = arguments.next().ok_or(USAGE)?.parse()?;
    // One-time work is also done if no calls are made.
    let memory = MemoryStore::new();
    let (granting, replaying) = (Instant::granting(), Instant::replaying(b"null"));
    runtime()?.block_on(async {
        by_attribute(&memory, &Order::new(0)).await?;
        for id in 1..=calls {
            let order = Order::new(id);
            match kind.as_str() {
                "fresh" => by_attribute(&granting, &order).await?,
                "replay" => by_attribute(&replaying, &order).await?,
                "fresh-memory" => by_attribute(&memory, &order).await?,
                "replay-memory" => by_attribute(&memory, &Order::new(0)).await?,
                "fingerprint" => with_fingerprint(&granting, &order).await?,
                _ => return Err(USAGE.into()),
            }
        }
        Ok(())
    })
}
