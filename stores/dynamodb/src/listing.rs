//! Walking through the table with scans, page by page, without results.

use super::failure::failure;
use super::item;
use super::names::{Item, Names};
use super::transition::Table;
use idem_core::StoreError;
use idem_core::listing::{Cursor, List, Listed, Page};

/// The attributes that are read from an item: all of a record except its result and its steps.
const READ: &str = "#id, #expires_at, #state, #owner, #fence, #revision, #attempt, #recovered, #on_crash, #lease_until, \
                    #retry_at, #ttl, #fingerprint, #tombstone, #created_at, #completed_at";

/// Other programs may have items in the table too, and a forgotten record stays there with its fence.
const OURS: &str = "attribute_exists(#fence) AND attribute_exists(#revision) AND \
                    (attribute_not_exists(#expires_at) OR #expires_at > :forgotten)";

impl Table {
    /// One page. Its time is this machine's clock minus the clock skew, so what is over at that time is over by every
    /// clock.
    pub(super) async fn list(&self, request: &List) -> Result<Page, StoreError> {
        let names = &self.0.names;
        let scan = self.0.client.scan().table_name(&*names.table).consistent_read(true);
        let (filter, values) = filter(names, request);
        let read = if names.sort_key.is_some() { [READ, ", #sort"].concat() } else { READ.to_owned() };
        let begin = request.after.as_ref().map(|after| start(names, after)).transpose()?;
        let scan = scan
            .set_expression_attribute_names(Some(names.of(&[&*read, &filter].join(" "))))
            .projection_expression(read)
            .filter_expression(filter)
            .set_expression_attribute_values(Some(values))
            .set_exclusive_start_key(begin)
            .limit(i32::try_from(request.looked_at()).unwrap_or(i32::MAX));
        let answer =
            self.retried(|| async { scan.clone().send().await.map_err(|error| failure(&error)) }).await?;
        let mut page = Page::new(Self::now().before(self.0.skew));
        for item in answer.items() {
            let Some(key) = id(names, item).and_then(|id| names.key(id)) else { continue };
            match item::read_head(names, item) {
                Ok(record) => page.records.push(Listed::without_value(key, record, None)),
                Err(_) => page.unreadable.push(key),
            }
        }
        page.next = answer
            .last_evaluated_key()
            .and_then(|last| id(names, last).map(|id| Cursor::behind_name(id, sort(names, last))));
        Ok(page)
    }
}

fn id<'i>(names: &Names, item: &'i Item) -> Option<&'i str> {
    item.get(&*names.partition_key)?.as_s().ok().map(String::as_str)
}

/// The sort key of an item; empty if the table has none.
fn sort<'i>(names: &Names, item: &'i Item) -> &'i str {
    let sort = names.sort_key.as_ref().and_then(|(name, _)| item.get(&**name)?.as_s().ok());
    sort.map_or("", String::as_str)
}

fn start(names: &Names, after: &Cursor) -> Result<Item, StoreError> {
    let (id, sort) = after
        .key()
        .ok_or_else(|| StoreError::configuration("the place to go on from is not one of this store's"))?;
    let mut key = Item::from([(names.partition_key.to_string(), item::text(id))]);
    if let Some((name, _)) = &names.sort_key {
        key.insert(name.to_string(), item::text(sort));
    }
    Ok(key)
}

fn filter(names: &Names, request: &List) -> (String, Item) {
    let mut filter = OURS.to_owned();
    let mut values = Item::from([(":forgotten".to_owned(), item::number(0))]);
    let begin = names.beginning(request.scope.as_ref());
    if !begin.is_empty() {
        filter += " AND begins_with(#id, :begin)";
        values.insert(":begin".to_owned(), item::text(&begin));
    }
    if let Some((_, value)) = &names.sort_key {
        filter += " AND #sort = :sort";
        values.insert(":sort".to_owned(), item::text(value));
    }
    if !request.states.is_empty() {
        let places: Vec<String> = (0..request.states.len()).map(|number| format!(":state{number}")).collect();
        filter += &format!(" AND #state IN ({})", places.join(", "));
        let words = request.states.iter().map(|state| item::text(state.as_str()));
        values.extend(places.into_iter().zip(words));
    }
    (filter, values)
}
