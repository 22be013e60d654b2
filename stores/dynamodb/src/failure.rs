//! Translates the client's errors to store errors. A store error says whether the operation may have been
//! applied, or what to change.

use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::operation::RequestId;

use idem_core::StoreError;

/// The store error for a failed request. An error text of DynamoDB may contain a key, so the store error
/// contains only DynamoDB's error code and the request's id.
pub(super) fn failure<E, R>(error: &SdkError<E, R>) -> StoreError
where
    E: ProvideErrorMetadata + RequestId,
{
    match error {
        SdkError::ConstructionFailure(_) => StoreError::configuration(
            "the request to DynamoDB could not be made; check region, endpoint and credentials of the client",
        ),
        SdkError::DispatchFailure(failure) if failure.is_user() => StoreError::configuration(
            "the client could not send to DynamoDB; check its credentials, endpoint and HTTP client",
        ),
        SdkError::DispatchFailure(_) => StoreError::outcome_unknown("the connection to DynamoDB failed"),
        SdkError::TimeoutError(_) => StoreError::outcome_unknown("DynamoDB did not answer in time"),
        SdkError::ResponseError(_) => StoreError::outcome_unknown("DynamoDB's answer could not be read"),
        SdkError::ServiceError(context) => {
            let error = context.err();
            refusal(error.code().unwrap_or("unknown"), error.message(), error.request_id())
        }
        _ => StoreError::outcome_unknown("the request to DynamoDB failed"),
    }
}

fn refusal(code: &str, message: Option<&str>, request: Option<&str>) -> StoreError {
    let request = request.unwrap_or("unknown");
    let cause = format!("{code}, request {request}");
    match code {
        "ResourceNotFoundException" => StoreError::configuration(format!(
            "the table is not there, or not in this region ({cause}); make it with `create_table` or your own tools"
        )),
        "AccessDeniedException"
        | "UnrecognizedClientException"
        | "InvalidSignatureException"
        | "IncompleteSignatureException"
        | "MissingAuthenticationToken"
        | "ExpiredTokenException" => StoreError::configuration(format!(
            "DynamoDB refuses this client ({cause}); it needs GetItem and PutItem on the table, and Scan and DeleteItem to purge it"
        )),
        "ValidationException" if message.is_some_and(|message| message.contains("Item size")) => {
            StoreError::too_large(MAX_ITEM_BYTES, MAX_ITEM_BYTES)
        }
        "ValidationException" => StoreError::configuration(format!(
            "DynamoDB refuses the request ({cause}); see whether the table's key is what the store was told, with \
             `DynamoDbStore::check`"
        )),
        "ProvisionedThroughputExceededException"
        | "ThrottlingException"
        | "RequestLimitExceeded"
        | "LimitExceededException"
        | "TransactionConflictException"
        | "ReplicatedWriteConflictException" => {
            StoreError::unavailable(format!("DynamoDB has no capacity left for it ({cause})"))
        }
        _ => StoreError::outcome_unknown(format!("DynamoDB failed ({cause})")),
    }
}

/// The largest item that DynamoDB accepts, including the names of attributes.
pub(super) const MAX_ITEM_BYTES: usize = 400 * 1_024;
