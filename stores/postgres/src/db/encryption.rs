//! Whether connections are encrypted.

use idem_store_kit::network;
use idem_store_kit::sql::Encryption;
use sqlx::postgres::{PgConnectOptions, PgSslMode};

/// Who can read what goes over a connection. Without TLS built in, the driver opens no connection that must be encrypted.
pub(super) fn of(options: &PgConnectOptions) -> Encryption {
    let host = options.get_host();
    let is_local = options.get_socket().is_some() || host.starts_with('/') || network::is_this_machine(host);
    let mode = options.get_ssl_mode();
    let is_required = matches!(mode, PgSslMode::Require | PgSslMode::VerifyCa | PgSslMode::VerifyFull);
    Encryption::of(
        is_local,
        is_required,
        if cfg!(any(feature = "tls", feature = "native-tls")) {
            "`sslmode` does not insist on TLS: set `sslmode=require` or `verify-full`"
        } else {
            "TLS is not built in: turn on the feature `postgres-tls` (`tls` of idem-postgres) or `postgres-native-tls`, \
             and set `sslmode`"
        },
    )
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
            of(&PgConnectOptions::from_str(url).unwrap()).report("PostgreSQL");
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
            let encryption = of(&PgConnectOptions::from_str(url).unwrap());
            assert_eq!(encryption == Encryption::Local, expected, "{url}");
        }
    }
}
