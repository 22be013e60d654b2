//! Whether connections to another machine are encrypted.

use std::sync::{Mutex, PoisonError};

use idem_core::inspection::{Inspection, Standing};

/// Who can read the data of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encryption {
    /// The server is on this machine.
    Local,
    /// The connection must be encrypted.
    Required,
    /// Others on the network may be able to read the data. The text says why, and what to set.
    Open(&'static str),
}

impl Encryption {
    /// `Open` for the reason `why`, unless the server is on this machine or the connection must be encrypted.
    #[must_use]
    pub const fn of(is_local: bool, is_required: bool, why: &'static str) -> Self {
        match (is_local, is_required) {
            (true, _) => Self::Local,
            (_, true) => Self::Required,
            _ => Self::Open(why),
        }
    }

    /// Warns about connections to another machine that may be unencrypted, because passwords and results go
    /// over the network. Warns once per process and product.
    pub fn report(self, product: &'static str) {
        static REPORTED: Mutex<Vec<&str>> = Mutex::new(Vec::new());
        let mut reported = REPORTED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Self::Open(why) = self
            && !reported.contains(&product)
        {
            reported.push(product);
            drop(reported);
            tracing::warn!(
                target: "idem",
                event = "not_encrypted",
                why,
                "connections to {product} on another machine may not be encrypted"
            );
        }
    }

    /// Adds a finding about all servers of a store. It is weak if a connection to another machine may be
    /// unencrypted.
    pub(super) fn find(servers: &[Self], inspection: &mut Inspection) {
        let open = servers.iter().find_map(|server| match server {
            Self::Open(why) => Some(why),
            _ => None,
        });
        let (standing, text) = match open {
            Some(why) => (
                Standing::Weak,
                format!(
                    "connections to another machine may not be encrypted, so that others may read keys and results: {why}"
                ),
            ),
            None if servers.contains(&Self::Required) => (Standing::Fine, "required".to_owned()),
            None => (Standing::Fine, "the server is on this machine".to_owned()),
        };
        inspection.find(standing, "encryption", text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_server_that_others_may_listen_to_is_enough_for_a_weakness() {
        for (servers, standing, text) in [
            (&[Encryption::Local][..], Standing::Fine, "on this machine"),
            (&[Encryption::Local, Encryption::Required], Standing::Fine, "required"),
            (&[Encryption::Required, Encryption::Open("set this")], Standing::Weak, "set this"),
        ] {
            let mut inspection = Inspection::of("x");
            Encryption::find(servers, &mut inspection);
            assert_eq!(inspection.findings[0].standing, standing);
            assert!(inspection.findings[0].text.contains(text), "{inspection:?}");
        }
    }
}
