//! What the differences between two catalogues mean for existing records, as sentences.
//!
//! This file only compares two catalogues. `mod.rs` reads and writes the committed file.

use idem_runtime::{Catalogue, CatalogueKeyPart, CatalogueOperation};

/// What the change from `old` to `new` does to the records of `old`: one sentence for each change.
///
/// ```
/// # use idem_runtime as idem;
/// use idem::Catalogue;
///
/// let pay = |key| format!(r#"{{"operations": [{{"scope": "pay", "path": "shop::pay", "key": "{key}", "ttl": "24h"}}]}}"#);
/// let old = Catalogue::parse(&pay("order/{order.id}"))?;
/// let new = Catalogue::parse(&pay("order/{order.number}"))?;
/// let words = idem_testing::differences(&old, &new);
/// assert!(words[0].starts_with("pay: the key was `order/{order.id}` and is `order/{order.number}`"));
/// # Ok::<(), idem::CatalogueError>(())
/// ```
#[must_use]
pub fn differences(old: &Catalogue, new: &Catalogue) -> Vec<String> {
    let mut words = Vec::new();
    let mut added: Vec<&CatalogueOperation> = new.operations().iter().collect();
    let mut removed = Vec::new();
    for old in old.operations() {
        match taken(&mut added, |new| new.scope == old.scope && new.path == old.path)
            .or_else(|| taken(&mut added, |new| new.scope == old.scope))
        {
            Some(new) => words.extend(changes(old, new)),
            None => removed.push(old),
        }
    }
    for old in removed {
        match taken(&mut added, |new| new.path == old.path) {
            Some(new) => {
                words.push(scope_changed(old, new));
                words.extend(changes(old, new));
            }
            None => words.push(format!(
                "{}: the operation is gone: its records stay until they expire ({}), and nobody is given their results; \
                 under another name and path its calls run again",
                named(old),
                old.ttl
            )),
        }
    }
    words.extend(
        added.into_iter().map(|new| {
            format!("{}: the operation is new, at {}: no record is affected", named(new), new.path)
        }),
    );
    words.extend(parts(old.key_parts(), new.key_parts()));
    words
}

/// Faults of the catalogue itself, whatever the committed file contains: operations without a scope, and
/// operations with the same scope but different keys or return types.
pub(super) fn contradictions(catalogue: &Catalogue) -> Vec<String> {
    let operations = catalogue.operations();
    let unnamed = operations.iter().filter(|operation| operation.scope.is_none()).map(|operation| {
        format!(
            "{}: each call is refused, as nothing names its records: write `scope = \"..\"`",
            operation.path
        )
    });
    // The operations are sorted by scope, so two with the same scope are neighbours.
    let pairs =
        operations.windows(2).filter(|pair| pair[0].scope.is_some() && pair[0].scope == pair[1].scope);
    let clashes = pairs.filter_map(|pair| {
        let (first, second) = (&pair[0], &pair[1]);
        let (what, one, other) = [
            ("keys", &first.key, &second.key),
            ("return types", &first.returns, &second.returns),
        ]
        .into_iter()
        .find(|(_, one, other)| one != other)?;
        Some(format!(
            "{}: two operations have this scope, {} and {}, with different {what}, `{one}` and `{other}`: each answers \
             calls of the other",
            named(first),
            first.path,
            second.path
        ))
    });
    unnamed.chain(clashes).collect()
}

fn taken<'c>(
    operations: &mut Vec<&'c CatalogueOperation>,
    is_it: impl Fn(&CatalogueOperation) -> bool,
) -> Option<&'c CatalogueOperation> {
    let at = operations.iter().position(|operation| is_it(operation))?;
    Some(operations.remove(at))
}

fn named(operation: &CatalogueOperation) -> &str {
    operation.scope.as_deref().unwrap_or(&operation.path)
}

fn scope_changed(old: &CatalogueOperation, new: &CatalogueOperation) -> String {
    let (scope, path, ttl) = (named(old), &old.path, &old.ttl);
    format!(
        "{path}: the scope was `{scope}` and is `{}`: records of the last {ttl} are not found, and calls that repeat them \
         run again; `scope = \"{scope}\"` keeps them",
        named(new)
    )
}

