//! A stream in this process as the broker. It costs nothing.

use std::convert::Infallible;
use std::ops::Range;
use std::time::{Duration, Instant};

use futures_util::stream;
use idem::message::{Consumer, DeadLetter, Delivery, Summary};

use crate::measure::Broker;
use crate::shop::{Anything, Failure, OrderMessage};

pub(crate) struct InProcess;

/// A message of a broker that accepts any disposition.
pub(crate) struct Message(u64);

impl OrderMessage for Message {
    fn order(&self) -> Result<u64, Failure> {
        Ok(self.0)
    }
}

impl Delivery for Message {
    type Error = Infallible;

    async fn acknowledge(&self) -> Result<(), Infallible> {
        Ok(())
    }

    async fn retry(&self, _: Duration) -> Result<(), Infallible> {
        Ok(())
    }

    async fn reject(&self, _: &DeadLetter) -> Result<(), Infallible> {
        Ok(())
    }

    async fn give_back(&self) -> Result<(), Infallible> {
        Ok(())
    }
}

impl Broker for InProcess {
    const NAME: &'static str = "A stream in this process";
    type Message = Message;

    async fn run<H, F>(
        &self,
        orders: Range<u64>,
        consumer: Consumer<Failure>,
        handler: H,
    ) -> Anything<(Summary, Duration)>
    where
        H: Fn(&Message) -> F,
        F: Future<Output = Result<u64, Failure>>,
    {
        let messages = stream::iter(orders.map(|order| Ok::<_, Infallible>(Message(order))));
        let begin = Instant::now();
        let summary = consumer.run(messages, handler).await;
        Ok((summary, begin.elapsed()))
    }
}
