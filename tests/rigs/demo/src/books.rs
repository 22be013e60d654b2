//! Checks the effects, answers and records that a run left.

use std::collections::{BTreeMap, BTreeSet};

use idem::protocol::{State, StoredResult};
use idem::{DynStore, KeyBuilder, RecordKey, Scope, Store};

use crate::{Failure, Ledger, Shipment, Shop};

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
    /// Checks every order. `begun` is how many bodies the kills may have interrupted.
    pub(crate) async fn of(shop: &Shop, orders: u64, begun: usize) -> Result<Self, Failure> {
        let mut violations = Vec::new();
        let mut answers = Answers::read(&shop.ledger)?;
        for order in 0..orders {
            let given = answers.given.remove(&order).unwrap_or_default();
            match recorded(&shop.store, order).await? {
                Some(recorded) if given.iter().all(|given| *given == recorded) => {}
                Some(recorded) => {
                    violations
                        .push(format!("order {order} is recorded as {recorded}, and answered {given:?}"));
                }
                // A killed worker still had to record this result.
                None if given.is_empty() && answers.unrecorded.contains(&order) => {}
                None => violations.push(format!("order {order} has no recorded result")),
            }
        }
        let effects = effects(shop).await?;
        for order in (0..orders).filter(|order| !effects.contains_key(order)) {
            violations.push(format!("order {order} has no effect"));
        }
        let count: usize = effects.values().sum();
        let twice = count - effects.len();
        // The database rolls an interrupted transaction back.
        let allowed = if shop.is_transactional() { 0 } else { begun };
        if twice > allowed {
            violations.push(format!("{twice} repeated effects, of which the kills explain {allowed}"));
        }
        let deliveries = shop.ledger.read("deliveries")?.len();
        let (replays, unrecorded) = (answers.count("replayed"), answers.count("unrecorded"));
        Ok(Self { deliveries, effects: count, replays, unrecorded, violations })
    }
}

/// The answers of handlers.
#[derive(Default)]
struct Answers {
    /// The recorded answers of each order.
    given: BTreeMap<u64, BTreeSet<String>>,
    /// The orders with an answer that the store had not recorded: for these the call's outcome warns that a body may run again.
    unrecorded: BTreeSet<u64>,
    /// How many answers of each kind.
    kinds: BTreeMap<String, usize>,
}

impl Answers {
    fn read(ledger: &Ledger) -> Result<Self, Failure> {
        let mut answers = Self::default();
        for line in ledger.read("answers")? {
            let words: Vec<&str> = line.split(' ').collect();
            let [order, parcel, how] = words[..] else { return Err(format!("no answer: {line}").into()) };
            let order = order.parse()?;
            if how == "unrecorded" {
                answers.unrecorded.insert(order);
            } else {
                answers.given.entry(order).or_default().insert(parcel.to_owned());
            }
            *answers.kinds.entry(how.to_owned()).or_default() += 1;
        }
        Ok(answers)
    }

    fn count(&self, kind: &str) -> usize {
        self.kinds.get(kind).copied().unwrap_or(0)
    }
}

/// How often each order had its effect, counted from outside.
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

/// The recorded parcel of an order.
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
