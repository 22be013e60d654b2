//! MariaDB, from the machine's own packages.

use std::path::Path;
use std::process::Command;

use crate::certificate;
use crate::database::{CERTIFICATE, DatabaseServer, Engine, copy_of_template, give, tool, unprivileged};

/// One MariaDB server, with a user `root`, and a database on it: `idem`, if the server is not shared. Its
/// settings are options such as `--max-connections=20`.
pub type MariaDb = DatabaseServer<MariaDbEngine>;

/// The name of the key's file in the folder of a server with TLS.
const KEY: &str = "key.pem";

/// The parts that only MariaDB has.
pub struct MariaDbEngine;

impl Engine for MariaDbEngine {
    const WORD: &str = "mysql";
    const FAST: &[&str] = &["--innodb-flush-log-at-trx-commit=2"];
    const SHARED: &[&str] = &["--innodb-flush-log-at-trx-commit=2", "--max-connections=400"];
    const DATABASE: &str = "idem";
    const HAS_DATABASE: bool = false;
    const FORCE: &str = "";

    fn make_data(folder: &Path) {
        let version = Command::new(tool("mariadbd")).arg("--version").output().unwrap().stdout;
        let version = String::from_utf8_lossy(&version);
        let version = version.split_once("Ver ").map_or("", |(_, version)| version);
        let version = version.split_whitespace().next().unwrap_or_default();
        copy_of_template(&format!("mariadb-{version}"), &folder.join("data"), |made| {
            let mut install = unprivileged(made, "mariadb-install-db");
            install.args(["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"]);
            install.args(["--skip-name-resolve", "--innodb-log-file-size=64M"]);
            install.arg(format!("--datadir={}", made.join("data").display()));
            // Two installations that run at once would remove each other's temporary tables.
            install.env("TMPDIR", made);
            install
        });
        give(folder);
    }

    fn make_certificate(folder: &Path) {
        certificate::make(&folder.join(KEY), &folder.join(CERTIFICATE), "DNS:localhost");
        give(folder);
    }

    fn command(port: u16, folder: &Path, settings: &[String]) -> Command {
        let mut command = unprivileged(folder, "mariadbd");
        command.args(["--no-defaults", "--bind-address=127.0.0.1", "--skip-name-resolve"]);
        command.args(["--innodb-buffer-pool-size=64M", "--innodb-log-file-size=64M"]);
        command.arg(format!("--datadir={}", folder.join("data").display()));
        command.arg(format!("--socket={}", folder.join("s").display()));
        command.arg(format!("--tmpdir={}", folder.display()));
        if folder.join(CERTIFICATE).exists() {
            command.arg(format!("--ssl-cert={}", folder.join(CERTIFICATE).display()));
            command.arg(format!("--ssl-key={}", folder.join(KEY).display()));
        }
        command.arg(format!("--port={port}")).args(settings);
        command
    }

    fn client(port: u16, database: Option<&str>, statement: &str) -> Command {
        let mut client = Command::new(tool("mariadb"));
        client.args(["--no-defaults", "--host=127.0.0.1", "--protocol=tcp", "--user=root", "--skip-ssl"]);
        client.args(["--batch", "--skip-column-names", "--binary-as-hex"]);
        client.arg(format!("--port={port}")).arg(format!("--execute={statement}"));
        client.arg(format!("--database={}", database.unwrap_or_default()));
        client
    }

    fn url(port: u16, database: &str) -> String {
        format!("mysql://root@127.0.0.1:{port}/{database}")
    }
}
