//! `transaction = tx` and the outbox with each driver. The macro `cases` instantiates the same cases for each
//! driver, also through a pooler in transaction mode. Only diesel-async does not work through such a pooler:
//! it sets up a connection with named statements, outside of a transaction.

mod bank;
mod cases;

use crate::drivers::cases::cases;

mod with_sqlx {
    use sqlx::postgres::PgConnectOptions;
    use sqlx::{
        AssertSqlSafe, ConnectOptions as _, Connection as _, Executor as _, PgConnection, Postgres,
        Transaction,
    };

    pub(super) type Tx<'a> = Transaction<'a, Postgres>;

    pub(super) struct Client(PgConnection);

    impl Client {
        pub(super) async fn open(url: &str) -> Self {
            // A pooler refuses this parameter, which the driver sends by default when it connects.
            let options = url.parse::<PgConnectOptions>().unwrap().extra_float_digits(None);
            Self(options.connect().await.unwrap())
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

    super::cases!(Bank::open, "keeps what the caller wrote");
    super::cases!(Bank::open, nested Fails Dropped DroppedWithTheCall);

    mod through_a_pooler {
        use super::{Client, Tx, commit, run};

        crate::drivers::cases::cases!(Bank::behind_a_pooler, "keeps what the caller wrote");
    }
}

mod with_tokio_postgres {
    use tokio_postgres::{NoTls, Transaction};

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

    super::cases!(Bank::open, "keeps what the caller wrote");

    mod through_a_pooler {
        use super::{Client, Tx, commit, run};

        crate::drivers::cases::cases!(Bank::behind_a_pooler, "keeps what the caller wrote");
    }

    #[super::bank::idempotent(
        key = "order/{order}", scope = "orders", store = store, transaction = tx, crate = ::idem_runtime
    )]
    async fn pay_pooled(
        store: &PostgresStore,
        tx: &mut deadpool_postgres::Transaction<'_>,
        order: &str,
    ) -> Result<u32, Failure> {
        run(tx, &format!("INSERT INTO effects VALUES ('{order}')")).await?;
        Ok(7)
    }

    #[tokio::test]
    async fn a_transaction_of_deadpool_is_one() {
        let bank = Bank::open().await;
        let manager = deadpool_postgres::Manager::new(bank.url().parse().unwrap(), NoTls);
        let pool = deadpool_postgres::Pool::builder(manager).build().unwrap();
        let mut client = pool.get().await.unwrap();
        let mut tx = client.transaction().await.unwrap();
        assert_eq!(pay_pooled(&bank.store, &mut tx, "1").await.unwrap(), 7);
        tx.commit().await.unwrap();
        assert_eq!(bank.counts(), "1|1");
    }
}

mod with_diesel_async {
    use diesel_async::{
        AnsiTransactionManager, AsyncConnection as _, AsyncPgConnection, SimpleAsyncConnection as _,
        TransactionManager as _,
    };

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

    super::cases!(Bank::open, "keeps what the caller wrote");

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
        ConnectOptions, ConnectionTrait as _, Database, DatabaseConnection, DatabaseTransaction,
        TransactionTrait as _,
    };
    use sqlx::postgres::PgConnectOptions;

    pub(super) type Tx<'a> = DatabaseTransaction;

    pub(super) struct Client(DatabaseConnection);

    impl Client {
        pub(super) async fn open(url: &str) -> Self {
            Self::with(url, |options| options).await
        }

        async fn with(url: &str, map: fn(PgConnectOptions) -> PgConnectOptions) -> Self {
            let mut options = ConnectOptions::new(url);
            options.map_sqlx_postgres_opts(map);
            Self(Database::connect(options).await.unwrap())
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

    super::cases!(Bank::open, "may lose what the caller wrote");
    super::cases!(Bank::open, nested Fails Dropped);

    /// The driver names all its statements, and the pooler makes its sessions forget these statements. With a
    /// cache capacity of 0, the driver forgets the names, too.
    mod through_a_pooler_that_discards {
        use super::{Tx, commit, run};

        struct Client;

        impl Client {
            async fn open(url: &str) -> super::Client {
                super::Client::with(url, |options| {
                    options.extra_float_digits(None).statement_cache_capacity(0)
                })
                .await
            }
        }

        crate::drivers::cases::cases!(Bank::behind_a_pooler_that_discards, "may lose what the caller wrote");
    }

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
        key = "order/{order}", scope = "orders", store = store, transaction = tx, crate = ::idem_runtime
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
