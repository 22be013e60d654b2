//! A proxy for TCP that breaks some of its connections.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy};
use tokio::net::{TcpListener, TcpStream};

/// The proxy.
pub(crate) struct Proxy {
    pub(crate) port: u16,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    connections: AtomicU64,
    cut: AtomicU64,
}

/// Where a connection breaks.
#[derive(Clone, Copy)]
enum Cut {
    /// Before the server gets the request.
    Request,
    /// After the server has the request, and before the client gets an answer.
    Answer,
    /// In the middle of the answer.
    HalfAnswer,
}

impl Proxy {
    /// Starts a proxy in front of a server; one of `every` connections breaks.
    pub(crate) async fn start(server: SocketAddr, every: u64) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let (port, counts) = (listener.local_addr()?.port(), Arc::new(Counts::default()));
        let counting = counts.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let cut = counting.next(every);
                // An error is a connection that a side has closed.
                tokio::spawn(Box::pin(pass(client, server, cut)));
            }
        });
        Ok(Self { port, counts })
    }

    /// How many connections were cut, and how many there were.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.counts.cut.load(Ordering::SeqCst), self.counts.connections.load(Ordering::SeqCst))
    }
}

impl Counts {
    fn next(&self, every: u64) -> Option<Cut> {
        let number = self.connections.fetch_add(1, Ordering::SeqCst) + 1;
        number.is_multiple_of(every).then(|| match self.cut.fetch_add(1, Ordering::SeqCst) % 3 {
            0 => Cut::Request,
            1 => Cut::Answer,
            _ => Cut::HalfAnswer,
        })
    }
}

async fn pass(mut client: TcpStream, server: SocketAddr, cut: Option<Cut>) -> io::Result<()> {
    if matches!(cut, Some(Cut::Request)) {
        return Ok(());
    }
    let mut server = TcpStream::connect(server).await?;
    let (mut from_client, mut to_client) = client.split();
    let (mut from_server, mut to_server) = server.split();
    let requests = async {
        copy(&mut from_client, &mut to_server).await?;
        to_server.shutdown().await
    };
    let answers = async {
        let mut bytes = [0; 16 * 1024];
        let mut is_head = true;
        loop {
            let length = from_server.read(&mut bytes).await?;
            match cut {
                // The frames with which HTTP/2 begins are no answer.
                Some(_) if is_head && bytes.get(3) == Some(&4) => {}
                Some(Cut::Answer) => return Ok(()),
                Some(Cut::HalfAnswer) => return to_client.write_all(&bytes[..length / 2]).await,
                _ => {}
            }
            is_head = false;
            if length == 0 {
                return to_client.shutdown().await;
            }
            to_client.write_all(&bytes[..length]).await?;
        }
    };
    tokio::select! {
        ended = requests => ended,
        ended = answers => ended,
    }
}
