//! The servers that the soak makes for itself, and what it does to them.

use std::path::Path;
use std::time::Duration;

use idem_test_servers as start;

/// At the pace 1.
const LONGER_THAN_A_LEASE: Duration = Duration::from_millis(500);

/// What the soak started.
pub enum Servers {
    /// Nothing: a file, or a server that is there.
    None(&'static str),
    /// One server.
    Redis(Box<start::Redis>, u32),
    /// A server, and a replica that its answers wait for.
    Replica(Box<(start::Redis, start::Redis)>, u32),
    /// Three masters.
    Cluster(std::sync::Arc<start::RedisCluster>, Option<std::thread::JoinHandle<()>>, u32),
    /// A master, a replica and three sentinels.
    Sentinel(Box<start::RedisSentinel>, Phase),
    /// One server.
    Postgres(Box<start::Postgres>, u32),
    /// One server.
    MariaDb(Box<start::MariaDb>, u32),
    /// An emulator.
    #[cfg(feature = "dynamodb")]
    DynamoDb(Box<start::Aws>, u32),
}

/// How far a failover is.
#[derive(PartialEq)]
pub enum Phase {
    /// Nothing was done yet.
    Before,
    /// The master is killed.
    Killed,
    /// It is back.
    Back,
}

impl Servers {
    /// Starts what `store` names, and says how a worker reaches it.
    ///
    /// # Errors
    ///
    /// The server's, as text.
    pub fn start(store: &str, folder: &Path) -> Result<(Self, String), String> {
        Ok(match store {
            "sqlite" => (Self::None("sqlite"), format!("sqlite:{}", folder.join("idem.db").display())),
            "redis" => {
                let redis = start::Redis::with(&["--appendonly", "yes", "--appendfsync", "always"]);
                let url = redis.url();
                (Self::Redis(Box::new(redis), 0), url)
            }
            "redis-replica" => {
                let master = start::Redis::with(&["--appendonly", "yes"]);
                let replica = start::Redis::with(&["--replicaof", "127.0.0.1", &master.port().to_string()]);
                let url = format!("{}?replicas=1", master.url());
                (Self::Replica(Box::new((master, replica)), 0), url)
            }
            "redis-cluster" => {
                let cluster = start::RedisCluster::start();
                let url = format!("redis-cluster://{}", hosts(&cluster.urls()));
                (Self::Cluster(std::sync::Arc::new(cluster), None, 0), url)
            }
            "redis-sentinel" => {
                let servers = start::RedisSentinel::with(&["--appendonly", "yes"]);
                let service = start::RedisSentinel::SERVICE;
                let url = format!("redis-sentinel://{service}@{}?replicas=1", hosts(&servers.urls()));
                (Self::Sentinel(Box::new(servers), Phase::Before), url)
            }
            "postgres" => {
                let postgres = start::Postgres::start();
                let url = postgres.url();
                (Self::Postgres(Box::new(postgres), 0), url)
            }
            "mysql" => {
                let mariadb = start::MariaDb::start();
                let url = mariadb.url();
                (Self::MariaDb(Box::new(mariadb), 0), url)
            }
            #[cfg(feature = "dynamodb")]
            "dynamodb" => {
                start::Aws::installed()?;
                let mut aws = start::Aws::start();
                let url = format!("dynamodb://127.0.0.1:{}/soak", aws.server().port());
                (Self::DynamoDb(Box::new(aws), 0), url)
            }
            // A worker could not open it either.
            given => match given.parse::<crate::Choice>() {
                Ok(_) if given != "memory" => (Self::None("given"), given.to_owned()),
                Ok(_) => return Err("several processes cannot share a memory".to_owned()),
                Err(error) => {
                    return Err(format!(
                        "{error} | sqlite | redis | redis-replica | redis-cluster | redis-sentinel | postgres | mysql | dynamodb"
                    ));
                }
            },
        })
    }

    /// What it is called.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::None(name) => name,
            Self::Redis(..) => "redis",
            Self::Replica(..) => "redis-replica",
            Self::Cluster(..) => "redis-cluster",
            Self::Sentinel(..) => "redis-sentinel",
            Self::Postgres(..) => "postgres",
            Self::MariaDb(..) => "mysql",
            #[cfg(feature = "dynamodb")]
            Self::DynamoDb(..) => "dynamodb",
        }
    }

    /// Does what is due when this part of the time, from 0 to 1, is over. Gives how often workers lost their
    /// server by it.
    pub fn disturb(&mut self, part: f64) -> u64 {
        match self {
            Self::None(_) => 0,
            Self::Redis(redis, kills) => {
                if !is_due(part, kills) {
                    return 0;
                }
                redis.server().kill();
                redis.server().restart();
                1
            }
            Self::Cluster(cluster, moving, moves) => {
                if moving.as_ref().is_some_and(|moving| !moving.is_finished()) {
                    return 0;
                }
                let (cluster, from) = (cluster.clone(), *moves as usize % 3);
                *moves += 1;
                *moving = Some(std::thread::spawn(move || cluster.move_slots(from, (from + 1) % 3, 200)));
                1
            }
            Self::Sentinel(servers, phase) => {
                if *phase == Phase::Before && part > 0.3 {
                    servers.master.server().kill();
                    *phase = Phase::Killed;
                    return 1;
                }
                if *phase == Phase::Killed && part > 0.6 {
                    servers.until_promoted();
                    servers.master.server().restart();
                    *phase = Phase::Back;
                }
                0
            }
            // Until it answers again, nothing is known to be kept by two.
            Self::Replica(servers, stops) => {
                if !is_due(part, stops) {
                    return 0;
                }
                pause(servers.1.server());
                1
            }
            Self::Postgres(postgres, disturbed) => {
                if !is_due(part, disturbed) {
                    return 0;
                }
                if *disturbed % 2 == 1 {
                    postgres.server().kill();
                    postgres.restart();
                } else {
                    // As after a failover, when the connections lead to what is a replica now.
                    postgres.read_only(true);
                    std::thread::sleep(LONGER_THAN_A_LEASE);
                    postgres.read_only(false);
                }
                1
            }
            Self::MariaDb(mariadb, kills) => {
                if !is_due(part, kills) {
                    return 0;
                }
                mariadb.server().kill();
                mariadb.restart();
                1
            }
            #[cfg(feature = "dynamodb")]
            Self::DynamoDb(aws, stops) => {
                // It keeps everything in its memory, so it is stopped, and not killed.
                if !is_due(part, stops) {
                    return 0;
                }
                pause(aws.server());
                1
            }
        }
    }

    /// Ends what it is doing to them.
    pub fn settle(&mut self) {
        if let Self::Cluster(_, moving, _) = self
            && let Some(moving) = moving.take()
        {
            let _ = moving.join();
        }
    }
}

/// Whether the next disturbance is due: ten in all.
fn is_due(part: f64, done: &mut u32) -> bool {
    let due = part * 10.0 >= f64::from(*done + 1);
    *done += u32::from(due);
    due
}

/// Stops a server for a while.
fn pause(server: &start::Server) {
    server.signal("-STOP");
    std::thread::sleep(LONGER_THAN_A_LEASE);
    server.signal("-CONT");
}

fn hosts(urls: &[String]) -> String {
    let hosts: Vec<_> =
        urls.iter().map(|url| url.trim_start_matches("redis://").trim_end_matches('/')).collect();
    hosts.join(",")
}
