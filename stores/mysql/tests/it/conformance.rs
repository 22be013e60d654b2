//! `MySqlStore` against the conformance kit: two stores on one table, as in two processes. One of them
//! prepares statements, the other does not. The first store gets most of the requests.

use std::sync::Arc;

use idem_test_servers::MariaDb;
use idem_testing::conformance::{Subject, run_theme};

use crate::support::{both_ways, profile, subject};

async fn first(way: usize, server: Arc<MariaDb>, one_in: usize) -> Subject {
    let ways = both_ways(&server);
    subject(ways[way].clone(), ways[1 - way].clone(), profile().sample(one_in)).await.keep(server)
}

idem_testing::conformance_suite!({
    let server = Arc::new(MariaDb::shared());
    move || first(0, Arc::clone(&server), 1)
});

/// The themes of the conformance kit with claims, completions and reads, because only these operations use
/// prepared statements.
const THEMES: [&str; 6] = ["transitions", "histories", "races", "duels", "keys", "results"];

/// Here the store without prepared statements gets most of the requests. A sample of the cases is enough,
/// because the suite above sends every second request of a trace to such a store, too.
#[test]
fn without_prepared_statements() {
    let server = Arc::new(MariaDb::shared());
    for theme in THEMES {
        let server = Arc::clone(&server);
        run_theme(theme, move || first(1, Arc::clone(&server), 16)).unwrap();
    }
}
