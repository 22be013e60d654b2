//! The servers that the soak makes for itself, and what it does to them.

use std::path::Path;

#[cfg(any(
    feature = "redis",
    feature = "redis-cluster",
    feature = "redis-sentinel",
    feature = "postgres",
    feature = "dynamodb"
))]
use idem_test_servers as start;

/// What the soak started.
pub(crate) enum Servers {
    /// Nothing: a file, or a server that is there.
    None(&'static str),
    #[cfg(feature = "redis")]
    Redis(Box<start::Redis>, u32),
    #[cfg(feature = "redis-cluster")]
    Cluster(std::sync::Arc<start::RedisCluster>, Option<std::thread::JoinHandle<()>>, u32),
    #[cfg(feature = "redis-sentinel")]
    Sentinel(Box<start::RedisSentinel>, Phase),
    #[cfg(feature = "postgres")]
    Postgres(Box<start::Postgres>, u32),
    #[cfg(feature = "dynamodb")]
    DynamoDb(Box<start::Aws>, u32),
}

/// How far a failover is.
#[cfg(feature = "redis-sentinel")]
#[derive(PartialEq)]
pub(crate) enum Phase {
    Before,
    Killed,
    Back,
}

impl Servers {
    /// Starts what `store` names, and says how a worker reaches it.
    pub(crate) fn start(store: &str, folder: &Path) -> Result<(Self, String), String> {
        Ok(match store {
            "sqlite" => (Self::None("sqlite"), format!("sqlite:{}", folder.join("idem.db").display())),
            #[cfg(feature = "redis")]
            "redis" => {
                let redis = start::Redis::with(&["--appendonly", "yes", "--appendfsync", "always"]);
                let url = redis.url();
                (Self::Redis(Box::new(redis), 0), url)
            }
            #[cfg(feature = "redis-cluster")]
            "redis-cluster" => {
                let cluster = start::RedisCluster::start();
                let url = format!("redis-cluster://{}", hosts(&cluster.urls()));
                (Self::Cluster(std::sync::Arc::new(cluster), None, 0), url)
            }
            #[cfg(feature = "redis-sentinel")]
            "redis-sentinel" => {
                let servers = start::RedisSentinel::with(&["--appendonly", "yes"]);
                let service = start::RedisSentinel::SERVICE;
                let url = format!("redis-sentinel://{service}@{}?replicas=1", hosts(&servers.urls()));
                (Self::Sentinel(Box::new(servers), Phase::Before), url)
            }
            #[cfg(feature = "postgres")]
            "postgres" => {
                let postgres = start::Postgres::start();
                let url = postgres.url();
                (Self::Postgres(Box::new(postgres), 0), url)
            }
            #[cfg(feature = "dynamodb")]
            "dynamodb" => {
                let mut aws = start::Aws::start();
                let url = format!("dynamodb://127.0.0.1:{}/soak", aws.server().port());
                (Self::DynamoDb(Box::new(aws), 0), url)
            }
            // A worker could not open it either.
            given => match given.parse::<crate::store::Choice>() {
                Ok(_) if given != "memory" => (Self::None("given"), given.to_owned()),
                Ok(_) => return Err("several processes cannot share a memory".to_owned()),
                Err(error) => {
                    return Err(format!(
                        "{error} | sqlite | redis | redis-cluster | redis-sentinel | postgres | dynamodb"
                    ));
                }
            },
        })
    }

    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::None(name) => name,
            #[cfg(feature = "redis")]
            Self::Redis(..) => "redis",
            #[cfg(feature = "redis-cluster")]
            Self::Cluster(..) => "redis-cluster",
            #[cfg(feature = "redis-sentinel")]
            Self::Sentinel(..) => "redis-sentinel",
            #[cfg(feature = "postgres")]
            Self::Postgres(..) => "postgres",
            #[cfg(feature = "dynamodb")]
            Self::DynamoDb(..) => "dynamodb",
        }
    }

    /// Does what is due when this part of the time, from 0 to 1, is over. Gives how often workers lost their
    /// server by it.
    pub(crate) fn disturb(&mut self, _part: f64) -> u64 {
        match self {
            Self::None(_) => 0,
            #[cfg(feature = "redis")]
            Self::Redis(redis, kills) => {
                // Ten times in all.
                if _part * 10.0 < f64::from(*kills + 1) {
                    return 0;
                }
                *kills += 1;
                redis.server().kill();
                redis.server().restart();
                1
            }
            #[cfg(feature = "redis-cluster")]
            Self::Cluster(cluster, moving, moves) => {
                if moving.as_ref().is_some_and(|moving| !moving.is_finished()) {
                    return 0;
                }
                let (cluster, from) = (cluster.clone(), *moves as usize % 3);
                *moves += 1;
                *moving = Some(std::thread::spawn(move || cluster.move_slots(from, (from + 1) % 3, 200)));
                1
            }
            #[cfg(feature = "redis-sentinel")]
            Self::Sentinel(servers, phase) => {
                if *phase == Phase::Before && _part > 0.3 {
                    servers.master.server().kill();
                    *phase = Phase::Killed;
                    return 1;
                }
                if *phase == Phase::Killed && _part > 0.6 {
                    servers.until_promoted();
                    servers.master.server().restart();
                    *phase = Phase::Back;
                }
                0
            }
            #[cfg(feature = "postgres")]
            Self::Postgres(postgres, kills) => {
                // Ten times in all.
                if _part * 10.0 < f64::from(*kills + 1) {
                    return 0;
                }
                *kills += 1;
                postgres.server().kill();
                postgres.restart();
                1
            }
            #[cfg(feature = "dynamodb")]
            Self::DynamoDb(aws, stops) => {
                // It keeps everything in its memory, so it is stopped, and not killed: ten times in all.
                if _part * 10.0 < f64::from(*stops + 1) {
                    return 0;
                }
                *stops += 1;
                aws.server().signal("-STOP");
                std::thread::sleep(std::time::Duration::from_millis(500));
                aws.server().signal("-CONT");
                1
            }
        }
    }

    /// Ends what it is doing to them.
    pub(crate) fn settle(&mut self) {
        #[cfg(feature = "redis-cluster")]
        if let Self::Cluster(_, moving, _) = self
            && let Some(moving) = moving.take()
        {
            let _ = moving.join();
        }
    }
}

#[cfg(any(feature = "redis-cluster", feature = "redis-sentinel"))]
fn hosts(urls: &[String]) -> String {
    let hosts: Vec<_> =
        urls.iter().map(|url| url.trim_start_matches("redis://").trim_end_matches('/')).collect();
    hosts.join(",")
}
