//! Checks the options of a layer, and builds it.

use http::HeaderValue;

use super::Builder;
use crate::error::Error;
use crate::http::config::{Config, LONGEST_KEY};
use crate::http::layer::IdempotencyLayer;
use crate::http::problem::{Answers, DRAFT};
use crate::http::running::Running;
use idem_core::Store;

impl<St: Store> Builder<St> {
    /// Builds the layer.
    ///
    /// # Errors
    ///
    /// [`Error::Configuration`] or [`Error::InvalidKey`] if an option has a value that cannot work, or two options
    /// contradict each other.
    pub fn build(self) -> Result<IdempotencyLayer<St>, Error> {
        self.operation.validate()?;
        let refuse = |detail: &str| Err(Error::configuration("idem::http", detail));
        if self.tenant.is_none() && !self.shared {
            return refuse(
                "say whose keys they are: `.tenant(..)`, from what was authenticated, keeps clients apart; \
                 `.shared_by_all_clients()` does not",
            );
        }
        if self.max_running == 0 {
            return refuse("at least one handler must be allowed to run");
        }
        if !(1..=LONGEST_KEY).contains(&self.max_key_bytes) {
            return refuse("the longest key must be at least 1 byte and at most 952");
        }
        if let Some(fault) = self.fingerprint.fault() {
            return refuse(fault);
        }
        let link = match self.documentation.as_deref().map(describedby) {
            None => DRAFT,
            Some(Some(link)) => link,
            Some(None) => return refuse("the documentation must be a URI"),
        };
        Ok(IdempotencyLayer::of(self.assemble(link)))
    }

    pub(super) fn defaults(self) -> Config<St> {
        self.assemble(DRAFT)
    }

    fn assemble(self, link: HeaderValue) -> Config<St> {
        Config {
            store: self.store,
            operation: self.operation,
            scope: self.scope,
            methods: self.methods.into_iter().collect(),
            header: self.header,
            required: self.required,
            syntax: self.syntax,
            max_key_bytes: self.max_key_bytes,
            tenant: self.tenant,
            digest_keys: self.digest_keys,
            fingerprint: self.fingerprint,
            statuses: self.statuses,
            keep_if: self.keep_if,
            headers: self.headers,
            max_request_bytes: self.max_request_bytes,
            max_response_bytes: self.max_response_bytes,
            marker: self.marker,
            answers: Answers { base: self.problem_base, types: self.problem_types, link },
            running: Running::none(),
            max_running: self.max_running,
        }
    }
}

/// The value of a `Link` header to this documentation; `None` if `uri` is not a URI.
fn describedby(uri: &str) -> Option<HeaderValue> {
    let plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'<' | b'>' | b'"');
    if uri.is_empty() || !uri.bytes().all(plain) {
        return None;
    }
    HeaderValue::try_from(format!("<{uri}>; rel=\"describedby\"; type=\"text/html\"")).ok()
}
