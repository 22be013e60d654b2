//! The messages of a queue. A lost connection is opened again.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use tokio::time::timeout;

use crate::Error;
use crate::link::{Link, Settings};
use crate::received::Received;

/// How long RabbitMQ may take to open a connection and start the consumer: lapin itself has no limit for a silent server.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Taking {
    settings: Arc<Settings>,
    open: Option<(Arc<Link>, lapin::Consumer)>,
}

impl Taking {
    /// Connects, and starts to consume.
    pub(crate) async fn begin(settings: Arc<Settings>) -> Result<Self, Error> {
        let mut taking = Self { settings, open: None };
        taking.opened().await?;
        Ok(taking)
    }

    /// The messages as they arrive.
    pub(crate) fn messages(&mut self) -> BoxStream<'_, Result<Received, Error>> {
        stream::unfold(self, |taking| async { Some((taking.next().await, taking)) }).boxed()
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

    async fn next(&mut self) -> Result<Received, Error> {
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

    pub(crate) async fn close(self) {
        if let Some((link, _)) = self.open {
            link.close().await;
        }
    }
}
