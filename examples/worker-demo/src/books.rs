//! What a run left behind, and what is wrong with it.

use std::collections::{BTreeMap, BTreeSet};

use idem::protocol::{State, StoredResult};
use idem::{DynStore, KeyBuilder, RecordKey, Scope, Store};

use crate::{Failure, Ledger, Shipment, Shop};

/// What a run left.
pub(crate) struct Books {
    pub(crate) deliveries: usize,
    pub(crate) effects: usize,
    pub(crate) replays: usize,
    /// In words.
    pub(crate) violations: Vec<String>,
}

impl Books {
    /// Looks at every order: `begun` is how many bodies the kills may have cut off.
    pub(crate) async fn of(shop: &Shop, orders: u64, begun: usize) -> Result<Self, Failure> {
        let mut violations = Vec::new();
        let (mut answers, replays) = answers(&shop.ledger)?;
        for order in 0..orders {
            let recorded = recorded(&shop.store, order).await?;
            let given = answers.remove(&order).unwrap_or_default();
            let Some(recorded) = recorded else {
                violations.push(format!("order {order} has no recorded result"));
                continue;
            };
            if !given.iter().all(|given| *given == recorded) {
                violations.push(format!("order {order} is recorded as {recorded}, and answered {given:?}"));
            }
        }
        let effects = effects(shop).await?;
        for order in (0..orders).filter(|order| !effects.contains_key(order)) {
            violations.push(format!("order {order} has no effect"));
        }
        let count: usize = effects.values().sum();
        let twice = count - effects.len();
        // In a transaction, what was cut off is undone.
        let allowed = if shop.is_transactional() { 0 } else { begun };
        if twice > allowed {
            violations.push(format!("{twice} effects too many, of which the kills explain {allowed}"));
        }
        let deliveries = shop.ledger.read("deliveries")?.len();
        Ok(Self { deliveries, effects: count, replays, violations })
    }
}

/// The parcels that were answered for each order, and how many answers were replays.
fn answers(ledger: &Ledger) -> Result<(BTreeMap<u64, BTreeSet<String>>, usize), Failure> {
    let mut answers: BTreeMap<u64, BTreeSet<String>> = BTreeMap::new();
    let mut replays = 0;
    for line in ledger.read("answers")? {
        let words: Vec<&str> = line.split(' ').collect();
        let [order, parcel, how] = words[..] else { return Err(format!("no answer: {line}").into()) };
        answers.entry(order.parse()?).or_default().insert(parcel.to_owned());
        replays += usize::from(how == "replayed");
    }
    Ok((answers, replays))
}

/// How often each order had its effect, seen from outside.
async fn effects(shop: &Shop) -> Result<BTreeMap<u64, usize>, Failure> {
    let mut effects: BTreeMap<u64, usize> = BTreeMap::new();
    if let Some((pool, _)) = &shop.database {
        for order in sqlx::query_scalar::<_, i64>("SELECT id FROM effects").fetch_all(pool).await? {
            *effects.entry(u64::try_from(order)?).or_default() += 1;
        }
    } else {
        for line in shop.ledger.read("effects")? {
            *effects.entry(line.parse()?).or_default() += 1;
        }
    }
    Ok(effects)
}

/// The parcel that is recorded for an order.
async fn recorded(store: &DynStore, order: u64) -> Result<Option<String>, Failure> {
    let key = KeyBuilder::new().literal("order/").part(&order).finish()?;
    let record = store.get(&RecordKey::new(Scope::new("orders.ship")?, key)).await?;
    Ok(match record {
        Some(record) if record.state == State::Completed => match record.result {
            Some(StoredResult::Value(bytes)) => Some(serde_json::from_slice::<Shipment>(&bytes)?.parcel),
            _ => None,
        },
        _ => None,
    })
}
