//! `idem::tower` around a function of AWS Lambda, which runs in a process of its own. The test is the runtime
//! that invokes the function.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Path;
use axum::routing::{get, post};
use demo::{Order, Shipment};
use idem_test_servers::Ledger;
use idem_test_servers::program::Process;
use idem_test_servers::web::Server;
use tokio::sync::{Mutex, mpsc};
use tokio::time::timeout;

use crate::PROGRAM;

/// The longest time that an answer may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// The runtime: gives the function one order at a time, and collects its answers.
struct Runtime {
    server: Server,
    orders: mpsc::UnboundedSender<Order>,
    answers: mpsc::UnboundedReceiver<(String, String)>,
}

impl Runtime {
    async fn start() -> Self {
        let ((orders, given), (sender, answers)) = (mpsc::unbounded_channel(), mpsc::unbounded_channel());
        let given = Arc::new(Mutex::new(given));
        let next = async move || {
            let order: Order = given.lock().await.recv().await.unwrap();
            // Each invocation has a new id, as if a client had sent the event again. If Lambda itself
            // repeated an asynchronous invocation, the id would stay the same.
            let id = format!("{:032x}", rand::random::<u128>());
            let head = [
                ("lambda-runtime-aws-request-id", id),
                ("lambda-runtime-deadline-ms", "4102444800000".to_owned()),
                (
                    "lambda-runtime-invoked-function-arn",
                    "arn:aws:lambda:eu-west-1:1:function:ship".to_owned(),
                ),
            ];
            (head, serde_json::to_string(&order).unwrap())
        };
        let answer = async move |Path((_, kind)): Path<(String, String)>, body: String| {
            sender.send((kind, body)).unwrap();
            "{}"
        };
        let router = Router::new()
            .route("/2018-06-01/runtime/invocation/next", get(next))
            .route("/2018-06-01/runtime/invocation/{id}/{kind}", post(answer));
        Self { server: Server::start(router).await, orders, answers }
    }

    /// Starts the function. Its process is killed when the returned value is dropped.
    fn function(&self, folder: &std::path::Path, work_ms: u32) -> Process {
        let store = format!("sqlite:{}", folder.join("idem.db").display());
        let mut command = Command::new(PROGRAM);
        command.args(["--broker", "lambda", "function", "-", &store]).arg(folder);
        command.arg(work_ms.to_string()).args(["--lease-ms", "6000"]);
        command.env("AWS_LAMBDA_RUNTIME_API", self.server.address.to_string());
        command.env("AWS_LAMBDA_FUNCTION_NAME", "ship").env("AWS_LAMBDA_FUNCTION_VERSION", "1");
        Process::spawn(command.env("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "128").stdin(Stdio::piped()))
    }

    /// Invokes the function with an order, until it answers with a parcel.
    async fn ship(&mut self, id: u64) -> Shipment {
        loop {
            self.orders.send(Order { id, pieces: 1 }).unwrap();
            let (kind, body) = timeout(PATIENCE, self.answers.recv()).await.expect("no answer").unwrap();
            if kind == "response" {
                return serde_json::from_str(&body).unwrap();
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

#[tokio::test]
async fn a_function_that_lambda_invokes_again_or_kills_ships_every_order_with_one_answer() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = Ledger::new(folder.path().to_owned());
    let effects = || ledger.read("effects").unwrap();
    let mut runtime = Runtime::start().await;
    // The work takes long enough that the kill comes in the middle of it.
    let function = runtime.function(folder.path(), 4_000);
    let parcel = runtime.ship(7).await;
    assert_eq!(runtime.ship(7).await, parcel);
    assert_eq!(effects(), ["7"]);

    // The function is killed after the effect. A new process gets the event again, and is refused until the
    // lease is over.
    runtime.orders.send(Order { id: 8, pieces: 1 }).unwrap();
    while effects().len() < 2 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    drop(function);
    let _function = runtime.function(folder.path(), 0);
    let parcel = runtime.ship(8).await;
    assert_eq!(runtime.ship(8).await, parcel);
    assert_eq!(effects(), ["7", "8", "8"], "the second is the one that the kill explains");
}
