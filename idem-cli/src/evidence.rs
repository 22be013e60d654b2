//! What the records of a store tell of how its service keeps keys and results.
//!
//! Owns the rule that nothing is written which the service could not read: what wraps the store in the service (encryption,
//! digests of keys) is shown by the records alone, whatever this command was told.

use idem_core::listing::ListedResult;
use idem_core::protocol::{Record, ResultFormat, State, StoredResult};
use idem_core::{RecordKey, Scope, Store as _};
use idem_runtime::DynStore;
#[cfg(feature = "zstd")]
use idem_runtime::StoreExt as _;

use super::access::{Access, is_digest};
use super::end::{Answer, End, Trouble};
use super::walk::Walk;

/// How many neighbours are looked at.
const NEIGHBOURS: usize = 5;

/// How results are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Nothing shows it: no neighbour has a result.
    Unknown,
    /// Not encrypted. Whether as JSON or as responses nothing shows.
    Unencrypted,
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

/// The store as the command reads results in it.
pub(crate) fn readable(store: &DynStore) -> impl idem_core::Store + use<> {
    // A result that is kept compressed is shown as it was before.
    #[cfg(feature = "zstd")]
    let store = store.clone().compressed_up_to(usize::MAX);
    #[cfg(not(feature = "zstd"))]
    let store = store.clone();
    store
}

/// How the results of the operation of this record are kept, by its steps and its neighbours; that they are
/// encrypted also by the rest of the store. That they are not is shown by the operation itself alone: of two services
/// that share a store one may encrypt.
pub(crate) async fn form(store: &DynStore, key: &RecordKey, record: &Record) -> Answer<Form> {
    let steps: Vec<Form> = record.steps.iter().filter_map(|step| form_of(&step.result)).collect();
    if steps.contains(&Form::Sealed) {
        return Ok(Form::Sealed);
    }
    match neighbours(store, Some(key.scope().clone())).await? {
        Form::Unknown => match neighbours(store, None).await? {
            Form::Sealed => Ok(Form::Sealed),
            _ if steps.is_empty() => Ok(Form::Unknown),
            _ => Ok(Form::Unencrypted),
        },
        form => Ok(form),
    }
}

async fn neighbours(store: &DynStore, scope: Option<Scope>) -> Answer<Form> {
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

/// There is no record of this name; unless keys are kept as digests, which this command cannot make.
pub(crate) async fn absent(access: &Access, scope: Option<Scope>) -> Trouble {
    if access.knows_names() {
        return Trouble::new(
            End::Nothing,
            "there is no such record, or the secret of the key digests is another",
        );
    }
    let store = &access.store;
    match keeps_digests(store, scope).await {
        Ok(true) => Trouble::new(
            End::Unusable,
            "keys are kept here as digests, under a secret that this command does not have: by its key or by the \
             digest of a log it cannot tell whether there is a record. Say `--key-secret-file`; or find it by its scope, \
             state and age with `idem list --keys`, and give the key that stands there",
        ),
        Ok(false) => Trouble::new(End::Nothing, "there is no such record"),
        Err(trouble) => trouble,
    }
}

async fn keeps_digests(store: &DynStore, scope: Option<Scope>) -> Answer<bool> {
    let mut walk = Walk::new(store, Vec::new(), scope);
    while let Some(page) = walk.page().await? {
        let mut names = page.records.iter().map(|listed| &listed.key).chain(&page.unreadable).peekable();
        if names.peek().is_some() {
            return Ok(names.any(|name| is_digest(name.key().as_str())));
        }
    }
    Ok(false)
}
