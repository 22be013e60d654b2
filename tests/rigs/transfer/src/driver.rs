//! The drivers whose transactions the workers use, and how each driver writes a transfer.

use clap::ValueEnum;
use diesel_async::{
    AnsiTransactionManager, AsyncConnection as _, AsyncPgConnection, RunQueryDsl as _,
    TransactionManager as _,
};
use idem::{Observed, observe};
use sea_orm::{
    ConnectOptions, ConnectionTrait as _, Database, DatabaseTransaction, DbBackend, Statement,
    TransactionTrait as _,
};
use sqlx::{AssertSqlSafe, MySqlConnection, MySqlPool, PgConnection, PgPool, Row as _};
use tokio_postgres::NoTls;
use tokio_postgres::types::Type;

use crate::bank::{self, Bank};
use crate::{Failure, Transfer, TransferError, transfer, transfer_on_mysql};

/// The driver whose transactions the workers use.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Driver {
    Sqlx,
    TokioPostgres,
    DieselAsync,
    SeaOrm,
}

impl Driver {
    /// The name on the command line.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// The additional settings of `PgBouncer` for this driver; `None` if the driver does not work through
    /// every pooler. SeaORM names all its statements, so sessions must forget the names after each
    /// transaction. diesel-async names statements outside of transactions, too. So it needs a pooler that
    /// supports named statements, as `PgBouncer` does since 1.21.
    pub(crate) const fn settings_of_the_pooler(self) -> Option<&'static str> {
        match self {
            Self::Sqlx | Self::TokioPostgres => Some(""),
            Self::SeaOrm => Some("server_reset_query=DISCARD ALL\nserver_reset_query_always=1"),
            Self::DieselAsync => None,
        }
    }
}

/// The writes of a transfer.
pub(crate) trait Accounts: Send {
    /// Changes the balance of an account. Returns how many transfers the account has sent.
    fn change(
        &mut self,
        schema: &str,
        account: i64,
        change: i64,
        sends: i64,
    ) -> impl Future<Output = Result<i64, Failure>> + Send;

    /// Inserts a row for the transfer.
    fn note(&mut self, schema: &str, id: i64) -> impl Future<Output = Result<(), Failure>> + Send;
}

fn change(schema: &str) -> String {
    format!(
        "UPDATE {schema}.accounts SET balance = balance + $2, sent = sent + $3 WHERE id = $1 RETURNING sent"
    )
}

fn note(schema: &str) -> String {
    format!("INSERT INTO {schema}.effects (id) VALUES ($1)")
}

impl Accounts for PgConnection {
    async fn change(&mut self, schema: &str, account: i64, by: i64, sends: i64) -> Result<i64, Failure> {
        let update = sqlx::query(AssertSqlSafe(change(schema))).bind(account).bind(by).bind(sends);
        // The statement has no name, because a pooler shares the session between clients.
        Ok(update.persistent(false).fetch_one(self).await?.try_get(0)?)
    }

    async fn note(&mut self, schema: &str, id: i64) -> Result<(), Failure> {
        sqlx::query(AssertSqlSafe(note(schema))).bind(id).persistent(false).execute(self).await?;
        Ok(())
    }
}

impl Accounts for tokio_postgres::Transaction<'_> {
    async fn change(&mut self, schema: &str, account: i64, by: i64, sends: i64) -> Result<i64, Failure> {
        let parameters = [(&account as _, Type::INT8), (&by as _, Type::INT8), (&sends as _, Type::INT8)];
        Ok(self.query_typed_one(&change(schema), &parameters).await?.try_get(0)?)
    }

    async fn note(&mut self, schema: &str, id: i64) -> Result<(), Failure> {
        self.execute_typed(&note(schema), &[(&id, Type::INT8)]).await?;
        Ok(())
    }
}

#[derive(diesel::QueryableByName)]
struct Sent {
    #[diesel(sql_type = diesel::sql_types::BigInt)]
    sent: i64,
}

impl Accounts for AsyncPgConnection {
    async fn change(&mut self, schema: &str, account: i64, by: i64, sends: i64) -> Result<i64, Failure> {
        use diesel::sql_types::BigInt;
        let update = diesel::sql_query(change(schema));
        let update = update.bind::<BigInt, _>(account).bind::<BigInt, _>(by).bind::<BigInt, _>(sends);
        Ok(update.get_result::<Sent>(self).await?.sent)
    }

    async fn note(&mut self, schema: &str, id: i64) -> Result<(), Failure> {
        diesel::sql_query(note(schema)).bind::<diesel::sql_types::BigInt, _>(id).execute(self).await?;
        Ok(())
    }
}

