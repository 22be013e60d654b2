//! `PgBouncer`, from Debian's packages, in front of a PostgreSQL server.

use std::fs;
use std::os::unix::fs::chown;
use std::process::Command;

use crate::postgres::{NOBODY, Postgres, is_root, tool, unprivileged};
use crate::process::{Server, until};

/// A pooler with one database, `postgres`, on one server.
#[derive(Debug)]
pub struct PgBouncer(Server);

impl PgBouncer {
    /// A pooler of this mode, `session` or `transaction`, with more lines for its settings.
    #[must_use]
    pub fn start(server: &mut Postgres, mode: &str, more: &str) -> Self {
        let behind = server.server().port();
        let settings = format!("pool_mode={mode}\n{more}\n");
        let bouncer = Self(Server::start(
            |folder| {
                if is_root(folder) {
                    chown(folder, Some(NOBODY), Some(NOBODY)).unwrap();
                }
            },
            move |port, folder| {
                let database =
                    format!("[databases]\npostgres = host=127.0.0.1 port={behind} user=postgres\n");
                let own = format!(
                    "[pgbouncer]\nlisten_addr=127.0.0.1\nlisten_port={port}\nauth_type=any\nunix_socket_dir=\n"
                );
                let ini = folder.join("pgbouncer.ini");
                fs::write(&ini, format!("{database}{own}{settings}")).unwrap();
                let mut command = unprivileged(folder, "pgbouncer");
                command.arg("-q").arg(ini);
                command
            },
        ));
        until("PgBouncer is ready", || {
            Command::new(tool("psql"))
                .args(["-X", "-q", "-c", "select 1", &bouncer.url()])
                .output()
                .unwrap()
                .status
                .success()
        });
        bouncer
    }

    /// `postgres://postgres@127.0.0.1:PORT/postgres`, by way of the pooler.
    #[must_use]
    pub fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.0.port())
    }
}
