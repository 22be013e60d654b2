//! Finds out from a store's records how its service keeps keys and results.
//!
//! Owns the rule that the command writes nothing that the service could not read. Only the store's content
//! proves which layers the service has around the store (encryption, digests of keys); the command's options
//! prove nothing.

use idem_core::listing::ListedResult;
use idem_core::protocol::{Record, ResultFormat, State, StoredResult};
use idem_core::{Scope, Store as _};
use idem_runtime::DynStore;
#[cfg(feature = "zstd")]
use idem_wrappers::StoreExt as _;

use crate::access::Access;
use crate::act;
use crate::error::{Error, Kind, Result};
use crate::walk::Walk;

/// How many records with a result are read at most, to find out how results are kept.
const NEIGHBOURS: usize = 5;

/// How results are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Unknown, because no other record of the operation has a result.
    Unknown,
    /// In the form in which this access reads and writes results. It is unknown whether the results are JSON
    /// or responses.
    AsHere,
    /// As JSON.
    Json,
    /// As responses of the HTTP layer.
    Response,
    /// Encrypted.
    Sealed,
}

fn form_of(result: &StoredResult) -> Option<Form> {
    let StoredResult::Value(_) = result else { return None };
    Some(match result.format() {
        Some(ResultFormat::Sealed) => Form::Sealed,
        Some(ResultFormat::Response) => Form::Response,
        Some(ResultFormat::Json) => Form::Json,
        _ => Form::AsHere,
    })
}

/// The store, with results decompressed.
#[must_use]
pub fn readable(store: &DynStore) -> impl idem_core::Store + use<> {
    // Decompresses results of any size, and returns uncompressed results as they are.
    #[cfg(feature = "zstd")]
    let store = store.clone().compressed_up_to(usize::MAX);
    #[cfg(not(feature = "zstd"))]
    let store = store.clone();
    store
}

/// How results of the operation are kept, according to `form` and the steps of the record.
#[must_use]
pub fn with_steps(form: Form, record: &Record) -> Form {
    let steps: Vec<Form> = record.steps.iter().filter_map(|step| form_of(&step.result)).collect();
    match form {
        _ if steps.contains(&Form::Sealed) => Form::Sealed,
        Form::Unknown if !steps.is_empty() => Form::AsHere,
        form => form,
    }
}

/// How the results of this operation are kept, according to its records. The store's mark or other operations
/// may also show that the results are encrypted. Only records of the operation itself can show that its
/// results are not encrypted. The reason is that two services may share a store, and only one of them may
/// encrypt.
///
/// # Errors
///
/// The store fails.
pub async fn of_scope(access: &Access, scope: &Scope) -> Result<Form> {
    let encrypted = access.layers().await?.encrypted;
    match neighbours(&access.store, Some(scope.clone())).await? {
        // `layers` has already compared the key ring with the store's mark about encryption.
        Form::Unknown if access.has_ring() => Ok(if encrypted { Form::AsHere } else { Form::Unknown }),
        Form::Unknown if encrypted => Ok(Form::Sealed),
        Form::Unknown => match neighbours(&access.store, None).await? {
            Form::Sealed => Ok(Form::Sealed),
            _ => Ok(Form::Unknown),
        },
        form => Ok(form),
    }
}

async fn neighbours(store: &DynStore, scope: Option<Scope>) -> Result<Form> {
    let readable = readable(store);
    let mut walk = Walk::new(store, vec![State::Completed, State::Failed], scope);
    let (mut found, mut looked_at) = (Form::Unknown, 0);
    while let Some(page) = walk.page().await? {
        for listed in page.records {
            if !matches!(listed.result, Some(ListedResult::Value { .. })) {
                continue;
            }
            let Some(record) = readable.get(&listed.key).await? else { continue };
            match record.result.as_ref().and_then(form_of) {
                Some(Form::Sealed) => return Ok(Form::Sealed),
                Some(form) => found = form,
                None => {}
            }
            looked_at += 1;
            if looked_at == NEIGHBOURS {
                return Ok(found);
            }
        }
    }
    Ok(found)
}

/// Refuses a store that keeps keys as digests, if this access does not have their secret: the service would
/// not find a record under the key itself.
///
/// # Errors
///
/// The store fails, or it keeps keys as digests and their secret was not given.
pub async fn is_findable(access: &Access) -> Result<()> {
    if !access.layers().await?.digested || access.knows_names() {
        return Ok(());
    }
    Err(Error::new(
        Kind::Unusable,
        "this store keeps keys as digests, under a secret that this command does not have: the service would not find \
         a record under the key itself. Nothing was done. Give `--key-secret-file`",
    ))
}

/// The error for a name without a record. If keys are kept as digests that this access cannot make, the error
/// says so.
pub async fn absent(access: &Access) -> Error {
    if access.knows_names() {
        return Error::new(
            Kind::Absent,
            "there is no such record, or the secret of the key digests is a different one",
        );
    }
    match access.layers().await {
        Ok(layers) if layers.digested => Error::new(
            Kind::Unusable,
            "this store keeps keys as digests, under a secret that this command does not have: it cannot find a record by \
             its key or by the digest in a log. Give `--key-secret-file`; or find the record by its scope, state and age \
             with `idem list --keys`, and give the key that is shown there",
        ),
        Ok(_) => act::absent(),
        Err(error) => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_of_a_format_that_is_not_read_here_is_not_taken_for_json() {
        for (bytes, form) in [
            (&b"{}"[..], Form::Json),
            (b"\x01", Form::Response),
            (b"\xabid\x01", Form::Sealed),
            (b"\x28\xb5\x2f\xfd..", Form::AsHere),
            (b"\x05", Form::AsHere),
        ] {
            assert_eq!(form_of(&StoredResult::Value(bytes.into())), Some(form), "{bytes:?}");
        }
    }
}
