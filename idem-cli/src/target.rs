//! Which record a command is about: a key in a scope, or the digest that stands in a log.

use clap::Args;
use idem_core::protocol::{Record, State};
use idem_core::{Fence, Key, KeyError, RecordKey, Scope};
use idem_runtime::DynStore;

use super::end::{Answer, End, Trouble};
use super::evidence;
use super::output::safe;
use super::walk::Walk;

/// The record. Without `--scope`, and by `--digest`, the whole store is looked through for it.
#[derive(Args)]
pub(crate) struct Target {
    /// The key, as the function's template renders it: `order/42`
    #[arg(required_unless_present = "digest", conflicts_with = "digest")]
    key: Option<String>,
    /// The operation it belongs to
    #[arg(long)]
    scope: Option<String>,
    /// The digest that logs and errors show, instead of the key
    #[arg(long, value_name = "HEX")]
    digest: Option<String>,
}

/// The scope of this name.
pub(crate) fn scope(name: &str) -> Answer<Scope> {
    Scope::new(name.to_owned()).map_err(|error| wrong("scope", error))
}

fn wrong(what: &str, error: KeyError) -> Trouble {
    Trouble::new(End::Usage, format!("that {what} cannot be one: {error}"))
}

impl Target {
    /// The name of the record that is meant; whether there is one is only known where it had to be looked for.
    pub(crate) async fn find(&self, store: &DynStore) -> Answer<RecordKey> {
        let scope = self.scope.as_deref().map(scope).transpose()?;
        let key = self.key.as_ref().map(Key::new).transpose().map_err(|error| wrong("key", error))?;
        match (scope, key) {
            (Some(scope), Some(key)) => Ok(RecordKey::new(scope, key)),
            (scope, key) => {
                let digest = self.digest.as_ref().map(|digest| digest.trim().to_ascii_lowercase());
                let found = look_for(store, scope.clone(), key.as_ref(), digest.as_deref()).await?;
                if found.is_empty() {
                    return Err(evidence::absent(store, scope).await);
                }
                one(found)
            }
        }
    }
}

async fn look_for(
    store: &DynStore,
    scope: Option<Scope>,
    key: Option<&Key>,
    digest: Option<&str>,
) -> Answer<Vec<RecordKey>> {
    let is_meant = |name: &RecordKey| match key {
        Some(key) => name.key() == key,
        None => digest.is_some_and(|digest| name.digest().to_string() == digest),
    };
    let mut found = Vec::new();
    let mut walk = Walk::new(store, Vec::new(), scope);
    while let Some(page) = walk.page().await? {
        let names = page.records.into_iter().map(|listed| listed.key).chain(page.unreadable);
        for name in names.filter(&is_meant) {
            if !found.contains(&name) {
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
            let text = format!("there are several: say which by `--scope`: {}", scopes.join(", "));
            Err(Trouble::new(End::Refused, text))
        }
    }
}

/// How a record is called in a question or an answer.
pub(crate) fn called(key: &RecordKey) -> String {
    format!("{} of {}", key.digest(), safe(key.scope().as_str()))
}

/// What a person was shown of a record: another attempt, or another state, is something else.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) state: State,
    fence: Fence,
    attempt: u32,
}

impl Seen {
    pub(crate) fn of(record: &Record) -> Self {
        Self { state: record.state, fence: record.fence, attempt: record.attempt }
    }
}

/// The record is not what was shown any more.
pub(crate) fn changed(now: Option<State>) -> Trouble {
    let now = now.map_or("unreadable", State::as_str);
    Trouble::new(End::Refused, format!("it has changed meanwhile and is now {now}; nothing was done"))
}
