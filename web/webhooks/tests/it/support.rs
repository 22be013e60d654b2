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

/// The hexadecimal signature of these parts.
fn sign(secret: &str, parts: &[&str]) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
    parts.iter().for_each(|part| mac.update(part.as_bytes()));
    hex::encode(mac.finalize().into_bytes())
}

fn delivery(headers: &[(&str, &str)], body: &str) -> Request<Body> {
    let request =
        headers.iter().fold(Request::post("/hook"), |request, (name, value)| request.header(*name, *value));
    request.body(Body::from(bytes::Bytes::from(body.to_owned()))).unwrap()
}

/// A delivery of Stripe, signed at this time by this secret.
pub(crate) fn stripe(secret: &str, seconds: u64, body: &str) -> Request<Body> {
    let signature = sign(secret, &[&seconds.to_string(), ".", body]);
    delivery(&[("stripe-signature", &format!("t={seconds},v0=00,v1={signature}"))], body)
}

pub(crate) fn github(id: &str, body: &str) -> Request<Body> {
    let signature = format!("sha256={}", sign(SECRET, &[body]));
    delivery(&[("x-github-delivery", id), ("x-hub-signature-256", &signature)], body)
}

pub(crate) fn slack(body: &str) -> Request<Body> {
    let seconds = now().to_string();
    let signature = format!("v0={}", sign(SECRET, &["v0:", &seconds, ":", body]));
    delivery(&[("x-slack-request-timestamp", &seconds), ("x-slack-signature", &signature)], body)
}
