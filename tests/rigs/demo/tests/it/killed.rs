//! Workers that are killed, or stopped and continued, between their effect and their acknowledgement.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use demo::brokers::{Broker as _, OnNats};
use demo::{Failure, Ledger, Process, Setup, Worker};
use idem_test_servers::{Postgres, Redis};
use tempfile::TempDir;

use crate::PROGRAM;

/// Returns once `condition` holds; fails after 90 s.
async fn until(what: &str, mut condition: impl AsyncFnMut() -> Result<bool, Failure>) -> Result<(), Failure> {
    let begin = Instant::now();
    while !condition().await? {
        if begin.elapsed() > Duration::from_secs(90) {
            return Err(format!("timed out while waiting until {what}").into());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

fn order() -> Vec<Vec<u8>> {
    vec![br#"{"id":1,"pieces":1}"#.to_vec()]
}

/// A broker with one order, and a folder for the ledger.
struct Here {
    broker: OnNats,
    folder: TempDir,
}

impl Here {
    async fn start() -> Result<Self, Failure> {
        let (broker, folder) = (OnNats::start(&Setup::default()).await?, tempfile::tempdir()?);
        broker.send(order()).await?;
        Ok(Self { broker, folder })
    }

    fn worker(&self, store: &str, work: Duration) -> Result<Process, Failure> {
        let worker = Worker::new(&self.broker.address(), store, self.folder.path(), work);
        worker.start(Path::new(PROGRAM), OnNats::KIND)
    }

    fn lines(&self, file: &str) -> Result<Vec<String>, Failure> {
        Ok(Ledger::new(self.folder.path().to_owned()).read(file)?)
    }

    async fn emptied(&self) -> Result<(), Failure> {
        until("the queue is empty", async || Ok(self.broker.waiting().await? == 0)).await
    }
}

#[tokio::test]
async fn a_worker_that_is_killed_between_effect_and_record_is_followed_by_one_that_records_once()
-> Result<(), Failure> {
    let (here, redis) = (Here::start().await?, Redis::start());
    let first = here.worker(&redis.url(), Duration::from_secs(600))?;
    until("the first had the effect", async || Ok(here.lines("effects")?.len() == 1)).await?;
    drop(first);
    let _second = here.worker(&redis.url(), Duration::ZERO)?;
    here.emptied().await?;
    // The effect is not part of the result's commit, so it happened twice. There is one result.
    let answers = here.lines("answers")?;
    let results: BTreeSet<_> = answers.iter().filter_map(|answer| answer.split(' ').nth(1)).collect();
    assert_eq!((here.lines("effects")?.len(), results.len()), (2, 1), "{answers:?}");
    Ok(())
}

#[tokio::test]
async fn an_effect_in_the_transaction_of_its_result_goes_with_the_worker_that_is_killed()
-> Result<(), Failure> {
    let (here, postgres) = (Here::start().await?, Postgres::start());
    let first = here.worker(&postgres.url(), Duration::from_secs(600))?;
    let open = "SELECT count(*) FROM pg_stat_activity WHERE state = 'idle in transaction' AND query LIKE '%effects%'";
    until("the first had the effect", async || Ok(postgres.sql(open) == "1")).await?;
    drop(first);
    let _second = here.worker(&postgres.url(), Duration::ZERO)?;
    here.emptied().await?;
    assert_eq!(postgres.sql("SELECT count(*) FROM effects"), "1");
    Ok(())
}

#[tokio::test]
async fn a_worker_that_was_stopped_and_goes_on_late_does_not_change_what_its_successor_recorded()
-> Result<(), Failure> {
    let (here, redis) = (Here::start().await?, Redis::start());
    let first = here.worker(&redis.url(), Duration::from_secs(6))?;
    until("the first had the effect", async || Ok(here.lines("effects")?.len() == 1)).await?;
    first.signal("-STOP")?;
    let second = here.worker(&redis.url(), Duration::ZERO)?;
    until("the second has shipped it", async || Ok(here.lines("answers")?.len() == 1)).await?;
    drop(second);
    let recorded = here.lines("answers")?[0].split(' ').nth(1).unwrap_or_default().to_owned();
    first.signal("-CONT")?;
    // Its body is dropped, because another worker took over the lease. Redelivered messages are replays.
    here.broker.send([order(), order()].concat()).await?;
    until("the first has answered", async || Ok(here.lines("answers")?.len() >= 2)).await?;
    here.emptied().await?;
    for answer in here.lines("answers")?.iter().skip(1) {
        assert_eq!(*answer, format!("1 {recorded} replayed"));
    }
    assert_eq!(here.lines("effects")?.len(), 2);
    Ok(())
}
