//! The state that all requests to the console share.

use sha2::{Digest as _, Sha256};

use super::look::Looks;
use super::sessions::Sessions;
use crate::access::Access;

/// The state that all requests share.
pub(super) struct App {
    pub(super) access: Access,
    pub(super) looks: Looks,
    pub(super) sessions: Sessions,
    /// The digest of the token: the time of comparing digests reveals nothing about the token.
    pub(super) token: [u8; 32],
    pub(super) is_local: bool,
    pub(super) read_only: bool,
}

pub(super) fn digest(token: &str) -> [u8; 32] {
    Sha256::digest(token).into()
}

impl App {
    pub(super) fn is_token(&self, said: &str) -> bool {
        digest(said.trim()) == self.token
    }
}
