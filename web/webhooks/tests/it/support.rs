//! Deliveries as senders make them.

use std::time::{SystemTime, UNIX_EPOCH};

use hmac::{Hmac, KeyInit as _, Mac as _};
use http::Request;
use idem_http::Body;
use sha2::Sha256;

pub(crate) const SECRET: &str = "a secret of the dashboard";

pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

pub(crate) fn sign(secret: &[u8], parts: &[&[u8]]) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).unwrap();
    parts.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().to_vec()
}

/// A delivery of Stripe, signed at this time by this secret.
pub(crate) fn stripe(secret: &str, seconds: u64, body: &str) -> Request<Body> {
    let seconds = seconds.to_string();
    let signature = hex::encode(sign(secret.as_bytes(), &[seconds.as_bytes(), b".", body.as_bytes()]));
    Request::post("/hook")
        .header("stripe-signature", format!("t={seconds},v0=00,v1={signature}"))
        .body(Body::from(bytes::Bytes::from(body.to_owned())))
        .unwrap()
}

pub(crate) fn github(id: &str, body: &str) -> Request<Body> {
    let signature = hex::encode(sign(SECRET.as_bytes(), &[body.as_bytes()]));
    Request::post("/hook")
        .header("x-github-delivery", id)
        .header("x-hub-signature-256", format!("sha256={signature}"))
        .body(Body::from(bytes::Bytes::from(body.to_owned())))
        .unwrap()
}

pub(crate) fn slack(body: &str) -> Request<Body> {
    let seconds = now().to_string();
    let signature =
        hex::encode(sign(SECRET.as_bytes(), &[b"v0:", seconds.as_bytes(), b":", body.as_bytes()]));
    Request::post("/hook")
        .header("x-slack-request-timestamp", seconds)
        .header("x-slack-signature", format!("v0={signature}"))
        .body(Body::from(bytes::Bytes::from(body.to_owned())))
        .unwrap()
}
