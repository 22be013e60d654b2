//! The checks of a table.

use super::DynamoDbStore;
use idem_core::inspection::{Inspection, Standing};
use idem_core::{StoreError, StoreErrorKind};

/// A table that does not fit is a finding; a table that cannot be queried is an error.
pub(super) async fn look(store: &DynamoDbStore) -> Result<Inspection, StoreError> {
    let mut inspection = Inspection::of("DynamoDB");
    if let Err(error) = store.table.check_names() {
        inspection.find(Standing::Broken, "attributes", error.to_string());
        return Ok(inspection);
    }
    match store.check().await {
        Ok(()) => {
            inspection.find(Standing::Fine, "key", "as the store was told");
            inspection.find(Standing::Fine, "time to live", "on, for the attribute that the store writes");
        }
        Err(error) if error.kind() == StoreErrorKind::Configuration => {
            inspection.find(Standing::Weak, "table", error.to_string());
        }
        Err(error) => return Err(error),
    }
    inspection.find(
        Standing::Unknown,
        "clocks",
        format!(
            "DynamoDB has none: leases are judged by the callers' clocks, which must not differ by more than {:?}",
            store.table.0.skew
        ),
    );
    Ok(inspection)
}
