//! `idem scopes`: the operations that have records in a store, or those of them that no catalogue contains.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::Args;
use idem_operate_kit::figures::look;
use idem_operate_kit::text::safe;
use idem_operate_kit::walk::Walk;
use idem_runtime::{Catalogue, DynStore};
use serde_json::json;

use super::end::{Answer, End, Trouble};
use super::output::Output;

#[derive(Args)]
pub(crate) struct Scopes {
    /// A catalogue file, as `assert_catalogue` checks it: shows only the operations that no given file contains. Repeat it
    /// for each program that uses the store
    #[arg(long, value_name = "FILE")]
    catalogue: Vec<PathBuf>,
}

pub(crate) async fn run(scopes: &Scopes, store: &DynStore, output: &mut Output) -> Answer {
    let claimed = claimed(&scopes.catalogue)?;
    let counted = look(Walk::new(store, Vec::new(), None), 0, |_| false).await?.counted;
    let mut rows = Vec::new();
    for (scope, figures) in &counted.scopes {
        if claimed.contains(scope) {
            continue;
        }
        if output.is_json() {
            output.line(json!({ "scope": scope, "records": figures.live() }).to_string())?;
        }
        rows.push([safe(scope), figures.live().to_string()]);
    }
    if rows.is_empty() {
        return Ok(End::Nothing);
    }
    if !output.is_json() {
        output.table(["SCOPE", "RECORDS"], &rows)?;
    }
    Ok(End::Done)
}

/// The scopes of all catalogues.
fn claimed(files: &[PathBuf]) -> Answer<BTreeSet<String>> {
    let mut claimed = BTreeSet::new();
    for file in files {
        let catalogue = read(file).map_err(|why| {
            Trouble::new(End::Usage, format!("cannot read the catalogue {}: {why}", file.display()))
        })?;
        claimed.extend(catalogue.operations().iter().filter_map(|operation| operation.scope.clone()));
    }
    Ok(claimed)
}

fn read(file: &Path) -> Result<Catalogue, String> {
    let text = std::fs::read_to_string(file).map_err(|error| error.to_string())?;
    Catalogue::parse(&text).map_err(|error| error.to_string())
}
