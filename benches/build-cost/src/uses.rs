//! One use of each enabled feature.

#[cfg(any(feature = "zstd", feature = "encryption", feature = "cache"))]
use idem::StoreExt as _;
use idem::{Error, KeyPart, MemoryStore, Store, idempotent};

use crate::Failure;

#[idempotent(key = "order/{order}", store = store, scope = "build.cost")]
async fn charge<S: Store, K: KeyPart>(store: &S, order: K) -> Result<String, Error> {
    Ok("a receipt".to_owned())
}

/// Makes one call on a store.
#[cfg_attr(not(feature = "sqlite"), allow(dead_code, reason = "not every feature has a store"))]
async fn on<S: Store>(store: S) -> Result<(), Failure> {
    charge(&store, 7_u64).await?;
    Ok(())
}

pub(crate) async fn all() -> Result<(), Failure> {
    #[cfg(feature = "sqlite")]
    on(idem::SqliteStore::open("idem.db")?).await?;
    #[cfg(feature = "redis")]
    on_redis().await?;
    #[cfg(feature = "postgres")]
    on(idem::PostgresStore::connect("postgres://localhost/shop").await?).await?;
    #[cfg(feature = "mysql")]
    on(idem::MySqlStore::connect("mysql://localhost/shop").await?).await?;
    #[cfg(feature = "outbox")]
    publish().await?;
    #[cfg(feature = "object")]
    on(idem::FolderStore::open("records")?).await?;
    #[cfg(feature = "nats-kv")]
    on(idem::NatsKvStore::connect("nats://127.0.0.1:4222", "idem").await?).await?;
    #[cfg(feature = "dynamodb")]
    on(idem::DynamoDbStore::new(dynamodb(), "idem")).await?;
    #[cfg(feature = "zstd")]
    on(MemoryStore::new().compressed()).await?;
    #[cfg(feature = "encryption")]
    on(MemoryStore::new().encrypted(idem::KeyRing::new(1, &[7; 32]))).await?;
    #[cfg(feature = "cache")]
    on(MemoryStore::new().cached(1 << 20)).await?;
    #[cfg(feature = "http")]
    serve().await?;
    #[cfg(feature = "message")]
    drop(idem::message::settle(charge(&MemoryStore::new(), 7_u64)).await);
    #[cfg(feature = "lambda")]
    records().await;
    #[cfg(feature = "uuid")]
    drop(charge(&MemoryStore::new(), uuid::Uuid::nil()).await?);
    #[cfg(feature = "chrono")]
    drop(charge(&MemoryStore::new(), chrono::NaiveDate::MIN).await?);
    #[cfg(feature = "jiff")]
    drop(charge(&MemoryStore::new(), jiff::civil::Date::MIN).await?);
    #[cfg(feature = "time")]
    drop(charge(&MemoryStore::new(), time::Date::MIN).await?);
    #[cfg(feature = "ulid")]
    drop(charge(&MemoryStore::new(), ulid::Ulid(7)).await?);
    #[cfg(feature = "rust_decimal")]
    drop(charge(&MemoryStore::new(), rust_decimal::Decimal::ONE).await?);
    #[cfg(feature = "testing")]
    on(idem::testing::FaultStore::new(MemoryStore::new())).await?;
    charge(&MemoryStore::new(), 7_u64).await?;
    Ok(())
}

#[cfg(feature = "redis")]
async fn on_redis() -> Result<(), Failure> {
    use idem::RedisStore;

    #[cfg(feature = "redis-cluster")]
    on(RedisStore::cluster(["redis://localhost:7000"]).connect().await?).await?;
    #[cfg(feature = "redis-sentinel")]
    on(RedisStore::sentinel("shop", ["redis://localhost:26379"]).connect().await?).await?;
    let scheme = if cfg!(feature = "redis-tls") { "rediss" } else { "redis" };
    on(RedisStore::connect(format!("{scheme}://localhost")).await?).await
}

#[cfg(feature = "dynamodb")]
fn dynamodb() -> aws_sdk_dynamodb::Client {
    use aws_sdk_dynamodb::config::{BehaviorVersion, Config, Region};

    let config =
        Config::builder().behavior_version(BehaviorVersion::latest()).region(Region::new("eu-west-1"));
    aws_sdk_dynamodb::Client::from_conf(config.build())
}

#[cfg(feature = "outbox")]
async fn publish() -> Result<(), Failure> {
    use idem::outbox::{Message, Outbox, PublishError, Publisher, Relay};

    struct Nowhere;
    impl Publisher for Nowhere {
        async fn publish(&self, _: &Message) -> Result<(), PublishError> {
            Ok(())
        }
    }
    let outbox = Outbox::connect("postgres://localhost/shop").await?;
    Ok(Relay::new(outbox, Nowhere).run(std::future::ready(())).await?)
}

#[cfg(feature = "http")]
async fn serve() -> Result<(), Failure> {
    use std::convert::Infallible;
    use std::future::{Ready, poll_fn, ready};
    use std::task::{Context, Poll};

    use http::{Request, Response};
    use http_body_util::Empty;
    use tower_layer::Layer as _;
    use tower_service::Service;

    #[derive(Clone)]
    struct Handler;
    impl<B> Service<Request<B>> for Handler {
        type Response = Response<Empty<bytes::Bytes>>;
        type Error = Infallible;
        type Future = Ready<Result<Self::Response, Infallible>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: Request<B>) -> Self::Future {
            ready(Ok(Response::new(Empty::new())))
        }
    }
    let mut service = idem::http::IdempotencyLayer::shared_by_all_clients(MemoryStore::new()).layer(Handler);
    let request = Request::post("/orders").body(Empty::<bytes::Bytes>::new())?;
    poll_fn(|cx| Service::<Request<Empty<bytes::Bytes>>>::poll_ready(&mut service, cx)).await?;
    service.call(request).await?;
    Ok(())
}

#[cfg(feature = "lambda")]
async fn records() {
    use aws_lambda_events::event::sqs::SqsMessage;

    let store = MemoryStore::new();
    let messages = vec![SqsMessage::default()];
    let _ = idem::lambda::batch::Batch::new()
        .process(messages, |message| {
            let store = store.clone();
            async move { charge(&store, message.body.unwrap_or_default()).await }
        })
        .await;
}
