//! What a walk reads for the pages.

use std::sync::Arc;

use idem_core::listing::Listed;
use idem_core::protocol::{State, Timestamp};
use idem_core::{Key, RecordKey, Scope};
use idem_operate_kit::audit::{self, Entry};
use idem_operate_kit::evidence::{self, Form};
use idem_operate_kit::figures::{Look, look};
use idem_operate_kit::find;
use idem_operate_kit::walk::{Prefix, Walk};
use idem_operate_kit::{Access, Result};

/// How many records of each kind a page shows.
pub(crate) const ROWS: usize = 200;

/// What a walk is for.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) enum Query {
    /// The first page and `/metrics`.
    Overview,
    /// The records of an operation, in a state, with keys that begin like this.
    Some(Option<Scope>, Option<State>, Prefix),
    /// The audit trail.
    Trail,
    /// The records with this key, or with this digest, of one operation or of all.
    Find(Option<Scope>, String),
    /// How the results of this operation are kept.
    Form(Scope),
}

/// What a walk found.
pub(crate) enum Findings {
    Overview(Box<Look>),
    /// Each with the store's time when it was read.
    Records(Vec<(Listed, Timestamp)>),
    Trail(Vec<Entry>),
    Names(Vec<RecordKey>),
    Form(Form),
}

impl Query {
    pub(crate) async fn read(&self, access: &Access) -> Result<Arc<Findings>> {
        // Reads the store's marks, once.
        access.layers().await?;
        Ok(Arc::new(match self {
            Self::Overview => {
                let walk = Walk::new(&access.store, Vec::new(), None);
                let look = look(walk, ROWS, |state| state != State::Completed).await?;
                Findings::Overview(Box::new(look))
            }
            Self::Some(scope, state, prefix) => {
                let walk = Walk::new(&access.store, state.iter().copied().collect(), scope.clone());
                Findings::Records(look(walk.with_prefix(prefix.clone()), ROWS, |_| true).await?.open)
            }
            Self::Trail => {
                let mut entries = audit::entries(access, None).await?;
                entries.truncate(ROWS);
                Findings::Trail(entries)
            }
            Self::Find(scope, text) => {
                let (key, digest) = (Key::new(text).ok(), text.to_ascii_lowercase());
                Findings::Names(find::find(access, scope.clone(), key.as_ref(), Some(&digest)).await?)
            }
            Self::Form(scope) => Findings::Form(evidence::of_scope(access, scope).await?),
        }))
    }
}

impl Findings {
    /// The stored names of the records.
    pub(crate) fn names(&self) -> Vec<&RecordKey> {
        match self {
            Self::Overview(look) => look.open.iter().map(|(listed, _)| &listed.key).collect(),
            Self::Records(records) => records.iter().map(|(listed, _)| &listed.key).collect(),
            Self::Names(names) => names.iter().collect(),
            Self::Trail(_) | Self::Form(_) => Vec::new(),
        }
    }
}
