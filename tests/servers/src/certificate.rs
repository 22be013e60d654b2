//! Certificates for servers with TLS.

use std::path::Path;
use std::process::Command;

/// Writes a new key and a self-signed certificate for a host, such as `DNS:localhost` or `IP:127.0.0.1`.
pub(crate) fn make(key: &Path, certificate: &Path, host: &str) {
    let (_, name) = host.split_once(':').unwrap();
    let mut command = Command::new("openssl");
    command.args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]);
    command.args(["-subj", &format!("/CN={name}"), "-addext", "basicConstraints=critical,CA:FALSE"]);
    command.args(["-addext", &format!("subjectAltName={host}")]);
    let made = command.arg("-keyout").arg(key).arg("-out").arg(certificate).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}
