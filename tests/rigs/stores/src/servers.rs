//! The servers that a rig starts for its store, and how it disturbs them.

use std::path::Path;
use std::sync::Arc;
use std::thread::{JoinHandle, sleep, spawn};
use std::time::Duration;

use idem_test_servers as start;

/// Longer than the lease of the soak's workers, which is 400 ms without the option `--pace`.
const LONGER_THAN_A_LEASE: Duration = Duration::from_millis(500);

/// With `false`, kills a server or disturbs it in another way; with `true`, ends the disturbance.
type Switch = Box<dyn FnMut(bool)>;

/// The servers that were started. They end when this value is dropped.
pub struct Servers {
    /// The name of the kind of store.
    pub name: &'static str,
    switch: Option<Switch>,
    /// How often to disturb the servers during a run, and how often they were disturbed so far.
    times: u32,
    disturbed: u32,
}

impl Servers {
    /// Starts the servers of `store`. Returns them, and the URL that the workers use. A server that is killed
    /// keeps every write that it acknowledged. `pooler` is additional lines of settings for a `PgBouncer`.
    ///
    /// # Errors
    ///
    /// `store` must be the name of a kind of server, or the URL of a store that runs already. `memory` is an
    /// error, because several processes cannot share a memory.
    pub fn start(store: &str, folder: &Path, pooler: &str) -> Result<(Self, String), String> {
        let (mut times, mut offs) = (10, 0);
        let (name, url, switch) = match store {
            "sqlite" => ("sqlite", format!("sqlite:{}", folder.join("idem.db").display()), None),
            "object" => ("object", format!("object:{}", folder.join("records").display()), None),
            "redis" => {
                let mut redis = start::Redis::with(&["--appendonly", "yes", "--appendfsync", "always"]);
                ("redis", redis.url(), switched(move |on| process(redis.server(), on)))
            }
            "redis-replica" => {
                let master = start::Redis::with(&["--appendonly", "yes"]);
                let url = format!("{}?replicas=1", master.url());
                let mut replica =
                    start::Redis::with(&["--replicaof", "127.0.0.1", &master.port().to_string()]);
                // While the replica is stopped, no write is acknowledged by two servers.
                let switch = switched(move |on| {
                    let _master = &master;
                    pause(replica.server(), on);
                });
                ("redis-replica", url, switch)
            }
            "redis-cluster" => {
                let cluster = Arc::new(start::RedisCluster::start());
                let url = format!("redis-cluster://{}", hosts(&cluster.urls()));
                let mut moving: Option<JoinHandle<()>> = None;
                // Each disturbance moves slots from one master to the next. The run goes on while they are
                // moved.
                let switch = switched(move |on| {
                    if !on {
                        let _ = moving.take().map(JoinHandle::join);
                        let (cluster, from) = (cluster.clone(), offs % 3);
                        offs += 1;
                        moving = Some(spawn(move || cluster.move_slots(from, (from + 1) % 3, 200)));
                    }
                });
                ("redis-cluster", url, switch)
            }
            "redis-sentinel" => {
                let mut servers = start::RedisSentinel::with(&["--appendonly", "yes"]);
                let service = start::RedisSentinel::SERVICE;
                let url = format!("redis-sentinel://{service}@{}?replicas=1", hosts(&servers.urls()));
                // Only one disturbance: `kill_master` always kills the same server, and after the first
                // disturbance this server is not the master any more.
                times = 1;
                let switch = switched(move |on| match on {
                    true => {
                        servers.until_promoted();
                        servers.master.server().restart();
                    }
                    false => servers.kill_master(),
                });
                ("redis-sentinel", url, switch)
            }
            "postgres" => {
                let mut postgres = start::Postgres::start();
                let url = postgres.url();
                let switch = switched(move |on| {
                    offs += usize::from(!on);
                    // Every second disturbance makes the server read-only, as if it had become a replica in a
                    // failover.
                    if offs % 2 == 1 { database(&mut postgres, on) } else { postgres.read_only(!on) }
                });
                ("postgres", url, switch)
            }
            "pgbouncer" => {
                let mut postgres = start::Postgres::start();
                // By default, a pooler that could not reach its server refuses all clients for 15 s.
                let settings = format!("server_login_retry=0.2\n{pooler}");
                let mut pooler = start::PgBouncer::start(&postgres, &settings);
                let url = pooler.url();
                let switch = switched(move |on| {
                    offs += usize::from(!on);
                    match offs % 3 {
                        1 => database(&mut postgres, on),
                        2 => postgres.read_only(!on),
                        _ if on => pooler.restart(),
                        _ => pooler.server().kill(),
                    }
                });
                ("pgbouncer", url, switch)
            }
            "mysql" => {
                let mut mariadb = start::MariaDb::start();
                ("mysql", mariadb.url(), switched(move |on| database(&mut mariadb, on)))
            }
            "nats-kv" => {
                let mut nats = start::Nats::start();
                let url = format!("{}/soak", nats.url().replace("nats://", "nats-kv://"));
                ("nats-kv", url, switched(move |on| process(nats.server(), on)))
            }
            #[cfg(feature = "dynamodb")]
            "dynamodb" => {
                let mut aws = start::Aws::start();
                let url = format!("dynamodb://127.0.0.1:{}/soak", aws.server().port());
                // The emulator keeps everything in memory and would lose it by a kill, so it is only stopped
                // for a while.
                ("dynamodb", url, switched(move |on| pause(aws.server(), on)))
            }
            // The URL of a store that runs already.
            given => match given.parse::<crate::Choice>() {
                Ok(_) if given != "memory" => ("given", given.to_owned(), None),
                Ok(_) => return Err("several processes cannot share a memory".to_owned()),
                Err(error) => {
                    return Err(format!(
                        "{error} | sqlite | redis | redis-replica | redis-cluster | redis-sentinel | postgres | pgbouncer | mysql | nats-kv | object | dynamodb"
                    ));
                }
            },
        };
        Ok((Self { name, switch, times, disturbed: 0 }, url))
    }

    /// Whether [`switch`](Self::switch) does anything.
    pub const fn can_be_killed(&self) -> bool {
        self.switch.is_some()
    }

    /// With `false`, kills the servers or disturbs them in another way; with `true`, ends the disturbance.
    pub fn switch(&mut self, on: bool) {
        if let Some(switch) = &mut self.switch {
            switch(on);
        }
    }

    /// Disturbs the servers if their next disturbance is due. `part` is the part of the run that is over,
    /// from 0 to 1. Returns whether a disturbance was due.
    pub fn disturb(&mut self, part: f64) -> bool {
        let is_due = self.can_be_killed() && part * f64::from(self.times) >= f64::from(self.disturbed) + 0.5;
        if is_due {
            self.disturbed += 1;
            self.switch(false);
            sleep(LONGER_THAN_A_LEASE);
            self.switch(true);
        }
        is_due
    }
}

fn switched(switch: impl FnMut(bool) + 'static) -> Option<Switch> {
    Some(Box::new(switch))
}

fn process(server: &mut start::Server, on: bool) {
    if on { server.restart() } else { server.kill() }
}

fn database<E: start::Engine>(server: &mut start::DatabaseServer<E>, on: bool) {
    if on { server.restart() } else { server.server().kill() }
}

/// Stops a server, or continues it.
fn pause(server: &start::Server, on: bool) {
    server.signal(if on { "-CONT" } else { "-STOP" });
}

fn hosts(urls: &[String]) -> String {
    let hosts = urls.iter().map(|url| url.trim_start_matches("redis://").trim_end_matches('/'));
    hosts.collect::<Vec<_>>().join(",")
}
