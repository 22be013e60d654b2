//! `outbox`: lists the messages that a relay set aside, lets a relay publish them, or deletes them.

use idem::outbox::Outbox;
use idem::protocol::State;
use idem::{KeyRing, PostgresStore, StoreExt as _};
use idem_test_servers::Postgres;
use serde_json::json;

use crate::idem_command::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_that_were_set_aside_are_settled_and_stand_in_the_trail() {
    let server = Postgres::shared();
    let idem = Idem::new(server.url());
    // The command creates no table.
    idem.run(&["outbox", "list"]).ended(5);
    assert_eq!(server.sql("select to_regclass('idem_outbox') is null"), "t");
    Outbox::connect(&server.url()).await.unwrap();
    idem.run(&["outbox", "list"]).ended(1);
    for id in ["m-1", "m-2", "m-3"] {
        let aside = if id == "m-3" { "null" } else { "1" };
        let columns = "id, topic, payload, attempts, last_error, enqueued_at, set_aside_at";
        let values = format!("'{id}', 'orders', 'hush', 3, 'hush', 1, {aside}");
        let _ = server.sql(&format!("insert into idem_outbox ({columns}) values ({values})"));
    }
    let listed = idem.run(&["--json", "outbox", "list"]).ended(0);
    assert!(!listed.out.contains(SECRET), "{listed:?}");
    assert_eq!(listed.json()[0]["id"], "m-1");
    assert!(idem.run(&["outbox", "list", "--errors"]).ended(0).out.contains(SECRET));
    idem.run(&["outbox", "retry", "m-1"]).ended(6);
    // A database with an outbox may have no records, and then it has no audit trail.
    idem.run(&["outbox", "retry", "m-1", "--yes"]).ended(0);
    PostgresStore::connect(&server.url()).await.unwrap();
    idem.run(&["outbox", "discard", "m-2", "--yes", "--reason", "ticket 7"]).ended(0);
    idem.run(&["outbox", "discard", "m-3", "--yes"]).ended(1);
    assert_eq!(server.sql("select id from idem_outbox where set_aside_at is null order by id"), "m-1\nm-3");
    let trail = idem.run(&["--json", "audit"]).ended(0).json();
    let done: Vec<_> =
        trail.iter().map(|entry| (&entry["action"], &entry["digest"], &entry["outcome"])).collect();
    let discarded = json!("discarded");
    assert!(done.contains(&(&discarded, &json!("m-2"), &json!("done"))), "{trail:?}");
    assert!(done.contains(&(&discarded, &json!("m-3"), &json!("nothing was done"))), "{trail:?}");
    Idem::new("sqlite:nowhere").run(&["outbox", "list"]).ended(2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_is_left_alone_where_the_trail_cannot_be_written() {
    let server = Postgres::start();
    Outbox::connect(&server.url()).await.unwrap();
    let columns = "id, topic, payload, attempts, enqueued_at, set_aside_at";
    let _ =
        server.sql(&format!("insert into idem_outbox ({columns}) values ('m-1', 'orders', 'hush', 3, 1, 1)"));
    let store = PostgresStore::connect(&server.url()).await.unwrap().encrypted(KeyRing::new(1, &[7; 32]));
    bring(&store, &key("order-1"), State::Completed).await;
    let digits = |byte: &str| format!("1 {}", byte.repeat(32));
    let wrong = Idem::new(server.url()).with_environment("IDEM_KEY_RING", &digits("08"));
    for word in ["retry", "discard"] {
        wrong.run(&["outbox", word, "m-1", "--yes"]).ended(5);
    }
    let _ = server.sql("create role clerk login; grant all on idem_outbox, idem_outbox_meta to clerk");
    let clerk = Idem::new(server.url().replacen("postgres@", "clerk@", 1));
    clerk.run(&["outbox", "discard", "m-1", "--yes"]).ended(5);
    assert_eq!(server.sql("select count(*) from idem_outbox where set_aside_at is not null"), "1");
    let right = Idem::new(server.url()).with_environment("IDEM_KEY_RING", &digits("07"));
    right.run(&["outbox", "discard", "m-1", "--yes"]).ended(0);
    assert_eq!(right.run(&["--json", "audit"]).ended(0).one()["action"], "discarded");
}
