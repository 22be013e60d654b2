//! Walks, and the sessions that they use.

use idem_mysql::MySqlStore;
use idem_runtime::listing::List;
use idem_runtime::protocol::Owner;
use idem_runtime::{Key, RecordKey, Scope, Store as _};
use idem_test_servers::{MariaDb, until};

use crate::support::claim;

/// Each call that has no next page, and each walk that is not continued, would leave a session behind, on a server that may not be the
/// primary any more.
#[tokio::test(flavor = "multi_thread")]
async fn no_session_stays_behind_a_walk() {
    let server = MariaDb::start();
    let store = MySqlStore::builder(&server.url()).table("walked").connect().await.unwrap();
    for name in ["a", "b", "c"] {
        let key = RecordKey::new(Scope::new("s").unwrap(), Key::new(name).unwrap());
        store.claim(&key, &claim(Owner::random())).await.unwrap();
    }
    let sessions = || {
        let count = server.sql("select count(*) from information_schema.processlist where user = 'root'");
        count.parse::<u32>().unwrap()
    };
    let before = sessions();
    for _ in 0..3 {
        let page = store.list(&List::default().with_limit(1)).await.unwrap();
        assert!(page.next.is_some());
        tokio::task::block_in_place(|| until("its session is closed", || sessions() <= before));
    }
}
