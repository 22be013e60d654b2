//! Sends payments with `idem-client` through a proxy that breaks connections. The servers are axum, actix-web
//! and tonic, all with their default settings.
//!
//! `cargo run --release -p clients -- --payments 1000 --cut 5` cuts one connection in five: before the
//! request, after it, or in the middle of the answer. For each framework, the program prints a line: how
//! often payments were made, and how long a client waited for its answer. The program fails if a payment was
//! made twice or never, or if a client did not get the receipt of its payment.

mod books;
mod grpc;
mod servers;

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use futures_util::stream::{self, StreamExt as _};
use idem::SqliteStore;
use idem::http::IdempotencyLayer;
use idem_client::{IdempotencyMiddleware, Policy};
use idem_test_servers::meter::Meter;
use reqwest_middleware::ClientBuilder;
use tokio::time::Instant;

use books::Books;
use servers::Framework;

/// Payments over connections that break.
#[derive(Parser)]
struct Options {
    /// How many payments each framework gets.
    #[arg(long, default_value_t = 1_000)]
    payments: u64,
    /// One in this many connections breaks.
    #[arg(long, default_value_t = 5)]
    cut: u64,
    /// How many clients pay at the same time.
    #[arg(long, default_value_t = 16)]
    clients: usize,
    /// Only this framework.
    #[arg(long)]
    framework: Option<Framework>,
}

#[tokio::main]
async fn main() -> Result<ExitCode, Box<dyn Error>> {
    let options = Options::parse();
    let mut violations = 0;
    for framework in Framework::ALL {
        if options.framework.is_none_or(|only| only == framework) {
            violations += run(framework, &options).await?;
        }
    }
    println!("{violations} violations");
    Ok(if violations == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Sends the payments to one framework, and returns the number of violations.
async fn run(framework: Framework, options: &Options) -> Result<usize, Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let store = SqliteStore::open(folder.path().join("idem.db"))?;
    let books = Books::default();
    let server = framework.start(IdempotencyLayer::shared_by_all_clients(store), books.clone()).await?;
    let proxy = Meter::breaking(server.port(), options.cut).await?;
    let payments: Vec<Paid> = stream::iter(0..options.payments)
        .map(|number| pay(framework, proxy.port, number))
        .buffer_unordered(options.clients)
        .collect()
        .await;
    let wrong_answers = payments.iter().filter(|paid| !paid.is_right).count();
    let wrong_effects = books.not_made_once(options.payments);
    let mut waits: Vec<Duration> = payments.iter().map(|paid| paid.wait).collect();
    waits.sort_unstable();
    let quantile = |part: usize| waits.get((waits.len() * part / 100).min(waits.len() - 1)).copied();
    let ms = |wait: Option<Duration>| wait.unwrap_or_default().as_millis();
    let (cut, connections) = proxy.connections();
    println!(
        "{framework:?}: {} payments, {cut} of {connections} connections cut, {} runs, {wrong_effects} not made once, \
         {wrong_answers} wrong answers; a client waited {} ms (p50), {} ms (p99), {} ms (max)",
        payments.len(),
        books.runs(),
        ms(quantile(50)),
        ms(quantile(99)),
        ms(waits.last().copied()),
    );
    Ok(wrong_effects + wrong_answers)
}

/// A payment as its client saw it.
struct Paid {
    is_right: bool,
    wait: Duration,
}

/// Makes one payment, over connections of its own, so that the proxy can break each connection.
async fn pay(framework: Framework, port: u16, number: u64) -> Paid {
    let start = Instant::now();
    let answer = sent(framework, port, number).await;
    let is_right = match &answer {
        Ok(text) => *text == books::receipt(number),
        Err(error) => {
            println!("{framework:?}: payment {number}: {error}");
            false
        }
    };
    Paid { is_right, wait: start.elapsed() }
}

async fn sent(framework: Framework, port: u16, number: u64) -> Result<String, Box<dyn Error>> {
    let client = reqwest::Client::builder().redirect(idem_client::redirects());
    let client = if framework == Framework::Tonic { client.http2_prior_knowledge() } else { client };
    let client = ClientBuilder::new(client.build()?).with(IdempotencyMiddleware::new(Policy::new())).build();
    let (path, content_type) = framework.request_line();
    let request = client.post(format!("http://127.0.0.1:{port}{path}")).header("content-type", content_type);
    let answer = request.body(framework.request(number)).send().await?;
    let status = answer.status();
    let body = answer.bytes().await?;
    framework.receipt(&body).ok_or_else(|| format!("{status} and no receipt").into())
}
