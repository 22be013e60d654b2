//! What a team writes without a library: a middleware over Redis that claims a key by `SET NX`, runs the handler and
//! stores its response by `SET`. No fingerprint, no owner, no renewal, no release after a crash: a key of a server that
//! died is taken until it expires, and a slow handler runs twice.

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use redis::aio::MultiplexedConnection;

/// What a key holds while its handler runs.
const IN_FLIGHT: &[u8] = b"-";

const LEASE_MS: u64 = 30_000;
const TTL_MS: u64 = 24 * 60 * 60 * 1_000;
const MOST_BYTES: usize = 1 << 20;

pub(crate) fn guarded(routes: Router, connection: MultiplexedConnection) -> Router {
    routes.layer(from_fn_with_state(connection, once))
}

async fn once(State(redis): State<MultiplexedConnection>, request: Request, next: Next) -> Response {
    let Some(key) = request.headers().get("idempotency-key").cloned() else { return next.run(request).await };
    match guard(redis, key.as_bytes(), request, next).await {
        Ok(response) => response,
        Err(_) => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}

async fn guard(
    mut redis: MultiplexedConnection,
    key: &[u8],
    request: Request,
    next: Next,
) -> redis::RedisResult<Response> {
    let mut set = redis::cmd("SET");
    let claim = set.arg(key).arg(IN_FLIGHT).arg("NX").arg("PX").arg(LEASE_MS);
    let claimed: Option<String> = claim.query_async(&mut redis).await?;
    if claimed.is_none() {
        let stored: Vec<u8> = redis::cmd("GET").arg(key).query_async(&mut redis).await?;
        return Ok(decode(&stored).unwrap_or_else(|| StatusCode::CONFLICT.into_response()));
    }
    let (parts, body) = next.run(request).await.into_parts();
    let Ok(body) = to_bytes(body, MOST_BYTES).await else {
        return Ok(StatusCode::INTERNAL_SERVER_ERROR.into_response());
    };
    let stored = encode(parts.status, parts.headers.iter(), &body);
    redis::cmd("SET").arg(key).arg(stored).arg("PX").arg(TTL_MS).query_async::<()>(&mut redis).await?;
    Ok(Response::from_parts(parts, Body::from(body)))
}

/// Status, head and body, as lines and the rest.
fn encode<'h>(
    status: StatusCode,
    headers: impl Iterator<Item = (&'h HeaderName, &'h HeaderValue)>,
    body: &Bytes,
) -> Vec<u8> {
    let mut stored = Vec::with_capacity(256 + body.len());
    stored.extend_from_slice(status.as_str().as_bytes());
    stored.push(b'\n');
    for (name, value) in headers {
        stored.extend_from_slice(name.as_str().as_bytes());
        stored.push(b':');
        stored.extend_from_slice(value.as_bytes());
        stored.push(b'\n');
    }
    stored.push(b'\n');
    stored.extend_from_slice(body);
    stored
}

fn decode(stored: &[u8]) -> Option<Response> {
    let head_end = stored.windows(2).position(|bytes| bytes == b"\n\n")?;
    let mut lines = stored[..head_end].split(|byte| *byte == b'\n');
    let mut response = Response::new(Body::from(stored[head_end + 2..].to_vec()));
    *response.status_mut() = StatusCode::from_bytes(lines.next()?).ok()?;
    for line in lines {
        let colon = line.iter().position(|byte| *byte == b':')?;
        let name = HeaderName::from_bytes(&line[..colon]).ok()?;
        response.headers_mut().append(name, HeaderValue::from_bytes(&line[colon + 1..]).ok()?);
    }
    response.headers_mut().insert("idempotency-replayed", HeaderValue::from_static("true"));
    Some(response)
}
