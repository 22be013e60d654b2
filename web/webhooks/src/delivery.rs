//! The delivery that a handler gets.

/// The delivery of a webhook whose signature is valid. It is an extension of its request, and an extractor
/// with the feature `axum`.
#[derive(Clone, PartialEq, Eq)]
pub struct Delivery {
    sender: &'static str,
    id: Option<String>,
}

impl Delivery {
    pub(crate) const fn new(sender: &'static str, id: Option<String>) -> Self {
        Self { sender, id }
    }

    /// The name of the sender's scheme: `stripe`, `github`, `slack` or `standard`.
    #[must_use]
    pub const fn sender(&self) -> &'static str {
        self.sender
    }

    /// The id, which is the same in each repetition; `None` for a request of Slack without an event.
    #[must_use]
    pub fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }
}

/// The id is left out, because it is the key.
impl std::fmt::Debug for Delivery {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Delivery").field("sender", &self.sender).finish_non_exhaustive()
    }
}

/// # Errors
///
/// 500, for a handler outside a [`WebhookLayer`](crate::WebhookLayer).
#[cfg(feature = "axum")]
#[cfg_attr(docsrs, doc(cfg(feature = "axum")))]
impl<S: Sync> axum::extract::FromRequestParts<S> for Delivery {
    type Rejection = (http::StatusCode, &'static str);

    async fn from_request_parts(head: &mut http::request::Parts, _: &S) -> Result<Self, Self::Rejection> {
        let missing = (http::StatusCode::INTERNAL_SERVER_ERROR, "no `WebhookLayer` is around this handler");
        head.extensions.get().cloned().ok_or(missing)
    }
}
