//! Jobs of apalis in Redis: `idem::tower` makes the worker's service idempotent.

use std::time::Duration;

use apalis::prelude::{AbortError, BoxDynError, Task, TaskSink as _, WorkerBuilder, WorkerBuilderExt as _};
use apalis_redis::{Config, RedisStorage};
use idem::message::StoredLetter;
use idem::tower::Error;
use idem_test_servers::Redis;
use redis::AsyncCommands as _;
use tower::{ServiceExt as _, service_fn};

use super::letter;
use crate::{Broker, CONCURRENCY, Failure, Kind, Order, Setup, ShipError, Shop};

/// The time between two heartbeats of a worker. If two heartbeats are missing, the worker counts as dead, and
/// other workers get its jobs. A worker that cannot register within this time ends with an error.
const HEARTBEAT: Duration = Duration::from_secs(3);

/// A Redis server that the demo starts.
pub struct OnApalis {
    server: Redis,
    storage: RedisStorage<String>,
}

async fn open(url: &str) -> Result<RedisStorage<String>, Failure> {
    let config = Config::default()
        .queue("orders")
        .heartbeat_interval(HEARTBEAT)
        .missed_heartbeats(2)
        // Only observers use the lock of a job, so the lock is off. The heartbeat shows which workers are
        // alive.
        .lock_tasks(false);
    Ok(RedisStorage::new(apalis_redis::connect(url).await?).with_config(config))
}

/// apalis tries a job again unless its error is an [`AbortError`].
fn disposition(error: Error<ShipError>) -> BoxDynError {
    match error {
        Error::Service(ShipError::NoOrder | ShipError::Empty)
        | Error::Idem(idem::Error::MissingKey { .. }) => AbortError::new(error).into(),
        _ => error.into(),
    }
}

impl Broker for OnApalis {
    const KIND: Kind = Kind::Apalis;

    // The job of a killed worker waits for two heartbeat intervals, so kills are rare.
    const KILL_EVERY_MS: u64 = 3_000;

    async fn start(_: &Setup) -> Result<Self, Failure> {
        let server = Redis::start();
        let storage = open(&server.url()).await?;
        Ok(Self { server, storage })
    }

    fn kill(&mut self) {
        self.server.server().kill();
    }

    async fn restart(&mut self) -> Result<(), Failure> {
        self.server.server().restart();
        self.storage = open(&self.server.url()).await?;
        Ok(())
    }

    fn address(&self) -> String {
        self.server.url()
    }

    async fn work(address: &str, shop: &Shop, shutdown: impl Future<Output = ()>) -> Result<(), Failure> {
        let ship = shop.service();
        let shop = shop.clone();
        let service = service_fn(move |job: Task<String>| {
            let (shop, ship) = (shop.clone(), ship.clone());
            async move {
                let order = Order::parse(job.args.as_bytes()).map_err(Error::Service);
                let id = order.as_ref().ok().map(|order| order.id);
                let call = async { ship.oneshot(order?).await };
                shop.observe(id, call).await?.map_err(disposition)
            }
        });
        let name = format!("shipper-{}", std::process::id());
        let worker =
            WorkerBuilder::new(name).backend(open(address).await?).concurrency(CONCURRENCY).build(service);
        let (end, ended) = tokio::sync::oneshot::channel();
        let work = worker.run_until(async { ended.await.map_err(std::io::Error::other) });
        let stop = async {
            shutdown.await;
            let _ = end.send(());
        };
        tokio::join!(work, stop).0?;
        Ok(())
    }

    async fn send(&self, bodies: Vec<String>) -> Result<(), Failure> {
        let mut storage = self.storage.clone();
        for body in bodies {
            storage.push(body).await?;
        }
        Ok(())
    }

    async fn waiting(&self) -> Result<u64, Failure> {
        let mut storage = self.storage.clone();
        let config = storage.get_config().clone();
        let redis = storage.get_connection();
        let mut waiting: u64 = redis.llen(config.active_jobs_list()).await?;
        waiting += redis.zcard::<_, u64>(config.scheduled_jobs_set()).await?;
        // The set contains killed workers until other workers have taken their jobs.
        for worker in redis.zrange::<_, Vec<String>>(config.workers_set(), 0, -1).await? {
            let jobs = format!("{}:{worker}", config.inflight_jobs_set());
            waiting += redis.scard::<_, u64>(jobs).await?;
        }
        Ok(waiting)
    }

    async fn dead_letters(&self) -> Result<Vec<StoredLetter>, Failure> {
        let mut storage = self.storage.clone();
        let config = storage.get_config().clone();
        let redis = storage.get_connection();
        let mut letters = Vec::new();
        for job in redis.smembers::<_, Vec<String>>(config.dead_jobs_set()).await? {
            let body: Vec<u8> = redis.hget(config.job_data_hash(), job).await?;
            letters.push(letter(serde_json::from_slice::<String>(&body)?.as_bytes()));
        }
        Ok(letters)
    }
}
