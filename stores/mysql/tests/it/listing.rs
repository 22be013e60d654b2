//! Listing: pages over several scopes.

use idem_mysql::MySqlStore;
use idem_runtime::listing::List;
use idem_runtime::protocol::Owner;
use idem_runtime::{Key, RecordKey, Scope, Store as _};
use idem_test_servers::{MariaDb, until};

use crate::support::claim;

#[tokio::test(flavor = "multi_thread")]
async fn pages_over_several_scopes_have_each_record_once_by_scope_and_then_by_key() {
    let server = MariaDb::start();
    let store = MySqlStore::builder(&server.url()).table("listed").connect().await.unwrap();
    // Those of the later scopes have the earlier keys.
    let names = [("a", "y"), ("a", "z"), ("b", "w"), ("b", "x"), ("c", "u"), ("c", "v")];
    for (scope, name) in names {
        let key = RecordKey::new(Scope::new(scope).unwrap(), Key::new(name).unwrap());
        store.claim(&key, &claim(Owner::random())).await.unwrap();
    }
    for limit in [1, 2, 3, 4, 5, 6, 7] {
        let (mut request, mut found) = (List::default().with_limit(limit), Vec::new());
        loop {
            let page = store.list(&request).await.unwrap();
            assert!(page.records.len() <= limit && found.len() <= names.len(), "{limit}");
            found.extend(page.records.iter().map(|listed| {
                (listed.key.scope().as_str().to_owned(), listed.key.key().as_str().to_owned())
            }));
            let Some(next) = page.next else { break };
            request = request.with_after(Some(next));
        }
        let found: Vec<_> = found.iter().map(|(scope, key)| (scope.as_str(), key.as_str())).collect();
        assert_eq!(found, names, "{limit}");
    }
}

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
