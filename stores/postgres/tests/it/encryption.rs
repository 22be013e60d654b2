//! TLS to a server with a certificate of its own, by rustls or, with the feature `native-tls`, by the system's library.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::thread;
use std::time::Duration;

use idem_core::inspection::Standing;
use idem_postgres::PostgresStore;
use idem_runtime::{Store as _, StoreErrorKind};
use idem_test_servers::Postgres;

use crate::support::grant;

/// What the library that is in use says of a certificate that it refuses.
const REFUSED: &str =
    if cfg!(feature = "native-tls") { "certificate verify failed" } else { "invalid peer certificate" };

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

/// The port of a server that agrees to TLS and then closes the connection, in an orderly way or not.
fn hangs_up(orderly: bool) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            let mut request = [0; 8];
            let _ = client.read_exact(&mut request).and_then(|()| client.write_all(b"S"));
            // What has come and was not read makes the end a reset.
            let _ = if orderly { client.read(&mut [0; 4096]) } else { client.peek(&mut [0]) };
        }
    });
    port
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_hangs_up_in_the_middle_of_a_handshake_is_unavailable() {
    let [orderly, abrupt] = [true, false].map(|orderly| {
        let url = format!("postgres://postgres@localhost:{}/postgres?sslmode=require", hangs_up(orderly));
        PostgresStore::builder(&url).operation_timeout(Duration::from_secs(3)).connect()
    });
    let (orderly, abrupt) = tokio::join!(orderly, abrupt);
    for error in [orderly.unwrap_err(), abrupt.unwrap_err()] {
        assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_tls_is_refused_where_tls_is_required() {
    let server = Postgres::start();
    let error = PostgresStore::connect(&format!("{}?sslmode=require", server.url())).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Configuration, "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_hears_of_connections_to_another_machine_that_may_not_be_encrypted() {
    let server = Postgres::with_tls();
    let certificate = server.certificate();
    // This machine, by an address that does not count as local.
    let elsewhere = server.url().replace("127.0.0.1", "0.0.0.0");
    let also_elsewhere = server.url().replace('@', "@0.0.0.0:1,");
    for (url, standing, text) in [
        (server.url(), Standing::Fine, "on this machine"),
        (also_elsewhere, Standing::Weak, "sslmode=require"),
        (elsewhere.clone(), Standing::Weak, "sslmode=require"),
        (
            format!("{elsewhere}?sslmode=verify-ca&sslrootcert={}", certificate.display()),
            Standing::Fine,
            "required",
        ),
    ] {
        let store = PostgresStore::connect(&url).await.unwrap();
        let found = store.inspect().await.unwrap();
        let finding = found.findings.iter().find(|finding| finding.subject == "encryption").unwrap();
        assert_eq!(finding.standing, standing, "{finding:?}");
        assert!(finding.text.contains(text), "{finding:?}");
    }
}
