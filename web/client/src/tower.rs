//! The layer for HTTP clients that are tower services.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use tokio::time::{sleep, timeout};
use tower_layer::Layer;
use tower_service::Service;

use crate::Policy;
use crate::retry::{Retrying, covers, is_refused_by_tls, missing_header};

/// The error of the inner service or of the layer.
type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Wraps a client into an [`IdempotencyClient`].
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// use std::sync::atomic::{AtomicU32, Ordering};
/// use http::{Request, Response};
/// use idem_client::{IdempotencyClientLayer, Policy};
/// use tower::{ServiceBuilder, ServiceExt as _, service_fn};
///
/// static SENT: AtomicU32 = AtomicU32::new(0);
/// let client = ServiceBuilder::new()
///     .layer(IdempotencyClientLayer::new(Policy::new()))
/// // Put a hyper or tonic client here.
///     .service(service_fn(|request: Request<String>| async move {
///         assert!(request.headers().contains_key("idempotency-key"));
///         match SENT.fetch_add(1, Ordering::SeqCst) {
///             0 => Err("the connection broke"),
///             _ => Ok(Response::new("paid")),
///         }
///     }));
/// let paid = client.oneshot(Request::post("http://example.com/payments").body("19.99 EUR".to_owned())?).await?;
/// assert_eq!(*paid.body(), "paid");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct IdempotencyClientLayer {
    policy: Arc<Policy>,
}

impl IdempotencyClientLayer {
    /// A layer with this policy.
    #[must_use]
    pub fn new(policy: Policy) -> Self {
        Self { policy: Arc::new(policy) }
    }
}

impl<S> Layer<S> for IdempotencyClientLayer {
    type Service = IdempotencyClient<S>;

    fn layer(&self, inner: S) -> IdempotencyClient<S> {
        IdempotencyClient { inner, policy: self.policy.clone() }
    }
}

/// A client that sets the header of the key on each `POST`, each `PATCH` and each other request that has a
/// [`Key`](crate::Key) among its extensions. If such a request already has this header, the header stays
/// unchanged. The client repeats these requests until there is a final answer. See the [crate](crate).
///
/// Every error of the inner client counts as a broken connection, unless it comes from a certificate or
/// [`Policy::retry_error`] decides otherwise.
#[derive(Clone, Debug)]
pub struct IdempotencyClient<S> {
    inner: S,
    policy: Arc<Policy>,
}

impl<S, B, R> Service<Request<B>> for IdempotencyClient<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Error: Into<BoxError> + Send,
    S::Future: Send,
    B: Clone + Send + 'static,
    R: Send + 'static,
{
    type Response = Response<R>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<R>, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let clone = self.inner.clone();
        // `self.inner` is ready, but a clone may not be. So this call takes `self.inner`, and the clone
        // stays.
        let inner = std::mem::replace(&mut self.inner, clone);
        Box::pin(send(inner, self.policy.clone(), request))
    }
}

async fn send<S, B, R>(
    mut inner: S,
    policy: Arc<Policy>,
    request: Request<B>,
) -> Result<Response<R>, BoxError>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
    S::Error: Into<BoxError>,
    B: Clone,
{
    let (mut parts, body) = request.into_parts();
    if !covers(&parts.method, &parts.extensions) {
        return inner.call(Request::from_parts(parts, body)).await.map_err(Into::into);
    }
    let authority = parts.uri.authority().map_or("", |authority| authority.as_str());
    let target = (authority, parts.uri.path());
    let header = missing_header(&policy, &parts.method, &parts.headers, &parts.extensions, target)?;
    if let Some((name, value)) = header {
        parts.headers.insert(name, value);
    }
    let mut retrying = Retrying::new(&policy);
    // The caller has already waited until the service is ready, so the first attempt does not wait.
    let mut is_ready = true;
    loop {
        let request = Request::from_parts(parts.clone(), body.clone());
        let answer = async {
            if !is_ready {
                poll_fn(|cx| inner.poll_ready(cx)).await?;
            }
            inner.call(request).await
        };
        let patience = policy.attempt_timeout;
        let ended = timeout(patience, async { answer.await.map_err(Into::<BoxError>::into) }).await;
        let pause = match &ended {
            Ok(Ok(response)) => retrying.again(Some((response.status(), response.headers()))),
            Ok(Err(error)) if !policy.is_broken(&**error, !is_refused_by_tls(&**error)) => None,
            _ => retrying.again(None),
        };
        let Some(pause) = pause else {
            let timed_out = |_| Err(format!("the server did not answer within {patience:?}").into());
            return ended.unwrap_or_else(timed_out);
        };
        drop(ended);
        sleep(pause).await;
        // A service whose `poll_ready` failed must not be used again.
        inner = inner.clone();
        is_ready = false;
    }
}
