//! Measures the cost of keeping the leases of many running bodies: bytes of a call beyond its body and its record,
//! processor time to renew all leases, and how many renewals go to a store in one commit. Prints a table in Markdown.

mod stores;
mod storm;

use clap::Parser;
use idem::MemoryStore;
use idem_upkeep::{Held, body, guarded, held, records};

type Anything<T> = Result<T, Box<dyn std::error::Error>>;

/// Starts many calls whose bodies do not end, and prints the memory they hold and the cost of their leases.
#[derive(Debug, Parser)]
struct Arguments {
    /// The number of calls.
    #[arg(long, default_value_t = 100_000)]
    calls: u64,
    /// Measures only what can be counted in this process: no SQLite, no PostgreSQL.
    #[arg(long)]
    memory_only: bool,
    /// Measures only the storm: all leases are renewed at the same moment.
    #[arg(long)]
    storm_only: bool,
}

fn main() -> Anything<()> {
    let arguments = Arguments::parse();
    let calls = arguments.calls;
    if arguments.storm_only {
        return storm::tell(calls);
    }
    let plain = held(calls, |order| async move { body(&order).await })?;
    let store = MemoryStore::new();
    let guarded = held(calls, |order| {
        let store = store.clone();
        async move { guarded(&store, &order).await }
    })?;
    let records = records(calls)?;
    println!(
        "| {calls} calls in flight | bytes each | allocations each | polls each, a lease | processor ms, all, a lease |"
    );
    println!("|---|---:|---:|---:|---:|");
    row("the bodies, plainly spawned", &plain, plain.bytes, plain.allocations);
    println!("| their records in `MemoryStore` | {:.0} | | | |", records as f64 / calls as f64);
    row(
        "beyond both: a call",
        &guarded,
        guarded.bytes - plain.bytes - records,
        guarded.allocations - plain.allocations,
    );
    if !arguments.memory_only {
        stores::tell(calls)?;
        storm::tell(calls)?;
    }
    Ok(())
}

fn row(what: &str, held: &Held, bytes: i64, allocations: i64) {
    let each = |sum: i64| sum as f64 / held.calls as f64;
    println!(
        "| {what} | {:.0} | {:.2} | {:.2} | {:.1} |",
        each(bytes),
        each(allocations),
        held.polls,
        held.keeping.as_secs_f64() * 1_000.0,
    );
}
