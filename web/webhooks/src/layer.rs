//! The layer: it checks the signature, reads the key, and calls the layer of `idem-http`.

use std::future::Future;
use std::mem::replace;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use idem_core::Store;
use idem_http::{
    Body, BoxError, Builder, Guard, Idempotency, IdempotencyLayer, Problem, Recording, RequestFingerprint,
};
use idem_runtime::Error;
use tower_layer::Layer;
use tower_service::Service;

use crate::{Delivery, Refused, Sender};

/// The header in which this layer passes the id to the inner layer.
const KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// How long answers are kept: longer than the time in which senders usually repeat a delivery, automatically
/// or by hand.
const TTL: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// The longest id, in bytes.
const LONGEST_ID: usize = 255;

/// Guards a service that handles the webhooks of one [`Sender`]. See the [page of the crate](crate).
///
/// Cheap to clone; clones share everything.
#[derive(Clone, Debug)]
pub struct WebhookLayer<St> {
    sender: Arc<Sender>,
    idempotency: IdempotencyLayer<St>,
}

impl<St: Store> WebhookLayer<St> {
    /// A layer for this sender. The records have the scope `webhooks.`, followed by the name of the scheme.
    ///
    /// # Errors
    ///
    /// None at present: only settings that [`with`](Self::with) changes can be invalid.
    pub fn new(sender: Sender, store: St) -> Result<Self, Error> {
        Self::with(sender, store, |settings| settings)
    }

    /// As [`new`](Self::new), with other settings of the inner [`IdempotencyLayer`], such as its scope or its
    /// lease.
    ///
    /// ```
    /// use std::time::Duration;
    /// use idem::MemoryStore;
    /// use idem_webhooks::{Sender, WebhookLayer};
    ///
    /// let sender = Sender::github(["a secret"]).unwrap();
    /// let layer = WebhookLayer::with(sender, MemoryStore::new(), |settings| {
    ///     settings.scope("webhooks.github.deploys").lease(Duration::from_secs(120))
    /// })?;
    /// # let _ = layer;
    /// # Ok::<(), idem::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Configuration`] if a setting cannot work.
    pub fn with(
        sender: Sender,
        store: St,
        settings: impl FnOnce(Builder<St>) -> Builder<St>,
    ) -> Result<Self, Error> {
        // A delivery has no fingerprint: its id alone identifies it, and its repetitions may differ outside
        // the event, for example in the path.
        let builder = IdempotencyLayer::builder(store)
            .shared_by_all_clients()
            .scope(format!("webhooks.{}", sender.scheme.name()))
            .fingerprint(RequestFingerprint::none())
            .ttl(TTL)
            .guard(|head| match head.headers.contains_key(KEY) {
                true => Guard::Required,
                false => Guard::Unguarded,
            })
            .recording(|head| match head.status {
                status if status.is_success() || status.is_server_error() => None,
                // The sender repeats the delivery, and the handler may succeed then.
                _ => Some(Recording::Release),
            });
        Ok(Self { sender: Arc::new(sender), idempotency: settings(builder).build()? })
    }
}

impl<S, St: Clone> Layer<S> for WebhookLayer<St> {
    type Service = Webhooks<S, St>;

    fn layer(&self, inner: S) -> Self::Service {
        let max_bytes = self.idempotency.max_request_bytes();
        Webhooks { inner: self.idempotency.layer(inner), sender: self.sender.clone(), max_bytes }
    }
}

/// A service that is guarded by a [`WebhookLayer`].
#[derive(Clone, Debug)]
pub struct Webhooks<S, St> {
    inner: Idempotency<S, St>,
    sender: Arc<Sender>,
    max_bytes: usize,
}

impl<S, St, B> Service<Request<B>> for Webhooks<S, St>
where
    Idempotency<S, St>:
        Service<Request<Body>, Response = Response<Body>, Future: Send> + Clone + Send + 'static,
    B: http_body::Body<Data: Send> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<Body>;
    type Error = <Idempotency<S, St> as Service<Request<Body>>>::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // `self.inner` is ready, but a clone may not be. So this call takes `self.inner`, and the clone
        // stays.
        let clone = self.inner.clone();
        let (mut inner, sender) = (replace(&mut self.inner, clone), self.sender.clone());
        let max_bytes = self.max_bytes;
        Box::pin(async move {
            match verified(&sender, request, max_bytes).await {
                Ok(request) => {
                    let response = inner.call(request).await?;
                    // `ResponseNotStored` means that the handler has answered an earlier delivery of this id
                    // with a 2xx. That answer was a stream, or too large to keep. The sender only needs the
                    // status.
                    let is_handled = response.extensions().get() == Some(&Problem::ResponseNotStored);
                    Ok(if is_handled { Response::new(Body::from(Bytes::new())) } else { response })
                }
                Err((status, why)) => {
                    tracing::warn!(target: "idem", event = "webhook_refused", sender = sender.scheme.name(), reason = %why);
                    Ok(answer(status, why))
                }
            }
        })
    }
}

/// Returns the request with its whole body and its delivery, if the request has a valid signature.
async fn verified<B>(
    sender: &Sender,
    request: Request<B>,
    max_bytes: usize,
) -> Result<Request<Body>, (StatusCode, String)>
where
    B: http_body::Body + Send,
    B::Error: Into<BoxError>,
{
    let (mut head, body) = request.into_parts();
    let body = match Limited::new(body, max_bytes).collect().await {
        Ok(whole) => whole.to_bytes(),
        Err(error) if error.is::<LengthLimitError>() => {
            return Err((StatusCode::PAYLOAD_TOO_LARGE, "the delivery is too large".to_owned()));
        }
        Err(_) => return Err((StatusCode::BAD_REQUEST, "the body of the delivery ended early".to_owned())),
    };
    let no_id = || (StatusCode::BAD_REQUEST, Refused::NoId.to_string());
    let id = sender.verify(&head.headers, &body).map_err(|refused| match refused {
        Refused::NoId => no_id(),
        refused => (StatusCode::UNAUTHORIZED, refused.to_string()),
    })?;
    // Removes a key that the sender has set. Otherwise the sender could choose whether its request is
    // guarded.
    head.headers.remove(KEY);
    if let Some(id) = &id {
        // A string of RFC 9651, which can hold any printable ASCII id.
        let text = format!("\"{}\"", id.replace('\\', "\\\\").replace('"', "\\\""));
        let key = HeaderValue::from_str(&text).ok().filter(|_| id.len() <= LONGEST_ID && id.is_ascii());
        head.headers.insert(KEY, key.ok_or_else(no_id)?);
    }
    head.extensions.insert(Delivery::new(sender.scheme.name(), id));
    Ok(Request::from_parts(head, Body::from(body)))
}

fn answer(status: StatusCode, why: String) -> Response<Body> {
    let mut response = Response::new(Body::from(Bytes::from(why)));
    *response.status_mut() = status;
    response
}
