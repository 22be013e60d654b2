//! The servers that a rig starts for its store, and how it disturbs them.

use std::path::Path;
use std::time::Duration;

use idem_test_servers as start;

/// Longer than the lease of the soak's workers at pace 1.
const LONGER_THAN_A_LEASE: Duration = Duration::from_millis(500);

/// Kills a server, or starts it again on its data.
type Switch = Box<dyn FnMut(bool)>;

/// The servers that were started. They end with this value.
pub struct Servers {
    name: &'static str,
    switch: Option<Switch>,
    /// How often they were disturbed.
    disturbed: u32,
}

impl Servers {
    /// Starts the servers of `store`, and returns the URL for workers. No write that they acknowledged is lost when they are killed.
    ///
    /// # Errors
    ///
    /// `store` names none, and is not the URL of a store that runs already.
    pub fn start(store: &str, folder: &Path) -> Result<(Self, String), String> {
        let (name, url, switch) = match store {
            "sqlite" => ("sqlite", format!("sqlite:{}", folder.join("idem.db").display()), None),
            "object" => ("object", format!("object:{}", folder.join("records").display()), None),
            "redis" => {
                let mut redis = start::Redis::with(&["--appendonly", "yes", "--appendfsync", "always"]);
                ("redis", redis.url(), switched(move |on| process(redis.server(), on)))
            }
            "postgres" => {
                let mut postgres = start::Postgres::start();
                ("postgres", postgres.url(), switched(move |on| database(&mut postgres, on)))
            }
            "pgbouncer" => {
                let mut postgres = start::Postgres::start();
                // By default it refuses all clients for 15 s after it could not reach the server.
                let settings = "server_login_retry=0.2";
                let mut pooler = start::PgBouncer::start(&postgres, "transaction", settings);
                let url = pooler.url();
                let switch = switched(move |on| {
                    database(&mut postgres, on);
                    if on { pooler.restart() } else { pooler.server().kill() }
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
                // The emulator keeps everything in memory, so it is stopped, not killed.
                ("dynamodb", url, switched(move |on| aws.server().signal(if on { "-CONT" } else { "-STOP" })))
            }
            // The URL of a store that runs already.
            given => match given.parse::<crate::Choice>() {
                Ok(_) if given != "memory" => ("given", given.to_owned(), None),
                Ok(_) => return Err("several processes cannot share a memory".to_owned()),
                Err(error) => {
                    return Err(format!(
                        "{error} | sqlite | redis | postgres | pgbouncer | mysql | nats-kv | object | dynamodb"
                    ));
                }
            },
        };
        Ok((Self { name, switch, disturbed: 0 }, url))
    }

    /// The name of the kind of store.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Whether [`switch`](Self::switch) does anything.
    #[must_use]
    pub const fn can_be_killed(&self) -> bool {
        self.switch.is_some()
    }

    /// Kills the servers, or starts them again on their data.
    pub fn switch(&mut self, on: bool) {
        if let Some(switch) = &mut self.switch {
            switch(on);
        }
    }

    /// Kills the servers and starts them again, ten times in all: where the next time is due after this part of the run, from 0 to 1.
    /// Returns whether it was.
    pub fn disturb(&mut self, part: f64) -> bool {
        let is_due = self.can_be_killed() && part * 10.0 >= f64::from(self.disturbed) + 0.5;
        if is_due {
            self.disturbed += 1;
            self.switch(false);
            std::thread::sleep(LONGER_THAN_A_LEASE);
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
