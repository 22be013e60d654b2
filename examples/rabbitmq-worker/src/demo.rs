//! Runs the worker on this machine, and kills it.
//!
//! `cargo run -p rabbitmq-worker --bin demo -- [--messages 10000] [--duplicates 30] [--workers 3]
//! [--kill-every MS] [--store redis]`
//!
//! Starts RabbitMQ, a store and workers; sends so many orders and that percentage of them twice; kills a
//! worker every so often; checks every order, prints one line of JSON, and ends with 1 on a violation.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use idem_test_servers::RabbitMq;
use worker_demo::{Broker, Cli, Failure, Worker, demo, serve, terminated};

use crate::queue::Queue;
use crate::{CONCURRENCY, work};

const ORDERS: &str = "orders";

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

/// Does what the command line says.
#[tokio::main]
pub async fn main() -> ExitCode {
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
        let summaries = work(&worker.broker, ORDERS, &shop, terminated()?).await?;
        for (operation, ttl) in summaries.into_iter().flat_map(|summary| summary.forgetful) {
            eprintln!("{operation} keeps its results for {ttl:?}: not as long as the queue its messages");
        }
        Ok(())
    })
    .await
}

async fn all(cli: &Cli) -> Result<bool, Failure> {
    let rabbit = RabbitMq::start();
    let url = rabbit.url();
    let queue = Queue::open(&url, ORDERS).await?;
    demo(cli, &OnRabbit { queue, rabbit }, &url, CONCURRENCY.into()).await
}

struct OnRabbit {
    queue: Queue,
    rabbit: RabbitMq,
}

impl Broker for OnRabbit {
    async fn send(&self, bodies: Vec<Vec<u8>>) -> Result<(), Failure> {
        // Many confirmations at a time, in the order of sending.
        let sends = stream::iter(&bodies).map(|body| self.queue.send(body));
        sends.buffered(256).try_collect().await
    }

    async fn waiting(&self) -> Result<u64, Failure> {
        match self.queue.waiting().await? {
            // Some may be with a worker, of which RabbitMQ tells its own tool only; and one may be on its way
            // from one queue to another.
            0 => Ok(self.rabbit.messages(ORDERS).max(self.rabbit.messages(ORDERS))),
            ready => Ok(ready),
        }
    }

    async fn dead_letters(&self) -> Result<u64, Failure> {
        self.queue.dead_letters().await
    }
}
