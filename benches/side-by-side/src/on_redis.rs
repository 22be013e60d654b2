//! The arms on Redis: `SET NX PX` and `SET PX`, or `GET`, over one connection, and the crate `idempotent`.

use idem::RedisStore;
use idem_test_servers::Redis;
use idempotent::store::valkey::ValkeyStore;
use redis::aio::MultiplexedConnection;
use redis::{Client, cmd};

use crate::arm::{Anything, Arm, Contest, RECEIPT, call, none, ours, wrong};

async fn hand(url: &str) -> Anything<Arm> {
    let connection = Client::open(url)?.get_multiplexed_async_connection().await?;
    let reading = connection.clone();
    let fresh = call(move |key| pay(connection.clone(), key));
    let replay = call(move |key| {
        let mut connection = reading.clone();
        async move {
            let value: String = cmd("GET").arg(key).query_async(&mut connection).await?;
            if value == RECEIPT { Ok(()) } else { Err(wrong()) }
        }
    });
    Ok(Arm { name: "two `SET`, a `GET`", fresh, replay, work: None })
}

async fn pay(mut connection: MultiplexedConnection, key: String) -> Anything<()> {
    let claim = cmd("SET").arg(&key).arg("pending").arg("NX").arg("PX").arg(30_000).to_owned();
    let claimed: bool = claim.query_async(&mut connection).await?;
    let complete = cmd("SET").arg(&key).arg(RECEIPT).arg("PX").arg(3_600_000).to_owned();
    let recorded: bool = complete.query_async(&mut connection).await?;
    if claimed && recorded { Ok(()) } else { Err(wrong()) }
}

async fn arms(url: String) -> Anything<Vec<Arm>> {
    let mut arms = vec![hand(&url).await?];
    arms.extend(ours(&RedisStore::connect(&url).await?));
    arms.push(crate::idempotent::arm(ValkeyStore::new(Client::open(url)?).await?));
    arms.push(none());
    Ok(arms)
}

pub(crate) fn contest() -> Contest {
    let server = Redis::start();
    Contest {
        store: "Redis",
        connect: Box::new(|url| Box::pin(arms(url))),
        url: server.url(),
        port: Some(server.port()),
        _kept: Box::new(server),
    }
}
