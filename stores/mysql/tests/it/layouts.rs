//! Tables of other programs, settings that cannot work, and users without rights.

use idem_mysql::MySqlStore;
use idem_runtime::{Store, StoreErrorKind};
use idem_test_servers::MariaDb;

use crate::support::{grant, run};

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_work_is_a_configuration_error_that_says_so() {
    const SECRET: &str = "hunter2";
    let server = MariaDb::start();
    run(&server, "create table foreign_table (x int)");
    run(&server, "create table odd_meta (name varchar(10), value int)");
    drop(MySqlStore::builder(&server.url()).table("newer").connect().await.unwrap());
    run(&server, "update newer_meta set value = 99 where name = 'schema_version'");
    run(
        &server,
        "create user nobody identified by 'x'; create user reader; grant select on idem.* to reader",
    );
    let url = server.url();
    let with_user = |user: &str| url.replace("root@", &format!("{user}@"));
    let no_database = url.replace("/idem", "");
    let wrong = [
        (MySqlStore::builder(&url).table("foreign_table"), "not idem's"),
        (MySqlStore::builder(&url).table("odd"), "not idem's"),
        (MySqlStore::builder(&url).table("newer"), "newer idem"),
        (MySqlStore::builder(&url).table("absent").must_exist(), "there is no table"),
        (MySqlStore::builder(&with_user(&format!("nobody:{SECRET}"))), "1045"),
        (MySqlStore::builder(&with_user("reader")), "1142"),
        (MySqlStore::builder(&url.replace("/idem", "/absent")), "1049"),
        (MySqlStore::builder(&no_database), "names no database"),
        (MySqlStore::builder(&format!("postgres://root:{SECRET}@127.0.0.1/idem")), "mysql://"),
        (MySqlStore::builder(&url).connections(0), "connections"),
    ];
    for (builder, expected) in wrong {
        let error = builder.connect().await.unwrap_err();
        let said = format!("{error} {error:?}");
        assert_eq!(error.kind(), StoreErrorKind::Configuration, "{said}");
        assert!(said.contains(expected) && !said.contains(SECRET), "{expected}: {said}");
    }
    assert_eq!(server.sql("select count(*) from foreign_table"), "0");
    assert_eq!(server.sql("show tables like 'absent%'"), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_that_may_not_make_tables_uses_those_that_exist() {
    let server = MariaDb::start();
    drop(MySqlStore::connect(&server.url()).await.unwrap());
    run(&server, "create user service; grant select, insert, update, delete on idem.* to service");
    let store = MySqlStore::connect(&server.url().replace("root@", "service@")).await.unwrap();
    grant(&store, "order").await;
    assert!(store.forget(&crate::support::key("order")).await.unwrap());
}
