//! Finds the record that a command is about: by its key and scope, or by the digest in a log.

use clap::Args;
use idem_core::{Key, KeyError, RecordKey, Scope};

use super::access::Access;
use super::end::{Answer, End, Trouble};
use super::evidence;
use super::output::safe;
use super::walk::Walk;

/// The record. Without `--scope`, and with `--digest`, the command searches the whole store.
#[derive(Args)]
pub(crate) struct Target {
    /// The key, as the function's template renders it: `order/42`
    #[arg(conflicts_with = "digest")]
    key: Option<String>,
    /// The operation it belongs to
    #[arg(long)]
    scope: Option<String>,
    /// The digest that logs and errors show in place of the key
    #[arg(long, value_name = "HEX")]
    digest: Option<String>,
}

/// The scope of this name.
pub(crate) fn scope(name: &str) -> Answer<Scope> {
    Scope::new(name.to_owned()).map_err(|error| wrong("scope", error))
}

fn wrong(what: &str, error: KeyError) -> Trouble {
    Trouble::new(End::Usage, format!("invalid {what}: {error}"))
}

impl Target {
    /// Whether neither a key nor a digest is given.
    pub(crate) const fn is_empty(&self) -> bool {
        self.key.is_none() && self.digest.is_none()
    }

    /// The operation, if one is given.
    pub(crate) fn scope(&self) -> Answer<Option<Scope>> {
        self.scope.as_deref().map(scope).transpose()
    }

    /// The stored name of the given key and operation. A record with this name need not exist.
    pub(crate) fn exact(&self, access: &Access) -> Answer<RecordKey> {
        let key = self.key.as_ref().map(Key::new).transpose().map_err(|error| wrong("key", error))?;
        match (self.scope()?, key) {
            (Some(scope), Some(key)) => access.stored(&RecordKey::new(scope, key)),
            _ => Err(Trouble::new(
                End::Usage,
                "missing record: give the key, and its operation with `--scope`",
            )),
        }
    }

    /// The stored name of the record. With a key and a scope it does not look whether the record exists.
    pub(crate) async fn find(&self, access: &Access) -> Answer<RecordKey> {
        let scope = self.scope()?;
        let key = self.key.as_ref().map(Key::new).transpose().map_err(|error| wrong("key", error))?;
        match (scope, key) {
            (Some(scope), Some(key)) => access.stored(&RecordKey::new(scope, key)),
            (_, None) if self.digest.is_none() => {
                Err(Trouble::new(End::Usage, "missing record: give its key, or its digest with `--digest`"))
            }
            (scope, key) => {
                let digest = self.digest.as_ref().map(|digest| digest.trim().to_ascii_lowercase());
                let found = look_for(access, scope.clone(), key.as_ref(), digest.as_deref()).await?;
                if found.is_empty() {
                    return Err(evidence::absent(access, scope).await);
                }
                one(found)
            }
        }
    }
}

/// The stored names with this key, or with this digest.
pub(crate) async fn look_for(
    access: &Access,
    scope: Option<Scope>,
    key: Option<&Key>,
    digest: Option<&str>,
) -> Answer<Vec<RecordKey>> {
    let is_meant = |name: &RecordKey| -> Answer<bool> {
        Ok(match key {
            Some(key) => access.stored(&RecordKey::new(name.scope().clone(), key.clone()))? == *name,
            None => digest.is_some_and(|digest| access.has_digest(name, digest)),
        })
    };
    let mut found = Vec::new();
    let mut walk = Walk::new(&access.store, Vec::new(), scope);
    while let Some(page) = walk.page().await? {
        for name in page.records.into_iter().map(|listed| listed.key).chain(page.unreadable) {
            if is_meant(&name)? && !found.contains(&name) {
                found.push(name);
            }
        }
    }
    Ok(found)
}

fn one(mut found: Vec<RecordKey>) -> Answer<RecordKey> {
    match found.len() {
        0 => Err(Trouble::new(End::Nothing, "there is no such record")),
        1 => Ok(found.remove(0)),
        _ => {
            let scopes: Vec<String> = found.iter().map(|name| safe(name.scope().as_str())).collect();
            let text =
                format!("several operations have such a record: give `--scope`: {}", scopes.join(", "));
            Err(Trouble::new(End::Refused, text))
        }
    }
}

/// The name of a record in questions and answers.
pub(crate) fn called(key: &RecordKey) -> String {
    format!("{} of {}", key.digest(), safe(key.scope().as_str()))
}
