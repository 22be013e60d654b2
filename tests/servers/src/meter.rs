//! A proxy that counts the traffic between a client and a server, and that breaks connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

#[derive(Default)]
struct Line {
    bytes: AtomicU64,
    round_trips: AtomicU64,
    connections: AtomicU64,
    /// How many connections broke.
    broken: AtomicU64,
    /// Whether the next bytes of a client end its connection.
    is_cut: AtomicBool,
}

/// A port of this process that forwards to a server, and the counts of the traffic.
#[derive(Clone)]
pub struct Meter {
    /// Where the proxy listens on 127.0.0.1.
    pub port: u16,
    line: Arc<Line>,
}

/// The traffic of one call.
pub struct Said {
    /// How often the call waited for an answer.
    pub round_trips: f64,
    /// How many bytes the call sent and received.
    pub bytes: f64,
}

/// Where a connection breaks.
#[derive(Clone, Copy, PartialEq)]
enum Break {
    /// Before the server gets the request.
    Request,
    /// After the server has the request, and before the client gets an answer.
    Answer,
    /// In the middle of the answer.
    HalfAnswer,
}

impl Meter {
    /// Starts a proxy for the server on this port of 127.0.0.1.
    ///
    /// # Errors
    ///
    /// No port is free.
    pub async fn before(server: u16) -> std::io::Result<Self> {
        Self::breaking(server, u64::MAX).await
    }

    /// As [`before`](Self::before), but one of `every` connections breaks: before the request, after it, or
    /// in the middle of the answer.
    ///
    /// # Errors
    ///
    /// The errors of [`before`](Self::before).
    pub async fn breaking(server: u16, every: u64) -> std::io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let meter = Self { port: listener.local_addr()?.port(), line: Arc::default() };
        let line = meter.line.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let number = line.connections.fetch_add(1, Ordering::SeqCst) + 1;
                let breaks = number.is_multiple_of(every).then(|| {
                    match line.broken.fetch_add(1, Ordering::SeqCst) % 3 {
                        0 => Break::Request,
                        1 => Break::Answer,
                        _ => Break::HalfAnswer,
                    }
                });
                tokio::spawn(pass(client, server, line.clone(), breaks));
            }
        });
        Ok(meter)
    }

    /// While `is_cut` is true, a client that sends something loses its connection.
    pub fn cut(&self, is_cut: bool) {
        self.line.is_cut.store(is_cut, Ordering::SeqCst);
    }

    /// How many connections broke, and how many there were.
    pub fn connections(&self) -> (u64, u64) {
        (self.line.broken.load(Ordering::SeqCst), self.line.connections.load(Ordering::SeqCst))
    }

    /// The average traffic of one call, if `calls` calls were made since `before` was read.
    pub fn since(&self, before: (u64, u64), calls: u32) -> Said {
        let now = self.now();
        #[expect(clippy::cast_precision_loss, reason = "small numbers")]
        let each = |now: u64, before: u64| (now - before) as f64 / f64::from(calls);
        Said { round_trips: each(now.0, before.0), bytes: each(now.1, before.1) }
    }

    /// The round trips and bytes so far.
    pub fn now(&self) -> (u64, u64) {
        (self.line.round_trips.load(Ordering::Relaxed), self.line.bytes.load(Ordering::Relaxed))
    }
}

/// Forwards the bytes of one connection.
async fn pass(client: TcpStream, server: u16, line: Arc<Line>, breaks: Option<Break>) {
    if breaks == Some(Break::Request) {
        return;
    }
    let Ok(server) = TcpStream::connect(("127.0.0.1", server)).await else { return };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    // A round trip begins with the first bytes that the client sends after an answer. Requests that it sends
    // together count as one round trip.
    let answered = AtomicBool::new(true);
    let there = pump(from_client, to_server, &line, |bytes| {
        if answered.swap(false, Ordering::Relaxed) {
            line.round_trips.fetch_add(1, Ordering::Relaxed);
        }
        if line.is_cut.load(Ordering::SeqCst) { 0 } else { bytes.len() }
    });
    let mut is_head = true;
    let back = pump(from_server, to_client, &line, |bytes| {
        answered.store(true, Ordering::Relaxed);
        match breaks {
            // The first frame of HTTP/2 is not an answer yet, so it passes as a whole.
            Some(_) if std::mem::take(&mut is_head) && bytes.get(3) == Some(&4) => bytes.len(),
            Some(Break::HalfAnswer) => bytes.len() / 2,
            Some(_) => 0,
            None => bytes.len(),
        }
    });
    // The end of either direction ends the other.
    tokio::select! { () = there => {}, () = back => {} }
}

/// Forwards bytes until either end is closed. `passes` returns how many bytes of each part to forward. If it
/// returns fewer than the part has, the connection ends after these bytes.
async fn pump(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    line: &Line,
    mut passes: impl FnMut(&[u8]) -> usize,
) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        let passed = passes(&buffer[..length]);
        line.bytes.fetch_add(passed as u64, Ordering::Relaxed);
        if to.write_all(&buffer[..passed]).await.is_err() || passed < length {
            return;
        }
    }
    let _ = to.shutdown().await;
}
