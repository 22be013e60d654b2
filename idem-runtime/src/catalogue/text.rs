//! A catalogue as a file: one stanza for each operation or type, and one line for each fact.

use std::fmt;

use super::{Catalogue, CatalogueError, CatalogueKeyPart, CatalogueOperation};

const HEAD: &str = "# What the records of idem depend on: `idem_testing::assert_catalogue` says what a difference means for \
                    them,\n# and IDEM_UPDATE=1 writes this file anew.\n";

/// The text for a missing scope, which the attribute must set.
const NO_SCOPE: &str = "(none)";

const OPERATION: &str = "operation ";
const KEY_PART: &str = "key part ";

pub(super) fn write(catalogue: &Catalogue, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str(HEAD)?;
    for operation in &catalogue.operations {
        writeln!(f, "\n{OPERATION}{}", operation.scope.as_deref().unwrap_or(NO_SCOPE))?;
        for (name, fact) in facts(operation) {
            writeln!(f, "  {name:<11} {fact}")?;
        }
    }
    for part in &catalogue.key_parts {
        writeln!(f, "\n{KEY_PART}{}", part.path)?;
        for (name, fact) in &part.fields {
            writeln!(f, "  {name:<11} {fact}")?;
        }
    }
    Ok(())
}

fn facts(operation: &CatalogueOperation) -> Vec<(&'static str, &str)> {
    let mut facts = vec![("path", operation.path.as_str()), ("key", &operation.key)];
    facts.extend(operation.arguments.iter().map(|argument| ("argument", argument.as_str())));
    facts.extend(operation.fingerprint.iter().map(|fingerprint| ("fingerprint", fingerprint.as_str())));
    facts.push(("ttl", &operation.ttl));
    facts.push(("lease", &operation.lease));
    facts.push(("on_crash", &operation.on_crash));
    facts.push(("returns", &operation.returns));
    facts.push(("attribute", &operation.attribute));
    facts
}

/// The stanza that the parser is reading.
enum Stanza {
    Operation(Box<CatalogueOperation>),
    KeyPart(CatalogueKeyPart),
}

pub(super) fn parse(text: &str) -> Result<Catalogue, CatalogueError> {
    let mut catalogue = Catalogue::default();
    let mut open = None;
    for (index, line) in text.lines().enumerate() {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(begun) = begin(line) {
            close(open.replace(begun), &mut catalogue);
        } else if fact(line, open.as_mut()).is_none() {
            return Err(CatalogueError { line: index + 1, text: line.to_owned() });
        }
    }
    close(open, &mut catalogue);
    Ok(catalogue)
}

fn begin(line: &str) -> Option<Stanza> {
    if let Some(path) = line.strip_prefix(KEY_PART) {
        let part = CatalogueKeyPart { path: path.trim().to_owned(), ..CatalogueKeyPart::default() };
        return Some(Stanza::KeyPart(part));
    }
    let scope = line.strip_prefix(OPERATION)?.trim();
    let scope = (scope != NO_SCOPE).then(|| scope.to_owned());
    Some(Stanza::Operation(Box::new(CatalogueOperation { scope, ..CatalogueOperation::default() })))
}

fn close(stanza: Option<Stanza>, catalogue: &mut Catalogue) {
    match stanza {
        Some(Stanza::Operation(operation)) => catalogue.operations.push(*operation),
        Some(Stanza::KeyPart(part)) => catalogue.key_parts.push(part),
        None => {}
    }
}

/// Reads one fact; `None` if the line is not one.
fn fact(line: &str, stanza: Option<&mut Stanza>) -> Option<()> {
    let line = line.strip_prefix("  ")?.trim_end();
    let (name, fact) = line.split_once(' ').unwrap_or((line, ""));
    let fact = fact.trim_start().to_owned();
    match stanza? {
        Stanza::KeyPart(part) => part.fields.push((name.to_owned(), fact)),
        Stanza::Operation(operation) => {
            let place = match name {
                "path" => &mut operation.path,
                "key" => &mut operation.key,
                "argument" => {
                    operation.arguments.push(fact);
                    return Some(());
                }
                "fingerprint" => operation.fingerprint.insert(String::new()),
                "ttl" => &mut operation.ttl,
                "lease" => &mut operation.lease,
                "on_crash" => &mut operation.on_crash,
                "returns" => &mut operation.returns,
                "attribute" => &mut operation.attribute,
                _ => return None,
            };
            *place = fact;
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_means_nothing_is_named() {
        for text in ["operation a\n  tll 3\n", "operation a\nnothing\n", "operation a\n b\n"] {
            let error = parse(text).unwrap_err();
            assert_eq!(error.line, 2, "{text}");
        }
        assert_eq!(parse("  key a\n").unwrap_err().line, 1);
    }

    #[test]
    fn what_is_written_is_read() {
        let text = "operation (none)\n  path a::b\n  key {x}\n  fingerprint (a, b)\n\nkey part a::C\n  x u8\n  1 Vec<(u8, u8)>\n";
        let catalogue = parse(text).unwrap();
        assert_eq!(catalogue.operations[0].scope, None);
        assert_eq!(catalogue.operations[0].fingerprint.as_deref(), Some("(a, b)"));
        assert_eq!(catalogue.key_parts[0].fields[1], ("1".into(), "Vec<(u8, u8)>".into()));
        assert_eq!(parse(&catalogue.to_string()).unwrap(), catalogue);
    }
}