fn changes(old: &CatalogueOperation, new: &CatalogueOperation) -> Vec<String> {
    let scope = named(new);
    let lost = format!("records of the last {} are not found, and calls that repeat them run again", old.ttl);
    let mut words = Vec::new();
    if old.key != new.key {
        words.push(format!("{scope}: the key was `{}` and is `{}`: {lost}", old.key, new.key));
    } else if old.arguments != new.arguments {
        let (old, new) = (old.arguments.join(", "), new.arguments.join(", "));
        words.push(format!(
            "{scope}: the key is made of `{new}`, which was `{old}`: unless every value is rendered as before, {lost}"
        ));
    }
    if old.attribute != new.attribute {
        let (old, new) = (&old.attribute, &new.attribute);
        words.push(format!("{scope}: idem makes names and keys by rules {new}, which were {old}: {lost}"));
    }
    if old.fingerprint != new.fingerprint {
        words.push(fingerprint_changed(scope, old, new));
    }
    if old.returns != new.returns {
        words.push(format!(
            "{scope}: the return type was `{}` and is `{}`: results of the last {} may not decode, and then calls that \
             repeat them get `Error::Undecodable`: keep the form that serde writes, or give the new one a new scope",
            old.returns, new.returns, old.ttl
        ));
    }
    if old.ttl != new.ttl {
        words.push(ttl_changed(scope, old, new));
    }
    if old.lease != new.lease {
        words.push(format!(
            "{scope}: the lease was {} and is {}: what is in flight keeps the old one; workers that are silent for longer \
             than the new one are taken for dead",
            old.lease, new.lease
        ));
    }
    if old.on_crash != new.on_crash {
        words.push(crash_policy_changed(scope, &new.on_crash));
    }
    if old.path != new.path {
        words.push(format!("{scope}: moved from {} to {}: no record is affected", old.path, new.path));
    }
    words
}

fn fingerprint_changed(scope: &str, old: &CatalogueOperation, new: &CatalogueOperation) -> String {
    let shown = |fingerprint: &Option<String>| {
        fingerprint.as_ref().map_or_else(|| "nothing".to_owned(), |fingerprint| format!("`{fingerprint}`"))
    };
    let change = format!(
        "{scope}: the fingerprint was {} and is {}",
        shown(&old.fingerprint),
        shown(&new.fingerprint)
    );
    let ttl = &old.ttl;
    match (&old.fingerprint, &new.fingerprint) {
        (Some(_), Some(_)) => format!(
            "{change}: calls that repeat those of the last {ttl} are refused as a mismatch (`Error::Mismatch`), their \
             results are not given"
        ),
        (Some(_), None) => format!("{change}: calls with other values under one key are given its result"),
        (None, _) => {
            format!("{change}: records of the last {ttl} have none, and answer whatever the values are")
        }
    }
}

fn ttl_changed(scope: &str, old: &CatalogueOperation, new: &CatalogueOperation) -> String {
    let (was, is) = (&old.ttl, &new.ttl);
    let change = format!("{scope}: the ttl was {was} and is {is}");
    match (seconds(was), seconds(is)) {
        (Some(was_seconds), Some(is_seconds)) if is_seconds > was_seconds => {
            format!("{change}: results that are already there are still kept for {was} only")
        }
        (Some(_), Some(_)) => format!("{change}: duplicates that come later than {is} run again"),
        _ => format!("{change}: if it is shorter now, duplicates that come later than it run again"),
    }
}

fn crash_policy_changed(scope: &str, is: &str) -> String {
    if is == "in_doubt" {
        format!(
            "{scope}: after a crash keys are in doubt until an operator has looked, and were run again: `idem list --state \
             in_doubt`"
        )
    } else {
        format!(
            "{scope}: after a crash the body runs again, and did not: its effect may happen twice where the downstream \
             does not take the derived key"
        )
    }
}

fn parts(old: &[CatalogueKeyPart], new: &[CatalogueKeyPart]) -> Vec<String> {
    let shown = |part: &CatalogueKeyPart| part.fields.join(", ");
    let find = |parts: &[CatalogueKeyPart], path: &str| parts.iter().find(|part| part.path == path).cloned();
    let mut words = Vec::new();
    for was in old {
        let path = &was.path;
        match find(new, path) {
            None => words.push(format!(
                "{path}: the type is gone from the keys: where another takes its place and is not rendered as it was, keys \
                 with it are not found, and their calls run again"
            )),
            Some(is) if is.fields != was.fields => words.push(format!(
                "{path}: it was rendered as `{}` and is as `{}`: keys with it are not found where the values or their order \
                 differ, and their calls run again",
                shown(was),
                shown(&is)
            )),
            Some(_) => {}
        }
    }
    let added = new.iter().filter(|is| find(old, &is.path).is_none());
    words.extend(added.map(|is| format!("{}: the type is new in keys: no record is affected", is.path)));
    words
}

/// The length of a duration in seconds; `None` for an expression.
fn seconds(duration: &str) -> Option<f64> {
    let at = duration.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = duration.split_at(at);
    let unit = match unit {
        "ms" => 0.001,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3_600.0,
        "d" => 86_400.0,
        _ => return None,
    };
    Some(number.parse::<f64>().ok()? * unit)
}
