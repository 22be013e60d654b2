//! Makes one kind of call many times, so that valgrind can count its instructions: see
//! `scripts/instructions`.

use idem::MemoryStore;
use idem_part_costs::{Order, by_attribute, runtime, with_fingerprint};

const USAGE: &str = "usage: idem-part-costs fresh|replay|fingerprint CALLS";

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let kind = arguments.next().ok_or(USAGE)?;
    let calls: u64 = arguments.next().ok_or(USAGE)?.parse()?;
    // The call for order 0 comes first in every kind of run. It does the work that a process does only once,
    // and records the result for `replay`.
    let store = MemoryStore::new();
    runtime()?.block_on(async {
        by_attribute(&store, &Order::new(0)).await?;
        for id in 1..=calls {
            let order = Order::new(id);
            match kind.as_str() {
                "fresh" => by_attribute(&store, &order).await?,
                "replay" => by_attribute(&store, &Order::new(0)).await?,
                "fingerprint" => with_fingerprint(&store, &order).await?,
                _ => return Err(USAGE.into()),
            }
        }
        Ok(())
    })
}
