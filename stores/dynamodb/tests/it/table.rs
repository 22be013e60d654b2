//! Tests of what `DynamoDbStore` promises beyond the protocol: requests, clock skew, the table, failures.

use crate::support;

use std::task::{Context, Waker};
use std::time::Duration;

use crate::requests::*;
use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType, ReturnConsumedCapacity,
    ScalarAttributeType, TimeToLiveSpecification,
};
use idem_dynamodb::DynamoDbStore;
use idem_runtime::inspection::Standing;
use idem_runtime::listing::List;
use idem_runtime::{Key, OnCrash, RecordKey, Scope, Store, StoreErrorKind};
use idem_test_servers::Aws;
use support::{client, id};

const NO_SKEW: Duration = Duration::ZERO;

async fn table(aws: &Aws, skew: Duration) -> DynamoDbStore {
    let store = DynamoDbStore::builder(client(aws), "records").clock_skew(skew).build();
    store.create_table().await.unwrap();
    store
}

#[tokio::test]
async fn dynamodb_may_delete_a_record_only_after_it_is_over_and_never_one_that_must_stay() {
    let aws = Aws::start();
    let store = table(&aws, Duration::from_secs(60)).await;
    let delete_at = async |name: &str| {
        let item =
            client(&aws).get_item().table_name("records").key("id", id(name)).send().await.unwrap().item;
        let seconds = item.unwrap().get("delete_at").map(|at| at.as_n().unwrap().parse::<u64>().unwrap());
        seconds.map(|seconds| seconds * 1_000_000)
    };
    let ttl = Duration::from_secs(100_000);
    granted_as(&store, &key("a"), &claim_request().with_ttl(ttl)).await;
    let expires_at = store.get(&key("a")).await.unwrap().unwrap().expires_at.unwrap();
    // `delete_at` includes the clock skew.
    assert!(delete_at("a").await.unwrap() >= expires_at.after(Duration::from_secs(60)).as_micros());

    granted_as(&store, &key("b"), &claim_request().with_on_crash(OnCrash::InDoubt)).await;
    assert_eq!(delete_at("b").await, None);

    // A forgotten key keeps its fence for a while.
    let fence = granted(&store, &key("c")).await.1.fence;
    assert!(store.forget(&key("c")).await.unwrap());
    assert!(!store.forget(&key("c")).await.unwrap());
    assert!(delete_at("c").await.unwrap() > expires_at.before(ttl).as_micros());
    assert!(granted(&store, &key("c")).await.1.fence > fence);
}

#[tokio::test]
async fn names_that_collide_are_refused_before_anything_is_written() {
    let aws = Aws::start();
    table(&aws, NO_SKEW).await;
    let builder = || DynamoDbStore::builder(client(&aws), "records").clock_skew(NO_SKEW);
    let colliding = [
        builder().time_to_live_attribute("idem_record"),
        builder().time_to_live_attribute("id"),
        builder().partition_key("idem_revision"),
        builder().sort_key("idem_record", "x"),
        builder().sort_key("id", "x"),
        builder().sort_key("delete_at", "x"),
    ];
    for builder in colliding {
        let store = builder.clone().build();
        let first = store.claim(&key("a"), &claim_request()).await.unwrap_err();
        assert_eq!(first.kind(), StoreErrorKind::Configuration, "{first}");
        for error in [builder.connect().await.unwrap_err(), store.create_table().await.unwrap_err()] {
            assert_eq!(error.to_string(), first.to_string());
        }
        let found = store.inspect().await.unwrap();
        assert!(found.findings.iter().any(|finding| finding.standing == Standing::Broken), "{found:?}");
    }
    granted(&builder().build(), &key("a")).await;
}

#[tokio::test]
async fn stores_with_other_prefixes_and_sort_keys_share_a_table_and_touch_no_item_but_their_own() {
    let aws = Aws::start();
    let open = |prefix: &str, sort: &str| {
        let builder = DynamoDbStore::builder(client(&aws), "shared").partition_key("pk").sort_key("sk", sort);
        builder.key_prefix(prefix).time_to_live_attribute("expires").clock_skew(NO_SKEW).build()
    };
    let stores = [open("one/", "x"), open("two/", "x"), open("one/", "y")];
    stores[0].create_table().await.unwrap();
    let foreign = client(&aws).put_item().table_name("shared").item("pk", AttributeValue::S("one/x".into()));
    let foreign = foreign.item("sk", AttributeValue::S("x".into()));
    foreign.item("expires", AttributeValue::N("7".into())).send().await.unwrap();
    for store in &stores {
        store.check().await.unwrap();
        complete(store, &key("a"), b"7").await;
        granted_as(store, &key("over"), &short_claim()).await;
    }
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(stores[0].forget(&key("a")).await.unwrap());
    assert_eq!(stores[0].purge(100).await.unwrap(), 1);
    let items = client(&aws).scan().table_name("shared").send().await.unwrap().count;
    assert_eq!(items, 6, "the foreign item, the neighbours' and the forgotten one, whose fence stays");
    for store in &stores[1..] {
        assert_eq!(store.purge(100).await.unwrap(), 1);
        assert_eq!(replayed(store, &key("a")).await, b"7");
        let page = store.list(&List::default()).await.unwrap();
        assert_eq!((page.records.len(), page.unreadable.len(), page.next), (1, 0, None));
    }
    assert!(stores[0].list(&List::default()).await.unwrap().records.is_empty());
}

