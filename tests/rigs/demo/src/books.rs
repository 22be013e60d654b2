//! Checks the effects, answers and records of a run.

use std::collections::{BTreeMap, BTreeSet};

use idem::protocol::{State, StoredResult};
use idem::{DynStore, KeyBuilder, RecordKey, Scope, Store};

use crate::{Failure, Shipment, Shop};

/// The figures of a run, and its violations.
pub(crate) struct Books {
    pub(crate) deliveries: usize,
    pub(crate) effects: usize,
    pub(crate) replays: usize,
    /// Answers that handlers returned before the store had recorded them.
    pub(crate) unrecorded: usize,
    /// One text for each violation.
    pub(crate) violations: Vec<String>,
}

impl Books {
    /// Checks every order. The kills and outages may have interrupted at most `begun` bodies.
    pub(crate) async fn of(shop: &Shop, orders: u64, begun: usize) -> Result<Self, Failure> {
        let mut violations = Vec::new();
        // `given` has the recorded answers of each order. `not_recorded` has each order whose handler
        // returned an answer before the store had recorded it. The outcome of such a call warns that a body
        // may run again.
        let mut given: BTreeMap<u64, BTreeSet<String>> = BTreeMap::new();
        let (mut not_recorded, mut replays, mut unrecorded) = (BTreeSet::new(), 0, 0);
        for line in shop.ledger.read("answers")? {
            let words: Vec<&str> = line.split(' ').collect();
            let [order, parcel, how] = words[..] else { return Err(format!("no answer: {line}").into()) };
            let order = order.parse()?;
            if how == "unrecorded" {
                unrecorded += 1;
                not_recorded.insert(order);
            } else {
                replays += usize::from(how == "replayed");
                given.entry(order).or_default().insert(parcel.to_owned());
            }
        }
        for order in 0..orders {
            let given = given.remove(&order).unwrap_or_default();
            match recorded(&shop.store, order).await? {
                Some(recorded) if given.iter().all(|given| *given == recorded) => {}
                Some(recorded) => {
                    violations
                        .push(format!("order {order} is recorded as {recorded}, and answered {given:?}"));
                }
                // The worker was killed before it could record this result.
                None if given.is_empty() && not_recorded.contains(&order) => {}
                None => violations.push(format!("order {order} has no recorded result")),
            }
        }
        // How often each order had its effect.
        let mut effects: BTreeMap<u64, usize> = BTreeMap::new();
        for line in shop.ledger.read("effects")? {
            *effects.entry(line.parse()?).or_default() += 1;
        }
        for order in (0..orders).filter(|order| !effects.contains_key(order)) {
            violations.push(format!("order {order} has no effect"));
        }
        let count: usize = effects.values().sum();
        let twice = count - effects.len();
        if twice > begun {
            violations.push(format!("{twice} repeated effects, of which the kills explain {begun}"));
        }
        let deliveries = shop.ledger.read("deliveries")?.len();
        Ok(Self { deliveries, effects: count, replays, unrecorded, violations })
    }
}

/// The recorded parcel of an order.
async fn recorded(store: &DynStore, order: u64) -> Result<Option<String>, Failure> {
    let key = KeyBuilder::new().literal("order/").part(&order).finish()?;
    let record = store.get(&RecordKey::new(Scope::new("orders.ship")?, key)).await?;
    let completed = record.filter(|record| record.state == State::Completed);
    let Some(StoredResult::Value(bytes)) = completed.and_then(|record| record.result) else {
        return Ok(None);
    };
    Ok(Some(serde_json::from_slice::<Shipment>(&bytes)?.parcel))
}
