//! The servers that an example starts for its store, and how it disturbs them.

use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use idem_test_servers as start;

/// Longer than the lease of the soak's workers at pace 1.
const LONGER_THAN_A_LEASE: Duration = Duration::from_millis(500);

/// Carries out what is due after a part of the time. Returns how often workers lost their server by it.
type Disturb = Box<dyn FnMut(f64) -> u64>;

/// The servers that were started. They end with this value.
pub struct Servers {
    name: &'static str,
    disturb: Disturb,
}

impl Servers {
    /// Starts the servers of `store`, and returns the URL for workers.
    ///
    /// # Errors
    ///
    /// One line that says how to install a missing server, or why `store` names none.
    pub fn start(store: &str, folder: &Path) -> Result<(Self, String), String> {
        Self::start_with(store, folder, "")
    }

    /// As [`start`](Self::start), with more lines of settings for a `PgBouncer`.
    ///
    /// # Errors
    ///
    /// As of `start`.
    pub fn start_with(store: &str, folder: &Path, pooler: &str) -> Result<(Self, String), String> {
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
        let undisturbed = || -> Disturb { Box::new(|_| 0) };
        let (name, url, disturb) = match store {
            "sqlite" => ("sqlite", format!("sqlite:{}", folder.join("idem.db").display()), undisturbed()),
            "object" => ("object", format!("object:{}", folder.join("records").display()), undisturbed()),
            "redis" => {
                let mut redis = start::Redis::with(&["--appendonly", "yes", "--appendfsync", "always"]);
                let url = redis.url();
                let disturb = ten_times(move |_| {
                    redis.server().kill();
                    redis.server().restart();
                });
                ("redis", url, disturb)
            }
            "redis-replica" => {
                let master = start::Redis::with(&["--appendonly", "yes"]);
                let port = master.port().to_string();
                let mut replica = start::Redis::with(&["--replicaof", "127.0.0.1", &port]);
                let url = format!("{}?replicas=1", master.url());
                // While the replica is stopped, no write is acknowledged by two servers.
                let disturb = ten_times(move |_| {
                    let _master = &master;
                    pause(replica.server());
                });
                ("redis-replica", url, disturb)
            }
            "redis-cluster" => {
                let cluster = start::RedisCluster::start();
                let url = format!("redis-cluster://{}", hosts(&cluster.urls()));
                ("redis-cluster", url, move_slots(cluster))
            }
            "redis-sentinel" => {
                let servers = start::RedisSentinel::with(&["--appendonly", "yes"]);
                let service = start::RedisSentinel::SERVICE;
                let url = format!("redis-sentinel://{service}@{}?replicas=1", hosts(&servers.urls()));
                ("redis-sentinel", url, fail_over(servers))
            }
            "postgres" => {
                let mut postgres = start::Postgres::start();
                let url = postgres.url();
                let disturb = ten_times(move |number| match number % 2 {
                    0 => refuse_writes(&postgres),
                    _ => kill(&mut postgres),
                });
                ("postgres", url, disturb)
            }
            "pgbouncer" => {
                let mut postgres = start::Postgres::start();
                // By default it refuses all clients for 15 s after it could not reach the server.
                let settings = format!("server_login_retry=0.2\n{pooler}");
                let mut pooler = start::PgBouncer::start(&postgres, "transaction", &settings);
                let url = pooler.url();
                let disturb = ten_times(move |number| match number % 3 {
                    0 => refuse_writes(&postgres),
                    1 => kill(&mut postgres),
                    _ => {
                        pooler.server().kill();
                        pooler.restart();
                    }
                });
                ("pgbouncer", url, disturb)
            }
            "mysql" => {
                let mut mariadb = start::MariaDb::start();
                let url = mariadb.url();
                let disturb = ten_times(move |_| {
                    mariadb.server().kill();
                    mariadb.restart();
                });
                ("mysql", url, disturb)
            }
            "nats-kv" => {
                let mut nats = start::Nats::start();
                let url = format!("{}/soak", nats.url().replace("nats://", "nats-kv://"));
                let disturb = ten_times(move |_| {
                    nats.server().kill();
                    nats.server().restart();
                });
                ("nats-kv", url, disturb)
            }
            #[cfg(feature = "dynamodb")]
            "dynamodb" => {
                let mut aws = start::Aws::start();
                let url = format!("dynamodb://127.0.0.1:{}/soak", aws.server().port());
                // The emulator keeps everything in memory, so it is stopped, not killed.
                ("dynamodb", url, ten_times(move |_| pause(aws.server())))
            }
            // The URL of a store that runs already.
            given => match given.parse::<crate::Choice>() {
                Ok(_) if given != "memory" => ("given", given.to_owned(), undisturbed()),
                Ok(_) => return Err("several processes cannot share a memory".to_owned()),
                Err(error) => {
                    return Err(format!(
                        "{error} | sqlite | redis | redis-replica | redis-cluster | redis-sentinel | postgres | pgbouncer | mysql | nats-kv | object | dynamodb"
                    ));
                }
            },
        };
        Ok((Self { name, disturb }, url))
    }

    /// The name of the kind of store.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Carries out the disturbance that is due after this part of the time, from 0 to 1. Returns how often workers lost their
    /// server by it.
    pub fn disturb(&mut self, part: f64) -> u64 {
        (self.disturb)(part)
    }
}

/// Disturbs ten times in all, from the first one on.
fn ten_times(mut disturb: impl FnMut(u32) + 'static) -> Disturb {
    let mut done = 0;
    Box::new(move |part| {
        if part * 10.0 < f64::from(done + 1) {
            return 0;
        }
        done += 1;
        disturb(done);
        1
    })
}

/// Moves slots from one master to the next all the time, and at the end of the time waits until they are moved.
fn move_slots(cluster: start::RedisCluster) -> Disturb {
    let (cluster, mut moves) = (Arc::new(cluster), 0_usize);
    let mut moving: Option<JoinHandle<()>> = None;
    Box::new(move |part| {
        if let Some(last) = moving.take_if(|moving| part >= 1.0 || moving.is_finished()) {
            let _ = last.join();
        }
        if part >= 1.0 || moving.is_some() {
            return 0;
        }
        let (cluster, from) = (cluster.clone(), moves % 3);
        moves += 1;
        moving = Some(std::thread::spawn(move || cluster.move_slots(from, (from + 1) % 3, 200)));
        1
    })
}

/// Kills the master, and starts it again after its replica was promoted.
fn fail_over(mut servers: start::RedisSentinel) -> Disturb {
    let mut steps_done = 0;
    Box::new(move |part| match steps_done {
        0 if part > 0.3 => {
            servers.kill_master();
            steps_done = 1;
            1
        }
        1 if part > 0.6 => {
            servers.until_promoted();
            servers.master.server().restart();
            steps_done = 2;
            0
        }
        _ => 0,
    })
}

fn kill(postgres: &mut start::Postgres) {
    postgres.server().kill();
    postgres.restart();
}

/// Makes the server read-only for a while, as after a failover in which it became a replica.
fn refuse_writes(postgres: &start::Postgres) {
    postgres.read_only(true);
    std::thread::sleep(LONGER_THAN_A_LEASE);
    postgres.read_only(false);
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
