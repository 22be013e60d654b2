//! A proxy that counts or cuts the traffic to a server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

/// A proxy in front of a server.
pub(crate) struct Proxy {
    port: u16,
    line: Arc<Line>,
}

#[derive(Default)]
struct Line {
    /// How often the client sent something after the server did.
    exchanges: AtomicU64,
    /// Bytes that the server sent.
    received: AtomicU64,
    /// Whether the next bytes of a client end its connection.
    cut: AtomicBool,
    /// The port to which new connections lead.
    server: AtomicU16,
}

fn port_of(url: &str) -> u16 {
    url.rsplit(':').next().unwrap().split('/').next().unwrap().parse().unwrap()
}

impl Proxy {
    /// Starts a proxy for the server of this URL.
    pub(crate) async fn start(url: &str) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let line = Arc::new(Line::default());
        line.server.store(port_of(url), Ordering::SeqCst);
        let shared = line.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let line = shared.clone();
                tokio::spawn(async move {
                    client.set_nodelay(true).unwrap();
                    let server = line.server.load(Ordering::SeqCst);
                    let server = TcpStream::connect(("127.0.0.1", server)).await.unwrap();
                    server.set_nodelay(true).unwrap();
                    let (from_client, to_client) = client.into_split();
                    let (from_server, to_server) = server.into_split();
                    let spoke = Arc::new(AtomicBool::new(false));
                    let there = pass(from_client, to_server, line.clone(), spoke.clone(), true);
                    let back = pass(from_server, to_client, line, spoke, false);
                    // The end of either direction ends the other.
                    tokio::select! { () = there => {}, () = back => {} }
                });
            }
        });
        Self { port, line }
    }

    pub(crate) fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    pub(crate) fn exchanges(&self) -> u64 {
        self.line.exchanges.load(Ordering::SeqCst)
    }

    /// Bytes that the server has sent.
    pub(crate) fn received(&self) -> u64 {
        self.line.received.load(Ordering::SeqCst)
    }

    /// From now on a client that sends something loses its connection, until [`mend`](Self::mend).
    pub(crate) fn cut(&self) {
        self.line.cut.store(true, Ordering::SeqCst);
    }

    /// From now on new connections lead to the server of this URL.
    pub(crate) fn lead_to(&self, url: &str) {
        self.line.server.store(port_of(url), Ordering::SeqCst);
    }

    pub(crate) fn mend(&self) {
        self.line.cut.store(false, Ordering::SeqCst);
    }
}

async fn pass(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    line: Arc<Line>,
    spoke: Arc<AtomicBool>,
    client: bool,
) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        if client {
            if line.cut.load(Ordering::SeqCst) {
                return;
            }
            // The server does not answer `Terminate` (`X`), so it does not count.
            if !spoke.swap(true, Ordering::SeqCst) && buffer[0] != b'X' {
                line.exchanges.fetch_add(1, Ordering::SeqCst);
            }
        } else {
            spoke.store(false, Ordering::SeqCst);
            line.received.fetch_add(count as u64, Ordering::SeqCst);
        }
        if to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}
