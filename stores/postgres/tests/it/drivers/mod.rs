//! `transaction = tx` and the outbox with each driver: the same cases, as the macro `cases` instantiates them.

mod bank;
mod cases;

use crate::drivers::bank::Failure;
use crate::drivers::cases::cases;

mod with_sqlx {
    use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection, Postgres, Transaction};

    use super::Failure;

    pub(super) type Tx<'a> = Transaction<'a, Postgres>;

    pub(super) struct Client(PgConnection);

    impl Client {
        pub(super) async fn open(url: &str) -> Self {
            Self(PgConnection::connect(url).await.unwrap())
        }

        pub(super) async fn begin(&mut self) -> Tx<'_> {
            self.0.begin().await.unwrap()
        }
    }

    pub(super) async fn run(tx: &mut Tx<'_>, statement: &str) -> Result<(), Failure> {
        tx.execute(AssertSqlSafe(statement)).await.map(drop).map_err(|error| Failure::Sql(error.to_string()))
    }

    pub(super) async fn commit(tx: Tx<'_>) -> bool {
        tx.commit().await.is_ok()
    }

    super::cases!();
    super::cases!(dropped "keeps what the caller wrote");
}

mod with_tokio_postgres {
    use tokio_postgres::{NoTls, Transaction};

    use super::Failure;

    pub(super) type Tx<'a> = Transaction<'a>;

    pub(super) struct Client(tokio_postgres::Client);

    impl Client {
        pub(super) async fn open(url: &str) -> Self {
            let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
            tokio::spawn(connection);
            Self(client)
        }

        pub(super) async fn begin(&mut self) -> Tx<'_> {
            self.0.transaction().await.unwrap()
        }
    }

    pub(super) async fn run(tx: &mut Tx<'_>, statement: &str) -> Result<(), Failure> {
        tx.batch_execute(statement).await.map_err(|error| Failure::Sql(error.to_string()))
    }

    pub(super) async fn commit(tx: Tx<'_>) -> bool {
        tx.commit().await.is_ok()
    }

    super::cases!();
    super::cases!(dropped "keeps what the caller wrote");
}

mod with_deadpool_postgres {
    use deadpool_postgres::{Manager, Object, Pool, Transaction};
    use tokio_postgres::NoTls;

    use super::Failure;

    pub(super) type Tx<'a> = Transaction<'a>;

    pub(super) struct Client(Object);

    impl Client {
        pub(super) async fn open(url: &str) -> Self {
            let manager = Manager::new(url.parse().unwrap(), NoTls);
            Self(Pool::builder(manager).build().unwrap().get().await.unwrap())
        }

        pub(super) async fn begin(&mut self) -> Tx<'_> {
            self.0.transaction().await.unwrap()
        }
    }

    pub(super) async fn run(tx: &mut Tx<'_>, statement: &str) -> Result<(), Failure> {
        tx.batch_execute(statement).await.map_err(|error| Failure::Sql(error.to_string()))
    }

    pub(super) async fn commit(tx: Tx<'_>) -> bool {
        tx.commit().await.is_ok()
    }

    super::cases!();
    super::cases!(dropped "keeps what the caller wrote");
}

mod with_diesel_async {
    use diesel_async::{
        AnsiTransactionManager, AsyncConnection as _, AsyncPgConnection, SimpleAsyncConnection as _,
        TransactionManager as _,
    };

    use super::Failure;

    pub(super) type Tx<'a> = &'a mut AsyncPgConnection;

    pub(super) struct Client(AsyncPgConnection);

    impl Client {
        pub(super) async fn open(url: &str) -> Self {
            Self(AsyncPgConnection::establish(url).await.unwrap())
        }

        pub(super) async fn begin(&mut self) -> Tx<'_> {
            AnsiTransactionManager::begin_transaction(&mut self.0).await.unwrap();
            &mut self.0
        }
    }

    pub(super) async fn run(tx: &mut Tx<'_>, statement: &str) -> Result<(), Failure> {
        tx.batch_execute(statement).await.map_err(|error| Failure::Sql(error.to_string()))
    }

    pub(super) async fn commit(tx: Tx<'_>) -> bool {
        AnsiTransactionManager::commit_transaction(tx).await.is_ok()
    }

    super::cases!();
    super::cases!(dropped "keeps what the caller wrote");

    #[tokio::test]
    async fn a_connection_without_a_transaction_is_refused() {
        let bank = super::bank::Bank::open().await;
        let mut client = Client::open(&bank.url()).await;
        let error = pay(&bank.store, &mut &mut client.0, "1", super::bank::Then::Return).await.unwrap_err();
        assert_eq!(error.kind(), "configuration");
        assert_eq!(bank.counts(), "0|0");
    }
}

mod with_sea_orm {
    use sea_orm::{
        ConnectionTrait as _, Database, DatabaseConnection, DatabaseTransaction, TransactionTrait as _,
    };

    use super::Failure;

    pub(super) type Tx<'a> = DatabaseTransaction;

    pub(super) struct Client(DatabaseConnection);

    impl Client {
        pub(super) async fn open(url: &str) -> Self {
            Self(Database::connect(url).await.unwrap())
        }

        pub(super) async fn begin(&mut self) -> Tx<'_> {
            self.0.begin().await.unwrap()
        }
    }

    pub(super) async fn run(tx: &mut Tx<'_>, statement: &str) -> Result<(), Failure> {
        tx.execute_unprepared(statement).await.map(drop).map_err(|error| Failure::Sql(error.to_string()))
    }

    pub(super) async fn commit(tx: Tx<'_>) -> bool {
        tx.commit().await.is_ok()
    }

    super::cases!();
    super::cases!(dropped "may lose what the caller wrote");

    #[tokio::test]
    async fn a_shared_reference_carries_the_transaction() {
        let bank = super::bank::Bank::open().await;
        let client = Client::open(&bank.url()).await;
        let tx = client.0.begin().await.unwrap();
        assert_eq!(pay_shared(&bank.store, &mut &tx, "1").await.unwrap(), 7);
        assert!(commit(tx).await);
        assert_eq!(bank.counts(), "1|1");
    }

    #[super::bank::idempotent(
        key = "order/{order}", scope = "bank.pay", store = store, transaction = tx, crate = ::idem_runtime
    )]
    async fn pay_shared(
        store: &idem_postgres::PostgresStore,
        tx: &mut &DatabaseTransaction,
        order: &str,
    ) -> Result<u32, Failure> {
        let statement = format!("INSERT INTO effects VALUES ('{order}')");
        tx.execute_unprepared(&statement).await.map_err(|error| Failure::Sql(error.to_string()))?;
        Ok(7)
    }
}
