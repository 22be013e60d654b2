//! The layer: what makes the service.

use std::fmt;
use std::sync::Arc;

use tower_layer::Layer;

use super::builder::Builder;
use super::config::Config;
use super::running::Running;
use super::service::Idempotency;
use crate::store::Store;

/// Guards a service by the `Idempotency-Key` header, as draft-ietf-httpapi-idempotency-key-header-07
/// has it: a request that comes again under its key is given the first response, and is not processed
/// again.
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
///     IdempotencyLayer::new(MemoryStore::new()).layer(api)
/// }
/// # let _ = guarded(());
/// ```
pub struct IdempotencyLayer<St> {
    config: Arc<Config<St>>,
}

impl<St: Store> IdempotencyLayer<St> {
    /// The layer with every option as it is unless set: see [`Builder`].
    #[must_use]
    pub fn new(store: St) -> Self {
        Self::of(Builder::new(store).defaults())
    }

    /// The options of a layer.
    ///
    /// ```
    /// # use idem_runtime as idem;
    /// use std::time::Duration;
    /// use idem::MemoryStore;
    /// use idem::http::IdempotencyLayer;
    ///
    /// let layer = IdempotencyLayer::builder(MemoryStore::new())
    ///     .scope("payments-api")
    ///     .tenant(|request| Some(request.headers.get("x-account")?.to_str().ok()?.to_owned()))
    ///     .wait(Duration::from_secs(5))
    ///     .documentation("https://api.example.com/docs/idempotency")
    ///     .build()?;
    /// # let _ = layer;
    /// # Ok::<(), idem::Error>(())
    /// ```
    pub fn builder(store: St) -> Builder<St> {
        Builder::new(store)
    }

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
