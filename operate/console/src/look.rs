//! What a walk reads for the pages.

use idem_core::protocol::State;
use idem_core::{Key, RecordKey, Scope};
use idem_operate_kit::audit::{self, Entry};
use idem_operate_kit::evidence::{self, Form};
use idem_operate_kit::figures::{Look, look};
use idem_operate_kit::find;
use idem_operate_kit::walk::{Prefix, Walk};
use idem_operate_kit::{Access, Result};

/// How many records, or entries of the audit trail, a page shows at most.
pub(crate) const ROWS: usize = 200;

/// What a walk is for.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) enum Query {
    /// The first page and `/metrics`.
    Overview,
    /// The records of an operation or of all operations, in a state or in any state, whose keys begin with
    /// this text.
    Some(Option<Scope>, Option<State>, Prefix),
    /// The audit trail.
    Trail,
    /// The records with this key or this digest, of one operation or of all operations.
    Find(Option<Scope>, String),
    /// How the results of this operation are kept.
    Form(Scope),
}

/// The result of a walk. Only the fields that the query asks for are set.
#[derive(Default)]
pub(crate) struct Findings {
    pub(crate) look: Look,
    pub(crate) trail: Vec<Entry>,
    /// The stored names of the records.
    pub(crate) names: Vec<RecordKey>,
    pub(crate) form: Option<Form>,
}

impl Query {
    pub(crate) async fn read(&self, access: &Access) -> Result<Findings> {
        // Fails if the service uses other keys than `access`. After the first success, this call reads
        // nothing.
        access.layers().await?;
        let mut findings = Findings::default();
        match self {
            Self::Overview => {
                let walk = Walk::new(&access.store, Vec::new(), None);
                findings.look = look(walk, ROWS, |state| state != State::Completed).await?;
            }
            Self::Some(scope, state, prefix) => {
                let walk = Walk::new(&access.store, state.iter().copied().collect(), scope.clone());
                findings.look = look(walk.with_prefix(prefix.clone()), ROWS, |_| true).await?;
            }
            Self::Trail => {
                findings.trail = audit::entries(access, None).await?;
                findings.trail.truncate(ROWS);
            }
            Self::Find(scope, text) => {
                let (key, digest) = (Key::new(text).ok(), text.to_ascii_lowercase());
                findings.names = find::find(access, scope.clone(), key.as_ref(), Some(&digest)).await?;
            }
            Self::Form(scope) => findings.form = Some(evidence::of_scope(access, scope).await?),
        }
        findings.names.extend(findings.look.open.iter().map(|(listed, _)| listed.key.clone()));
        Ok(findings)
    }
}
