//! Makes one payment from the command line: `cargo run -p pay -- --store sqlite:FILE|redis://..|postgres://..|mysql://..|nats-kv://..|object:FOLDER|memory
//! --order ID --amount CENTS [--work-ms N] [--lease-ms N] [--wait-ms N] [--ledger FILE]
//! [--fail transient|final|panic]`.
//!
//! It makes one call of the annotated function below, prints one line of JSON and ends with 0 (executed or
//! replayed), 1 (the payment failed), 64 (wrong arguments), 65 (another amount under the same order), 70 (any other
//! error of idem) or 75 (in flight elsewhere).

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
    /// A declined card stays declined, so this error is recorded and replayed. All others are worth a retry.
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
    // The fence differs between attempts of one order, so a second charge would give another receipt. Attempts of different
    // orders may share a fence.
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
    let line = pay_once(&options).await;
    match serde_json::to_string(&line) {
        Ok(text) => println!("{text}"),
        Err(error) => eprintln!("{error}"),
    }
    ExitCode::from(line.exit_code())
}

/// The printed line.
#[derive(Serialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
enum Line {
    Executed(Paid),
    Replayed(Paid),
    InFlight { retry_after_ms: u128 },
    Mismatch,
    Failed { error: String, replayed: bool },
    Error { kind: &'static str },
}

#[derive(Serialize)]
struct Paid {
    order: String,
    amount: u64,
    receipt: String,
    attempt: u32,
}

impl Line {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Executed(_) | Self::Replayed(_) => 0,
            Self::Failed { .. } => 1,
            Self::Mismatch => 65,
            Self::Error { .. } => 70,
            Self::InFlight { .. } => 75,
        }
    }
}

/// One call of [`pay`].
async fn pay_once(options: &Pay) -> Line {
    // clap wants one of both.
    let choice = options.store.as_ref().or(options.db.as_ref()).unwrap_or(&Choice::Memory);
    let store = match choice.open().await {
        Ok(store) => store,
        Err(error) => {
            eprintln!("{error}");
            return Line::Error { kind: "store" };
        }
    };
    let Observed { value, outcome, .. } = observe(pay(&store, options, &options.order, options.amount)).await;
    let replayed = outcome.is_some_and(|outcome| outcome.is_replayed());
    match value {
        Ok(Receipt { receipt }) => {
            let attempt = outcome.and_then(|outcome| outcome.attempt()).unwrap_or(1);
            let paid = Paid { order: options.order.clone(), amount: options.amount, receipt, attempt };
            if replayed { Line::Replayed(paid) } else { Line::Executed(paid) }
        }
        // Rounded up, so that sleeping exactly that long is enough.
        Err(PayError::Idem(idem::Error::InFlight { retry_after, .. })) => {
            Line::InFlight { retry_after_ms: retry_after.as_micros().div_ceil(1_000) }
        }
        Err(PayError::Idem(idem::Error::Mismatch { .. })) => Line::Mismatch,
        Err(PayError::Idem(error)) => {
            eprintln!("{error}");
            Line::Error { kind: error.kind().as_str() }
        }
        Err(error) => Line::Failed { error: error.to_string(), replayed },
    }
}
