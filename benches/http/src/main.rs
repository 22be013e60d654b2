//! Measures the cost of the HTTP layer: throughput and latency of one server without it, with it on memory and on
//! Redis, with a middleware on Redis that is written by hand, and with the layer of the crate `axum-idempotent` on
//! memory, in one run. The crate `idempotent` has no HTTP layer, so `axum-idempotent` takes its place.
//!
//! Clients and servers share the machine, and the handler does nothing, so the figures show the layers at their worst.
//! Compare the ratios, not the figures.

mod by_hand;
mod load;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, LOCATION};
use axum::routing::post;
use axum_idempotent::{IdempotentLayer, IdempotentOptions};
use clap::Parser;
use idem::http::IdempotencyLayer;
use idem::{MemoryStore, RedisStore};
use idem_test_servers::Redis;
use load::{Load, Measured};
use ruts::store::Ttl;
use ruts::store::moka::MokaStore;
use ruts::{CookieOptions, Session, SessionLayer};
use tokio::net::TcpListener;
use tower_cookies::CookieManagerLayer;

/// The time for which the other crate keeps a response.
const SECONDS_A_DAY: i64 = 24 * 60 * 60;

#[derive(Parser)]
struct Options {
    /// The time for which each server is measured in each round.
    #[arg(long, default_value_t = 3)]
    seconds: u64,
    /// The number of rounds, in each of which all servers are measured in turn.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// The number of concurrent connections.
    #[arg(long, default_value_t = 16)]
    connections: usize,
    /// Measures only the servers whose name contains this text.
    #[arg(long, default_value = "")]
    only: String,
}

/// One server and its measurements.
struct Contestant {
    name: &'static str,
    address: SocketAddr,
    replays: bool,
    measured: Vec<Measured>,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options = Options::parse();
    let server = Redis::start();
    let login = Router::new().route("/login", post(async || ""));
    let bare = serve(routes().merge(login.clone())).await?;
    let memory = routes().layer(IdempotencyLayer::shared_by_all_clients(MemoryStore::new()));
    let memory = serve(memory.merge(login.clone())).await?;
    let on_redis =
        routes().layer(IdempotencyLayer::shared_by_all_clients(RedisStore::connect(&server.url()).await?));
    let on_redis = serve(on_redis.merge(login.clone())).await?;
    let connection = redis::Client::open(server.url())?.get_multiplexed_async_connection().await?;
    let by_hand = serve(by_hand::guarded(routes(), connection).merge(login)).await?;
    let other = serve(axum_idempotent()).await?;
    let contestant = |name, address, replays| Contestant { name, address, replays, measured: Vec::new() };
    let mut contestants = [
        contestant("no layer", bare, false),
        contestant("idem, memory", memory, false),
        contestant("axum-idempotent, memory", other, false),
        contestant("by hand, redis", by_hand, false),
        contestant("idem, redis", on_redis, false),
        contestant("idem, memory, replays", memory, true),
        contestant("axum-idempotent, memory, replays", other, true),
        contestant("by hand, redis, replays", by_hand, true),
        contestant("idem, redis, replays", on_redis, true),
    ];
    for round in 0..options.rounds {
        for contestant in contestants.iter_mut().filter(|contestant| contestant.name.contains(&options.only))
        {
            let time = Duration::from_secs(options.seconds);
            let load = Load { connections: options.connections, time, replays: contestant.replays };
            // Two of them share a Redis. The other crate takes no blanks in a key.
            let keys = format!("{}-{round}", contestant.name.replace(", ", "-"));
            contestant.measured.push(load.run(contestant.address, &keys).await?);
        }
    }
    print(&contestants);
    Ok(())
}

fn routes() -> Router {
    let pay = |body: Bytes| async move {
        (StatusCode::CREATED, [(CONTENT_TYPE, "application/json"), (LOCATION, "/payments/1")], body)
    };
    Router::new().route("/payments", post(pay))
}

/// The same server with the other crate's layer, set up as its documentation says. The layer keeps responses in a
/// session, so there must be one.
fn axum_idempotent() -> Router {
    // Large enough that no response is discarded during the measurement.
    let store = Arc::new(MokaStore::builder().max_capacity(10_000_000).build());
    let options = IdempotentOptions::default()
        .use_idempotency_key_header(Some("Idempotency-Key"), true)
        .expire_after(SECONDS_A_DAY);
    let login = |session: Session<MokaStore>| async move {
        session
            .set("user", &1, Ttl::new(SECONDS_A_DAY).map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?, None)
            .await
            .map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
        Ok::<_, StatusCode>("")
    };
    routes()
        .layer(IdempotentLayer::<MokaStore>::new(options))
        .merge(Router::new().route("/login", post(login)))
        .layer(SessionLayer::new(store).with_cookie_options(CookieOptions::build().name("session").path("/")))
        .layer(CookieManagerLayer::new())
}

async fn serve(router: Router) -> std::io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move { axum::serve(listener, router).await });
    Ok(address)
}

/// Prints the median of the rounds.
fn print(contestants: &[Contestant]) {
    let median = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    println!("{:34} {:>9} {:>6} {:>9} {:>9}", "server", "req/s", "ratio", "p50 us", "p99 us");
    let mut first = None;
    for Contestant { name, measured, .. } in contestants.iter().filter(|one| !one.measured.is_empty()) {
        let of = |look: fn(&Measured) -> f64| median(measured.iter().map(look).collect());
        let per_second = of(|run| run.per_second);
        let ratio = per_second / *first.get_or_insert(per_second);
        let [p50, p99] = [of(|run| run.p50.as_secs_f64() * 1e6), of(|run| run.p99.as_secs_f64() * 1e6)];
        println!("{name:34} {per_second:9.0} {ratio:6.2} {p50:9.0} {p99:9.0}");
    }
}
