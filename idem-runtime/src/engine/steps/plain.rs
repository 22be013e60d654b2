//! Says that a step is not recorded, once for each name.

use std::collections::HashSet;
use std::sync::{LazyLock, Mutex, PoisonError};

use crate::context::Context;

/// More names than a program has, where none carries an index.
const MOST: usize = 1_024;

static SAID: LazyLock<Mutex<HashSet<(String, String)>>> = LazyLock::new(Mutex::default);

/// The step of this name runs plainly, in this call or in none.
pub(super) fn say(context: Option<&Context>, name: &str) {
    let operation = context.map_or("", Context::operation);
    // A loop names its steps alike, but for the index.
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
        event = "step_plain",
        operation,
        step = name,
        why,
        "a step runs without being recorded"
    );
}
