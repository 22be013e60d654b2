//! Whether connections are encrypted.

use idem_store_kit::network;
use idem_store_kit::sql::Encryption;
use sqlx::mysql::{MySqlConnectOptions, MySqlSslMode};

/// Who can read what goes over a connection. Without TLS built in, the driver opens no connection that must be encrypted.
pub(super) fn of(options: &MySqlConnectOptions) -> Encryption {
    let is_local = options.get_socket().is_some() || network::is_this_machine(options.get_host());
    let mode = options.get_ssl_mode();
    let is_required =
        matches!(mode, MySqlSslMode::Required | MySqlSslMode::VerifyCa | MySqlSslMode::VerifyIdentity);
    Encryption::of(
        is_local,
        is_required,
        if cfg!(any(feature = "tls", feature = "native-tls")) {
            "`ssl-mode` does not insist on TLS: set `ssl-mode=REQUIRED` or `VERIFY_IDENTITY`"
        } else {
            "TLS is not built in: turn on the feature `mysql-tls` (`tls` of idem-mysql) or `mysql-native-tls`, and set \
             `ssl-mode`"
        },
    )
}

#[cfg(test)]
mod tests {
    use std::str::FromStr as _;

    use super::*;

    #[test]
    fn a_server_on_this_machine_is_told_from_one_on_another() {
        for (url, expected) in [
            ("mysql://a@localhost/b", true),
            ("mysql://a@127.0.0.1/b", true),
            ("mysql://a@[::1]/b", true),
            ("mysql://a@localhost/b?socket=/run/mysqld.sock", true),
            ("mysql://a@db.example/b", false),
            ("mysql://a@10.0.0.7/b", false),
        ] {
            let encryption = of(&MySqlConnectOptions::from_str(url).unwrap());
            assert_eq!(encryption == Encryption::Local, expected, "{url}");
        }
    }
}
