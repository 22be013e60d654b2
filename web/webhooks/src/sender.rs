//! Who signs the deliveries, and with which secrets.

use std::fmt;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use zeroize::Zeroizing;

use crate::signature::{Claims, Scheme, matches};

/// The default limit of the difference between a signature's time and now.
const TOLERANCE: Duration = Duration::from_secs(5 * 60);

/// A sender of deliveries: the scheme of its signatures, and its secrets.
///
/// Give several secrets while the sender changes from one secret to the next. A signature with any of them is
/// valid.
pub struct Sender {
    pub(crate) scheme: Scheme,
    secrets: Vec<Zeroizing<Vec<u8>>>,
    tolerance: Duration,
}

impl Sender {
    /// A sender that follows Standard Webhooks, such as Svix, Resend, Clerk and `OpenAI`: headers
    /// `webhook-id`, `webhook-timestamp` and `webhook-signature`, or `svix-*`. A secret is `whsec_` followed
    /// by base64; the prefix may be left out.
    ///
    /// # Errors
    ///
    /// [`SecretError`] if the list of secrets is empty, or a secret is empty or not base64.
    pub fn standard<S: AsRef<str>>(secrets: impl IntoIterator<Item = S>) -> Result<Self, SecretError> {
        let decoded = secrets.into_iter().map(|secret| {
            let text = secret.as_ref();
            STANDARD.decode(text.strip_prefix("whsec_").unwrap_or(text)).map_err(|_| SecretError::NotBase64)
        });
        Self::new(Scheme::Standard, decoded.collect::<Result<_, _>>()?)
    }

    /// Stripe: header `Stripe-Signature`. The id is the event's `id` in the body, `evt_..`.
    ///
    /// # Errors
    ///
    /// [`SecretError`] if the list of secrets is empty, or a secret is empty.
    pub fn stripe<S: AsRef<str>>(secrets: impl IntoIterator<Item = S>) -> Result<Self, SecretError> {
        Self::new(Scheme::Stripe, bytes(secrets))
    }

    /// GitHub: header `X-Hub-Signature-256`. The id is `X-GitHub-Delivery`.
    ///
    /// # Errors
    ///
    /// [`SecretError`] if the list of secrets is empty, or a secret is empty.
    pub fn github<S: AsRef<str>>(secrets: impl IntoIterator<Item = S>) -> Result<Self, SecretError> {
        Self::new(Scheme::GitHub, bytes(secrets))
    }

    /// Slack: headers `X-Slack-Signature` and `X-Slack-Request-Timestamp`. The id is `event_id` in the body.
    ///
    /// # Errors
    ///
    /// [`SecretError`] if the list of secrets is empty, or a secret is empty.
    pub fn slack<S: AsRef<str>>(secrets: impl IntoIterator<Item = S>) -> Result<Self, SecretError> {
        Self::new(Scheme::Slack, bytes(secrets))
    }

    fn new(scheme: Scheme, secrets: Vec<Vec<u8>>) -> Result<Self, SecretError> {
        if secrets.is_empty() || secrets.iter().any(Vec::is_empty) {
            return Err(SecretError::Missing);
        }
        let secrets = secrets.into_iter().map(Zeroizing::new).collect();
        Ok(Self { scheme, secrets, tolerance: TOLERANCE })
    }

    /// The largest allowed difference between a signature's time and now; 5 minutes unless set. If someone
    /// intercepts a delivery and sends it again after that time, the layer refuses it. GitHub's signatures
    /// have no time.
    #[must_use]
    pub const fn tolerance(mut self, tolerance: Duration) -> Self {
        self.tolerance = tolerance;
        self
    }

    /// Checks a delivery by its headers and its raw body, and returns its id; `None` if a request of Slack
    /// has no event.
    ///
    /// # Errors
    ///
    /// [`Refused`] if the signature is missing or not valid, if its time differs too much from now, or if the
    /// delivery has no id (except with Slack).
    pub fn verify(&self, headers: &HeaderMap, body: &[u8]) -> Result<Option<String>, Refused> {
        // The local clock decides, and not the store's clock, because the age of a signature must be checked
        // before the first request to the store.
        self.verify_at(headers, body, SystemTime::now())
    }

