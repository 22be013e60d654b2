//! Whether connections are encrypted.

use std::sync::Once;

use idem_core::inspection::{Inspection, Standing};
use idem_store_kit::network;
use sqlx::mysql::{MySqlConnectOptions, MySqlSslMode};

static REPORTED: Once = Once::new();

/// Why a connection to another machine may not be encrypted; `None` if it must be, or if the server is on this machine.
/// Without TLS built in, the driver opens no connection that must be encrypted.
fn gap(options: &MySqlConnectOptions) -> Option<&'static str> {
    if is_local(options) || insists(options.get_ssl_mode()) {
        None
    } else if cfg!(any(feature = "tls", feature = "native-tls")) {
        Some("`ssl-mode` does not insist on TLS: set `ssl-mode=REQUIRED` or `VERIFY_IDENTITY`")
    } else {
        Some(
            "TLS is not built in: turn on the feature `mysql-tls` (`tls` of idem-mysql) or `mysql-native-tls`, and set \
             `ssl-mode`",
        )
    }
}

/// Warns, once per process, about connections to another machine that may not be encrypted: passwords and results go over the
/// network.
pub(super) fn report(options: &MySqlConnectOptions) {
    let Some(why) = gap(options) else { return };
    REPORTED.call_once(|| {
        tracing::warn!(
            target: "idem",
            event = "not_encrypted",
            why,
            "connections to MySQL on another machine may not be encrypted"
        );
    });
}

/// Adds the same to an inspection.
pub(crate) fn find(options: &MySqlConnectOptions, found: &mut Inspection) {
    let (standing, text) = match gap(options) {
        Some(why) => (
            Standing::Weak,
            format!(
                "connections to another machine may not be encrypted, so that others may read keys and results: {why}"
            ),
        ),
        None if is_local(options) => (Standing::Fine, "the server is on this machine".to_owned()),
        None => (Standing::Fine, "required".to_owned()),
    };
    found.find(standing, "encryption", text);
}

fn is_local(options: &MySqlConnectOptions) -> bool {
    options.get_socket().is_some() || network::is_this_machine(options.get_host())
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
