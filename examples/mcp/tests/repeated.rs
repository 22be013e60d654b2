//! Tests of an agent that repeats its tool call after the server was killed. The tests use a real MCP client.

use std::fs::{self, File};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use rmcp::model::CallToolRequestParams;
use rmcp::service::{RoleClient, RunningService};
use rmcp::{ServiceExt as _, object};
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

/// How long the test waits for an answer at most. Also how long the payment service of the first MCP server
/// takes to answer: that server is killed before the answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// Starts a server, whose payment service answers after `latency`, and a client of the server.
async fn start(folder: &Path, latency: Duration) -> (Child, RunningService<RoleClient, ()>) {
    let log = File::options().create(true).append(true).open(folder.join("log")).unwrap();
    let mut server = Command::new(env!("CARGO_BIN_EXE_mcp"));
    server.arg(folder.join("records.db")).arg(folder.join("payments")).arg(latency.as_millis().to_string());
    server.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log).kill_on_drop(true);
    let mut server = server.spawn().unwrap();
    let pipes = (server.stdout.take().unwrap(), server.stdin.take().unwrap());
    (server, ().serve(pipes).await.unwrap())
}

/// Calls the tool for order 42. Returns what the model reads, and whether it is an error.
async fn pay(client: &RunningService<RoleClient, ()>, cents: u64) -> (String, Option<bool>) {
    let payment = object!({ "request_id": "r-1", "order": 42, "cents": cents });
    let call = client.call_tool(CallToolRequestParams::new("pay").with_arguments(payment));
    let result = timeout(PATIENCE, call).await.expect("no answer").unwrap();
    (result.content[0].as_text().unwrap().text.to_string(), result.is_error)
}

#[tokio::test]
async fn a_call_whose_server_was_killed_after_the_payment_pays_once_and_another_amount_is_refused_in_words() {
    let folder = TempDir::new().unwrap();
    let payments = folder.path().join("payments");
    fs::create_dir(&payments).unwrap();
    let paid = || -> Vec<String> {
        let files = fs::read_dir(&payments).unwrap();
        files.map(|file| fs::read_to_string(file.unwrap().path()).unwrap().trim().into()).collect()
    };
    let (mut server, client) = start(folder.path(), PATIENCE).await;
    let until_paid = async {
        while paid().is_empty() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        answer = pay(&client, 1999) => panic!("an answer: {answer:?}"),
        () = until_paid => server.kill().await.unwrap(),
    }
    let (_server, client) = start(folder.path(), Duration::ZERO).await;
    assert_eq!(pay(&client, 1999).await.0, "order 42 is paid: 1999 cents");
    let bodies = fs::read_to_string(folder.path().join("log")).unwrap();
    assert_eq!(bodies, "pays order 42, attempt 1\npays order 42, attempt 2\n");

    let (refusal, is_error) = pay(&client, 5).await;
    assert_eq!(is_error, Some(true));
    assert!(refusal.ends_with("use a new key for a new request (the key is `request_id`)"), "{refusal}");
    assert_eq!(paid(), ["1999"]);
}
