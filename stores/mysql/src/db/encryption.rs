//! Whether connections are encrypted.

use std::sync::Once;

use sqlx::mysql::{MySqlConnectOptions, MySqlSslMode};

static REPORTED: Once = Once::new();

/// Reports, once in a process, connections to another machine that are not encrypted, or need not be: passwords
/// and results go over the network.
pub(super) fn report(options: &MySqlConnectOptions) {
    if is_local(options) || (cfg!(feature = "tls") && insists(options.get_ssl_mode())) {
        return;
    }
    let why = if cfg!(feature = "tls") {
        "`ssl-mode` does not insist on TLS: set `ssl-mode=REQUIRED` or `VERIFY_IDENTITY`"
    } else {
        "TLS is not built in: turn on the feature `mysql-tls` (`tls` of idem-mysql), and set `ssl-mode`"
    };
    REPORTED.call_once(|| {
        tracing::warn!(
            target: "idem",
            event = "not_encrypted",
            why,
            "connections to MySQL on another machine may not be encrypted"
        );
    });
}

fn is_local(options: &MySqlConnectOptions) -> bool {
    let host = options.get_host();
    let is_loopback = |host: &str| host.parse().is_ok_and(|address: std::net::IpAddr| address.is_loopback());
    options.get_socket().is_some() || host == "localhost" || is_loopback(host.trim_matches(['[', ']']))
}

const fn insists(mode: MySqlSslMode) -> bool {
    matches!(mode, MySqlSslMode::Required | MySqlSslMode::VerifyCa | MySqlSslMode::VerifyIdentity)
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
            assert_eq!(is_local(&MySqlConnectOptions::from_str(url).unwrap()), expected, "{url}");
        }
    }
}
