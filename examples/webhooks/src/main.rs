//! Serves webhooks on 127.0.0.1:3000, with results in memory and the secret `secret`: `cargo run -p webhooks`.

use std::error::Error;
use std::time::Duration;

use idem::{DynStore, MemoryStore};
use tokio::net::TcpListener;
use webhooks::{App, router};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let app = App {
        store: DynStore::new(MemoryStore::new()),
        secret: b"secret"[..].into(),
        handled: Default::default(),
        work: Duration::ZERO,
    };
    axum::serve(TcpListener::bind("127.0.0.1:3000").await?, router(app)).await?;
    Ok(())
}
