//! Tests that the documented tables of options agree with the parser, and that the macros' copies of limits
//! agree with the runtime.

use std::path::Path;
use std::time::Duration;

use idem::MAX_SCOPE_BYTES;
use idem_core::defaults;

#[path = "../../idem-macros/src/limits.rs"]
mod limits;
#[path = "../../idem-macros/src/attribute/names.rs"]
mod names;

use names::NAMES;

const PAGE: &str = include_str!("../../docs/attribute.md");
const RUSTDOC: &str = include_str!("../../idem-macros/src/lib.rs");

/// The rows of a table of options: name and text of the last column.
fn rows<'t>(text: &'t str, begin: &str) -> Vec<(&'t str, &'t str)> {
    let row = |line: &'t str| {
        let row = line.strip_prefix(begin)?;
        let name = row.split([' ', '`']).next()?;
        Some((name, row.trim_end_matches([' ', '|']).rsplit(" | ").next()?))
    };
    text.lines().filter_map(row).collect()
}

/// The rows of the table of options, from `key` to `crate`.
fn options<'t>(text: &'t str, begin: &str) -> Vec<(&'t str, &'t str)> {
    let rows = rows(text, begin);
    let start = rows.iter().position(|(name, _)| *name == "key").unwrap_or(rows.len());
    let end = rows.iter().rposition(|(name, _)| *name == "crate").map_or(start, |end| end + 1);
    rows[start..end].to_vec()
}

fn sorted<'n>(names: impl IntoIterator<Item = &'n str>) -> Vec<&'n str> {
    let mut names: Vec<&str> = names.into_iter().collect();
    names.sort_unstable();
    names
}

#[test]
fn every_table_has_every_option_with_the_default_that_the_runtime_has_and_no_other() {
    let defaults = [
        ("ttl", format!("{}h", defaults::TTL.as_secs() / 3_600)),
        ("lease", format!("{}s", defaults::LEASE.as_secs())),
        ("store_timeout", format!("{}s", defaults::STORE_TIMEOUT.as_secs())),
    ];
    for (table, begin) in [(RUSTDOC, "/// | `"), (PAGE, "| `")] {
        let options = options(table, begin);
        assert_eq!(sorted(options.iter().map(|row| row.0)), sorted(NAMES), "{begin}");
        for (name, shown) in &defaults {
            let default = options.iter().find(|row| row.0 == *name).unwrap().1;
            assert_eq!(default, shown, "{begin}{name}");
        }
    }
}

#[test]
fn the_page_has_every_option_and_each_has_an_example() {
    let mut headings = String::new();
    let options = PAGE.split("\n## ").find(|section| section.starts_with("Options")).unwrap();
    for line in options.lines().filter(|line| line.starts_with("### ")) {
        headings.push_str(line);
    }
    let headed: Vec<&str> = headings.split('`').skip(1).step_by(2).collect();
    assert_eq!(sorted(headed), sorted(NAMES));
    for option in NAMES {
        let is_used = |line: &str| line.contains("#[idempotent(") && line.contains(option);
        assert!(PAGE.lines().any(is_used), "{option} has no example");
    }
}

#[test]
fn sentences_elsewhere_say_the_default_lease_that_the_runtime_has() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for (path, says) in [
        ("README.md", "the lease (SECONDS s, renewed"),
        ("docs/attribute.md", "keeps its claim (SECONDSs)"),
        ("docs/http.md", "when the lease (SECONDS s) is over"),
        ("docs/messages.md", "other call's lease (SECONDS s unless set)"),
        ("docs/messages.md", "wait for the old leases (SECONDS s unless set)"),
        ("docs/tutorial.md", "worker's lease (SECONDS s)"),
        ("idem-core/src/defaults.rs", "lasts without a renewal: SECONDS seconds"),
        ("idem-runtime/src/engine/prepare/operation.rs", "without a renewal; SECONDS seconds unless set"),
        ("web/http/src/builder.rs", "for at most this time; SECONDS seconds unless set"),
        ("web/client/src/policy.rs", "default lease (SECONDS s)"),
    ] {
        let says = says.replace("SECONDS", &defaults::LEASE.as_secs().to_string());
        let text = std::fs::read_to_string(root.join(path)).unwrap();
        assert!(text.contains(&says), "{path} does not say \"{says}\"");
    }
}

#[test]
fn the_macro_checks_the_limits_that_the_runtime_has() {
    assert_eq!(limits::MAX_SCOPE_BYTES, MAX_SCOPE_BYTES);
    assert_eq!(limits::DEFAULT_LEASE, defaults::LEASE);
    assert_eq!(Duration::from_millis(limits::MAX_DURATION_MILLIS), defaults::LONGEST);
}
