//! The console as a tower service, and its settings.

use std::convert::Infallible;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use idem_core::Store;
use idem_operate_kit::Access;
use tower_service::Service;

use crate::app::App;
use crate::routes;
use crate::walks::{FRESH, FRESH_IF_COSTLY, Walks};

/// The console of this store, for an app's router. For a service that encrypts its results or makes digests of its keys, give
/// [`Console::of`] an [`Access`] with the keys.
pub fn service<S: Store>(store: S) -> Console {
    Console::of(Access::new(store))
}

/// The console: a tower service. Clones share their walks and forms.
#[derive(Clone)]
pub struct Console {
    app: App,
    router: Arc<OnceLock<axum::Router>>,
}

impl Console {
    /// The console of the store behind this access.
    #[must_use]
    pub fn of(access: Access) -> Self {
        let walks = Arc::new(Walks::new(access.clone(), FRESH));
        let app = App { access, walks, forms: Arc::default(), read_only: false, origin: None };
        Self { app, router: Arc::default() }
    }

    /// Shows records and changes none. The audit trail still notes who saw a key and a result.
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.app.read_only = true;
        self
    }

    /// Walks at most once a minute: for stores where a walk costs money, such as DynamoDB.
    #[must_use]
    pub fn costly(mut self) -> Self {
        self.app.walks = Arc::new(Walks::new(self.app.access.clone(), FRESH_IF_COSTLY));
        self
    }

    /// The origin that browsers see, such as `https://idem.example`. Needed behind a proxy that rewrites `Host`.
    #[must_use]
    pub fn origin(mut self, origin: impl Into<String>) -> Self {
        self.app.origin = Some(origin.into());
        self
    }

    /// The routes, made when the settings are complete.
    fn router(&self) -> axum::Router {
        self.router.get_or_init(|| routes::router(Arc::new(self.app.clone()))).clone()
    }
}

impl<B> Service<axum::http::Request<B>> for Console
where
    B: http_body::Body<Data = bytes::Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Response;
    type Error = Infallible;
    type Future = axum::routing::future::RouteFuture<Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: axum::http::Request<B>) -> Self::Future {
        let request: Request = request.map(Body::new);
        Service::call(&mut self.router(), request)
    }
}
