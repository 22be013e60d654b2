//! The table itself: creating it, and checking that it fits.

use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType, TableDescription,
    TableStatus, TimeToLiveSpecification, TimeToLiveStatus,
};

use std::time::Duration;

use super::DynamoDbStore;
use super::failure::failure;
use super::items::Table;
use super::names::Names;
use idem_core::StoreError;
use idem_store_kit::{own_runtime, retry};

/// How long a new table may take until it is ready.
const CREATION: Duration = Duration::from_secs(120);

impl DynamoDbStore {
    /// Creates the table with on-demand billing, unless the table exists already. Waits until the table is
    /// ready, enables its time to live, and checks the table.
    ///
    /// # Errors
    ///
    /// As [`check`](Self::check), and `Unavailable` if the table is not ready after two minutes.
    pub async fn create_table(&self) -> Result<(), StoreError> {
        let store = self.0.clone();
        own_runtime::apart(async move { store.service.create().await }).await?;
        self.check().await
    }

    /// Checks that the table exists, that its key has the names from the builder, and that no two attributes
    /// have the same name. Also checks that time to live is enabled for the attribute that this store writes.
    ///
    /// The check needs the permissions `DescribeTable` and `DescribeTimeToLive`.
    ///
    /// # Errors
    ///
    /// [`Configuration`](idem_core::StoreErrorKind::Configuration) says what to change. `Unavailable` or
    /// `OutcomeUnknown` if DynamoDB does not answer.
    pub async fn check(&self) -> Result<(), StoreError> {
        let store = self.0.clone();
        own_runtime::apart(async move {
            retry::retried(store.settings.operation_timeout, || store.service.check()).await
        })
        .await
    }
}

impl Table {
    pub(super) async fn check(&self) -> Result<(), StoreError> {
        let (client, names) = (self.client()?, &self.names);
        let answer = client.describe_table().table_name(&names.table).send().await;
        check_key(names, &answer.map_err(|error| failure(&error))?.table.unwrap_or_else(nothing))?;
        let answer = client.describe_time_to_live().table_name(&names.table).send().await;
        let answer = answer.map_err(|error| failure(&error))?.time_to_live_description;
        let on = answer.filter(|ttl| {
            matches!(ttl.time_to_live_status, Some(TimeToLiveStatus::Enabled | TimeToLiveStatus::Enabling))
        });
        match on.and_then(|ttl| ttl.attribute_name) {
            Some(name) if name == names.time_to_live => Ok(()),
            Some(name) => Err(StoreError::configuration(format!(
                "the table's time to live is by the attribute `{name}`; tell the store so with \
                 `time_to_live_attribute`, or change it to `{}`",
                names.time_to_live
            ))),
            None => Err(StoreError::configuration(format!(
                "the table's time to live is off, so it would grow for ever; switch it on for the attribute `{}`",
                names.time_to_live
            ))),
        }
    }

    async fn create(&self) -> Result<(), StoreError> {
        let (client, names) = (self.client()?, &self.names);
        let wrong = |error| StoreError::configuration("a name for the table is missing").with_source(error);
        let mut request =
            client.create_table().table_name(&names.table).billing_mode(BillingMode::PayPerRequest);
        for (name, kind) in parts(names) {
            let text = ScalarAttributeType::S;
            let definition = AttributeDefinition::builder().attribute_name(name).attribute_type(text);
            let element = KeySchemaElement::builder().attribute_name(name).key_type(kind);
            request = request
                .attribute_definitions(definition.build().map_err(wrong)?)
                .key_schema(element.build().map_err(wrong)?);
        }
        match request.send().await {
            Ok(_) => {}
            Err(SdkError::ServiceError(context)) if context.err().is_resource_in_use_exception() => {}
            Err(error) => return Err(failure(&error)),
        }
        retry::retried(CREATION, || self.is_active()).await?;
        let spec = TimeToLiveSpecification::builder().attribute_name(&names.time_to_live).enabled(true);
        let request = client.update_time_to_live().table_name(&names.table);
        let request = request.time_to_live_specification(spec.build().map_err(wrong)?);
        // The answer is ignored, because DynamoDB refuses the request if time to live is already enabled. The
        // check that follows finds out whether it is enabled for the right attribute.
        let _ = request.send().await;
        Ok(())
    }

    /// Returns `Unavailable` until the table accepts requests.
    async fn is_active(&self) -> Result<(), StoreError> {
        let answer = self.client()?.describe_table().table_name(&self.names.table).send().await;
        match answer.map_err(|error| failure(&error))?.table.and_then(|table| table.table_status) {
            Some(TableStatus::Active) => Ok(()),
            _ => Err(StoreError::unavailable("the new table is not ready")),
        }
    }
}

fn nothing() -> TableDescription {
    TableDescription::builder().build()
}

/// The names and types of the parts of the primary key, as set in the builder.
fn parts(names: &Names) -> Vec<(&str, KeyType)> {
    let sort = names.sort_key.iter().map(|(name, _)| (&**name, KeyType::Range));
    std::iter::once((&*names.partition_key, KeyType::Hash)).chain(sort).collect()
}

fn check_key(names: &Names, table: &TableDescription) -> Result<(), StoreError> {
    let schema = table.key_schema();
    let configured = parts(names);
    let fits = schema.len() == configured.len()
        && configured.iter().all(|(name, kind)| {
            schema.iter().any(|part| part.attribute_name == *name && part.key_type == *kind)
        });
    let is_text = |name: &str| {
        table
            .attribute_definitions()
            .iter()
            .any(|part| part.attribute_name == name && part.attribute_type == ScalarAttributeType::S)
    };
    if fits && configured.iter().all(|(name, _)| is_text(name)) {
        return Ok(());
    }
    let has: Vec<String> =
        schema.iter().map(|part| format!("{} ({})", part.attribute_name, part.key_type.as_str())).collect();
    let configured: Vec<String> =
        configured.iter().map(|(name, kind)| format!("{name} ({})", kind.as_str())).collect();
    Err(StoreError::configuration(format!(
        "the table's key is {} and the store was told {}, each a string; set `partition_key` and `sort_key` of \
         the builder, or use a table with that key",
        has.join(", "),
        configured.join(", ")
    )))
}
