//! TLS to a server with a certificate of its own, by rustls or, with the feature `native-tls`, by the system's library.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use idem_core::inspection::Standing;
use idem_mysql::MySqlStore;
use idem_runtime::{Store, StoreErrorKind};
use idem_test_servers::MariaDb;

use crate::support::grant;

/// What the library that is in use says of a certificate that it refuses.
const REFUSED: &str =
    if cfg!(feature = "native-tls") { "certificate verify failed" } else { "invalid peer certificate" };

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
        ("certificate", url("localhost", &other.certificate(), "VERIFY_IDENTITY")),
        ("certificate", url("localhost", &other.certificate(), "VERIFY_CA")),
    ] {
        let error = MySqlStore::connect(&wrong).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Configuration, "{what}: {error}");
        assert!(error.to_string().contains(REFUSED), "{what}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_tls_is_refused_where_tls_is_required() {
    let server = MariaDb::with(&["--skip-ssl", "--innodb-flush-log-at-trx-commit=2"]);
    let error = MySqlStore::connect(&format!("{}?ssl-mode=REQUIRED", server.url())).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Configuration, "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_hears_of_connections_to_another_machine_that_may_not_be_encrypted() {
    let server = MariaDb::with_tls();
    let certificate = server.certificate();
    // This machine, by an address that is not known to be its own.
    let elsewhere = server.url().replace("127.0.0.1", "0.0.0.0");
    for (url, standing, text) in [
        (server.url(), Standing::Fine, "on this machine"),
        (elsewhere.clone(), Standing::Weak, "ssl-mode=REQUIRED"),
        (
            format!("{elsewhere}?ssl-mode=VERIFY_CA&ssl-ca={}", certificate.display()),
            Standing::Fine,
            "required",
        ),
    ] {
        let store = MySqlStore::connect(&url).await.unwrap();
        let found = store.inspect().await.unwrap();
        let finding = found.findings.iter().find(|finding| finding.subject == "encryption").unwrap();
        assert_eq!(finding.standing, standing, "{finding:?}");
        assert!(finding.text.contains(text), "{finding:?}");
    }
}

/// The port of a server that greets as this one does, agrees to TLS and then closes the connection, in an orderly way or not.
fn hangs_up(server: &MariaDb, orderly: bool) -> u16 {
    let real = server.url().split(['@', '/']).nth(3).unwrap().to_owned();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            let mut buffer = [0; 4096];
            let greeting = TcpStream::connect(&real).unwrap().read(&mut buffer).unwrap();
            client.write_all(&buffer[..greeting]).unwrap();
            // The request for TLS: a head of 4 bytes, and 32.
            let _ = client.read_exact(&mut [0; 36]);
            // What has come and was not read makes the end a reset.
            let _ = if orderly { client.read(&mut buffer) } else { client.peek(&mut buffer) };
        }
    });
    port
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_hangs_up_in_the_middle_of_a_handshake_is_unavailable() {
    let server = MariaDb::with_tls();
    let [orderly, abrupt] = [true, false].map(|orderly| {
        let url = format!("mysql://root@localhost:{}/idem?ssl-mode=REQUIRED", hangs_up(&server, orderly));
        MySqlStore::builder(&url).operation_timeout(Duration::from_secs(3)).connect()
    });
    let (orderly, abrupt) = tokio::join!(orderly, abrupt);
    for error in [orderly.unwrap_err(), abrupt.unwrap_err()] {
        assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
    }
}
