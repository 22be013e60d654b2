//! Finds out from a store's records how its service keeps keys and results.
//!
//! Owns the rule that the command writes nothing that the service could not read. Which layers the service has around the store
//! (encryption, digests of keys) shows only in the store, not in this command's options.

use idem_core::listing::ListedResult;
use idem_core::protocol::{Record, ResultFormat, State, StoredResult};
use idem_core::{RecordKey, Scope, Store as _};
use idem_runtime::DynStore;
#[cfg(feature = "zstd")]
use idem_wrappers::StoreExt as _;

use crate::access::{Access, is_digest};
use crate::error::{Error, Kind, Result};
use crate::walk::Walk;

/// How many other records of the operation are read.
const NEIGHBOURS: usize = 5;

/// How results are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Unknown: no other record has a result.
    Unknown,
    /// As this command reads and writes them. Whether as JSON or as responses is unknown.
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
        _ => Form::Json,
    })
}

/// The store, with results decompressed.
#[must_use]
pub fn readable(store: &DynStore) -> impl idem_core::Store + use<> {
    // Decompresses results of any size, and returns others as they are.
    #[cfg(feature = "zstd")]
    let store = store.clone().compressed_up_to(usize::MAX);
    #[cfg(not(feature = "zstd"))]
    let store = store.clone();
    store
}

/// How the results of this record's operation are kept, by the record's steps and the operation's other records.
///
/// # Errors
///
/// The store fails.
pub async fn form(access: &Access, key: &RecordKey, record: &Record) -> Result<Form> {
    Ok(with_steps(of_scope(access, key.scope()).await?, record))
}

/// What the record's own steps add to how its operation's results are kept.
#[must_use]
pub fn with_steps(form: Form, record: &Record) -> Form {
    let steps: Vec<Form> = record.steps.iter().filter_map(|step| form_of(&step.result)).collect();
    match form {
        _ if steps.contains(&Form::Sealed) => Form::Sealed,
        Form::Unknown if !steps.is_empty() => Form::AsHere,
        form => form,
    }
}

/// How the results of this operation are kept, by its records. That they are encrypted may also show in the store's mark or in other
/// operations. That they are not encrypted shows only in the operation itself: two services may share a store, and only one of them
/// may encrypt.
///
/// # Errors
///
/// The store fails.
pub async fn of_scope(access: &Access, scope: &Scope) -> Result<Form> {
    let encrypted = access.layers().await?.encrypted;
    match neighbours(&access.store, Some(scope.clone())).await? {
        // `Access` compared the key ring with the mark.
        Form::Unknown if encrypted && access.has_ring() => Ok(Form::AsHere),
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

/// Refuses a name under which the service would not look for a record.
///
/// # Errors
///
/// The service keeps digests that this access cannot make.
pub async fn is_findable(access: &Access, stored: &RecordKey) -> Result<()> {
    if !access.layers().await?.digested || access.knows_names() || is_digest(stored.key().as_str()) {
        return Ok(());
    }
    Err(Error::new(
        Kind::Unusable,
        "this store keeps keys as digests, under a secret that this command does not have: the service would not find \
         a record under the key itself. Nothing was done. Give `--key-secret-file`",
    ))
}

/// The error for a name without a record. If keys are kept as digests that this command cannot make, the error says so.
pub async fn absent(access: &Access, scope: Option<Scope>) -> Error {
    if access.knows_names() {
        return Error::new(
            Kind::Absent,
            "there is no such record, or the secret of the key digests is a different one",
        );
    }
    let store = &access.store;
    let is_digested = async { Ok(access.layers().await?.digested || keeps_digests(store, scope).await?) };
    match is_digested.await {
        Ok(true) => Error::new(
            Kind::Unusable,
            "this store keeps keys as digests, under a secret that this command does not have: it cannot find a record by \
             its key or by the digest in a log. Give `--key-secret-file`; or find the record by its scope, state and age \
             with `idem list --keys`, and give the key that is shown there",
        ),
        Ok(false) => Error::new(Kind::Absent, "there is no such record"),
        Err(error) => error,
    }
}

async fn keeps_digests(store: &DynStore, scope: Option<Scope>) -> Result<bool> {
    let mut walk = Walk::new(store, Vec::new(), scope);
    while let Some(page) = walk.page().await? {
        let mut names = page.records.iter().map(|listed| &listed.key).chain(&page.unreadable).peekable();
        if names.peek().is_some() {
            return Ok(names.any(|name| is_digest(name.key().as_str())));
        }
    }
    Ok(false)
}
