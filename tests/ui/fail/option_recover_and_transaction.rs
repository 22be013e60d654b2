use idem::{Error, PostgresStore, Recovery, idempotent};
use sqlx::{Postgres, Transaction};

async fn find(
    _: &Recovery,
    _: &PostgresStore,
    _: &Transaction<'_, Postgres>,
    _: &u64,
) -> Result<Option<u64>, Error> {
    Ok(None)
}

#[idempotent(recover = find, transaction = tx, key = "{id}", store = store)]
async fn charge(
    store: &PostgresStore,
    tx: &mut Transaction<'_, Postgres>,
    id: u64,
) -> Result<u64, Error> {
    let _ = (store, tx);
    Ok(id)
}

fn main() {}
