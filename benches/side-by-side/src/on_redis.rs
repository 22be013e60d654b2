//! The arms on Redis: code by hand over one connection, this library, and the crate `idempotent`. By hand, a
//! fresh call is a `SET NX PX` and a `SET PX`, and a replay is a `GET`.

use idem::RedisStore;
use idem_test_servers::Redis;
use idempotent::store::valkey::ValkeyStore;
use redis::aio::MultiplexedConnection;
use redis::{Client, cmd};

use crate::arm::{Anything, Arm, Contest, RECEIPT, beside, right};

async fn pay(mut connection: MultiplexedConnection, key: String) -> Anything<()> {
    let claim = cmd("SET").arg(&key).arg("pending").arg("NX").arg("PX").arg(30_000).to_owned();
    let claimed: bool = claim.query_async(&mut connection).await?;
    let complete = cmd("SET").arg(&key).arg(RECEIPT).arg("PX").arg(3_600_000).to_owned();
    let recorded: bool = complete.query_async(&mut connection).await?;
    right(claimed && recorded)
}

async fn look(mut connection: MultiplexedConnection, key: String) -> Anything<()> {
    let value: String = cmd("GET").arg(key).query_async(&mut connection).await?;
    right(value == RECEIPT)
}

async fn arms(url: String) -> Anything<Vec<Arm>> {
    let client = Client::open(url.as_str())?;
    let connection = client.get_multiplexed_async_connection().await?;
    let hand = Arm::new("two `SET`, a `GET`", &connection, pay, look);
    let mut arms = beside(hand, &RedisStore::connect(&url).await?);
    arms.push(crate::idempotent::arm(ValkeyStore::new(client).await?));
    Ok(arms)
}

pub(crate) fn contest() -> Anything<Contest> {
    let server = Redis::start();
    Ok(Contest::new("Redis", server.url(), Some(server.port()), server, arms))
}
