//! Deliveries that nobody signed, and headers that no sender writes.

use http::{HeaderMap, HeaderName, HeaderValue};
use idem_webhooks::Sender;
use proptest::collection::vec;
use proptest::prelude::*;

use crate::support::SECRET;

const HEADERS: [&str; 9] = [
    "webhook-id",
    "webhook-timestamp",
    "webhook-signature",
    "svix-signature",
    "stripe-signature",
    "x-hub-signature-256",
    "x-github-delivery",
    "x-slack-signature",
    "x-slack-request-timestamp",
];

/// Texts that resemble the value of a signature header.
fn text() -> impl Strategy<Value = Vec<u8>> {
    let near = "(v1,|v1=|v0=|t=|sha256=|,| |=|\\.|[0-9a-f]{1,64}|[A-Za-z0-9+/]{43}=|18446744073709551616)";
    prop_oneof![vec(near, 0..6).prop_map(|parts| parts.concat().into_bytes()), vec(any::<u8>(), 0..40),]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    #[test]
    fn no_malformed_delivery_is_taken_and_none_panics(
        headers in vec((0..HEADERS.len(), text()), 0..6),
        body in vec(any::<u8>(), 0..60),
    ) {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            if let Ok(value) = HeaderValue::from_bytes(&value) {
                map.append(HeaderName::from_static(HEADERS[name]), value);
            }
        }
        let secret = [SECRET];
        let base64 = ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"];
        for sender in [Sender::standard(base64), Sender::stripe(secret), Sender::github(secret), Sender::slack(secret)] {
            prop_assert!(sender.unwrap().verify(&map, &body).is_err());
        }
    }
}
