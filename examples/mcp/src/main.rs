//! An MCP server whose tool is safe to repeat. An MCP client starts it with `mcp RECORDS FOLDER`, and speaks
//! to it over stdin and stdout. RECORDS is the file of its records, and FOLDER is the folder of its payments.
//!
//! Agents repeat tool calls: the client repeats a call after a timeout or a lost connection, and the model
//! repeats a call after an error that it read. The key is an argument of the tool, `request_id`, because the
//! arguments are what the model itself repeats. The id of the JSON-RPC request cannot be the key: each
//! request has a new id, and the ids begin again with each connection. A value in `_meta` cannot be the key
//! either, because the client sets `_meta`, and the model does not see it.

use std::fs::File;
use std::io::{self, ErrorKind, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use idem::{SqliteStore, idempotent};
use rmcp::handler::server::wrapper::Parameters;
use rmcp::model::{ContentBlock, IntoContents};
use rmcp::schemars::JsonSchema;
use rmcp::transport::stdio;
use rmcp::{ServiceExt as _, schemars, tool, tool_router};
use serde::Deserialize;

/// The arguments of the tool. The model reads these sentences.
#[derive(Deserialize, JsonSchema)]
struct Payment {
    /// A new UUID for each payment that the user wants. To repeat a call, send the same UUID again.
    request_id: String,
    /// The order that is paid.
    order: u64,
    /// The amount in cents.
    cents: u64,
}

/// The error of a payment, as the model reads it.
#[derive(Debug, thiserror::Error)]
enum PayError {
    /// idem has refused the call, for example because an earlier call with this `request_id` is in flight, or
    /// had other arguments. The text says what to do.
    #[error("{0} (the key is `request_id`)")]
    Idem(#[from] idem::Error),
    #[error("the payment service failed, so repeat the call: {0}")]
    Gateway(#[from] io::Error),
}

impl IntoContents for PayError {
    fn into_contents(self) -> Vec<ContentBlock> {
        vec![ContentBlock::text(self.to_string())]
    }
}

struct Shop {
    store: SqliteStore,
    gateway: Gateway,
}

#[tool_router(server_handler)]
impl Shop {
    /// Pays an order. A call that repeats a `request_id` pays nothing, and returns the first call's receipt.
    #[tool(annotations(idempotent_hint = true))]
    #[idempotent(key = "{payment.request_id}", scope = "shop.pay", store = self.store, lease = "3s", wait = "1m",
        fingerprint = (payment.order, payment.cents))]
    async fn pay(&self, Parameters(payment): Parameters<Payment>) -> Result<String, PayError> {
        let call = idem::context().ok_or_else(|| io::Error::other("a call without a key"))?;
        eprintln!("pays order {}, attempt {}", payment.order, call.attempt());
        // If the server dies after the payment and before the call is recorded, the next call repeats the
        // payment with the same key, so nothing is paid twice.
        self.gateway.pay(&call.downstream_key("gateway"), payment.cents).await?;
        Ok(format!("order {} is paid: {} cents", payment.order, payment.cents))
    }
}

/// Replaces a payment service that makes one payment for each key. Here, a payment is a file whose name is
/// the key, so it can be created only once.
struct Gateway {
    folder: PathBuf,
    latency: Duration,
}

impl Gateway {
    async fn pay(&self, key: &str, cents: u64) -> io::Result<()> {
        match File::create_new(self.folder.join(key)) {
            Ok(mut payment) => writeln!(payment, "{cents}")?,
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
        tokio::time::sleep(self.latency).await;
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(records), Some(folder)) = (arguments.next(), arguments.next()) else {
        return Err("usage: mcp RECORDS FOLDER [MILLISECONDS]".into());
    };
    // For tests: how long the payment service takes for its answer.
    let latency = Duration::from_millis(arguments.next().map_or(Ok(0), |millis| millis.parse())?);
    let gateway = Gateway { folder: folder.into(), latency };
    let shop = Shop { store: SqliteStore::open(records)?, gateway };
    shop.serve(stdio()).await?.waiting().await?;
    idem::drain(Duration::from_secs(10)).await;
    Ok(())
}
