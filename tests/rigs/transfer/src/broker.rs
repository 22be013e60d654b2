//! A broker for the demo, which records the order of messages, and the publisher for it.
//!
//! A message is a line `topic<TAB>id<TAB>payload`. The answer is a line `ok`, or now and then `later`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use idem::outbox::{Message, PublishError, Publisher};
use rand::RngExt as _;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// The messages that came, and their violations.
#[derive(Default)]
struct Seen {
    ids: BTreeSet<String>,
    /// The id of each account's messages, by their numbers from 1.
    topics: BTreeMap<String, Vec<String>>,
    repeats: usize,
    violations: Vec<String>,
}

impl Seen {
    fn take(&mut self, line: &str) {
        let mut parts = line.split(['\t', ' ']);
        let (Some(topic), Some(id), Some(Ok(number))) =
            (parts.next(), parts.next(), parts.next().map(str::parse::<usize>))
        else {
            return self.violations.push(format!("a message that is none: {line}"));
        };
        let before = self.topics.entry(topic.to_owned()).or_default();
        if let Some(same) = number.checked_sub(1).and_then(|index| before.get(index)) {
            self.repeats += 1;
            if same != id {
                self.violations.push(format!("{topic}: number {number} came under two ids"));
            }
            return;
        }
        if number != before.len() + 1 {
            self.violations.push(format!("{topic}: number {number} came after {}", before.len()));
        }
        if !self.ids.insert(id.to_owned()) {
            self.violations.push(format!("{topic}: the id of number {number} is another's"));
        }
        before.push(id.to_owned());
    }
}

/// The broker, which listens until the process ends.
pub(crate) struct Broker {
    address: SocketAddr,
    seen: Arc<Mutex<Seen>>,
}

impl Broker {
    pub(crate) async fn listen() -> std::io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let (address, seen) = (listener.local_addr()?, Arc::new(Mutex::new(Seen::default())));
        let shared = seen.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, shared.clone()));
            }
        });
        Ok(Self { address, seen })
    }

    pub(crate) fn address(&self) -> String {
        self.address.to_string()
    }

    /// How many different messages came.
    pub(crate) fn distinct(&self) -> usize {
        self.look(|seen| seen.ids.len())
    }

    /// How many messages came again.
    pub(crate) fn repeats(&self) -> usize {
        self.look(|seen| seen.repeats)
    }

    pub(crate) fn violations(&self) -> Vec<String> {
        self.look(|seen| seen.violations.clone())
    }

    fn look<T>(&self, what: impl FnOnce(&Seen) -> T) -> T {
        what(&self.seen.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

async fn serve(stream: TcpStream, seen: Arc<Mutex<Seen>>) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    while stream.read_line(&mut line).await? > 0 && line.ends_with('\n') {
        let later = rand::rng().random_bool(0.01);
        if !later {
            seen.lock().unwrap_or_else(PoisonError::into_inner).take(line.trim_end());
        }
        stream.write_all(if later { b"later\n" } else { b"ok\n" }).await?;
        line.clear();
    }
    Ok(())
}

/// Publishes to the broker at an address.
pub(crate) struct ToBroker {
    address: String,
    /// A connection that is not in use. A connection whose use was interrupted is not put back.
    idle: Mutex<Option<BufReader<TcpStream>>>,
}

impl ToBroker {
    pub(crate) fn at(address: &str) -> Self {
        Self { address: address.to_owned(), idle: Mutex::default() }
    }

    async fn send(&self, line: &str) -> std::io::Result<String> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).take();
        let mut stream = match idle {
            Some(stream) => stream,
            None => BufReader::new(TcpStream::connect(&self.address).await?),
        };
        stream.write_all(line.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_line(&mut answer).await?;
        *self.idle.lock().unwrap_or_else(PoisonError::into_inner) = Some(stream);
        Ok(answer)
    }
}

impl Publisher for ToBroker {
    async fn publish(&self, message: &Message) -> Result<(), PublishError> {
        let payload = String::from_utf8_lossy(&message.payload);
        let line = format!("{}\t{}\t{payload}\n", message.topic, message.id);
        match self.send(&line).await.map_err(PublishError::unavailable)?.as_str() {
            "ok\n" => Ok(()),
            _ => Err(PublishError::unavailable("the broker said later")),
        }
    }
}
