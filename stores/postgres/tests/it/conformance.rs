//! `PostgresStore` against the conformance kit: two stores on one table, as in two processes; and the same
//! through a pooler.

use std::sync::Arc;

use idem_test_servers::Postgres;
use idem_testing::conformance::{Profile, run_theme};

use crate::poolers;
use crate::support::subject;

idem_testing::conformance_suite!({
    let server = Arc::new(Postgres::shared());
    move || {
        let server = Arc::clone(&server);
        async move { subject(server.url(), Profile::real_clock()).await.keep(server) }
    }
});

/// The themes of the conformance kit that depend on the sessions of a pooler.
const THEMES: [&str; 4] = ["transitions", "histories", "races", "duels"];

#[test]
fn through_a_pooler_in_transaction_mode() {
    poolers::left_alone(|url| {
        for theme in THEMES {
            let url = url.to_owned();
            run_theme(theme, move || subject(url.clone(), Profile::real_clock().sample(16))).unwrap();
        }
    });
}
