//! Workers that are killed, or stopped and continued, between their effect and their acknowledgement.

use std::time::Duration;

use idem_test_servers::{Postgres, Redis};
use nats_worker::OnNats;
use tempfile::TempDir;
use worker_demo::{Broker as _, Failure, Ledger, WorkerProcess, until};

const PROGRAM: &str = env!("CARGO_BIN_EXE_nats-worker");

fn order() -> Vec<Vec<u8>> {
    vec![br#"{"id":1,"pieces":1}"#.to_vec()]
}

/// A broker with one order, and a folder for the ledger.
struct Here {
    nats: OnNats,
    folder: TempDir,
}

impl Here {
    async fn start() -> Result<Self, Failure> {
        let (nats, folder) = (OnNats::start().await?, tempfile::tempdir()?);
        nats.send(order()).await?;
        Ok(Self { nats, folder })
    }

    fn worker(&self, store: &str, work: Duration) -> Result<WorkerProcess, Failure> {
        WorkerProcess::start(PROGRAM, &self.nats.address(), store, self.folder.path(), work)
    }

    fn lines(&self, file: &str) -> Result<Vec<String>, Failure> {
        Ok(Ledger::new(self.folder.path().to_owned()).read(file)?)
    }

    async fn emptied(&self) -> Result<(), Failure> {
        until("the queue is empty", async || Ok(self.nats.waiting().await? == 0)).await
    }
}

#[tokio::test]
async fn a_worker_killed_between_effect_and_record_is_followed_by_one_that_records_once() {
    let (effects, answers) = worker_demo::killed_between_effect_and_record::<OnNats>(PROGRAM).await.unwrap();
    // The effect is not part of the result's commit, so it happened twice. There is one result.
    assert_eq!((effects, answers), (2, 1));
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
    here.nats.send([order(), order()].concat()).await?;
    until("the first has answered", async || Ok(here.lines("answers")?.len() >= 2)).await?;
    here.emptied().await?;
    for answer in here.lines("answers")?.iter().skip(1) {
        assert_eq!(*answer, format!("1 {recorded} replayed"));
    }
    assert_eq!(here.lines("effects")?.len(), 2);
    Ok(())
}
