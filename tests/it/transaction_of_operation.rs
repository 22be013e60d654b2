//! Tests of `Operation::run_in_transaction`: the attribute's `transaction` without the attribute.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt as _;
use idem::{Error, Operation, PostgresStore, StepError};
use idem_test_servers::Postgres as Server;
use serde::{Deserialize, Serialize};
use sqlx::{Executor as _, PgPool, Postgres, Transaction};

#[derive(Debug, thiserror::Error, Serialize, Deserialize)]
enum Failure {
    #[error("never again")]
    Final,
    #[error("try again")]
    Transient,
    #[error(transparent)]
    #[serde(skip)]
    Idem(#[from] Error),
}

impl Failure {
    fn kind(&self) -> &'static str {
        match self {
            Self::Idem(error) => error.kind().as_str(),
            _ => "body",
        }
    }
}

struct Bank {
    server: Server,
    pool: PgPool,
    store: PostgresStore,
}

type Tx<'t> = Transaction<'t, Postgres>;

impl Bank {
    async fn open() -> Self {
        let server = Server::start();
        let pool = PgPool::connect(&server.url()).await.unwrap();
        let store = PostgresStore::from_pool(&pool).await.unwrap();
        pool.execute("CREATE TABLE effects (id text NOT NULL)").await.unwrap();
        Self { server, pool, store }
    }

    async fn begin(&self) -> Tx<'static> {
        self.pool.begin().await.unwrap()
    }

    fn effects(&self) -> String {
        self.server.sql("select count(*) from effects")
    }
}

fn pay() -> Operation {
    Operation::new("bank.pay")
}

async fn effect(tx: &mut Tx<'_>) -> Result<u32, Failure> {
    (**tx).execute("INSERT INTO effects VALUES ('paid')").await.unwrap();
    Ok(7)
}

#[tokio::test]
async fn claim_effects_and_result_are_one_commit_and_the_next_call_gets_the_result() {
    let bank = Bank::open().await;
    let mut tx = bank.begin().await;
    let call = pay().run_in_transaction(&bank.store, &mut tx, "1", effect);
    assert_eq!(call.await.unwrap(), 7);
    assert_eq!(bank.effects(), "0", "the caller has not committed");
    tx.rollback().await.unwrap();

    for _ in 0..2 {
        let mut tx = bank.begin().await;
        let body = async |tx: &mut Tx<'_>| effect(tx).await;
        assert_eq!(pay().run_in_transaction(&bank.store, &mut tx, "1", body).await.unwrap(), 7);
        tx.commit().await.unwrap();
        assert_eq!(bank.effects(), "1");
    }
    // Outside a transaction it is the same record.
    let replayed = pay().run(&bank.store, "1", || async { Err::<u32, _>(Failure::Transient) }).await;
    assert_eq!(replayed.unwrap(), 7);
}

#[tokio::test]
async fn an_error_undoes_what_the_body_wrote_and_a_terminal_one_is_recorded() {
    let bank = Bank::open().await;
    let terminal = pay().terminal(|error: &Failure| matches!(error, Failure::Final));
    for (key, fails, again) in [("final", true, "body"), ("transient", false, "")] {
        let mut tx = bank.begin().await;
        let body = async |tx: &mut Tx<'_>| {
            effect(tx).await?;
            Err::<u32, _>(if fails { Failure::Final } else { Failure::Transient })
        };
        let failed = terminal.run_in_transaction(&bank.store, &mut tx, key, body).await;
        assert_eq!(failed.unwrap_err().kind(), "body");
        tx.commit().await.unwrap();
        assert_eq!(bank.effects(), "0", "{key}");
        let mut tx = bank.begin().await;
        let next = terminal.run_in_transaction(&bank.store, &mut tx, key, async |_: &mut Tx<'_>| Ok(8)).await;
        assert_eq!(next.map_or_else(|error| error.kind(), |_| ""), again);
    }
    let mut tx = bank.begin().await;
    let panics = async |tx: &mut Tx<'_>| {
        effect(tx).await?;
        panic!("the body panics")
    };
    let call = pay().run_in_transaction::<_, _, _, _, _, u32, Failure>(&bank.store, &mut tx, "panic", panics);
    assert!(AssertUnwindSafe(call).catch_unwind().await.is_err());
    tx.commit().await.unwrap();
    assert_eq!(bank.effects(), "0");
}

#[tokio::test]
async fn what_cannot_go_with_a_transaction_is_refused_before_the_body() {
    let bank = Bank::open().await;
    let second = Duration::from_secs(1);
    for operation in
        [pay().fail_open(), pay().max_attempts(1), pay().timeout(second), pay().retry_after(second)]
    {
        let mut tx = bank.begin().await;
        let refused = operation.run_in_transaction(&bank.store, &mut tx, "1", effect).await;
        assert_eq!(refused.unwrap_err().kind(), "configuration");
    }
    let paced = [pay().record_if(|_| true), pay().retry_after_error(|_: &Failure, _| Duration::ZERO)];
    for operation in paced {
        let mut tx = bank.begin().await;
        let refused = operation.run_in_transaction(&bank.store, &mut tx, "1", effect).await;
        assert_eq!(refused.unwrap_err().kind(), "configuration");
    }
    assert_eq!(bank.effects(), "0");
}

#[tokio::test]
async fn a_step_in_a_transaction_is_an_error_and_does_not_run() {
    let bank = Bank::open().await;
    let mut tx = bank.begin().await;
    let body = async |tx: &mut Tx<'_>| idem::step("pay", || effect(tx)).await;
    let refused = pay().run_in_transaction(&bank.store, &mut tx, "1", body).await.unwrap_err();
    assert!(
        matches!(refused, Failure::Idem(Error::Step { source: StepError::Unprotected, .. })),
        "{refused:?}"
    );
    assert_eq!(refused.kind(), "step_unprotected");
    tx.commit().await.unwrap();
    assert_eq!(bank.effects(), "0");
}

#[tokio::test]
async fn a_call_in_a_transaction_can_be_spawned() {
    let bank = Bank::open().await;
    let (store, pool) = (bank.store.clone(), bank.pool.clone());
    let spawned = tokio::spawn(async move {
        let mut tx = pool.begin().await.unwrap();
        let paid = pay().run_in_transaction(&store, &mut tx, "1", effect).await.unwrap();
        tx.commit().await.unwrap();
        paid
    });
    assert_eq!(spawned.await.unwrap(), 7);
    assert_eq!(bank.effects(), "1");
}
