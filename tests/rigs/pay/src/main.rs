//! Makes one payment from the command line: `cargo run -p pay -- --store
//! sqlite:FILE|redis://..|postgres://..|mysql://..|nats-kv://..|object:FOLDER|memory --order ID --amount
//! CENTS [--work-ms N] [--lease-ms N] [--wait-ms N] [--ledger FILE] [--fail transient|final|panic]`.
//!
//! It makes one call of the annotated function below, and prints one line of JSON. The exit code is 0
//! (executed or replayed), 1 (the payment failed), 64 (wrong arguments), 65 (another amount under the same
//! order), 70 (any other error of idem) or 75 (in flight elsewhere).

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser, ValueEnum};
use idem::{DynStore, Observed, idempotent, observe};
use rig_stores::Choice;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Receipt {
    receipt: String,
}

#[derive(Debug, thiserror::Error, Serialize, Deserialize)]
enum PayError {
    #[error("the card was declined")]
    Declined,
    #[error("the gateway is down")]
    GatewayDown,
    #[error("the ledger cannot be written: {0}")]
    Ledger(String),
    #[error(transparent)]
    #[serde(skip)]
    Idem(#[from] idem::Error),
}

impl PayError {
    /// A declined card stays declined, so this error is recorded and replayed. All other errors are worth a
    /// retry.
    fn is_final(&self) -> bool {
        matches!(self, Self::Declined)
    }
}

/// Charges the card for an order, once. The side effect is a line in the ledger.
#[idempotent(
    key = "order/{order}",
    scope = "quickstart.pay",
    fingerprint = amount,
    store = store,
    lease = Duration::from_millis(options.lease_ms),
    wait = Duration::from_millis(options.wait_ms),
    terminal = PayError::is_final
)]
async fn pay(store: &DynStore, options: &Pay, order: &str, amount: u64) -> Result<Receipt, PayError> {
    let context = idem::context();
    let attempt = context.as_ref().map_or(1, idem::Context::attempt);
    if let Some(ledger) = &options.ledger {
        append(ledger, &format!("{order} {amount} {attempt}\n"))
            .map_err(|error| PayError::Ledger(error.to_string()))?;
    }
    tokio::time::sleep(Duration::from_millis(options.work_ms)).await;
    match options.fail {
        Some(Fail::Transient) => return Err(PayError::GatewayDown),
        Some(Fail::Final) => return Err(PayError::Declined),
        Some(Fail::Panic) => panic!("the payment code has a bug"),
        None => {}
    }
    // The fence differs between attempts of one order, so a second charge would give another receipt.
    // Attempts of different orders may share a fence.
    let number = context.and_then(|context| context.fence()).map_or(0, idem::Fence::get);
    Ok(Receipt { receipt: format!("R{number:x}") })
}

/// Appends a line in one write, so that lines of several processes do not mix.
fn append(ledger: &Path, line: &str) -> io::Result<()> {
    OpenOptions::new().create(true).append(true).open(ledger)?.write_all(line.as_bytes())
}

fn database(file: &str) -> Result<Choice, String> {
    format!("sqlite:{file}").parse()
}

/// Makes one payment and prints its outcome as JSON.
#[derive(Parser)]
#[command(name = "pay")]
struct Pay {
    /// The store: sqlite:FILE, redis://.., postgres://.., mysql://.., nats-kv://.., object:FOLDER or memory.
    #[arg(long, value_name = "STORE", required_unless_present = "db", conflicts_with = "db")]
    store: Option<Choice>,
    /// The same as `--store sqlite:FILE`.
    #[arg(long, value_name = "FILE", value_parser = database)]
    db: Option<Choice>,
    /// The order to pay.
    #[arg(long, value_name = "ID")]
    order: String,
    /// How much, in cents.
    #[arg(long, value_name = "CENTS")]
    amount: u64,
    /// How long the payment takes, in milliseconds.
    #[arg(long, value_name = "N", default_value_t = 0)]
    work_ms: u64,
    /// The lease, in milliseconds.
    #[arg(long, value_name = "N", default_value_t = 30_000, value_parser = clap::value_parser!(u64).range(1..))]
    lease_ms: u64,
    /// How long to wait for the same payment in flight, in milliseconds.
    #[arg(long, value_name = "N", default_value_t = 0)]
    wait_ms: u64,
    /// The file that gets one line for each charge.
    #[arg(long, value_name = "FILE")]
    ledger: Option<PathBuf>,
    /// How the payment fails.
    #[arg(long, value_name = "HOW")]
    fail: Option<Fail>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Fail {
    Transient,
    Final,
    Panic,
}

#[tokio::main]
async fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_writer(io::stderr)
        .init();
    let options = match Pay::try_parse() {
        Ok(options) => options,
        Err(error) => {
            let _ = error.print();
            if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
                return ExitCode::SUCCESS;
            }
            // clap prints the usage for some errors only.
            if !error.to_string().contains("Usage:") {
                eprintln!("{}", Pay::command().render_usage());
            }
            return ExitCode::from(64);
        }
    };
    let (code, line) = pay_once(&options).await;
    println!("{line}");
    ExitCode::from(code)
}

/// One call of [`pay`]: the exit code, and the printed line.
async fn pay_once(options: &Pay) -> (u8, Value) {
    // clap requires one of the two options.
    let choice = options.store.clone().or_else(|| options.db.clone()).unwrap_or(Choice::Memory);
    let store = match choice.open().await {
        Ok(store) => store,
        Err(error) => {
            eprintln!("{error}");
            return (70, json!({ "outcome": "error", "kind": "store" }));
        }
    };
    let (order, amount) = (&options.order, options.amount);
    let Observed { value, outcome, .. } = observe(pay(&store, options, order, amount)).await;
    let replayed = outcome.is_some_and(|outcome| outcome.is_replayed());
    match value {
        Ok(Receipt { receipt }) => {
            let attempt = outcome.and_then(|outcome| outcome.attempt()).unwrap_or(1);
            let outcome = if replayed { "replayed" } else { "executed" };
            let paid = json!({
                "outcome": outcome, "order": order, "amount": amount, "receipt": receipt, "attempt": attempt,
            });
            (0, paid)
        }
        // The time is rounded up, so that a sleep of exactly this time is long enough.
        Err(PayError::Idem(idem::Error::InFlight { retry_after, .. })) => {
            let millis = u64::try_from(retry_after.as_micros().div_ceil(1_000)).unwrap_or(u64::MAX);
            (75, json!({ "outcome": "in_flight", "retry_after_ms": millis }))
        }
        Err(PayError::Idem(idem::Error::Mismatch { .. })) => (65, json!({ "outcome": "mismatch" })),
        Err(PayError::Idem(error)) => {
            eprintln!("{error}");
            (70, json!({ "outcome": "error", "kind": error.kind().as_str() }))
        }
        Err(error) => (1, json!({ "outcome": "failed", "error": error.to_string(), "replayed": replayed })),
    }
}
