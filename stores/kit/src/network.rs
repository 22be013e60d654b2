//! Facts about connections that client libraries do not report.

use std::error::Error;
use std::net::IpAddr;
use std::{io, iter};

/// Whether this host is `localhost` or a loopback address, so that data sent there does not cross a network.
///
/// Names are not resolved. So the result is `false` for every other name and address, even if it leads to
/// this machine.
#[must_use]
pub fn is_this_machine(host: &str) -> bool {
    let address = host.trim_matches(['[', ']']).parse();
    host == "localhost" || address.is_ok_and(|address: IpAddr| address.is_loopback())
}

/// Whether a TLS handshake failed because the connection broke. If so, the next attempt may succeed.
/// Otherwise one side refused the other.
///
/// `native-tls` returns the same kind of error in both cases. Only the text says that the stream ended.
#[must_use]
pub fn was_cut(error: &(dyn Error + 'static)) -> bool {
    iter::successors(Some(error), |&error| error.source()).any(|error| {
        error.downcast_ref().is_some_and(|error: &io::Error| error.kind() != io::ErrorKind::InvalidData)
            || error.to_string().to_ascii_lowercase().contains("unexpected eof")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_on_this_machine_is_told_from_one_on_another() {
        for (host, expected) in [
            ("localhost", true),
            ("127.0.0.1", true),
            ("127.3.2.1", true),
            ("::1", true),
            ("[::1]", true),
            ("db.example", false),
            ("localhost.example", false),
            ("10.0.0.7", false),
            ("0.0.0.0", false),
        ] {
            assert_eq!(is_this_machine(host), expected, "{host}");
        }
    }

    #[test]
    fn a_connection_that_breaks_is_told_from_a_certificate_that_is_refused() {
        #[derive(Debug, thiserror::Error)]
        #[error("{0}")]
        struct Outer(&'static str, #[source] Option<io::Error>);

        for (error, expected) in [
            (Outer("handshake", Some(io::ErrorKind::ConnectionReset.into())), true),
            (Outer("error:0A000126:SSL routines::unexpected eof while reading", None), true),
            (Outer("unexpected EOF", None), true),
            (Outer("certificate verify failed: (self-signed certificate)", None), false),
            (Outer("handshake", Some(io::ErrorKind::InvalidData.into())), false),
        ] {
            assert_eq!(was_cut(&error), expected, "{error:?}");
        }
    }
}
