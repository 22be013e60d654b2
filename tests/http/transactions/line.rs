//! A proxy that holds back the server's answer to a `BEGIN`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};

pub(crate) struct Line {
    port: u16,
    pub(crate) holds: Arc<Notify>,
    held: watch::Sender<bool>,
}

fn port_of(url: &str) -> &str {
    url.rsplit(':').next().unwrap().split('/').next().unwrap()
}

impl Line {
    /// Holds the answer to the `BEGIN` with this number, and all later answers.
    pub(crate) async fn start(server: &str, begin: u32) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (held, _) = watch::channel(false);
        let port = listener.local_addr().unwrap().port();
        let line = Self { port, holds: Arc::default(), held };
        let (begins, holds, held) = (Arc::new(AtomicU32::new(begin)), line.holds.clone(), line.held.clone());
        let server: u16 = port_of(server).parse().unwrap();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (mut from_client, mut to_client) = client.into_split();
                let server = TcpStream::connect(("127.0.0.1", server)).await.unwrap();
                let (mut from_server, mut to_server) = server.into_split();
                let (begins, holds, held) = (begins.clone(), holds.clone(), held.clone());
                let mut may_pass = held.subscribe();
                tokio::spawn(async move {
                    let mut bytes = vec![0; 1 << 16];
                    while let Ok(length @ 1..) = from_client.read(&mut bytes).await {
                        let is_begin = bytes[..length].windows(5).any(|word| word == b"BEGIN");
                        if is_begin && begins.fetch_sub(1, Ordering::SeqCst) == 1 {
                            held.send_replace(true);
                            holds.notify_one();
                        }
                        to_server.write_all(&bytes[..length]).await.unwrap();
                    }
                });
                tokio::spawn(async move {
                    let mut bytes = vec![0; 1 << 16];
                    while let Ok(length @ 1..) = from_server.read(&mut bytes).await {
                        may_pass.wait_for(|held| !held).await.unwrap();
                        let _ = to_client.write_all(&bytes[..length]).await;
                    }
                });
            }
        });
        line
    }

    pub(crate) fn url(&self, server: &str) -> String {
        server.replace(port_of(server), &self.port.to_string())
    }

    pub(crate) fn release(&self) {
        self.held.send_replace(false);
    }
}
