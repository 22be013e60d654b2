//! The messages of a queue. If the connection is lost, the reader connects again.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{FutureExt as _, StreamExt as _};
use idem_messages::{Delivery as _, Reader, Room};
use lapin::ErrorKind;
use tokio::time::{sleep, timeout};

use crate::Error;
use crate::link::{Link, Settings};
use crate::received::Received;

/// How long RabbitMQ may take to open a connection and start the consumer. lapin itself has no limit for a
/// silent server.
const PATIENCE: Duration = Duration::from_secs(30);

/// The pause before connecting again to a node that reported an internal error.
const PAUSE: Duration = Duration::from_secs(1);

/// The number of AMQP's `INTERNAL_ERROR`.
const INTERNAL_ERROR: u16 = 541;

/// A link, and the consumer of its queue.
type Open = (Arc<Link>, lapin::Consumer);

/// Reads the messages of a queue.
pub struct Taking {
    settings: Arc<Settings>,
    open: Option<Open>,
}

impl Taking {
    pub(crate) async fn begin(settings: Arc<Settings>) -> Result<Self, Error> {
        Ok(Self { open: Some(open_in_time(&settings).await?), settings })
    }
}

/// Connects, and starts to consume.
async fn open_in_time(settings: &Arc<Settings>) -> Result<Open, Error> {
    let opening = async {
        loop {
            match open(settings.clone()).await {
                Err(error) if is_internal(&error) => sleep(PAUSE).await,
                opened => return opened,
            }
        }
    };
    let silent = |_| Err(Error::new("connect", "RabbitMQ did not answer in time"));
    timeout(PATIENCE, opening).await.unwrap_or_else(silent)
}

async fn open(settings: Arc<Settings>) -> Result<Open, Error> {
    let link = Arc::new(Link::open(settings).await?);
    let messages = link.consume().await?;
    Ok((link, messages))
}

/// Whether RabbitMQ reports an internal error, as a node under load may do for a moment.
fn is_internal(error: &Error) -> bool {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<lapin::Error>());
    matches!(source.map(lapin::Error::kind), Some(ErrorKind::ProtocolError(error)) if error.get_id() == INTERNAL_ERROR)
}

impl Reader for Taking {
    type Message = Received;

    async fn next(&mut self, room: &Room) -> Result<Received, Error> {
        room.free().await;
        let (link, messages) = match &mut self.open {
            Some(open) => open,
            None => self.open.insert(open_in_time(&self.settings).await?),
        };
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
