//! `MySqlStore` against the conformance kit: two stores on one table, as in two processes. One test per
//! theme, because a server is slow to start.

use crate::support;

use idem_test_servers::MariaDb;
use idem_testing::conformance::{self, Check};

use support::subject;

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
    let server = MariaDb::start();
    let url = server.url();
    let checks: Vec<&Check> = conformance::all().iter().filter(|check| check.theme() == theme).collect();
    assert!(!checks.is_empty());
    let broken: Vec<_> = [true, false]
        .into_iter()
        .flat_map(|prepares| checks.iter().map(move |check| (check, prepares)))
        .filter_map(|(check, prepares)| {
            let url = url.clone();
            let run = check.run(move || subject(url, prepares));
            run.err().map(|broken| (prepares, broken))
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
