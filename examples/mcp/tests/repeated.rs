//! An agent that repeats its tool calls, with a real client, over servers that are killed and answers that get lost.

use std::fs::File;
use std::path::PathBuf;
use std::pin::Pin;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rmcp::model::{CallToolRequestParams, CallToolResult, JsonObject};
use rmcp::service::{RoleClient, RunningService, ServiceError};
use rmcp::{ServiceExt as _, object};
use tempfile::TempDir;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::{sleep, timeout};

/// How long a test waits for anything.
const PATIENCE: Duration = Duration::from_secs(30);

/// What the servers of a test leave behind.
struct Machine(TempDir);

impl Machine {
    fn new() -> Self {
        let machine = Self(TempDir::new().unwrap());
        std::fs::create_dir(machine.payments()).unwrap();
        machine
    }

    fn payments(&self) -> PathBuf {
        self.0.path().join("payments")
    }

    /// The amounts that were paid.
    fn paid(&self) -> Vec<String> {
        let files = std::fs::read_dir(self.payments()).unwrap();
        files.map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap().trim().into()).collect()
    }

    /// What the bodies of all servers printed.
    fn bodies(&self) -> Vec<String> {
        let log = std::fs::read_to_string(self.0.path().join("log")).unwrap();
        log.lines().map(str::to_owned).collect()
    }

    async fn until_paid(&self) {
        while self.paid().is_empty() {
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// Starts a server, whose payment service answers so late, and a client of it.
    async fn session(&self, latency: Duration) -> Session {
        let log = File::options().create(true).append(true).open(self.0.path().join("log")).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_mcp"));
        command
            .arg(self.0.path().join("records.db"))
            .arg(self.payments())
            .arg(latency.as_millis().to_string());
        let mut server = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let is_cut = Arc::new(AtomicBool::new(false));
        let output = Output { pipe: server.stdout.take().unwrap(), is_cut: is_cut.clone() };
        let client = ().serve((output, server.stdin.take().unwrap())).await.unwrap();
        Session { server, client, is_cut }
    }
}

/// A server and its client.
struct Session {
    server: Child,
    client: RunningService<RoleClient, ()>,
    is_cut: Arc<AtomicBool>,
}

impl Session {
    async fn pay(&self, payment: JsonObject) -> Result<CallToolResult, ServiceError> {
        let call = self.client.call_tool(CallToolRequestParams::new("pay").with_arguments(payment));
        timeout(PATIENCE, call).await.expect("no answer")
    }

    async fn kill(mut self) {
        self.server.kill().await.unwrap();
    }
}

/// What the server writes. Once it is cut, it ends before the next byte.
struct Output {
    pipe: ChildStdout,
    is_cut: Arc<AtomicBool>,
}

impl AsyncRead for Output {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        ready!(Pin::new(&mut self.pipe).poll_read(cx, bytes))?;
        if self.is_cut.load(Ordering::SeqCst) {
            bytes.clear();
        }
        Poll::Ready(Ok(()))
    }
}

/// A payment for order 42.
fn payment(request: &str, cents: u64) -> JsonObject {
    object!({ "request_id": request, "order": 42, "cents": cents })
}

/// What the model reads.
fn text(result: &CallToolResult) -> &str {
    &result.content[0].as_text().unwrap().text
}

const RECEIPT: &str = "order 42 is paid: 1999 cents";

#[tokio::test]
async fn a_call_whose_server_was_killed_after_the_payment_and_before_its_record_pays_once() {
    let machine = Machine::new();
    let session = machine.session(PATIENCE).await;
    tokio::select! {
        answer = session.pay(payment("r-1", 1999)) => panic!("an answer: {answer:?}"),
        () = machine.until_paid() => session.kill().await,
    }
    let session = machine.session(Duration::ZERO).await;
    assert_eq!(text(&session.pay(payment("r-1", 1999)).await.unwrap()), RECEIPT);
    assert_eq!(machine.paid(), ["1999"]);
    assert_eq!(machine.bodies(), ["pays order 42, attempt 1", "pays order 42, attempt 2"]);
}

#[tokio::test]
async fn a_call_whose_answer_is_lost_pays_once_and_its_repetition_gets_the_receipt_from_another_server() {
    let machine = Machine::new();
    let session = machine.session(Duration::ZERO).await;
    session.is_cut.store(true, Ordering::SeqCst);
    let lost = session.pay(payment("r-1", 1999)).await.unwrap_err();
    assert!(matches!(lost, ServiceError::TransportClosed), "{lost:?}");
    session.kill().await;
    let session = machine.session(Duration::ZERO).await;
    assert_eq!(text(&session.pay(payment("r-1", 1999)).await.unwrap()), RECEIPT);
    assert_eq!((machine.paid().len(), machine.bodies().len()), (1, 1));
    session.pay(payment("r-2", 1999)).await.unwrap();
    assert_eq!(machine.paid().len(), 2, "another request is another payment");
}

#[tokio::test]
async fn calls_that_the_client_gave_up_or_sends_at_the_same_time_pay_once() {
    let machine = Machine::new();
    let session = machine.session(Duration::from_millis(300)).await;
    tokio::select! {
        // The payment comes first, also for a test that stands still until the answer is there.
        biased;
        () = machine.until_paid() => {}
        answer = session.pay(payment("r-1", 1999)) => panic!("an answer: {answer:?}"),
    }
    let again = || session.pay(payment("r-1", 1999));
    let (first, second) = tokio::join!(again(), again());
    assert_eq!((text(&first.unwrap()), text(&second.unwrap())), (RECEIPT, RECEIPT));
    assert_eq!(machine.paid(), ["1999"]);
}

#[tokio::test]
async fn a_request_id_that_was_used_for_another_payment_is_refused_in_words_for_the_model() {
    let machine = Machine::new();
    let session = machine.session(Duration::ZERO).await;
    session.pay(payment("r-1", 1999)).await.unwrap();
    let refused = session.pay(payment("r-1", 5)).await.unwrap();
    assert_eq!(refused.is_error, Some(true));
    assert!(
        text(&refused).ends_with("use a new key for a new request (the key is `request_id`)"),
        "{}",
        text(&refused)
    );
    assert_eq!(machine.paid(), ["1999"]);
}

#[tokio::test]
async fn clients_learn_that_the_tool_may_be_repeated_and_what_its_key_is() {
    let session = Machine::new().session(Duration::ZERO).await;
    let tools = session.client.list_all_tools().await.unwrap();
    let [pay] = &tools[..] else { panic!("{tools:?}") };
    assert_eq!(pay.annotations.as_ref().and_then(|hints| hints.idempotent_hint), Some(true));
    let request = &pay.input_schema["properties"]["request_id"]["description"];
    assert!(request.as_str().unwrap().ends_with("send the same one again."), "{request}");
}
