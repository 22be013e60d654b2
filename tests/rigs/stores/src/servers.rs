//! The servers that an example starts for its store, and how it disturbs them.

use std::path::Path;
use std::time::Duration;

use idem_test_servers as start;

/// Longer than the lease of the soak's workers at pace 1.
const LONGER_THAN_A_LEASE: Duration = Duration::from_millis(500);

/// The servers that were started.
pub enum Servers {
    /// None: the store is a file, or a server that runs already.
    None(&'static str),
    /// One server.
    Redis(Box<start::Redis>, u32),
    /// A server, and a replica whose acknowledgement its answers wait for.
    Replica(Box<(start::Redis, start::Redis)>, u32),
    /// Three masters.
    Cluster(std::sync::Arc<start::RedisCluster>, Option<std::thread::JoinHandle<()>>, u32),
    /// A master, a replica and three sentinels.
    Sentinel(Box<start::RedisSentinel>, Phase),
    /// One server.
    Postgres(Box<start::Postgres>, u32),
    /// A pooler in transaction mode, and the server behind it.
    PgBouncer(Box<(start::PgBouncer, start::Postgres)>, u32),
    /// One server.
    MariaDb(Box<start::MariaDb>, u32),
    /// One server.
    Nats(Box<start::Nats>, u32),
    /// An emulator.
    #[cfg(feature = "dynamodb")]
    DynamoDb(Box<start::Aws>, u32),
}

/// How far a failover is.
#[derive(PartialEq)]
pub enum Phase {
    /// Nothing has happened yet.
    Before,
    /// The master is killed.
    Killed,
    /// The old master is back.
    Back,
}

impl Servers {
    /// Starts the servers of `store`, and returns the URL for workers.
    ///
    /// # Errors
    ///
    /// One line that says how to install a missing server, or why `store` names none.
    pub fn start(store: &str, folder: &Path) -> Result<(Self, String), String> {
        match store {
            "postgres" => start::Postgres::installed()?,
            "pgbouncer" => start::PgBouncer::installed()?,
            "mysql" => start::MariaDb::installed()?,
            "nats-kv" => start::Nats::installed()?,
            "redis" | "redis-replica" | "redis-cluster" | "redis-sentinel" => start::Redis::installed()?,
            #[cfg(feature = "dynamodb")]
            "dynamodb" => start::Aws::installed()?,
            _ => {}
        }
        Ok(match store {
            "sqlite" => (Self::None("sqlite"), format!("sqlite:{}", folder.join("idem.db").display())),
            "object" => (Self::None("object"), format!("object:{}", folder.join("records").display())),
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
            "pgbouncer" => {
                let postgres = start::Postgres::start();
                // By default it refuses all clients for 15 s after it could not reach the server.
                let pooler = start::PgBouncer::start(&postgres, "transaction", "server_login_retry=0.2");
                let url = pooler.url();
                (Self::PgBouncer(Box::new((pooler, postgres)), 0), url)
            }
            "mysql" => {
                let mariadb = start::MariaDb::start();
                let url = mariadb.url();
                (Self::MariaDb(Box::new(mariadb), 0), url)
            }
            "nats-kv" => {
                let nats = start::Nats::start();
                let url = format!("{}/soak", nats.url().replace("nats://", "nats-kv://"));
                (Self::Nats(Box::new(nats), 0), url)
            }
            #[cfg(feature = "dynamodb")]
            "dynamodb" => {
                let mut aws = start::Aws::start();
                let url = format!("dynamodb://127.0.0.1:{}/soak", aws.server().port());
                (Self::DynamoDb(Box::new(aws), 0), url)
            }
            // The URL of a store that runs already.
            given => match given.parse::<crate::Choice>() {
                Ok(_) if given != "memory" => (Self::None("given"), given.to_owned()),
                Ok(_) => return Err("several processes cannot share a memory".to_owned()),
                Err(error) => {
                    return Err(format!(
                        "{error} | sqlite | redis | redis-replica | redis-cluster | redis-sentinel | postgres | pgbouncer | mysql | nats-kv | object | dynamodb"
                    ));
                }
            },
        })
    }

    /// The name of the kind of store.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::None(name) => name,
            Self::Redis(..) => "redis",
            Self::Replica(..) => "redis-replica",
            Self::Cluster(..) => "redis-cluster",
            Self::Sentinel(..) => "redis-sentinel",
            Self::Postgres(..) => "postgres",
            Self::PgBouncer(..) => "pgbouncer",
            Self::MariaDb(..) => "mysql",
            Self::Nats(..) => "nats-kv",
            #[cfg(feature = "dynamodb")]
            Self::DynamoDb(..) => "dynamodb",
        }
    }

    /// Carries out the disturbance that is due after this part of the time, from 0 to 1. Returns how often workers lost their
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
            Self::Sentinel(servers, phase) => fail_over(servers, phase, part),
            // While the replica is stopped, no write is acknowledged by two servers.
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
                    refuse_writes(postgres);
                }
                1
            }
            Self::PgBouncer(servers, disturbed) => {
                if !is_due(part, disturbed) {
                    return 0;
                }
                let (pooler, postgres) = servers.as_mut();
                disturb_pooler(pooler, postgres, *disturbed);
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
            Self::Nats(nats, kills) => {
                if !is_due(part, kills) {
                    return 0;
                }
                nats.server().kill();
                nats.server().restart();
                1
            }
            #[cfg(feature = "dynamodb")]
            Self::DynamoDb(aws, stops) => {
                // The emulator keeps everything in memory, so it is stopped, not killed.
                if !is_due(part, stops) {
                    return 0;
                }
                pause(aws.server());
                1
            }
        }
    }

    /// Waits for a disturbance that still runs.
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

/// Makes the server read-only for a while, as after a failover in which it became a replica.
fn refuse_writes(postgres: &start::Postgres) {
    postgres.read_only(true);
    std::thread::sleep(LONGER_THAN_A_LEASE);
    postgres.read_only(false);
}

/// Makes PostgreSQL read-only, kills it, or kills its pooler: one after the other.
fn disturb_pooler(pooler: &mut start::PgBouncer, postgres: &mut start::Postgres, disturbed: u32) {
    match disturbed % 3 {
        0 => refuse_writes(postgres),
        1 => {
            postgres.server().kill();
            postgres.restart();
        }
        _ => {
            pooler.server().kill();
            pooler.restart();
        }
    }
}

/// Kills the master, and starts it again after its replica was promoted. Returns how often workers lost it now.
fn fail_over(servers: &mut start::RedisSentinel, phase: &mut Phase, part: f64) -> u64 {
    match phase {
        Phase::Before if part > 0.3 => {
            servers.kill_master();
            *phase = Phase::Killed;
            1
        }
        Phase::Killed if part > 0.6 => {
            servers.until_promoted();
            servers.master.server().restart();
            *phase = Phase::Back;
            0
        }
        _ => 0,
    }
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
