//! `idem purge`.

use clap::Args;
use idem_core::Store as _;
use idem_runtime::DynStore;
use serde_json::json;

use super::end::{Answer, End};
use super::output::Output;

/// How many records the store deletes at most in one request.
const BATCH: usize = 10_000;

#[derive(Args)]
pub(crate) struct Purge {
    /// How many records to delete at most; 0 for all
    #[arg(long, default_value_t = 0, value_name = "N")]
    limit: usize,
}

pub(crate) async fn run(purge: &Purge, store: &DynStore, output: &mut Output) -> Answer {
    let most = if purge.limit == 0 { usize::MAX } else { purge.limit };
    output.must_arrive();
    let mut deleted = 0;
    while deleted < most {
        let now = store.purge(BATCH.min(most - deleted)).await?;
        if now == 0 {
            break;
        }
        deleted += now;
    }
    output.outcome(&json!({ "deleted": deleted }), format!("{deleted} expired records deleted"))?;
    Ok(End::Done)
}