    pub(crate) fn verify_at(
        &self,
        headers: &HeaderMap,
        body: &[u8],
        now: SystemTime,
    ) -> Result<Option<String>, Refused> {
        let claims = Claims::read(self.scheme, headers).ok_or(Refused::Unsigned)?;
        let signed = claims.signed(body);
        let is_valid = |signature: &Vec<u8>| {
            // Tries every secret, so that the duration does not show which secret is right.
            self.secrets.iter().filter(|secret| matches(secret, &signed, signature)).count() > 0
        };
        if !claims.signatures.iter().any(is_valid) {
            return Err(Refused::WrongSignature);
        }
        if claims.age(now).is_some_and(|age| age > self.tolerance) {
            return Err(Refused::TooOld);
        }
        match claims.id(body) {
            None if self.scheme != Scheme::Slack => Err(Refused::NoId),
            id => Ok(id),
        }
    }
}

fn bytes<S: AsRef<str>>(secrets: impl IntoIterator<Item = S>) -> Vec<Vec<u8>> {
    secrets.into_iter().map(|secret| secret.as_ref().as_bytes().to_vec()).collect()
}

/// Shows no secrets.
impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender")
            .field("scheme", &self.scheme)
            .field("tolerance", &self.tolerance)
            .finish_non_exhaustive()
    }
}

/// Why a delivery is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// A header of the signature is missing or malformed.
    #[error("the delivery has no signature of this sender")]
    Unsigned,
    /// No secret yields this signature.
    #[error("the signature does not fit the delivery and the secrets")]
    WrongSignature,
    /// The signature's time differs too much from now.
    #[error("the signature is too old, or a clock is wrong")]
    TooOld,
    /// The delivery is signed but has no id.
    #[error("the delivery has no id")]
    NoId,
}

/// Why secrets cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SecretError {
    /// The list is empty, or one secret is empty.
    #[error("a sender needs at least one secret, and none may be empty")]
    Missing,
    /// A secret, without its prefix `whsec_` if it has one, is not base64.
    #[error("expected a secret such as \"whsec_BASE64\"")]
    NotBase64,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::time::{Duration, UNIX_EPOCH};

    use http::HeaderMap;

    use super::{Refused, Sender};

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    fn at(sender: &Sender, headers: &HeaderMap, body: &str, seconds: u64) -> Result<Option<String>, Refused> {
        sender.verify_at(headers, body.as_bytes(), UNIX_EPOCH + Duration::from_secs(seconds))
    }

    /// The test vector of Standard Webhooks and Svix.
    #[test]
    fn the_vector_of_standard_webhooks() {
        let sender = Sender::standard(["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"]).unwrap();
        let (id, body) = ("msg_p5jXN8AQM9LWM0D4loKWxJek", r#"{"test": 2432232314}"#);
        let signature = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
        for prefix in [
            ["webhook-id", "webhook-timestamp", "webhook-signature"],
            ["svix-id", "svix-timestamp", "svix-signature"],
        ] {
            let rotated = format!("v1,AAAA {signature} v1a,AAAA");
            let headers = headers(&[(prefix[0], id), (prefix[1], "1614265330"), (prefix[2], &rotated)]);
            assert_eq!(at(&sender, &headers, body, 1_614_265_330), Ok(Some(id.to_owned())));
            assert_eq!(at(&sender, &headers, body, 1_614_265_331 + 300), Err(Refused::TooOld));
            assert_eq!(
                at(&sender, &headers, r#"{"test":2432232314}"#, 1_614_265_330),
                Err(Refused::WrongSignature)
            );
        }
    }

    /// The test vector of GitHub's page "Validating webhook deliveries".
    #[test]
    fn the_vector_of_github() {
        let sender = Sender::github(["It's a Secret to Everybody"]).unwrap();
        let signature = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
        let headers = headers(&[("x-hub-signature-256", signature), ("x-github-delivery", "72d3162e")]);
        assert_eq!(at(&sender, &headers, "Hello, World!", 0), Ok(Some("72d3162e".to_owned())));
        assert_eq!(at(&sender, &headers, "Hello, World?", 0), Err(Refused::WrongSignature));
    }

    /// The test vector of Slack's page "Verifying requests from Slack". It is a command and not an event, so
    /// it has no id.
    #[test]
    fn the_vector_of_slack() {
        let sender = Sender::slack(["8f742231b10e8888abcd99yyyzzz85a5"]).unwrap();
        let body = "token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V\
                    &channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=\
                    &response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN\
                    &trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c";
        let signature = "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503";
        let headers =
            headers(&[("x-slack-signature", signature), ("x-slack-request-timestamp", "1531420618")]);
        assert_eq!(at(&sender, &headers, body, 1_531_420_618), Ok(None));
        assert_eq!(
            at(&sender, &headers, &body.replace("text=", "text=x"), 1_531_420_618),
            Err(Refused::WrongSignature)
        );
    }
}
