//! A session with the store's tables, for tests of single statements.

use std::sync::Arc;
use std::time::Duration;

use idem_core::{Key, RecordKey, Scope};
use idem_store_kit::hints::Hints;
use idem_store_kit::sql::Identifier;
use idem_test_servers::MariaDb;

use super::Statements;
use crate::db::connector::{Connector, Opener, database, of_url};
use crate::db::schema;
use crate::db::session::{AT_ONCE, Session};
use crate::layout::Names;
use crate::setting::Setting;

pub(crate) fn names_of(server: &MariaDb) -> Names {
    let database = database(&of_url(&server.url()).unwrap()).unwrap();
    Names::new(&Identifier::existing(database), &Identifier::table("records").unwrap())
}

pub(crate) fn setting_of(server: &MariaDb) -> Setting {
    let statements = Arc::new(Statements::new(names_of(server)));
    let (timeout, max_age) = (Duration::from_secs(5), Duration::from_secs(60));
    let connector = Connector::new(Opener, of_url(&server.url()).unwrap(), timeout, max_age);
    let (stepped, has_transactions) = (Hints::default(), Default::default());
    Setting {
        connector,
        statements,
        at_once: AT_ONCE,
        stepped,
        connections: 1,
        most_bytes: 1 << 20,
        has_transactions,
    }
}

/// A session on this server. Creates the tables if they are missing.
pub(crate) async fn opened(server: &MariaDb) -> (Session, Statements) {
    let Setting { connector, .. } = setting_of(server);
    let names = names_of(server);
    schema::prepare(&connector, &names, &names.layouts(), false).await.unwrap();
    let session = connector.connect().await.unwrap();
    assert!(session.prepares());
    (session, Statements::new(names))
}

pub(crate) fn key_of(name: &str) -> RecordKey {
    RecordKey::new(Scope::new("orders").unwrap(), Key::new(name).unwrap())
}
