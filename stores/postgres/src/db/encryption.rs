//! Whether connections are encrypted.

use std::sync::Once;

use sqlx::postgres::{PgConnectOptions, PgSslMode};

static SAID: Once = Once::new();

/// Reports, once in a process, connections to another machine that are not encrypted, or need not be: passwords
/// and results go over the network.
pub(crate) fn report(options: &PgConnectOptions) {
    if is_local(options) || (cfg!(feature = "tls") && insists(options.get_ssl_mode())) {
        return;
    }
    let why = if cfg!(feature = "tls") {
        "`sslmode` does not insist on TLS: set `sslmode=require` or `verify-full`"
    } else {
        "TLS is not built in: turn on the feature `postgres-tls` (`tls` of idem-postgres), and set `sslmode`"
    };
    SAID.call_once(|| {
        tracing::warn!(
            target: "idem",
            event = "not_encrypted",
            why,
            "connections to PostgreSQL on another machine may not be encrypted"
        );
    });
}

fn is_local(options: &PgConnectOptions) -> bool {
    let host = options.get_host();
    let is_loopback = |host: &str| host.parse().is_ok_and(|address: std::net::IpAddr| address.is_loopback());
    options.get_socket().is_some()
        || host.starts_with('/')
        || host == "localhost"
        || is_loopback(host.trim_matches(['[', ']']))
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
            if cfg!(feature = "tls") {
                assert_eq!(told("postgres://a@db.example/b?sslmode=require"), "");
            }
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
