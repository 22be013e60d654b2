//! The schemes of the senders: where a delivery has its id, time and signatures, and what a signature covers.
//!
//! Sources: Standard Webhooks' specification; the pages on signatures of Stripe, GitHub and Slack.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::HeaderMap;
use serde::Deserialize;
use sha2::Sha256;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scheme {
    Standard,
    Stripe,
    GitHub,
    Slack,
}

impl Scheme {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Standard => "standard",
            Self::Stripe => "stripe",
            Self::GitHub => "github",
            Self::Slack => "slack",
        }
    }
}

/// The most signatures that are read from a delivery. A sender sends fewer, even while it changes its
/// secrets.
const MOST_SIGNATURES: usize = 16;

/// The signature headers of a delivery. They can be trusted only if a signature is valid.
pub(crate) struct Claims<'h> {
    scheme: Scheme,
    id: Option<&'h str>,
    seconds: Option<&'h str>,
    pub(crate) signatures: Vec<Vec<u8>>,
}

impl<'h> Claims<'h> {
    /// `None` if a header is missing or malformed. With Standard Webhooks and Stripe, a header can have
    /// several signatures. Malformed ones are left out, so `signatures` may be empty.
    pub(crate) fn read(scheme: Scheme, headers: &'h HeaderMap) -> Option<Self> {
        let header = |name: &str| headers.get(name)?.to_str().ok();
        let (id, seconds, signatures): (_, _, Vec<_>) = match scheme {
            Scheme::Standard => {
                let either = |name: &str| {
                    header(&format!("webhook-{name}")).or_else(|| header(&format!("svix-{name}")))
                };
                let signatures = either("signature")?.split(' ').filter_map(|one| one.strip_prefix("v1,"));
                let decoded = signatures.filter_map(|text| STANDARD.decode(text).ok());
                (Some(either("id")?), Some(either("timestamp")?), decoded.take(MOST_SIGNATURES).collect())
            }
            Scheme::Stripe => {
                let members =
                    header("stripe-signature")?.split(',').filter_map(|member| member.split_once('='));
                let seconds = members.clone().find(|(name, _)| *name == "t").map(|(_, time)| time)?;
                let signatures = members.filter(|(name, _)| *name == "v1");
                let decoded = signatures.filter_map(|(_, text)| hex::decode(text).ok());
                (None, Some(seconds), decoded.take(MOST_SIGNATURES).collect())
            }
            Scheme::GitHub => {
                let signature = header("x-hub-signature-256")?.strip_prefix("sha256=")?;
                (Some(header("x-github-delivery")?), None, vec![hex::decode(signature).ok()?])
            }
            Scheme::Slack => {
                let signature = header("x-slack-signature")?.strip_prefix("v0=")?;
                (None, Some(header("x-slack-request-timestamp")?), vec![hex::decode(signature).ok()?])
            }
        };
        // A time that is not a number is refused here, even if the sender has signed it.
        let is_number = seconds.is_none_or(|text| text.parse::<u64>().is_ok());
        is_number.then_some(Self { scheme, id, seconds, signatures })
    }

    /// The parts that the signature covers, one after the other.
    pub(crate) fn signed<'a>(&'a self, body: &'a [u8]) -> Vec<&'a [u8]> {
        let seconds = self.seconds.unwrap_or_default().as_bytes();
        match self.scheme {
            Scheme::Standard => vec![self.id.unwrap_or_default().as_bytes(), b".", seconds, b".", body],
            Scheme::Stripe => vec![seconds, b".", body],
            Scheme::GitHub => vec![body],
            Scheme::Slack => vec![b"v0:", seconds, b":", body],
        }
    }

    /// The difference between the signature's time and now; `None` if the scheme signs no time.
    pub(crate) fn age(&self, now: SystemTime) -> Option<Duration> {
        let seconds = Duration::from_secs(self.seconds?.parse().ok()?);
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        Some(now.abs_diff(seconds))
    }

    pub(crate) fn id(&self, body: &[u8]) -> Option<String> {
        let id = match self.scheme {
            Scheme::Standard | Scheme::GitHub => self.id?.to_owned(),
            Scheme::Stripe => serde_json::from_slice::<StripeEvent>(body).ok()?.id,
            Scheme::Slack => serde_json::from_slice::<SlackEvent>(body).ok()?.event_id,
        };
        Some(id).filter(|id| !id.is_empty())
    }
}

/// The member that identifies an event in a body of Stripe. Reading the body as a `serde_json::Value` would
/// fail if another member has half of a surrogate pair.
#[derive(Deserialize)]
struct StripeEvent {
    id: String,
}

/// The member that identifies an event in a body of Slack.
#[derive(Deserialize)]
struct SlackEvent {
    event_id: String,
}

/// Whether the signature fits the parts and the secret. Compares in constant time.
pub(crate) fn matches(secret: &[u8], parts: &[&[u8]], signature: &[u8]) -> bool {
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(secret) else { return false };
    parts.iter().for_each(|part| mac.update(part));
    mac.verify_slice(signature).is_ok()
}
