//! TLS to a server with its own certificate, by rustls or, with the feature `native-tls`, by the system's
//! library.

use std::path::Path;

use idem_core::inspection::Standing;
use idem_postgres::PostgresStore;
use idem_runtime::{Store as _, StoreErrorKind};
use idem_test_servers::Postgres;

use crate::support::{REFUSED, grant};

fn url(server: &Postgres, host: &str, ca: &Path, mode: &str) -> String {
    let url = server.url().replace("127.0.0.1", host);
    format!("{url}?sslmode={mode}&sslrootcert={}", ca.display())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_servers_certificate_is_checked_and_what_does_not_fit_is_a_configuration_error() {
    let (server, other) = (Postgres::with_tls(), Postgres::with_tls());
    let certificate = server.certificate();
    for (host, mode) in [("localhost", "verify-full"), ("127.0.0.1", "verify-ca"), ("127.0.0.1", "require")] {
        let store = PostgresStore::connect(&url(&server, host, &certificate, mode)).await.unwrap();
        grant(&store, mode).await;
        let plain = "select count(*) from pg_stat_ssl natural join pg_stat_activity \
                     where not ssl and backend_type = 'client backend' and pid <> pg_backend_pid() and client_port > 0";
        assert_eq!(server.sql(plain), "0", "{mode}");
    }
    // This address leads to this machine, but does not count as local.
    let open = PostgresStore::connect(&server.url().replace("127.0.0.1", "0.0.0.0")).await.unwrap();
    let inspection = open.inspect().await.unwrap();
    let finding = inspection.findings.iter().find(|finding| finding.subject == "encryption").unwrap();
    assert!(finding.standing == Standing::Weak && finding.text.contains("sslmode=require"), "{finding:?}");
    for (what, wrong) in [
        ("another host", url(&server, "127.0.0.1", &certificate, "verify-full")),
        ("another authority", url(&server, "localhost", &other.certificate(), "verify-full")),
        ("another authority", url(&server, "localhost", &other.certificate(), "verify-ca")),
    ] {
        let error = PostgresStore::connect(&wrong).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Configuration, "{what}: {error}");
        assert!(error.to_string().contains(REFUSED), "{what}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_tls_is_refused_where_tls_is_required() {
    let server = Postgres::shared();
    let error = PostgresStore::connect(&format!("{}?sslmode=require", server.url())).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Configuration, "{error}");
}
