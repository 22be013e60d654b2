//! A proxy for HTTP/1.1 that forwards whole requests and cuts some of the responses short.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// The proxy. It takes one request per connection.
pub(crate) struct Proxy {
    port: u16,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    answers: AtomicU64,
    cut: AtomicU64,
}

impl Proxy {
    /// Starts a proxy in front of the server on this port; it cuts one of `every` responses.
    pub(crate) async fn start(server: u16, every: u64) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let (port, counts) = (listener.local_addr().unwrap().port(), Arc::new(Counts::default()));
        let counting = counts.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let counts = counting.clone();
                tokio::spawn(async move { counts.pass(client, server, every).await });
            }
        });
        Self { port, counts }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// How many responses were cut.
    pub(crate) fn cut(&self) -> u64 {
        self.counts.cut.load(Ordering::SeqCst)
    }
}

impl Counts {
    async fn pass(&self, mut client: TcpStream, server: u16, every: u64) -> io::Result<()> {
        let request = message(&mut client).await?;
        let mut server = TcpStream::connect(("127.0.0.1", server)).await?;
        server.write_all(&request).await?;
        // Reads the whole response, so that the request is done before its response is lost.
        let answer = message(&mut server).await?;
        let number = self.answers.fetch_add(1, Ordering::SeqCst) + 1;
        if number.is_multiple_of(every) {
            self.cut.fetch_add(1, Ordering::SeqCst);
            // Sends nothing, half of the head, or all but the end of the body.
            let part = [0, 60, answer.len() - 5][usize::try_from(number / every % 3).unwrap_or(0)];
            return client.write_all(&answer[..part]).await;
        }
        client.write_all(&answer).await
    }
}

/// Reads a head, and a body of its `Content-Length`.
async fn message(from: &mut TcpStream) -> io::Result<Vec<u8>> {
    let (mut bytes, mut room) = (Vec::new(), [0; 4096]);
    loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
            let length =
                head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
            if bytes.len() >= end + 4 + length.unwrap_or(0) {
                return Ok(bytes);
            }
        }
        match from.read(&mut room).await? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => bytes.extend_from_slice(&room[..read]),
        }
    }
}
