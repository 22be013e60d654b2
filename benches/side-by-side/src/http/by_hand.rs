//! What a team writes without a library: a middleware over Redis that claims a key by `SET NX`, runs the
//! handler and stores its response by `SET`. It stores no response headers, and has no fingerprint, owner,
//! renewal, or release after a crash. So if a server dies, the keys of its requests stay taken until their
//! leases end. And if a handler takes longer than the lease, the handler of a duplicate runs at the same
//! time.

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use redis::aio::MultiplexedConnection;

/// The value of a key while its handler runs.
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
        // The value is `IN_FLIGHT`, or the status in three digits followed by the body.
        let (status, body) = stored.split_at_checked(3).unwrap_or_default();
        return Ok(match StatusCode::from_bytes(status) {
            Ok(status) => (status, [("idempotency-replayed", "true")], body.to_vec()).into_response(),
            Err(_) => StatusCode::CONFLICT.into_response(),
        });
    }
    let (parts, body) = next.run(request).await.into_parts();
    let Ok(body) = to_bytes(body, MOST_BYTES).await else {
        return Ok(StatusCode::INTERNAL_SERVER_ERROR.into_response());
    };
    let stored = [parts.status.as_str().as_bytes(), &body].concat();
    redis::cmd("SET").arg(key).arg(stored).arg("PX").arg(TTL_MS).query_async::<()>(&mut redis).await?;
    Ok(Response::from_parts(parts, Body::from(body)))
}
