//! `MySqlStore` against the conformance kit: two stores on one table, as in two processes, of which one prepares
//! statements and the other does not. The first of the two does most.

use std::sync::Arc;

use idem_test_servers::MariaDb;
use idem_testing::conformance::Subject;

use crate::support::{both_ways, subject};

async fn first(way: usize, server: Arc<MariaDb>) -> Subject {
    let ways = both_ways(&server);
    subject(ways[way].clone(), ways[1 - way].clone()).await.keep(server)
}

mod with_prepared_statements {
    use super::*;

    idem_testing::conformance_suite!({
        let server = Arc::new(MariaDb::shared());
        move || first(0, Arc::clone(&server))
    });
}

mod without_prepared_statements {
    use super::*;

    idem_testing::conformance_suite!({
        let server = Arc::new(MariaDb::shared());
        move || first(1, Arc::clone(&server))
    });
}
