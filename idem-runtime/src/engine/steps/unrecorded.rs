//! Steps that are not recorded: refused if they must not run unrecorded, and otherwise reported once for each name.

use std::collections::HashSet;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use super::super::context::{self, Context};
use crate::error::{Error, StepError};

/// Upper limit of the names that are remembered. A program has fewer, as indexes are left out.
const MOST: usize = 1_024;

static SAID: LazyLock<Mutex<HashSet<(String, String)>>> = LazyLock::new(Mutex::default);

/// Whether the step of this name may run without being recorded, inside or outside a call.
pub(super) fn allowed(context: Option<&Context>, strict: bool, name: &Arc<str>) -> Result<(), Error> {
    let refused = |operation: &str| {
        let detail = format!("step {name:?}: {}", StepError::Unprotected);
        Err(Error::configuration(operation, detail))
    };
    match (context, context::strict_and_unguarded()) {
        (Some(context), _) if strict || context.strict_steps() => {
            Err(Error::Step { call: context.id(), step: name.clone(), source: StepError::Unprotected })
        }
        (None, Some(operation)) => refused(&operation),
        (None, None) if strict => refused("(no call)"),
        _ => {
            say(context, name);
            Ok(())
        }
    }
}

/// Reports once that the step of this name runs without being recorded.
fn say(context: Option<&Context>, name: &str) {
    let operation = context.map_or("", Context::operation);
    // The steps of a loop differ only in the index.
    let family = name.strip_suffix(']').and_then(|name| name.rsplit_once('[')).map_or(name, |(name, _)| name);
    let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    if said.len() >= MOST || !said.insert((operation.to_owned(), family.to_owned())) {
        return;
    }
    drop(said);
    let why = match context {
        None => "it is not in the task of an idempotent call",
        Some(context) if context.protected() => "the call records in a transaction of its caller's",
        Some(_) => "the call runs unprotected",
    };
    tracing::warn!(
        target: "idem",
        event = "step_unprotected",
        operation,
        step = name,
        why,
        "a step runs without being recorded"
    );
}
