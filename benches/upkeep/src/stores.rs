//! Counts how many renewals go to a store in one commit: all calls are renewed once, and the commits are counted.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use idem::{Error, Operation, PostgresStore, SqliteStore, Store};
use idem_test_servers::Postgres;
use tokio::time::sleep;

use crate::Anything;

/// Long enough that all calls are made before the first lease is renewed, which happens after a third of it.
const LEASE: Duration = Duration::from_secs(90);

/// A store observed from outside: how many commits there were, and whether each lease was renewed.
trait Seen {
    fn commits(&self) -> Anything<u64>;
    /// The time at which the first of all leases ends.
    fn first_end(&self) -> Anything<i64>;
    fn last_end(&self) -> Anything<i64>;
}

pub(crate) fn tell(calls: u64) -> Anything<()> {
    println!("\n| {calls} leases, each renewed once | renewals a commit | seconds | processor s |");
    println!("|---|---:|---:|---:|");
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("idem.db");
    on("SQLite", calls, &File(&path), || async { Ok(SqliteStore::open(&path)?) })?;
    let server = Postgres::with(&["autovacuum=off"]);
    let url = server.url();
    on("PostgreSQL", calls, &server, || async { Ok(PostgresStore::connect(&url).await?) })
}

#[tokio::main]
async fn on<S: Store, F: Future<Output = Anything<S>>>(
    name: &str,
    calls: u64,
    seen: &impl Seen,
    open: impl FnOnce() -> F,
) -> Anything<()> {
    let store = open().await?;
    let operation = Operation::new("upkeep").lease(LEASE);
    let started = Arc::new(AtomicU64::new(0));
    let begin = Instant::now();
    let bodies: Vec<_> = (0..calls)
        .map(|id| {
            let (store, operation, started) = (store.clone(), operation.clone(), started.clone());
            tokio::spawn(async move {
                let body = || async move {
                    started.fetch_add(1, Ordering::Relaxed);
                    std::future::pending::<Result<(), Error>>().await
                };
                operation.run(&store, id, body).await
            })
        })
        .collect();
    while started.load(Ordering::Relaxed) < calls {
        sleep(Duration::from_millis(10)).await;
    }
    if begin.elapsed() > LEASE / 3 {
        return Err(format!("{calls} calls took {:?}: ask for fewer", begin.elapsed()).into());
    }
    let (before, last) = (seen.commits()?, seen.last_end()?);
    while seen.commits()? == before {
        sleep(Duration::from_millis(5)).await;
    }
    let (begin, used) = (Instant::now(), processor()?);
    while seen.first_end()? <= last {
        sleep(Duration::from_millis(300)).await;
    }
    let (seconds, used) = (begin.elapsed().as_secs_f64(), processor()?.saturating_sub(used));
    let commits = seen.commits()?.saturating_sub(before).max(1);
    println!("| {name} | {:.1} | {seconds:.1} | {:.2} |", calls as f64 / commits as f64, used.as_secs_f64());
    bodies.iter().for_each(tokio::task::JoinHandle::abort);
    Ok(())
}

/// The processor time that this process has used so far, in ticks of ten milliseconds.
fn processor() -> Anything<Duration> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields = stat.rsplit_once(')').ok_or("no such process")?.1;
    let ticks: u64 =
        fields.split_whitespace().skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
    Ok(Duration::from_millis(ticks * 10))
}

/// A database of SQLite.
struct File<'p>(&'p Path);

impl File<'_> {
    fn number(&self, sql: &str) -> Anything<i64> {
        let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
        Ok(rusqlite::Connection::open_with_flags(self.0, flags)?.query_row(sql, (), |row| row.get(0))?)
    }
}

impl Seen for File<'_> {
    /// The index of the log counts its transactions: <https://sqlite.org/walformat.html>, 2.1, `iChange`.
    fn commits(&self) -> Anything<u64> {
        // Another process reads the file, because closing it in this one would release SQLite's locks.
        let mut index = self.0.as_os_str().to_owned();
        index.push("-shm");
        let read =
            std::process::Command::new("od").args(["-An", "-tu4", "-j8", "-N4"]).arg(index).output()?;
        Ok(String::from_utf8(read.stdout)?.trim().parse()?)
    }

    fn first_end(&self) -> Anything<i64> {
        self.number("SELECT min(lease_until) FROM idem_records")
    }

    fn last_end(&self) -> Anything<i64> {
        self.number("SELECT max(lease_until) FROM idem_records")
    }
}

impl Seen for Postgres {
    fn commits(&self) -> Anything<u64> {
        // Each of these queries is a commit too, but there are few of them.
        let said = self.sql("SELECT xact_commit FROM pg_stat_database WHERE datname = 'postgres'");
        Ok(said.parse()?)
    }

    fn first_end(&self) -> Anything<i64> {
        Ok(self.sql("SELECT min(lease_until) FROM idem_records").parse()?)
    }

    fn last_end(&self) -> Anything<i64> {
        Ok(self.sql("SELECT max(lease_until) FROM idem_records").parse()?)
    }
}
