//! Keys: what a template and an expression may name.

use idem::{Key, Operation, Store as _, idempotent};

use super::{App, Order, Run, ran};

#[idempotent(key = "order/{order.id}", key_fn = charge_key, store = app.store)]
async fn charge(app: &App, order: &Order) -> Run {
    app.run()
}

#[tokio::test]
async fn the_record_that_key_fn_names_is_the_one_that_the_call_makes() {
    let (app, order) = (App::default(), Order::new(1));
    let key = charge_key(&app, &order).unwrap();
    assert!(app.store.get(&key).await.unwrap().is_none(), "naming a record makes none");
    for _ in 0..2 {
        assert_eq!(ran(charge(&app, &order).await), (1, "order/1".into()));
    }
    assert!(app.store.get(&key).await.unwrap().is_some());
    assert_ne!(key, charge_key(&app, &Order::new(2)).unwrap());
}

#[idempotent(
    key = "{{{ order . tenant() }}}/{order.lines.0}:{order.sku}|{type}",
    store = app.store
)]
async fn every_kind_of_place(app: &App, order: &Order, r#type: char) -> Run {
    app.run()
}

#[tokio::test]
async fn a_template_renders_fields_methods_tuples_and_raw_names() {
    let app = App::default();
    let result = every_kind_of_place(&app, &Order::new(1), 'ß').await;
    assert_eq!(ran(result).1, "{acme}/x%20y:7/a%2Fb/eu-west|%C3%9F");
}

#[idempotent(key = "order.sku.item", store = app.store)]
async fn one_place(app: &App, order: Order) -> Run {
    drop(order);
    app.run()
}

#[idempotent(key = (tenant, (order.id, order.sku), { order.amount + 1 }), store = app.store)]
async fn tuple(app: &App, tenant: String, order: Order) -> Run {
    drop((tenant, order.into_id()));
    app.run()
}

#[idempotent(key = key, scope = "keys.whole", store = app.store)]
async fn whole(app: &App, key: &Key) -> Run {
    app.run()
}

#[idempotent(key = "{key}", missing_key = "reject", scope = "keys.whole", store = app.store)]
async fn whole_if_any(app: &App, key: Option<Key>) -> Run {
    app.run()
}

#[idempotent(key = "{key}/{line}", scope = "keys.whole", store = app.store)]
async fn with_a_line(app: &App, key: &Key, line: u8) -> Run {
    app.run()
}

#[tokio::test]
async fn a_whole_key_is_the_same_for_the_attribute_and_an_operation() {
    let app = App::default();
    let key = Key::new("a/b").unwrap();
    assert_eq!(ran(whole(&app, &key).await), (1, "a/b".into()));
    assert_eq!(ran(whole_if_any(&app, Some(key.clone())).await), (1, "a/b".into()));
    let operation = Operation::new("keys.whole");
    assert_eq!(ran(operation.run(&app.store, &key, async || app.run()).await), (1, "a/b".into()));
    assert_eq!(ran(with_a_line(&app, &key, 5).await), (2, "a%2Fb/5".into()));
}

#[idempotent(key = format!("{}-{name}", order.id), store = app.store)]
async fn formatted(app: &App, name: &str, order: &Order) -> Run {
    app.run()
}

#[tokio::test]
async fn a_key_is_a_place_or_an_expression_and_moves_nothing() {
    let app = App::default();
    assert_eq!(ran(one_place(&app, Order::new(1)).await).1, "a%2Fb");
    let order = Order::new(4);
    let same = idem::KeyBuilder::new().part(&("a", (order.id, &order.sku), order.amount + 1));
    let same = same.finish().unwrap();
    assert_eq!(same.as_str(), "a/4/7/a%2Fb/eu-west/101");
    assert_eq!(ran(tuple(&app, "a".into(), order).await).1, same.as_str());
    assert_eq!(ran(formatted(&app, "x", &Order::new(4)).await).1, "4-x");
}
