//! Runs the worker on this machine, and kills it.
//!
//! `cargo run -p kafka-worker --bin demo -- [--messages 10000] [--duplicates 30] [--workers 3]
//! [--kill-every MS] [--store redis]`
//!
//! Starts a broker, a store and workers; sends so many orders and that percentage of them twice; kills a
//! worker every so often; checks every order, prints one line of JSON, and ends with 1 on a violation. The
//! partitions of a killed worker are given to others only after six seconds, so it kills more rarely than the
//! other demos unless it is told.

use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use idem_test_servers::Kafka;
use worker_demo::{Broker, Cli, Failure, Worker, demo, serve, terminated};

use crate::topics::Topics;
use crate::{CONCURRENCY, work};

const ORDERS: &str = "orders";
const PARTITIONS: i32 = 6;

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
    let command = Arguments::command().mut_arg("kill_every", |every| every.default_value("9000"));
    let arguments = match Arguments::from_arg_matches(&command.get_matches()) {
        Ok(arguments) => arguments,
        Err(error) => error.exit(),
    };
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
        let topics = Topics::open(&worker.broker, ORDERS, PARTITIONS).await?;
        let summary = work(&topics, &shop, terminated()?).await?;
        for (operation, ttl) in summary.forgetful {
            eprintln!("{operation} keeps its results for {ttl:?}: not as long as Kafka its messages");
        }
        Ok(())
    })
    .await
}

async fn all(cli: &Cli) -> Result<bool, Failure> {
    let kafka = Kafka::start();
    let servers = kafka.servers();
    let topics = Topics::open(&servers, ORDERS, PARTITIONS).await?;
    demo(cli, &OnKafka(topics), &servers, CONCURRENCY).await
}

struct OnKafka(Topics);

impl Broker for OnKafka {
    async fn send(&self, bodies: Vec<Vec<u8>>) -> Result<(), Failure> {
        // Keys that differ spread duplicates over the partitions, and so over the workers.
        let sends = stream::iter(bodies.iter().enumerate())
            .map(|(number, body)| async move { self.0.send(&number.to_string(), body).await });
        sends.buffered(256).try_collect().await
    }

    async fn waiting(&self) -> Result<u64, Failure> {
        self.0.waiting().await
    }

    async fn dead_letters(&self) -> Result<u64, Failure> {
        self.0.dead_letters().await
    }
}
