//! A server on a real socket, and a client that returns every byte of an answer.
#![allow(missing_docs, reason = "fields and methods are named after what they give")]

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// The longest time that an answer may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// A server in this process. It ends when it is dropped.
pub struct Server {
    pub address: SocketAddr,
    task: JoinHandle<()>,
}

impl Server {
    pub async fn start(router: Router) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let task = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { address, task }
    }

    pub async fn ask(&self, request: Request) -> Answer {
        request.ask(self.address).await
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A request as it is written to the socket.
#[derive(Clone)]
pub struct Request {
    head: Vec<u8>,
    body: Vec<u8>,
    chunked: bool,
}

impl Request {
    pub fn new(method: &str, target: &str) -> Self {
        let head = format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
        Self { head: head.into_bytes(), body: Vec::new(), chunked: false }
    }

    /// A POST with a key in double quotes.
    pub fn post(target: &str, key: &str) -> Self {
        Self::new("POST", target).header("Idempotency-Key", format!("\"{key}\""))
    }

    pub fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.head.extend([name.as_bytes(), b": ", value.as_ref(), b"\r\n"].concat());
        self
    }

    pub fn body(mut self, body: impl AsRef<[u8]>) -> Self {
        self.body = body.as_ref().to_vec();
        self
    }

    pub fn json(self, body: impl AsRef<[u8]>) -> Self {
        self.header("Content-Type", "application/json").body(body)
    }

    /// Encodes the body as chunks of this size.
    pub fn chunks(mut self, size: usize) -> Self {
        let encode = |chunk: &[u8]| [format!("{:x}\r\n", chunk.len()).as_bytes(), chunk, b"\r\n"].concat();
        let chunks = self.body.chunks(size).chain([&b""[..]]).map(encode);
        self.body = chunks.collect::<Vec<_>>().concat();
        self.chunked = true;
        self
    }

    /// The bytes that are sent.
    pub fn bytes(&self) -> Vec<u8> {
        let length = format!("Content-Length: {}", self.body.len());
        let length = if self.chunked { "Transfer-Encoding: chunked" } else { &*length };
        [&self.head[..], length.as_bytes(), b"\r\n\r\n", &self.body[..]].concat()
    }

    /// Sends the request and leaves the connection open.
    pub async fn send(&self, address: SocketAddr) -> TcpStream {
        let mut stream = TcpStream::connect(address).await.unwrap();
        // If the server refuses a large body, it may close the connection before it has read all, so this may
        // fail.
        let _ = stream.write_all(&self.bytes()).await;
        stream
    }

    pub async fn ask(&self, address: SocketAddr) -> Answer {
        Answer::read(&mut self.send(address).await).await
    }

    /// As [`ask`](Self::ask), but takes the request, so that a spawned task can run it.
    pub async fn ask_at(self, address: SocketAddr) -> Answer {
        self.ask(address).await
    }
}

/// The fields of a message, in order, with names in lower case.
type Fields = Vec<(String, Vec<u8>)>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    /// The headers, in order, with names in lower case.
    pub headers: Fields,
    pub body: Vec<u8>,
    pub trailers: Fields,
    /// Whether the body arrived completely.
    pub complete: bool,
}

impl Answer {
    pub async fn read(stream: &mut TcpStream) -> Self {
        tokio::time::timeout(PATIENCE, Self::read_patiently(stream)).await.expect("an answer in time")
    }

    async fn read_patiently(stream: &mut TcpStream) -> Self {
        let mut stream = BufReader::new(stream);
        let status = line(&mut stream).await.expect("a status line");
        let status = String::from_utf8(status).unwrap()[9..12].parse().unwrap();
        let headers = fields(&mut stream).await.expect("headers");
        let mut answer = Self { status, headers, body: Vec::new(), trailers: Vec::new(), complete: false };
        if answer.text("transfer-encoding") == Some("chunked") {
            answer.read_chunks(&mut stream).await;
        } else if let Some(length) = answer.text("content-length") {
            let length: u64 = length.parse().unwrap();
            let _ = stream.take(length).read_to_end(&mut answer.body).await;
            answer.complete = answer.body.len() as u64 == length;
        } else {
            answer.complete = stream.read_to_end(&mut answer.body).await.is_ok();
        }
        answer
    }

