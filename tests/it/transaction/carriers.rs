//! What may carry the transaction: any type that gives out a connection.

use std::ops::{Deref, DerefMut};

use idem::{PostgresStore, idempotent};
use sqlx::pool::PoolConnection;
use sqlx::postgres::PgConnection;
use sqlx::{Postgres, Transaction};

use super::{Bank, effect};

/// A type of the user that holds a connection.
struct Unit<'c>(Transaction<'c, Postgres>);

impl<'c> Deref for Unit<'c> {
    type Target = Transaction<'c, Postgres>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for Unit<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

#[idempotent(key = "{order}", scope = "bank.unit", store = store, transaction = unit)]
async fn pay_in_unit(store: PostgresStore, unit: &mut Unit<'_>, order: &str) -> Result<u32, idem::Error> {
    effect(unit, order).await.unwrap();
    Ok(1)
}

#[idempotent(key = "{order}", scope = "bank.pooled", store = store, transaction = pooled)]
async fn pay_pooled(
    store: &PostgresStore,
    pooled: &mut PoolConnection<Postgres>,
    order: &str,
) -> Result<u32, idem::Error> {
    effect(pooled, order).await.unwrap();
    Ok(2)
}

struct Till(PostgresStore);

impl Till {
    #[idempotent(key = "{order}", scope = "bank.generic", store = self.0, transaction = tx)]
    async fn pay<C: DerefMut<Target = PgConnection>>(
        &self,
        tx: &mut C,
        order: &str,
    ) -> Result<u32, idem::Error> {
        effect(tx, order).await.unwrap();
        Ok(3)
    }
}

#[tokio::test]
async fn whatever_gives_out_a_connection_carries_the_transaction() {
    let bank = Bank::open().await;
    let mut unit = Unit(bank.begin().await);
    assert_eq!(pay_in_unit(bank.store.clone(), &mut unit, "1").await.unwrap(), 1);
    unit.0.commit().await.unwrap();
    let mut tx = bank.begin().await;
    assert_eq!(Till(bank.store.clone()).pay(&mut tx, "1").await.unwrap(), 3);
    tx.commit().await.unwrap();
    let mut pooled = bank.pool.acquire().await.unwrap();
    assert!(pay_pooled(&bank.store, &mut pooled, "1").await.is_err());
    assert_eq!(bank.effects(), 2);
}
