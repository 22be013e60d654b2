//! Repeats gRPC calls. The key of a call is in the metadata `idempotency-key`, and its answer has trailers.

use std::future::ready;
use std::marker::PhantomData;

use bytes::Bytes;
use http::HeaderMap;
use http_body_util::{BodyExt as _, Full};
use tonic::body::Body;

use super::Twice;
use super::service::MakeBody;

/// Marks a [`Twice`] of a gRPC service: see [`Twice::grpc`].
#[derive(Clone, Copy, Debug)]
pub struct Grpc;

impl<S> Twice<S> {
    /// Makes this a `Twice` of a tonic service behind a `GrpcIdempotencyLayer`. Give the result to a
    /// generated client in place of a channel: `BankClient::new(twice(server).grpc())`.
    #[must_use]
    pub fn grpc(self) -> Twice<S, Grpc> {
        let Self { inner, effects, header, breaks, proof, .. } = self;
        Twice { inner, effects, header, breaks, proof, kind: PhantomData }
    }
}

impl MakeBody<Body> for Grpc {
    fn body(bytes: Bytes, trailers: Option<HeaderMap>) -> Body {
        Body::new(Full::new(bytes).with_trailers(ready(trailers.map(Ok))))
    }
}
