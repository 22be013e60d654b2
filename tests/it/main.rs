//! Tests across crates: the attribute, the engine and HTTP, and comparisons of several stores.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "tests")]

mod attribute;
mod attribute_docs;
mod attribute_scope;
mod attribute_shapes;
mod cancellation;
mod catalogue;
mod catalogue_changes;
#[path = "../../stores/dynamodb/tests/it/support/mod.rs"]
mod dynamodb_support;
#[path = "../../idem-runtime/tests/it/events.rs"]
mod events;
mod http_errors;
mod injure;
mod injury;
mod keys;
mod lease;
mod linearizability;
mod observability;
mod operation;
mod recover;
mod sealed_stores;
#[path = "../../wrappers/tests/it/sealed_support/mod.rs"]
mod sealed_support;
mod steps;
mod store_failures;
mod store_sizes;
mod support;
mod transaction;
mod twice;
mod twice_http;
mod waiting;
