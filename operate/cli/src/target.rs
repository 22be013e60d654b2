//! The record that a command is about, given by its key and operation, or by the digest in a log.

use clap::Args;
use idem_core::{Key, RecordKey, Scope};
use idem_operate_kit::text::safe;
use idem_operate_kit::{Access, Error, Kind, evidence, find};

use super::end::Answer;

/// The record that a command is about. Unless both the key and `--scope` are given, the command searches the
/// store.
#[derive(Args)]
pub(crate) struct Target {
    /// The key, as the function's template renders it: `order/42`
    #[arg(conflicts_with = "digest")]
    key: Option<String>,
    /// The operation that the key belongs to
    #[arg(long)]
    scope: Option<String>,
    /// The digest that logs and errors show in place of the key
    #[arg(long, value_name = "HEX")]
    digest: Option<String>,
}

impl Target {
    /// The operation, if one is given.
    pub(crate) fn scope(&self) -> Answer<Option<Scope>> {
        self.scope.as_deref().map(find::scope).transpose()
    }

    fn key(&self) -> Answer<Option<Key>> {
        let wrong = |error| Error::usage(format!("invalid key: {error}"));
        self.key.as_ref().map(Key::new).transpose().map_err(wrong)
    }

    /// The stored name of the given key and operation. A record with this name need not exist.
    pub(crate) fn exact(&self, access: &Access) -> Answer<RecordKey> {
        match (self.scope()?, self.key()?) {
            (Some(scope), Some(key)) => access.stored(&RecordKey::new(scope, key)),
            _ => Err(Error::usage("missing record: give the key, and its operation with `--scope`")),
        }
    }

    /// The stored name of the record.
    pub(crate) async fn find(&self, access: &Access) -> Answer<RecordKey> {
        let (scope, key) = (self.scope()?, self.key()?);
        if self.key.is_none() && self.digest.is_none() {
            return Err(Error::usage("missing record: give its key, or its digest with `--digest`"));
        }
        let digest = self.digest.as_ref().map(|digest| digest.trim().to_ascii_lowercase());
        let mut names = find::find(access, scope, key.as_ref(), digest.as_deref()).await?;
        match names.len() {
            0 => Err(evidence::absent(access).await),
            1 => Ok(names.remove(0)),
            _ => {
                let scopes: Vec<String> = names.iter().map(|name| safe(name.scope().as_str())).collect();
                let text =
                    format!("several operations have such a record: give `--scope`: {}", scopes.join(", "));
                Err(Error::new(Kind::Refused, text))
            }
        }
    }
}

/// How questions and output name a record.
pub(crate) fn called(key: &RecordKey) -> String {
    format!("{} of {}", key.digest(), safe(key.scope().as_str()))
}