impl Accounts for DatabaseTransaction {
    async fn change(&mut self, schema: &str, account: i64, by: i64, sends: i64) -> Result<i64, Failure> {
        let values = [account.into(), by.into(), sends.into()];
        let update = Statement::from_sql_and_values(DbBackend::Postgres, change(schema), values);
        let row = self.query_one_raw(update).await?.ok_or("there is no such account")?;
        Ok(row.try_get_by_index(0)?)
    }

    async fn note(&mut self, schema: &str, id: i64) -> Result<(), Failure> {
        let insert = Statement::from_sql_and_values(DbBackend::Postgres, note(schema), [id.into()]);
        self.execute_raw(insert).await?;
        Ok(())
    }
}

impl Accounts for MySqlConnection {
    async fn change(&mut self, schema: &str, account: i64, by: i64, sends: i64) -> Result<i64, Failure> {
        let update =
            format!("UPDATE {schema}.accounts SET balance = balance + ?, sent = sent + ? WHERE id = ?");
        sqlx::query(AssertSqlSafe(update)).bind(by).bind(sends).bind(account).execute(&mut *self).await?;
        let select = format!("SELECT sent FROM {schema}.accounts WHERE id = ?");
        Ok(sqlx::query(AssertSqlSafe(select)).bind(account).fetch_one(self).await?.try_get(0)?)
    }

    async fn note(&mut self, schema: &str, id: i64) -> Result<(), Failure> {
        let insert = format!("INSERT INTO {schema}.effects (id) VALUES (?)");
        sqlx::query(AssertSqlSafe(insert)).bind(id).execute(self).await?;
        Ok(())
    }
}

pub(crate) enum Connection {
    Sqlx(PgPool),
    MySql(MySqlPool),
    TokioPostgres(tokio_postgres::Client),
    DieselAsync(Box<AsyncPgConnection>),
    SeaOrm(sea_orm::DatabaseConnection),
}

impl Connection {
    pub(crate) async fn open(driver: Driver, url: &str, bank: &Bank) -> Result<Self, Failure> {
        if let Bank::MySql(bank) = bank {
            return Ok(Self::MySql(bank.pool.clone()));
        }
        Ok(match driver {
            Driver::Sqlx => Self::Sqlx(bank::pool(url).await?),
            Driver::TokioPostgres => {
                let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
                tokio::spawn(connection);
                Self::TokioPostgres(client)
            }
            Driver::DieselAsync => Self::DieselAsync(Box::new(AsyncPgConnection::establish(url).await?)),
            Driver::SeaOrm => {
                let mut options = ConnectOptions::new(url);
                options.map_sqlx_postgres_opts(|options| {
                    // A pooler refuses the parameter `extra_float_digits`. The pooler's sessions forget
                    // statements, so the driver must not cache statements.
                    options.extra_float_digits(None).statement_cache_capacity(0)
                });
                Self::SeaOrm(Database::connect(options).await?)
            }
        })
    }

    /// Makes a transfer in a transaction. The transaction commits even if the body failed, because a failed
    /// body leaves no writes in the transaction.
    pub(crate) async fn make(
        &mut self,
        bank: &Bank,
        next: Transfer,
    ) -> Result<Observed<Result<i64, TransferError>>, Failure> {
        match (self, bank) {
            (Self::MySql(pool), Bank::MySql(bank)) => {
                let mut tx = pool.begin().await?;
                let made = observe(transfer_on_mysql(bank, &mut tx, next)).await;
                tx.commit().await?;
                Ok(made)
            }
            (Self::Sqlx(pool), Bank::Postgres(bank)) => {
                let mut tx = pool.begin().await?;
                let made = observe(transfer(bank, &mut *tx, next)).await;
                tx.commit().await?;
                Ok(made)
            }
            (Self::TokioPostgres(client), Bank::Postgres(bank)) => {
                let mut tx = client.transaction().await?;
                let made = observe(transfer(bank, &mut tx, next)).await;
                tx.commit().await?;
                Ok(made)
            }
            (Self::DieselAsync(connection), Bank::Postgres(bank)) => {
                let connection = connection.as_mut();
                AnsiTransactionManager::begin_transaction(connection).await?;
                let made = observe(transfer(bank, connection, next)).await;
                AnsiTransactionManager::commit_transaction(connection).await?;
                Ok(made)
            }
            (Self::SeaOrm(connection), Bank::Postgres(bank)) => {
                let mut tx = connection.begin().await?;
                let made = observe(transfer(bank, &mut tx, next)).await;
                tx.commit().await?;
                Ok(made)
            }
            _ => Err("the connection and the bank are of different kinds".into()),
        }
    }
}
