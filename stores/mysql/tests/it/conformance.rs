//! `MySqlStore` against the conformance kit: two stores on one table, as in two processes. One test per
//! theme, because a server is slow to start.

use crate::support;

use idem_test_servers::MariaDb;
use idem_testing::conformance::{self, Check};

use support::{both_ways, subject};

/// The themes, each in a test of its own.
macro_rules! themes {
    ($($theme:ident)*) => {
        const THEMES: &[&str] = &[$(stringify!($theme)),*];

        $(#[test]
        fn $theme() {
            run(stringify!($theme));
        })*
    };
}

themes! {
    claim crash attempts replay fingerprints renew complete release steps doubt resolve fences expiry purge records
    keys listing results formats races duels lost outage
}

/// Runs all checks of a theme, and reports all that fail.
fn run(theme: &str) {
    let server = MariaDb::shared();
    let [prepares, does_not] = both_ways(&server);
    let checks: Vec<&Check> = conformance::all().iter().filter(|check| check.theme() == theme).collect();
    assert!(!checks.is_empty());
    // The first of the two stores does most.
    let ways = [(&prepares, &does_not), (&does_not, &prepares)];
    let broken: Vec<_> = ways
        .into_iter()
        .flat_map(|way| checks.iter().map(move |check| (check, way)))
        .filter_map(|(check, (first, second))| {
            let (one, other) = (first.clone(), second.clone());
            let run = check.run(move || subject(one, other));
            run.err().map(|broken| (first, broken))
        })
        .collect();
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn every_theme_of_the_kit_is_run() {
    let forgotten: Vec<_> =
        conformance::all().iter().map(Check::theme).filter(|theme| !THEMES.contains(theme)).collect();
    assert!(forgotten.is_empty(), "{forgotten:?}");
}
