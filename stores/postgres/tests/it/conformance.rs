//! `PostgresStore` against the conformance kit: two stores on one table, as in two processes. One test per
//! theme, because a database and a pooler are slow to make; and the same through a pooler.

use idem_test_servers::Postgres;
use idem_testing::conformance::{self, Check};

use crate::poolers;
use crate::support::subject;

/// The themes, each in a test of its own.
macro_rules! themes {
    ($($theme:ident)*) => {
        const THEMES: &[&str] = &[$(stringify!($theme)),*];

        $(#[test]
        fn $theme() {
            run(stringify!($theme), &Postgres::shared().url());
        })*

        mod through_a_pooler_in_session_mode {
            $(#[test]
            fn $theme() {
                super::poolers::left_alone("session", |url| super::run(stringify!($theme), url));
            })*
        }

        mod through_a_pooler_in_transaction_mode {
            $(#[test]
            fn $theme() {
                super::poolers::left_alone("transaction", |url| super::run(stringify!($theme), url));
            })*
        }
    };
}

themes! {
    claim crash attempts replay fingerprints renew complete release steps doubt resolve fences expiry purge records
    keys listing results formats races duels lost outage
}

/// Runs all checks of a theme, and reports all that fail.
fn run(theme: &str, url: &str) {
    let checks: Vec<&Check> = conformance::all().iter().filter(|check| check.theme() == theme).collect();
    assert!(!checks.is_empty());
    let broken: Vec<_> = checks
        .into_iter()
        .filter_map(|check| {
            let url = url.to_owned();
            check.run(move || subject(url)).err()
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
