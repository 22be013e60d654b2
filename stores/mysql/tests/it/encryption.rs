//! TLS to a server with its own certificate, by rustls or, with the feature `native-tls`, by the system's
//! library.

use idem_mysql::MySqlStore;
use idem_runtime::StoreErrorKind;
use idem_test_servers::MariaDb;

use crate::support::{REFUSED, grant};

#[tokio::test(flavor = "multi_thread")]
async fn the_servers_certificate_is_checked_and_what_does_not_fit_is_a_configuration_error() {
    let server = MariaDb::with_tls();
    let (certificate, other) = (server.certificate(), MariaDb::with_tls());
    let url = |host: &str, ca: &std::path::Path, mode: &str| {
        let port = server.url().rsplit_once(':').unwrap().1.to_owned();
        format!("mysql://root@{host}:{port}?ssl-mode={mode}&ssl-ca={}", ca.display())
    };
    for (host, mode) in
        [("localhost", "VERIFY_IDENTITY"), ("127.0.0.1", "VERIFY_CA"), ("127.0.0.1", "REQUIRED")]
    {
        let store = MySqlStore::connect(&url(host, &certificate, mode)).await.unwrap();
        grant(&store, mode).await;
        let sessions = server.sql("select variable_value > 0 from information_schema.global_status where variable_name = 'SSL_FINISHED_ACCEPTS'");
        assert_eq!(sessions, "1", "{mode}");
    }
    for (what, wrong) in [
        ("host", url("127.0.0.1", &certificate, "VERIFY_IDENTITY")),
        ("certificate", url("localhost", &other.certificate(), "VERIFY_CA")),
    ] {
        let error = MySqlStore::connect(&wrong).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Configuration, "{what}: {error}");
        assert!(error.to_string().contains(REFUSED), "{what}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_tls_is_refused_where_tls_is_required() {
    let server = MariaDb::fast(&["--skip-ssl"]);
    let error = MySqlStore::connect(&format!("{}?ssl-mode=REQUIRED", server.url())).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Configuration, "{error}");
}
