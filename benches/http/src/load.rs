//! Clients that keep their connection and send one request after another.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// The number of payments that a client makes before it logs in again. Otherwise, if a layer keeps its responses in the
/// session, the bench would measure a session that grows without end.
const LOGIN_EVERY: usize = 50;

/// The measurements of a run.
pub(crate) struct Measured {
    pub(crate) per_second: f64,
    pub(crate) p50: Duration,
    pub(crate) p99: Duration,
}

/// How the clients send their requests.
#[derive(Clone, Copy)]
pub(crate) struct Load {
    pub(crate) connections: usize,
    pub(crate) time: Duration,
    /// Send each key a second time, and measure only the second time.
    pub(crate) replays: bool,
}

impl Load {
    /// Sends requests to the server at `address` until the time is over.
    pub(crate) async fn run(self, address: SocketAddr, keys: &str) -> io::Result<Measured> {
        let clients = (0..self.connections).map(|number| {
            let keys = format!("{keys}-{number}");
            async move { tokio::spawn(self.client(address, keys)).await? }
        });
        let ended = try_join_all(clients).await?;
        let mut times: Vec<Duration> = ended.concat();
        times.sort_unstable();
        let busy: Duration = times.iter().sum();
        #[allow(clippy::cast_precision_loss)]
        let per_second = times.len() as f64 * self.connections as f64 / busy.as_secs_f64();
        let at = |percent: usize| times.get(times.len() * percent / 100).copied().unwrap_or_default();
        Ok(Measured { per_second, p50: at(50), p99: at(99) })
    }

    async fn client(self, address: SocketAddr, keys: String) -> io::Result<Vec<Duration>> {
        let mut connection = Connection::open(address).await?;
        let end = Instant::now() + self.time;
        let mut times = Vec::new();
        let mut cookie = String::new();
        for number in 0.. {
            if Instant::now() >= end {
                break;
            }
            if number % LOGIN_EVERY == 0 {
                cookie = connection.login().await?;
            }
            let request = payment(&format!("{keys}-{number}"), &cookie);
            if self.replays {
                connection.ask(&request).await?;
            }
            let begin = Instant::now();
            let answer = connection.ask(&request).await?;
            times.push(begin.elapsed());
            if field(&answer, "idempotency-replayed").is_some() != self.replays {
                return Err(io::Error::other("a payment was replayed that is new, or made that is not"));
            }
        }
        Ok(times)
    }
}

fn payment(key: &str, cookie: &str) -> String {
    let body = r#"{"amount":1999,"currency":"EUR","to":"8e03978e-40d5-43e8-bc93-6894a57f9324"}"#;
    format!(
        "POST /payments HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nCookie: {cookie}\r\n\
         Idempotency-Key: \"{key}\"\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    async fn open(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: Vec::with_capacity(4096) })
    }

    async fn login(&mut self) -> io::Result<String> {
        let head = self.ask("POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n").await?;
        Ok(field(&head, "set-cookie")
            .and_then(|value| value.split(';').next())
            .unwrap_or_default()
            .to_owned())
    }

    /// Returns the head of the answer, once all of the answer has arrived.
    async fn ask(&mut self, request: &str) -> io::Result<String> {
        self.stream.write_all(request.as_bytes()).await?;
        self.buffer.clear();
        loop {
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let Some(end) = self.buffer.windows(4).position(|bytes| bytes == b"\r\n\r\n") else { continue };
            let head = String::from_utf8_lossy(&self.buffer[..end]).into_owned();
            let length: usize =
                field(&head, "content-length").and_then(|value| value.parse().ok()).unwrap_or(0);
            if self.buffer.len() >= end + 4 + length {
                if !head.starts_with("HTTP/1.1 2") {
                    return Err(io::Error::other(head));
                }
                return Ok(head);
            }
        }
    }
}

fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| {
        let (found, value) = line.split_once(':')?;
        found.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}
