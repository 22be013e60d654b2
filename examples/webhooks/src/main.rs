//! Serves webhooks on 127.0.0.1:3000, with records in memory and the secret `secret`:
//! `cargo run -p webhooks`.

use std::error::Error;

use idem::MemoryStore;
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let app = webhooks::app(MemoryStore::new(), "secret")?;
    Ok(axum::serve(TcpListener::bind("127.0.0.1:3000").await?, app).await?)
}