    async fn read_chunks(&mut self, stream: &mut BufReader<&mut TcpStream>) {
        while let Some(size) = line(stream).await {
            let size = usize::from_str_radix(std::str::from_utf8(&size).unwrap(), 16).unwrap();
            if size == 0 {
                if let Some(trailers) = fields(stream).await {
                    self.trailers = trailers;
                    self.complete = true;
                }
                return;
            }
            let mut chunk = vec![0; size + 2];
            if stream.read_exact(&mut chunk).await.is_err() {
                return;
            }
            self.body.extend(&chunk[..size]);
        }
    }

    /// All values of a header.
    pub fn all(&self, name: &str) -> Vec<&[u8]> {
        self.headers.iter().filter(|(other, _)| other == name).map(|(_, value)| &value[..]).collect()
    }

    /// The value of a header that occurs at most once.
    pub fn text(&self, name: &str) -> Option<&str> {
        let all = self.all(name);
        assert!(all.len() < 2, "several values of {name}");
        all.first().map(|value| std::str::from_utf8(value).unwrap())
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {:?}", String::from_utf8_lossy(&self.body)))
    }

    pub fn is_replay(&self) -> bool {
        self.text("idempotency-replayed").is_some()
    }

    /// Checks that the answer is a problem (RFC 9457), and returns the last part of the problem's `type`.
    pub fn problem(&self) -> String {
        assert_eq!(self.text("content-type"), Some("application/problem+json"), "{self:?}");
        let problem = self.json();
        assert_eq!(problem["status"], self.status);
        assert!(!problem["title"].as_str().unwrap().is_empty());
        assert!(!problem["detail"].as_str().unwrap().is_empty());
        assert!(self.text("link").unwrap().contains("rel=\"describedby\""), "{self:?}");
        assert!(!self.is_replay());
        problem["type"].as_str().unwrap().rsplit(['#', '/']).next().unwrap().to_owned()
    }

    pub fn retry_after(&self) -> u64 {
        self.text("retry-after").unwrap().parse().unwrap()
    }

    /// The parts of the answer that a replay must share with the first answer: everything except what belongs
    /// to one connection, one moment or one client.
    pub fn lasting(&self) -> (u16, Fields, Vec<u8>) {
        let passing = [
            "date",
            "set-cookie",
            "idempotency-replayed",
            "connection",
            "transfer-encoding",
            "content-length",
        ];
        let mut headers = self.headers.clone();
        headers.retain(|(name, _)| !passing.contains(&name.as_str()));
        headers.sort();
        (self.status, headers, self.body.clone())
    }
}

/// Reads until this text has arrived, and returns all that was read.
pub async fn read_until(stream: &mut TcpStream, text: &str) -> String {
    let mut seen = String::new();
    while !seen.contains(text) {
        let mut bytes = [0; 256];
        let count = stream.read(&mut bytes).await.unwrap();
        assert_ne!(count, 0, "{seen}");
        seen.push_str(std::str::from_utf8(&bytes[..count]).unwrap());
    }
    seen
}

async fn line(stream: &mut BufReader<&mut TcpStream>) -> Option<Vec<u8>> {
    let mut line = Vec::new();
    stream.read_until(b'\n', &mut line).await.ok()?;
    line.strip_suffix(b"\r\n").map(<[u8]>::to_vec)
}

async fn fields(stream: &mut BufReader<&mut TcpStream>) -> Option<Fields> {
    let mut fields = Vec::new();
    loop {
        let line = line(stream).await?;
        if line.is_empty() {
            return Some(fields);
        }
        let colon = line.iter().position(|byte| *byte == b':').unwrap();
        let name = String::from_utf8(line[..colon].to_ascii_lowercase()).unwrap();
        fields.push((name, line[colon + 1..].trim_ascii().to_vec()));
    }
}
