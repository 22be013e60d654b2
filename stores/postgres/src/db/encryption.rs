//! Whether connections are encrypted.

use std::sync::Once;

use idem_core::inspection::{Inspection, Standing};
use idem_store_kit::network;
use sqlx::postgres::{PgConnectOptions, PgSslMode};

static SAID: Once = Once::new();

/// Why a connection to another machine may not be encrypted; `None` where it must be, or where there is no other machine.
/// Without TLS built in, the driver opens no connection that must be encrypted.
fn gap(options: &PgConnectOptions) -> Option<&'static str> {
    if is_local(options) || insists(options.get_ssl_mode()) {
        None
    } else if cfg!(any(feature = "tls", feature = "native-tls")) {
        Some("`sslmode` does not insist on TLS: set `sslmode=require` or `verify-full`")
    } else {
        Some(
            "TLS is not built in: turn on the feature `postgres-tls` (`tls` of idem-postgres) or `postgres-native-tls`, \
             and set `sslmode`",
        )
    }
}

/// Reports, once in a process, connections to another machine that are not encrypted, or need not be: passwords
/// and results go over the network.
pub(crate) fn report(options: &PgConnectOptions) {
    let Some(why) = gap(options) else { return };
    SAID.call_once(|| {
        tracing::warn!(
            target: "idem",
            event = "not_encrypted",
            why,
            "connections to PostgreSQL on another machine may not be encrypted"
        );
    });
}

/// Says the same for an operator, of all servers of the store.
pub(crate) fn find(servers: &[PgConnectOptions], found: &mut Inspection) {
    let (standing, text) = match servers.iter().find_map(gap) {
        Some(why) => (
            Standing::Weak,
            format!(
                "connections to another machine may not be encrypted, so that others may read keys and results: {why}"
            ),
        ),
        None if servers.iter().all(is_local) => (Standing::Fine, "the server is on this machine".to_owned()),
        None => (Standing::Fine, "required".to_owned()),
    };
    found.find(standing, "encryption", text);
}

fn is_local(options: &PgConnectOptions) -> bool {
    let host = options.get_host();
    options.get_socket().is_some() || host.starts_with('/') || network::is_this_machine(host)
}

const fn insists(mode: PgSslMode) -> bool {
    matches!(mode, PgSslMode::Require | PgSslMode::VerifyCa | PgSslMode::VerifyFull)
}

#[cfg(test)]
mod tests {
    use std::str::FromStr as _;

    use super::*;

    /// Sends on what a subscriber writes.
    struct Heard(std::sync::mpsc::Sender<Vec<u8>>);

    impl std::io::Write for Heard {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let _ = self.0.send(bytes.to_vec());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_connection_to_another_machine_that_need_not_be_encrypted_is_told() {
        let (log, heard) = std::sync::mpsc::channel();
        let subscriber = tracing_subscriber::fmt().with_writer(move || Heard(log.clone())).finish();
        let told = |url: &str| {
            report(&PgConnectOptions::from_str(url).unwrap());
            String::from_utf8(heard.try_iter().flatten().collect()).unwrap()
        };
        tracing::subscriber::with_default(subscriber, || {
            assert_eq!(told("postgres://a@db.example/b?sslmode=require"), "");
            let said = told("postgres://a:secret@db.example/b");
            assert!(said.contains("not_encrypted") && !said.contains("secret"), "{said}");
            assert_eq!(told("postgres://a@db.example/b"), "", "once is enough");
        });
    }

    #[test]
    fn a_server_on_this_machine_is_told_from_one_on_another() {
        for (url, expected) in [
            ("postgres://a@localhost/b", true),
            ("postgres://a@127.0.0.1/b", true),
            ("postgres://a@[::1]/b", true),
            ("postgres://a@%2Frun%2Fpostgresql/b", true),
            ("postgres://a@db.example/b", false),
            ("postgres://a@10.0.0.7/b", false),
        ] {
            assert_eq!(is_local(&PgConnectOptions::from_str(url).unwrap()), expected, "{url}");
        }
    }
}
