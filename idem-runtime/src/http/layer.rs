//! The layer: what makes the service.

use std::fmt;
use std::sync::Arc;

use tower_layer::Layer;

use super::config::Config;
use super::running::Running;
use super::service::Idempotency;

/// Guards a service by the `Idempotency-Key` header, as draft-ietf-httpapi-idempotency-key-header-07
/// defines it: a repeated request under the same key gets the first response, and is not processed again.
///
/// Cheap to clone; clones share everything. It goes where any tower layer goes, such as
/// `Router::layer` of axum:
///
/// ```
/// # use idem_runtime as idem;
/// use idem::MemoryStore;
/// use idem::http::IdempotencyLayer;
/// use tower_layer::Layer;
///
/// fn guarded<S>(api: S) -> impl Sized {
///     // An API whose clients need not be kept apart. For others see `Builder::tenant`.
///     IdempotencyLayer::shared_by_all_clients(MemoryStore::new()).layer(api)
/// }
/// # let _ = guarded(());
/// ```
pub struct IdempotencyLayer<St> {
    config: Arc<Config<St>>,
}

impl<St> IdempotencyLayer<St> {
    pub(super) fn of(config: Config<St>) -> Self {
        Self { config: Arc::new(config) }
    }

    /// The handlers that run under a key, for a server that ends: they go on without their clients.
    #[must_use]
    pub fn running(&self) -> Running {
        self.config.running.clone()
    }
}

impl<St> Clone for IdempotencyLayer<St> {
    fn clone(&self) -> Self {
        Self { config: self.config.clone() }
    }
}

impl<S, St> Layer<S> for IdempotencyLayer<St> {
    type Service = Idempotency<S, St>;

    fn layer(&self, inner: S) -> Self::Service {
        Idempotency::new(inner, self.config.clone())
    }
}

impl<St> fmt::Debug for IdempotencyLayer<St> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdempotencyLayer")
            .field("header", &self.config.header)
            .field("operation", &self.config.operation)
            .finish_non_exhaustive()
    }
}