#[tokio::test]
async fn a_table_that_does_not_fit_is_refused_with_what_to_change() {
    let aws = Aws::start();
    let client = client(&aws);
    let refused = async |store: DynamoDbStore, text: &str| {
        let error = store.check().await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Configuration, "{error}");
        assert!(error.to_string().contains(text), "{error}");
    };
    refused(DynamoDbStore::new(client.clone(), "none"), "make it with `create_table`").await;
    let missing = DynamoDbStore::new(client.clone(), "none").claim(&key("a"), &claim_request()).await;
    assert_eq!(missing.unwrap_err().kind(), StoreErrorKind::Configuration);

    let text = AttributeDefinition::builder().attribute_name("id").attribute_type(ScalarAttributeType::S);
    let hash = KeySchemaElement::builder().attribute_name("id").key_type(KeyType::Hash);
    let create = client.create_table().table_name("plain").billing_mode(BillingMode::PayPerRequest);
    let create = create.attribute_definitions(text.build().unwrap()).key_schema(hash.build().unwrap());
    create.send().await.unwrap();
    let plain = DynamoDbStore::builder(client.clone(), "plain");
    refused(plain.clone().build(), "switch it on for the attribute `delete_at`").await;
    refused(plain.clone().partition_key("pk").build(), "the table's key is id (HASH)").await;
    refused(plain.clone().sort_key("sk", "x").build(), "was told id (HASH), sk (RANGE)").await;

    let other = TimeToLiveSpecification::builder().attribute_name("gone").enabled(true).build().unwrap();
    let update = client.update_time_to_live().table_name("plain").time_to_live_specification(other);
    update.send().await.unwrap();
    refused(plain.clone().build(), "is by the attribute `gone`").await;
    plain.time_to_live_attribute("gone").connect().await.unwrap();
}

#[tokio::test]
async fn what_is_no_record_is_an_error_and_stays_as_it_is() {
    let aws = Aws::start();
    let store = table(&aws, NO_SKEW).await;
    let text = AttributeValue::S("private".into());
    let bytes = AttributeValue::B(Blob::new("private"));
    for (attribute, foreign) in [("state", &text), ("idem_record", &text), ("idem_record", &bytes)] {
        let put = client(&aws).put_item().table_name("records").item("id", id("a"));
        put.item(attribute, foreign.clone()).item("idem_revision", text.clone()).send().await.unwrap();
        for error in [
            store.claim(&key("a"), &claim_request()).await.unwrap_err(),
            store.get(&key("a")).await.unwrap_err(),
            store.forget(&key("a")).await.unwrap_err(),
        ] {
            assert_eq!(error.kind(), StoreErrorKind::CorruptRecord);
            assert!(!format!("{error} {error:?}").contains("private"));
        }
        assert_eq!(store.purge(100).await.unwrap(), 0);
        assert!(store.list(&List::default()).await.unwrap().records.is_empty());
        let item =
            client(&aws).get_item().table_name("records").key("id", id("a")).send().await.unwrap().item;
        assert_eq!(item.unwrap().get(attribute), Some(foreign));
    }
}

#[tokio::test]
async fn a_record_in_flight_costs_one_unit_and_one_with_a_result_a_unit_for_each_kibibyte() {
    let aws = Aws::start();
    let store = table(&aws, NO_SKEW).await;
    let cost = async |name: &str| {
        let touch = client(&aws).update_item().table_name("records").key("id", id(name));
        let touch = touch.update_expression("SET idem_record = idem_record");
        let touch = touch.return_consumed_capacity(ReturnConsumedCapacity::Total).send().await.unwrap();
        touch.consumed_capacity().unwrap().capacity_units().unwrap()
    };
    // A write costs one unit for each KiB of the item. The item also contains the key and other attributes.
    for (bytes, item) in [(600, 1.0), (1_024, 2.0), (10_240, 11.0)] {
        let name = format!("{bytes:0>36}");
        let (owner, grant) = granted(&store, &key(&name)).await;
        assert_eq!(cost(&name).await, 1.0);
        finish(&store, &key(&name), owner, grant.fence, &vec![7; bytes]).await;
        assert_eq!(cost(&name).await, item, "{bytes} bytes");
    }
}

#[tokio::test]
async fn a_result_of_the_largest_size_is_recorded_under_the_longest_names() {
    let aws = Aws::start();
    let prefix = "p".repeat(1_500);
    let builder =
        DynamoDbStore::builder(client(&aws), "records").key_prefix(&prefix).sort_key("sort", "value");
    let store = builder.build();
    store.create_table().await.unwrap();
    let (scope, text) = ("s".repeat(512), "ü".repeat(512));
    let key = RecordKey::new(Scope::new(scope).unwrap(), Key::new(text).unwrap());
    assert_eq!(store.max_result_bytes(), Some(392 * 1_024));
    complete(&store, &key, &vec![7; 392 * 1_024]).await;
    replayed(&store, &key).await;
}

/// The caller's runtime has neither sockets nor timers here. The test also drops a request halfway.
#[test]
fn a_request_needs_nothing_of_the_callers_runtime() {
    let aws = Aws::start();
    let store = DynamoDbStore::builder(client(&aws), "records").clock_skew(NO_SKEW).build();
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
        store.create_table().await.unwrap();
        granted(&store, &key("a")).await;
        let (name, dropped) = (key("b"), claim_request());
        let mut claiming = Box::pin(store.claim(&name, &dropped));
        let _ = claiming.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        drop(claiming);
        let (owner, grant) = granted(&store, &key("c")).await;
        renew(&store, &key("c"), owner, grant.fence).await;
        // These operations run in the caller's task, too.
        assert!(!store.list(&List::default()).await.unwrap().records.is_empty());
        assert_eq!(store.purge(100).await.unwrap(), 0);
        assert!(store.forget(&key("c")).await.unwrap());
        assert!(store.get(&key("c")).await.unwrap().is_none());
        store.inspect().await.unwrap();
    });
}
