//! The middleware. It passes a request to the layer, gets the layer's decision, and runs the handler on the
//! worker's thread.

use std::cell::Cell;
use std::future::{Ready, ready};
use std::rc::Rc;

use actix_web::body::{BoxBody, EitherBody, MessageBody};
use actix_web::dev::{Payload, Service, ServiceRequest, ServiceResponse, Transform};
use actix_web::error::PayloadError;
use actix_web::{Error, HttpMessage as _, HttpRequest};
use bytes::Bytes;
use futures_util::future::LocalBoxFuture;
use futures_util::stream;
use http::{Extensions, Request};
use http_body_util::BodyExt as _;
use idem_http::{Begun, Body, IdempotencyLayer};
use idem_runtime::Store;

use crate::body::sendable;
use crate::convert::{answered, failed, head, outgoing, response_of};

/// Guards an application, a scope or a resource of actix-web with the `Idempotency-Key` header.
///
/// Pass it to `wrap`. Middleware that you add *after* this one is outside of this one. So add authentication
/// after this one.
///
/// A handler runs in a separate task on its worker, and continues when its client has gone away, unless the
/// layer runs handlers in transactions. A server that stops ends its workers. So first stop accepting
/// connections, then wait for the handlers, and then stop the server.
///
/// ```no_run
/// use std::time::Duration;
///
/// use actix_web::dev::Service as _;
/// use actix_web::{App, HttpMessage as _, HttpServer, web};
/// use idem::MemoryStore;
/// use idem::http::IdempotencyLayer;
/// use idem_actix::Idempotency;
///
/// #[derive(Clone)]
/// struct Account { id: String }
///
/// # #[actix_web::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let layer = IdempotencyLayer::builder(MemoryStore::new())
///     .tenant(|request| Some(request.extensions.get::<Account>()?.id.clone()))
///     .build()?;
/// let server = HttpServer::new(move || {
///     App::new()
///         .wrap(Idempotency::new(layer.clone()).with_extension::<Account>())
///         .wrap_fn(|request, next| {
/// // Here your authentication sets the account.
///             request.extensions_mut().insert(Account { id: "7".to_owned() });
///             next.call(request)
///         })
///         .route("/payments", web::post().to(|| async { "paid" }))
/// })
/// .disable_signals()
/// .bind(("127.0.0.1", 8080))?
/// .run();
/// let handle = server.handle();
/// actix_web::rt::spawn(async move {
///     // .. a signal ..
///     handle.pause().await;
///     idem::drain(Duration::from_secs(25)).await;
///     handle.stop(true).await;
/// });
/// server.await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Idempotency<St> {
    layer: IdempotencyLayer<St>,
    extensions: Vec<Carry>,
}

/// Copies one extension of actix-web's request to the request that the layer sees.
type Carry = fn(&ServiceRequest, &mut Extensions);

impl<St> Idempotency<St> {
    /// Guards with the settings of this layer. Clones of one layer, one for each worker, share everything.
    #[must_use]
    pub const fn new(layer: IdempotencyLayer<St>) -> Self {
        Self { layer, extensions: Vec::new() }
    }

    /// If middleware outside has set this extension of a request, copies the extension to the request that
    /// the layer sees. There the functions of [`Builder::tenant`](idem_http::Builder::tenant) and
    /// [`RequestFingerprint::route`](idem_http::RequestFingerprint::route) can read it.
    #[must_use]
    pub fn with_extension<T: Clone + Send + Sync + 'static>(mut self) -> Self {
        self.extensions.push(|request, extensions| {
            if let Some(extension) = request.extensions().get::<T>() {
                extensions.insert(extension.clone());
            }
        });
        self
    }
}

impl<S, B, St> Transform<S, ServiceRequest> for Idempotency<St>
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error> + 'static,
    B: MessageBody + 'static,
    St: Store,
{
    type Response = ServiceResponse<EitherBody<B, BoxBody>>;
    type Error = Error;
    type Transform = IdempotencyMiddleware<S, St>;
    type InitError = ();
    type Future = Ready<Result<Self::Transform, ()>>;

    fn new_transform(&self, service: S) -> Self::Future {
        ready(Ok(IdempotencyMiddleware { service: Rc::new(service), settings: self.clone() }))
    }
}

/// A service that is guarded by [`Idempotency`].
#[derive(Debug)]
pub struct IdempotencyMiddleware<S, St> {
    service: Rc<S>,
    settings: Idempotency<St>,
}

impl<S, B, St> Service<ServiceRequest> for IdempotencyMiddleware<S, St>
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error> + 'static,
    B: MessageBody + 'static,
    St: Store,
{
    type Response = ServiceResponse<EitherBody<B, BoxBody>>;
    type Error = Error;
    type Future = LocalBoxFuture<'static, Result<Self::Response, Error>>;

    actix_web::dev::forward_ready!(service);

    fn call(&self, request: ServiceRequest) -> Self::Future {
        let mut parts = match head(&request) {
            Ok(parts) => parts,
            Err(error) => return Box::pin(ready(Err(error))),
        };
        for carry in &self.settings.extensions {
            carry(&request, &mut parts.extensions);
        }
        if !self.settings.layer.guards(&parts) {
            let response = self.service.call(request);
            return Box::pin(async move { Ok(response.await?.map_into_left_body()) });
        }
        let (service, layer) = (self.service.clone(), self.settings.layer.clone());
        Box::pin(async move { Ok(guarded(&layer, service, request, parts).await?.map_into_right_body()) })
    }
}

async fn guarded<S, B, St>(
    layer: &IdempotencyLayer<St>,
    service: Rc<S>,
    mut request: ServiceRequest,
    parts: http::request::Parts,
) -> Result<ServiceResponse, Error>
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error> + 'static,
    B: MessageBody + 'static,
    St: Store,
{
    let body = match request.take_payload() {
        Payload::None => Body::from(Bytes::new()),
        payload => sendable(payload),
    };
    let (run, whole) = match layer.begin(Request::from_parts(parts, body)).await {
        Begun::Answered(response) => {
            return Ok(request.into_response(outgoing(response)));
        }
        Begun::Run(run, whole) => (run, whole),
    };
    let (parts, body) = whole.into_parts();
    request.set_payload(payload_of(body).await);
    request.extensions_mut().insert(Given(parts.extensions));
    // The router of actix-web needs the only reference to the request. So the request moves into the handler,
    // and the handler returns it with the response.
    let came_back = Rc::new(Cell::new(None));
    let keep = came_back.clone();
    let handler = async move {
        let (request, response) = service.call(request).await?.into_parts();
        let (head, response) = response_of(response)?;
        keep.set(Some((request, head)));
        Ok::<_, Error>(response)
    };
    let response = run.spawn_local(handler).await?;
    match came_back.take() {
        Some((request, head)) => Ok(ServiceResponse::new(request, answered(head, response))),
        None => Err(failed(response)),
    }
}

/// The extensions that the layer added to this handler's request, such as its transaction:
/// `Tx::of(&extensions(&request))`. Empty if this middleware does not guard the request.
#[must_use]
pub fn extensions(request: &HttpRequest) -> Extensions {
    request.extensions().get::<Given>().map(|given| given.0.clone()).unwrap_or_default()
}

/// The extensions of the request that the layer returned.
struct Given(Extensions);

/// The whole body of a request, for its handler.
async fn payload_of(body: Body) -> Payload {
    let data = body.collect().await.map(|collected| collected.to_bytes());
    let data = data.map_err(|error| PayloadError::Io(std::io::Error::other(error)));
    Payload::Stream { payload: Box::pin(stream::once(ready(data))) }
}
