//! Checks the signatures of senders. Use the sender's own library where there is one. The key is safe to use only after this check:
//! without it, anyone could send an event under a made-up id.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::http::HeaderMap;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

/// How old a signature may be: a later replay of a recorded request is refused.
const TOLERANCE: Duration = Duration::from_secs(5 * 60);

/// The schemes of senders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scheme {
    /// `Stripe-Signature: t=SECONDS,v1=HEX` over `SECONDS.BODY`.
    Stripe,
    /// `X-Hub-Signature-256: sha256=HEX` over the body.
    GitHub,
    /// `svix-signature: v1,BASE64` over `ID.SECONDS.BODY`.
    Svix,
}

/// Whether the sender signed this body, and, where the signature has a time, did so recently.
pub(crate) fn verified(scheme: Scheme, secret: &[u8], headers: &HeaderMap, body: &[u8]) -> bool {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    match scheme {
        Scheme::Stripe => {
            let parts = || header("stripe-signature").split(',').filter_map(|part| part.split_once('='));
            let Some((_, at)) = parts().find(|(name, _)| *name == "t") else { return false };
            let mut signatures = parts().filter(|(name, _)| *name == "v1").filter_map(|(_, hex)| bytes(hex));
            recent(at) && signatures.any(|given| matches(secret, &[at.as_bytes(), b".", body], &given))
        }
        Scheme::GitHub => {
            let given = header("x-hub-signature-256").strip_prefix("sha256=").and_then(bytes);
            given.is_some_and(|given| matches(secret, &[body], &given))
        }
        Scheme::Svix => {
            let (id, at) = (header("svix-id"), header("svix-timestamp"));
            let signatures = header("svix-signature").split(' ').filter_map(|one| one.strip_prefix("v1,"));
            let mut signatures = signatures.filter_map(|one| STANDARD.decode(one).ok());
            let signed: [&[u8]; 5] = [id.as_bytes(), b".", at.as_bytes(), b".", body];
            !id.is_empty() && recent(at) && signatures.any(|given| matches(secret, &signed, &given))
        }
    }
}

fn recent(at: &str) -> bool {
    let Ok(at) = at.parse() else { return false };
    let (now, at) = (SystemTime::now(), UNIX_EPOCH + Duration::from_secs(at));
    now.duration_since(at).unwrap_or_else(|ahead| ahead.duration()) <= TOLERANCE
}

/// Compares in constant time.
fn matches(secret: &[u8], parts: &[&[u8]], given: &[u8]) -> bool {
    mac(secret, parts).is_some_and(|mac| mac.verify_slice(given).is_ok())
}

fn mac(secret: &[u8], parts: &[&[u8]]) -> Option<Hmac<Sha256>> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).ok()?;
    parts.iter().for_each(|part| mac.update(part));
    Some(mac)
}

/// Signs these parts as a sender does, for tests.
#[must_use]
pub fn sign(secret: &[u8], parts: &[&[u8]]) -> Vec<u8> {
    mac(secret, parts).map(|mac| mac.finalize().into_bytes().to_vec()).unwrap_or_default()
}

fn bytes(hex: &str) -> Option<Vec<u8>> {
    if !hex.is_ascii() {
        return None;
    }
    let pairs = (0..hex.len()).step_by(2);
    pairs.map(|at| u8::from_str_radix(hex.get(at..at + 2)?, 16).ok()).collect()
}
