//! Tests of what calls cost in DynamoDB's capacity units, from its answers.
//!
//! The emulator charges a write by the larger of the old and the new item, in units of 1 KiB, as the service does.
//! Neither reports the cost of a refused write. The service charges it as a write of the existing item, so the test
//! asks the emulator for that cost. The emulator charges 1 unit for a read, and the service 1 unit for each 4 KiB; the
//! test only reads smaller items.

use crate::support;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::interceptors::{
    AfterDeserializationInterceptorContextRef, BeforeSerializationInterceptorContextMut,
};
use aws_sdk_dynamodb::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_dynamodb::error::BoxError;
use aws_sdk_dynamodb::operation::get_item::{GetItemInput, GetItemOutput};
use aws_sdk_dynamodb::operation::put_item::{PutItemInput, PutItemOutput};
use aws_sdk_dynamodb::types::{ConsumedCapacity, ReturnConsumedCapacity};
use idem_dynamodb::DynamoDbStore;
use idem_runtime::protocol::{ClaimAnswer, Release, ReleaseAnswer, ReleaseCause};
use idem_runtime::{Error, Operation, Store};
use idem_test_servers::Aws;
use support::{claim, client, granted, id, key};

/// The capacity that was used, in units.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Used {
    written: f64,
    read: f64,
    /// Writes whose condition did not hold.
    refused: u32,
}

/// Asks for the cost with every request, and adds up the answers.
#[derive(Clone, Debug, Default)]
struct Meter(Arc<Mutex<Used>>);

impl Meter {
    /// The capacity used since the last call.
    fn taken(&self) -> Used {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

fn units(told: Option<&ConsumedCapacity>) -> f64 {
    told.unwrap().capacity_units().unwrap()
}

impl Intercept for Meter {
    fn name(&self) -> &'static str {
        "meter"
    }

    fn modify_before_serialization(
        &self,
        context: &mut BeforeSerializationInterceptorContextMut<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let total = Some(ReturnConsumedCapacity::Total);
        let input = context.input_mut();
        if let Some(put) = input.downcast_mut::<PutItemInput>() {
            put.return_consumed_capacity = total;
        } else {
            input.downcast_mut::<GetItemInput>().unwrap().return_consumed_capacity = total;
        }
        Ok(())
    }

    fn read_after_deserialization(
        &self,
        context: &AfterDeserializationInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let mut used = self.0.lock().unwrap();
        let Ok(output) = context.output_or_error() else {
            used.refused += 1;
            return Ok(());
        };
        if let Some(put) = output.downcast_ref::<PutItemOutput>() {
            used.written += units(put.consumed_capacity());
        } else {
            used.read += units(output.downcast_ref::<GetItemOutput>().unwrap().consumed_capacity());
        }
        Ok(())
    }
}

/// A table, a store whose requests are metered, and a client whose requests are not.
struct Metered {
    store: DynamoDbStore,
    meter: Meter,
    client: Client,
    _aws: Aws,
}

impl Metered {
    async fn start() -> Self {
        let aws = Aws::start();
        let client = client(&aws);
        let open = |client| DynamoDbStore::builder(client, "records").clock_skew(Duration::ZERO).build();
        open(client.clone()).create_table().await.unwrap();
        let meter = Meter::default();
        let config = client.config().to_builder().interceptor(meter.clone()).build();
        Self { store: open(Client::from_conf(config)), meter, client, _aws: aws }
    }

    /// The client of the store, whose requests are metered.
    fn store_client(&self) -> Client {
        Client::from_conf(self.client.config().to_builder().interceptor(self.meter.clone()).build())
    }

    /// What a write of the item as it is costs, and so one that is refused.
    async fn item(&self, name: &str) -> f64 {
        let touch = self.client.update_item().table_name("records").key("id", id(name));
        let touch = touch.update_expression("SET idem_record = idem_record");
        let touch = touch.condition_expression("attribute_exists(id)");
        let told = touch.return_consumed_capacity(ReturnConsumedCapacity::Total).send().await.unwrap();
        units(told.consumed_capacity())
    }
}

const NOTHING: Used = Used { written: 0.0, read: 0.0, refused: 0 };

#[tokio::test]
async fn a_fresh_call_is_charged_for_an_empty_record_and_a_full_one_and_a_replay_for_the_full_one() {
    let metered = Metered::start().await;
    let Metered { store, meter, .. } = &metered;
    let call = Operation::new("test.dynamodb");
    // With the other attributes of a record, 600 bytes are less than a unit and 1 KiB is more.
    for (bytes, item) in [(600, 1.0), (1_024, 2.0), (10_240, 11.0)] {
        let name = format!("{bytes:0>36}");
        // Encoded, the result has two quotation marks more.
        let result = "r".repeat(bytes - 2);
        let run = || async { Ok::<_, Error>(result.clone()) };

        assert_eq!(call.run(store, name.as_str(), run).await.unwrap(), result);
        assert_eq!(meter.taken(), Used { written: 1.0 + item, ..NOTHING }, "a fresh call, {bytes} bytes");
        assert_eq!(metered.item(&name).await, item, "{bytes} bytes");

        assert_eq!(call.run(store, name.as_str(), run).await.unwrap(), result);
        // The emulator charges 1 for a read of any size.
        assert_eq!(meter.taken(), Used { read: 1.0, ..NOTHING }, "a replay, {bytes} bytes");

        let elsewhere = DynamoDbStore::builder(metered.store_client(), "records").build();
        assert_eq!(call.run(&elsewhere, name.as_str(), run).await.unwrap(), result);
        assert_eq!(meter.taken(), Used { refused: 1, ..NOTHING }, "a process's first replay, {bytes} bytes");
    }
}

#[tokio::test]
async fn what_meets_a_record_in_flight_is_charged_for_an_empty_one() {
    let metered = Metered::start().await;
    let Metered { store, meter, .. } = &metered;
    let asking = claim();
    let grant = granted(store, &key("a"), &asking).await;
    assert_eq!(meter.taken(), Used { written: 1.0, ..NOTHING }, "a claim");
    assert_eq!(metered.item("a").await, 1.0);

    assert!(matches!(store.claim(&key("a"), &claim()).await.unwrap(), ClaimAnswer::Busy { .. }));
    assert_eq!(meter.taken(), Used { refused: 1, ..NOTHING }, "busy");

    let release = Release::new(asking.owner, grant.fence, ReleaseCause::Failed);
    assert_eq!(store.release(&key("a"), &release).await.unwrap(), ReleaseAnswer::Released);
    assert_eq!(meter.taken(), Used { written: 1.0, ..NOTHING }, "a release");

    granted(store, &key("a"), &claim().with_lease(Duration::from_millis(1))).await;
    assert_eq!(meter.taken(), Used { written: 1.0, refused: 1, ..NOTHING }, "a claim of what was released");
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(granted(store, &key("a"), &claim()).await.recovered);
    assert_eq!(meter.taken(), Used { written: 1.0, refused: 1, ..NOTHING }, "a takeover");
}
