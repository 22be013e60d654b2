//! The arms, and the rounds in which they take turns.

use std::ops::Range;
use std::time::Duration;

use idem::message::{Consumer, Summary, in_tasks};

use crate::shop::{Anything, Failure, OrderMessage, Shop, handle, handle_once};

const ROUNDS: usize = 9;

/// What delivers the messages.
pub(crate) trait Broker {
    const NAME: &'static str;
    type Message: OrderMessage;

    /// Sends a message for each order, and has the consumer handle them. Returns the time of the handling.
    async fn run<H, F>(
        &self,
        orders: Range<u64>,
        consumer: Consumer<Failure>,
        handler: H,
    ) -> Anything<(Summary, Duration)>
    where
        H: Fn(&Self::Message) -> F,
        F: Future<Output = Result<u64, Failure>>;
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arm {
    Without,
    With,
    InTasks,
    Duplicates,
}

impl Arm {
    pub(crate) const ALL: [Self; 4] = [Self::Without, Self::With, Self::InTasks, Self::Duplicates];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Without => "without the attribute",
            Self::With => "with it",
            Self::InTasks => "with it, in tasks",
            Self::Duplicates => "with it, all duplicates",
        }
    }
}

/// Numbers the orders of a whole run, of all brokers: they share a store.
#[derive(Default)]
pub(crate) struct Orders {
    next: u64,
}

impl Orders {
    /// As many orders for this arm. The duplicates are those of the arm before it, which has the attribute.
    const fn take(&mut self, arm: Arm, messages: u64) -> Range<u64> {
        if !matches!(arm, Arm::Duplicates) {
            self.next += messages;
        }
        self.next - messages..self.next
    }
}

/// Returns the messages handled in a second: for each arm, the median of the rounds.
pub(crate) async fn medians<B: Broker>(
    broker: &B,
    shop: &Shop,
    concurrency: usize,
    messages: u64,
    orders: &mut Orders,
) -> Anything<[f64; Arm::ALL.len()]> {
    let mut rates = [[0.0; ROUNDS]; Arm::ALL.len()];
    for round in 0..ROUNDS {
        for (arm, rates) in Arm::ALL.into_iter().zip(&mut rates) {
            rates[round] = rate(broker, shop, arm, concurrency, orders.take(arm, messages)).await?;
        }
    }
    Ok(rates.map(|mut rates| {
        rates.sort_by(f64::total_cmp);
        rates[ROUNDS / 2]
    }))
}

async fn rate<B: Broker>(
    broker: &B,
    shop: &Shop,
    arm: Arm,
    concurrency: usize,
    orders: Range<u64>,
) -> Anything<f64> {
    let messages = orders.end - orders.start;
    let consumer = Consumer::new().concurrency(concurrency);
    let once = |message: &B::Message| handle_once(shop, message.order());
    let (summary, elapsed) = match arm {
        Arm::Without => broker.run(orders, consumer, |message| handle(shop, message.order())).await?,
        Arm::With | Arm::Duplicates => broker.run(orders, consumer, once).await?,
        Arm::InTasks => {
            let handler = |message: &B::Message| {
                let (shop, order) = (shop.clone(), message.order());
                async move { handle_once(&shop, order).await }
            };
            broker.run(orders, consumer, in_tasks(handler)).await?
        }
    };
    let replayed = if arm == Arm::Duplicates { messages } else { 0 };
    if (summary.acknowledged, summary.replayed) != (messages, replayed) {
        return Err(format!("not what it should be: {summary:?}").into());
    }
    #[expect(clippy::cast_precision_loss, reason = "a rate is an estimate")]
    Ok(messages as f64 / elapsed.as_secs_f64())
}
