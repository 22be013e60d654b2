//! What the attribute does to a function that charges a card: `cargo run --example quickstart`.

use std::process::{Command, Stdio};
use std::{env, fs, io::Write as _, path::Path, time::Duration};

use idem::{SqliteStore, idempotent, observe};

/// Charges a card, once for each order. The charge is a line in the file `ledger.txt`.
#[idempotent(key = "order/{order}", fingerprint = cents, store = store, lease = "1s", wait = "10s")]
async fn charge(store: &SqliteStore, folder: &Path, order: &str, cents: u64) -> Result<String, idem::Error> {
    let mut ledger =
        fs::OpenOptions::new().create(true).append(true).open(folder.join("ledger.txt")).unwrap();
    writeln!(ledger, "{order} {cents}").unwrap();
    if env::var_os("HANGS").is_some() {
        tokio::time::sleep(Duration::from_secs(60)).await;
    }
    let attempt = idem::context().map_or(0, |context| context.attempt());
    Ok(format!("receipt for {order} over {cents} cents, made by attempt {attempt}"))
}

fn charges(folder: &Path, order: &str) -> usize {
    let ledger = fs::read_to_string(folder.join("ledger.txt")).unwrap_or_default();
    ledger.lines().filter(|line| line.starts_with(order)).count()
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // With an argument, this process is the worker that crashes in step 5.
    if let Some(folder) = env::args().nth(1).map(std::path::PathBuf::from) {
        let store = SqliteStore::open(folder.join("idem.db"))?;
        charge(&store, &folder, "order-3", 700).await?;
        return Ok(());
    }
    let folder = env::temp_dir().join(format!("idem-quickstart-{}", std::process::id()));
    fs::create_dir(&folder)?;
    let store = SqliteStore::open(folder.join("idem.db"))?;

    let first = charge(&store, &folder, "order-1", 1999).await?;
    println!("1. The first call runs the body:    {first}");

    let again = observe(charge(&store, &folder, "order-1", 1999)).await;
    let replayed = again.outcome.is_some_and(|outcome| outcome.is_replayed());
    println!("2. A duplicate gets its result:     {} (replayed: {replayed})", again.value?);

    match charge(&store, &folder, "order-1", 1).await {
        Err(refused @ idem::Error::Mismatch { .. }) => {
            println!("3. Another amount is refused:       {refused}");
        }
        other => return Err(format!("another amount was taken for the same order: {other:?}").into()),
    }

    let mut callers = tokio::task::JoinSet::new();
    for _ in 0..10 {
        let (store, folder) = (store.clone(), folder.clone());
        callers.spawn(async move { charge(&store, &folder, "order-2", 500).await });
    }
    let receipts =
        callers.join_all().await.into_iter().collect::<Result<std::collections::HashSet<_>, _>>()?;
    println!(
        "4. Ten callers at once:             {} charge, {} receipt",
        charges(&folder, "order-2"),
        receipts.len()
    );

    // A worker in a process of its own charges order 3, and is killed before it can record the result.
    let mut command = Command::new(env::current_exe()?);
    let mut worker = command.arg(&folder).env("HANGS", "").stderr(Stdio::null()).spawn()?;
    while charges(&folder, "order-3") == 0 && worker.try_wait()?.is_none() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    worker.kill()?;
    worker.wait()?;
    let after = charge(&store, &folder, "order-3", 700).await?;
    println!("5. A crashed worker is taken over:  {after}");

    drop(store);
    Ok(fs::remove_dir_all(&folder)?)
}
