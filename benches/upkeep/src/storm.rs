//! A storm of renewals: all leases of a process are renewed at the same moment, as after a pause of the process or when
//! all bodies began together.

use std::future::Future;
use std::time::{Duration, Instant};

use idem::protocol::{Claim, ClaimAnswer, Fence, Owner, Renew, RenewAnswer};
use idem::{Key, PostgresStore, RecordKey, Scope, SqliteStore, Store};
use idem_test_servers::Postgres;
use tokio::task::JoinSet;

use crate::Anything;

const LEASE: Duration = Duration::from_secs(600);
/// The number of claims that are made at a time.
const ABREAST: usize = 256;

/// Prints a line for each store.
pub(crate) fn tell(calls: u64) -> Anything<()> {
    println!("\n| {calls} leases, renewed at the same moment | seconds | failed renewals |");
    println!("|---|---:|---:|");
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("idem.db");
    on("SQLite", calls, || async { Ok(SqliteStore::open(&path)?) })?;
    let server = Postgres::with(&[]);
    let url = server.url();
    on("PostgreSQL", calls, || async { Ok(PostgresStore::connect(&url).await?) })
}

#[tokio::main]
async fn on<S: Store, F: Future<Output = Anything<S>>>(
    name: &str,
    calls: u64,
    open: impl FnOnce() -> F,
) -> Anything<()> {
    let store = open().await?;
    let mut held = Vec::new();
    let mut claiming = JoinSet::new();
    for id in 0..calls {
        if claiming.len() >= ABREAST
            && let Some(claimed) = claiming.join_next().await
        {
            held.push(claimed?);
        }
        claiming.spawn(claim(store.clone(), id));
    }
    held.extend(claiming.join_all().await);
    let held: Vec<(RecordKey, Owner, Fence)> = held.into_iter().flatten().collect();
    let begin = Instant::now();
    let mut renewing = JoinSet::new();
    for (key, owner, fence) in held {
        let store = store.clone();
        renewing.spawn(async move {
            matches!(store.renew(&key, &Renew::new(owner, fence, LEASE)).await, Ok(RenewAnswer::Held))
        });
    }
    let renewed = renewing.join_all().await.into_iter().filter(|renewed| *renewed).count() as u64;
    println!("| {name} | {:.1} | {} |", begin.elapsed().as_secs_f64(), calls - renewed);
    Ok(())
}

async fn claim<S: Store>(store: S, id: u64) -> Option<(RecordKey, Owner, Fence)> {
    let key = RecordKey::new(Scope::new("upkeep").ok()?, Key::new(format!("order/{id}")).ok()?);
    let owner = Owner::random();
    match store.claim(&key, &Claim::new(owner, LEASE, LEASE)).await {
        Ok(ClaimAnswer::Granted(grant)) => Some((key, owner, grant.fence)),
        _ => None,
    }
}
