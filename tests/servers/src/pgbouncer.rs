//! `PgBouncer`, from Debian's packages, in front of a PostgreSQL server.

use std::fs;

use crate::database::{Engine as _, give, unprivileged};
use crate::postgres::{Postgres, PostgresEngine};
use crate::process::{Server, until};

/// A pooler with one database, `postgres`, on one server.
pub struct PgBouncer(Server);

impl PgBouncer {
    /// Starts a pooler in the mode `transaction`. `more` is additional lines of settings.
    pub fn start(server: &Postgres, more: &str) -> Self {
        let (behind, name) = (server.port(), server.database().to_owned());
        let settings = format!("pool_mode=transaction\n{more}\n");
        let bouncer = Self(Server::start_in(give, move |port, folder| {
            let database =
                format!("[databases]\npostgres = host=127.0.0.1 port={behind} dbname={name} user=postgres\n");
            let own = format!(
                "[pgbouncer]\nlisten_addr=127.0.0.1\nlisten_port={port}\nauth_type=any\nunix_socket_dir=\n"
            );
            let ini = folder.join("pgbouncer.ini");
            fs::write(&ini, format!("{database}{own}{settings}")).unwrap();
            let mut command = unprivileged(folder, "pgbouncer");
            command.arg("-q").arg(ini);
            command
        }));
        bouncer.until_ready();
        bouncer
    }

    /// Starts the pooler again after it was killed, and returns when it forwards statements.
    pub fn restart(&mut self) {
        self.0.restart();
        self.until_ready();
    }

    fn until_ready(&self) {
        until("PgBouncer is ready", || {
            PostgresEngine::client(self.0.port(), None, "select 1").output().unwrap().status.success()
        });
    }

    /// The pooler's process.
    pub const fn server(&mut self) -> &mut Server {
        &mut self.0
    }

    /// `postgres://postgres@127.0.0.1:PORT/postgres`, with the pooler's port.
    pub fn url(&self) -> String {
        PostgresEngine::url(self.0.port(), PostgresEngine::DATABASE)
    }
}
