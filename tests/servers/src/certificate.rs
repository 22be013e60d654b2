//! Certificates for servers with TLS.

use std::path::Path;
use std::process::Command;

/// Writes a new key and a self-signed certificate for `localhost`.
pub(crate) fn make(key: &Path, certificate: &Path) {
    let mut command = Command::new("openssl");
    command.args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]);
    command.args([
        "-addext",
        "subjectAltName=DNS:localhost",
        "-addext",
        "basicConstraints=critical,CA:FALSE",
    ]);
    let made = command.arg("-keyout").arg(key).arg("-out").arg(certificate).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}
