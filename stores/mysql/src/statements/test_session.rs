//! A session with the store's tables, for tests of single statements.

use std::time::Duration;

use idem_core::{Key, RecordKey, Scope};
use idem_test_servers::MariaDb;

use super::Statements;
use crate::db::connector::{Connector, Source};
use crate::db::identifier::Identifier;
use crate::db::schema;
use crate::db::session::Session;
use crate::layout::Names;

pub(super) async fn opened(server: &MariaDb) -> (Session, Statements) {
    let source = Source::of_url(&server.url()).unwrap();
    let names =
        Names::new(&Identifier::database(&source.database().unwrap()), &Identifier::table("records").unwrap());
    let (timeout, max_age) = (Duration::from_secs(10), Duration::from_secs(60));
    let mut session = Connector { source, timeout, max_age, prepares: true }.connect().await.unwrap();
    schema::prepare(&mut session, &names, false).await.unwrap();
    assert!(session.prepares());
    (session, Statements::new(names))
}

pub(super) fn key_of(name: &str) -> RecordKey {
    RecordKey::new(Scope::new("orders").unwrap(), Key::new(name).unwrap())
}
