//! Converts heads, because actix-web uses another version of the crate `http`.
//!
//! Decides which parts of a request and of a response are converted.

use actix_web::HttpResponse;
use actix_web::body::{self as actix_body, BodySize, BoxBody, MessageBody};
use actix_web::dev::ServiceRequest;
use actix_web::error::{ErrorBadRequest, ErrorInternalServerError, InternalError};
use actix_web::http::header::{HeaderName, HeaderValue};
use actix_web::http::{StatusCode, Version};
use http::header::CONTENT_LENGTH;
use http::request::Parts;
use http::{HeaderMap, Method, Request, Response, Uri};
use idem_http::{Body, Problem, Recording};
use idem_runtime::Outcome;

use crate::body::{self, of_response};

/// The head of a request. Fails if the crate `http` refuses a part of the head. No request that a server
/// received has such a head.
pub(crate) fn head(request: &ServiceRequest) -> Result<Parts, actix_web::Error> {
    let of_http = || -> Result<Parts, http::Error> {
        let (mut parts, ()) = Request::new(()).into_parts();
        parts.method = Method::from_bytes(request.method().as_str().as_bytes())?;
        parts.uri = request.uri().to_string().parse::<Uri>()?;
        parts.version = match request.version() {
            Version::HTTP_2 => http::Version::HTTP_2,
            Version::HTTP_10 => http::Version::HTTP_10,
            _ => http::Version::HTTP_11,
        };
        let fields = request.headers().iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
        parts.headers = headers(fields)?;
        Ok(parts)
    };
    of_http().map_err(ErrorBadRequest)
}

fn headers<'a>(fields: impl Iterator<Item = (&'a str, &'a [u8])>) -> Result<HeaderMap, http::Error> {
    let mut headers = HeaderMap::new();
    for (name, value) in fields {
        let name = http::HeaderName::from_bytes(name.as_bytes())?;
        headers.append(name, http::HeaderValue::from_bytes(value)?);
    }
    Ok(headers)
}

/// Splits a handler's response into its head, which keeps the handler's error and extensions, and the
/// response in idem's types.
pub(crate) fn response_of<B: MessageBody + 'static>(
    response: HttpResponse<B>,
) -> Result<(HttpResponse<()>, Response<Body>), actix_web::Error> {
    let recording = response.extensions().get::<Recording>().copied();
    let (head, body) = response.into_parts();
    let of_http = || -> Result<Response<()>, http::Error> {
        let mut response = Response::new(());
        *response.status_mut() = http::StatusCode::from_u16(head.status().as_u16())?;
        let fields = head.headers().iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
        *response.headers_mut() = headers(fields)?;
        Ok(response)
    };
    let mut response = of_http().map_err(ErrorInternalServerError)?;
    if let Some(recording) = recording {
        response.extensions_mut().insert(recording);
    }
    if let BodySize::Sized(length @ 1..) = body.size() {
        // Added here, because the layer must see this header. actix-web itself adds it only later, when it
        // sends the response.
        response.headers_mut().entry(CONTENT_LENGTH).or_insert(length.into());
    }
    Ok((head, response.map(|()| of_response(body))))
}

/// The response to the client if the handler answered with this head. Middleware outside sees the handler's
/// error and extensions, unless the response is a problem or comes from another attempt.
pub(crate) fn answered(head: HttpResponse<()>, response: Response<Body>) -> HttpResponse {
    let is_replayed = response.extensions().get().is_some_and(Outcome::is_replayed);
    if is_replayed || response.extensions().get::<Problem>().is_some() {
        return outgoing(response);
    }
    with_head(head, response)
}

/// The response to the client, in actix-web's types.
pub(crate) fn outgoing(response: Response<Body>) -> HttpResponse {
    with_head(HttpResponse::new(StatusCode::OK).drop_body(), response)
}

fn with_head(mut head: HttpResponse<()>, response: Response<Body>) -> HttpResponse {
    let (mut parts, body) = response.into_parts();
    // A response with the status 204 or 304 has no body. Its `Content-Length` is the length of a body that is
    // not sent, and stays in the headers.
    let bodiless = matches!(parts.status, http::StatusCode::NO_CONTENT | http::StatusCode::NOT_MODIFIED);
    let length = if bodiless { None } else { parts.headers.remove(CONTENT_LENGTH) };
    let length = length.and_then(|length| length.to_str().ok()?.parse().ok());
    *head.status_mut() =
        StatusCode::from_u16(parts.status.as_u16()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    head.headers_mut().clear();
    for (name, value) in &parts.headers {
        let name = HeaderName::from_bytes(name.as_str().as_bytes());
        // Both versions of `http` accept the same names and values.
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(value.as_bytes())) {
            head.headers_mut().append(name, value);
        }
    }
    head.set_body(if bodiless { BoxBody::new(actix_body::None::new()) } else { body::outgoing(body, length) })
}

/// The error if a handler ended early. Such a handler has not returned its request, and without the request
/// there can be no normal response.
pub(crate) fn failed(response: Response<Body>) -> actix_web::Error {
    let cause = "the handler of a request with an idempotency key ended early";
    InternalError::from_response(cause, outgoing(response)).into()
}
