//! The dead letters of a queue, and how their messages go back.

use idem_messages::{Redrive, StoredLetter, is_header_of_letter};
use lapin::message::BasicGetMessage;
use lapin::options::{BasicAckOptions, BasicGetOptions};

use crate::Error;
use crate::connection::Route;
use crate::copy::{copied, returns, text};
use crate::link::Link;

impl Link {
    /// Redrives the letters of a queue. RabbitMQ puts unacknowledged letters back when the connection closes.
    pub(crate) async fn redrive_letters(&self, redrive: &mut Redrive) -> Result<(), Error> {
        let Route { exchange, routing_key: queue } = &self.settings.dead_letters;
        let doing = "find the dead letters";
        if !exchange.is_empty() {
            let why = "they go to an exchange; make a source with the name of their queue";
            return Err(Error::new(doing, why));
        }
        for _ in 0..self.find(queue).await?.map_err(Error::at(doing))? {
            let got = self.consuming.basic_get(queue.as_str().into(), BasicGetOptions::default()).await;
            let Some(letter) = got.map_err(Error::at("get a dead letter"))? else { break };
            let sent = redrive.sends(about(&letter), |origin| self.send_back(&letter, origin)).await;
            if let Ok(true) = sent {
                remove(&letter).await?;
            } else {
                self.keep(&letter).await?;
                sent?;
            }
        }
        Ok(())
    }

    async fn send_back(&self, letter: &BasicGetMessage, origin: String) -> Result<(), Error> {
        // Leaves out the headers of the dead letter, but keeps the headers with the exchange and the routing
        // key that the message was first sent with.
        let properties = copied(&letter.delivery.properties, |name| !is_header_of_letter(name), &[]);
        self.publisher.publish(&Route::queue(origin), &letter.delivery.data, properties).await
    }

    /// Keeps a letter. If the letter has come back before, a copy replaces it. Otherwise it could be lost: a
    /// quorum queue drops a message that comes back more often than the queue's `x-delivery-limit` allows.
    async fn keep(&self, letter: &BasicGetMessage) -> Result<(), Error> {
        if returns(&letter.delivery.properties) == 0 {
            return Ok(());
        }
        let properties = copied(&letter.delivery.properties, |_| true, &[]);
        self.publisher.publish(&self.settings.dead_letters, &letter.delivery.data, properties).await?;
        remove(letter).await
    }
}

fn about(letter: &BasicGetMessage) -> StoredLetter {
    let properties = &letter.delivery.properties;
    let id = properties.message_id().as_ref().map_or("-", |id| id.as_str());
    StoredLetter::read(id, |name| text(properties, name))
}

async fn remove(letter: &BasicGetMessage) -> Result<(), Error> {
    let removed = letter.delivery.ack(BasicAckOptions::default()).await;
    removed.map(drop).map_err(Error::at("remove a dead letter"))
}
