//! The messages of a queue. A lost connection is opened again.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{FutureExt as _, StreamExt as _};
use idem_messages::{Delivery as _, Reader, Room};
use tokio::time::timeout;

use crate::Error;
use crate::link::{Link, Settings};
use crate::received::Received;

/// How long RabbitMQ may take to open a connection and start the consumer: lapin itself has no limit for a silent server.
const PATIENCE: Duration = Duration::from_secs(30);

/// Reads the messages of a queue.
pub struct Taking {
    settings: Arc<Settings>,
    room: Room,
    open: Option<(Arc<Link>, lapin::Consumer)>,
}

impl Taking {
    /// Connects, and starts to consume.
    pub(crate) async fn begin(settings: Arc<Settings>, room: Room) -> Result<Self, Error> {
        let mut taking = Self { settings, room, open: None };
        taking.opened().await?;
        Ok(taking)
    }

    async fn opened(&mut self) -> Result<&mut (Arc<Link>, lapin::Consumer), Error> {
        let open = match self.open.take() {
            Some(open) => open,
            None => {
                let opening = async {
                    let link = Arc::new(Link::open(self.settings.clone()).await?);
                    let messages = link.consume().await?;
                    Ok((link, messages))
                };
                let silent = |_| Err(Error::new("connect", "RabbitMQ did not answer in time"));
                timeout(PATIENCE, opening).await.unwrap_or_else(silent)?
            }
        };
        Ok(self.open.insert(open))
    }
}

impl Reader for Taking {
    type Message = Received;

    async fn next(&mut self) -> Result<Received, Error> {
        self.room.free().await;
        let (link, messages) = self.opened().await?;
        let doing = "receive a message";
        match messages.next().await {
            Some(Ok(message)) => Ok(Received::new(message, link.clone())),
            ended => {
                self.open = None;
                let error = ended.and_then(Result::err).map(Error::at(doing));
                Err(error.unwrap_or_else(|| Error::new(doing, "RabbitMQ cancelled the consumer")))
            }
        }
    }

    async fn stop(&mut self) -> Result<(), Error> {
        let Some((link, messages)) = &mut self.open else { return Ok(()) };
        let mut result = link.cancel(messages).await;
        while let Some(Some(Ok(message))) = messages.next().now_or_never() {
            result = Received::new(message, link.clone()).give_back().await.and(result);
        }
        result
    }

    async fn close(self) -> Result<(), Error> {
        if let Some((link, _)) = self.open {
            link.close().await;
        }
        Ok(())
    }
}
