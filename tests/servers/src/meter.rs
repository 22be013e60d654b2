//! A proxy that counts what a client sends to a server, and that cuts the line.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

#[derive(Default)]
struct Line {
    bytes: AtomicU64,
    round_trips: AtomicU64,
    /// Whether the next bytes of a client end its connection.
    is_cut: AtomicBool,
}

/// A port of this process that forwards to a server, and the counts of what passes.
#[derive(Clone)]
pub struct Meter {
    /// Where the proxy listens on 127.0.0.1.
    pub port: u16,
    line: Arc<Line>,
}

/// The traffic of one call.
pub struct Said {
    /// How often it waited for an answer.
    pub round_trips: f64,
    /// What it sent, and what it was sent.
    pub bytes: f64,
}

impl Meter {
    /// Starts a proxy for the server on this port of 127.0.0.1.
    ///
    /// # Errors
    ///
    /// No port is free.
    pub async fn before(server: u16) -> std::io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let meter = Self { port: listener.local_addr()?.port(), line: Arc::default() };
        let line = meter.line.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let line = line.clone();
                tokio::spawn(async move {
                    let Ok(server) = TcpStream::connect(("127.0.0.1", server)).await else { return };
                    let _ = (client.set_nodelay(true), server.set_nodelay(true));
                    let (from_client, to_client) = client.into_split();
                    let (from_server, to_server) = server.into_split();
                    // A round trip begins with the first bytes sent after an answer: everything sent together counts as
                    // one.
                    let answered = AtomicBool::new(true);
                    let there = pump(from_client, to_server, &line, || {
                        if answered.swap(false, Ordering::Relaxed) {
                            line.round_trips.fetch_add(1, Ordering::Relaxed);
                        }
                        !line.is_cut.load(Ordering::SeqCst)
                    });
                    let back = pump(from_server, to_client, &line, || {
                        answered.store(true, Ordering::Relaxed);
                        true
                    });
                    // The end of either direction ends the other.
                    tokio::select! { () = there => {}, () = back => {} }
                });
            }
        });
        Ok(meter)
    }

    /// While it is cut, a client that sends something loses its connection.
    pub fn cut(&self, is_cut: bool) {
        self.line.is_cut.store(is_cut, Ordering::SeqCst);
    }

    /// The traffic of each of `calls` calls since `before` was read.
    #[must_use]
    pub fn since(&self, before: (u64, u64), calls: u32) -> Said {
        let now = self.now();
        #[expect(clippy::cast_precision_loss, reason = "small numbers")]
        let each = |now: u64, before: u64| (now - before) as f64 / f64::from(calls);
        Said { round_trips: each(now.0, before.0), bytes: each(now.1, before.1) }
    }

    /// The round trips and bytes so far.
    #[must_use]
    pub fn now(&self) -> (u64, u64) {
        (self.line.round_trips.load(Ordering::Relaxed), self.line.bytes.load(Ordering::Relaxed))
    }
}

/// Passes on what comes until either end is closed, or until `goes_on`, called with each part, says that it does not.
async fn pump(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    line: &Line,
    goes_on: impl Fn() -> bool,
) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        if !goes_on() {
            return;
        }
        line.bytes.fetch_add(length as u64, Ordering::Relaxed);
        if to.write_all(&buffer[..length]).await.is_err() {
            return;
        }
    }
    let _ = to.shutdown().await;
}
