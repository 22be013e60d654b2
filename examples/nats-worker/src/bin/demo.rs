//! Runs the worker on this machine, and kills it.
//!
//! `cargo run -p nats-worker --bin demo -- [--messages 10000] [--duplicates 30] [--workers 3] [--kill-every MS]
//! [--store redis]`
//!
//! Starts a NATS server, a store and workers; sends so many orders and that percentage of them twice; kills a
//! worker every so often; checks every order, prints one line of JSON, and ends with 1 on a violation.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use idem_test_servers::Nats;
use nats_worker::{CONCURRENCY, Queue, work};
use worker_demo::{Broker, Cli, Failure, Worker, demo, serve, terminated};

#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    demo: Cli,
    #[command(subcommand)]
    worker: Option<Sub>,
}

#[derive(Subcommand)]
enum Sub {
    /// One worker; started by the demo itself.
    #[command(hide = true)]
    Worker(Worker),
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let ended = match arguments.worker {
        Some(Sub::Worker(worker)) => one(worker).await.map(|()| true),
        None => all(&arguments.demo).await,
    };
    match ended {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

async fn one(worker: Worker) -> Result<(), Failure> {
    serve(worker, async |worker, shop| {
        let queue = Queue::open(&worker.broker).await?;
        let summary = work(&queue, &shop, terminated()?).await?;
        for (operation, ttl) in summary.forgetful {
            eprintln!("{operation} keeps its results for {ttl:?}: not as long as the queue its messages");
        }
        Ok(())
    })
    .await
}

async fn all(cli: &Cli) -> Result<bool, Failure> {
    let nats = Nats::start();
    let queue = Queue::open(&nats.url()).await?;
    demo(cli, &OnNats(queue), &nats.url(), CONCURRENCY).await
}

struct OnNats(Queue);

impl Broker for OnNats {
    async fn send(&self, bodies: Vec<Vec<u8>>) -> Result<(), Failure> {
        for (number, body) in bodies.into_iter().enumerate() {
            // An id of its own each: the broker's own deduplication has nothing to do with it.
            self.0.send(&format!("message-{number}"), body).await?;
        }
        Ok(())
    }

    async fn waiting(&self) -> Result<u64, Failure> {
        self.0.waiting().await
    }

    async fn dead_letters(&self) -> Result<u64, Failure> {
        self.0.dead_letters().await
    }
}
