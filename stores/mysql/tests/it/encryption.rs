//! TLS to a server with its own certificate, by rustls or, with the feature `native-tls`, by the system's
//! library.

use idem_mysql::MySqlStore;
use idem_runtime::StoreErrorKind;
use idem_test_servers::MariaDb;

use crate::support::grant;

/// The error text of the TLS library in use for a certificate that it refuses.
const REFUSED: &str =
    if cfg!(feature = "native-tls") { "certificate verify failed" } else { "invalid peer certificate" };

#[tokio::test(flavor = "multi_thread")]
async fn the_servers_certificate_is_checked_and_what_does_not_fit_is_a_configuration_error() {
    let server = MariaDb::with_tls();
    let url = |host: &str| {
        let port = server.url().rsplit_once(':').unwrap().1.to_owned();
        let certificate = server.certificate();
        format!("mysql://root@{host}:{port}?ssl-mode=VERIFY_IDENTITY&ssl-ca={}", certificate.display())
    };
    let store = MySqlStore::connect(&url("localhost")).await.unwrap();
    grant(&store, "order").await;
    let sessions = "select variable_value > 0 from information_schema.global_status where variable_name = 'SSL_FINISHED_ACCEPTS'";
    assert_eq!(server.sql(sessions), "1");
    // The certificate names another host.
    let error = MySqlStore::connect(&url("127.0.0.1")).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Configuration, "{error}");
    assert!(error.to_string().contains(REFUSED), "{error}");
}
