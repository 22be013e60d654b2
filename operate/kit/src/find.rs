//! Finds the record that a person means: by its key, or by the digest in a log.

use idem_core::{Key, RecordKey, Scope, Store as _, StoreErrorKind};

use crate::access::Access;
use crate::error::{Error, Result};
use crate::walk::Walk;

/// The scope with this name.
///
/// # Errors
///
/// The name is invalid.
pub fn scope(name: &str) -> Result<Scope> {
    Scope::new(name.to_owned()).map_err(|error| Error::usage(format!("invalid scope: {error}")))
}

/// The stored name of a record: its name, in which a digest may replace the key. `name` is the record's name,
/// or already its stored name, which a list shows. `None` if the store has no such record. Reads the store up
/// to twice.
///
/// # Errors
///
/// The store fails.
pub async fn by_name(access: &Access, name: RecordKey) -> Result<Option<RecordKey>> {
    let stored = access.stored(&name)?;
    if has(access, &stored).await? {
        return Ok(Some(stored));
    }
    Ok(if stored != name && has(access, &name).await? { Some(name) } else { None })
}

/// Whether there is a record, even one that cannot be read.
async fn has(access: &Access, stored: &RecordKey) -> Result<bool> {
    match access.store.get(stored).await {
        Err(error) if error.kind() != StoreErrorKind::CorruptRecord => Err(error.into()),
        record => Ok(!matches!(record, Ok(None))),
    }
}

/// The stored names of the records with this key, or with this digest. Walks through the store, unless the
/// operation and the key are given without a digest.
///
/// # Errors
///
/// The store fails.
pub async fn find(
    access: &Access,
    scope: Option<Scope>,
    key: Option<&Key>,
    digest: Option<&str>,
) -> Result<Vec<RecordKey>> {
    if let (Some(scope), Some(key), None) = (&scope, key, digest) {
        let found = by_name(access, RecordKey::new(scope.clone(), key.clone())).await?;
        return Ok(found.into_iter().collect());
    }
    let is_meant = |name: &RecordKey| -> Result<bool> {
        let by_key = match key {
            Some(key) if key == name.key() => true,
            Some(key) => access.stored(&RecordKey::new(name.scope().clone(), key.clone()))? == *name,
            None => false,
        };
        Ok(by_key || digest.is_some_and(|digest| access.has_digest(name, digest)))
    };
    let mut names = Vec::new();
    let mut walk = Walk::new(&access.store, Vec::new(), scope);
    while let Some(page) = walk.page().await? {
        for name in page.records.into_iter().map(|listed| listed.key).chain(page.unreadable) {
            if is_meant(&name)? && !names.contains(&name) {
                names.push(name);
            }
        }
    }
    Ok(names)
}
