//! Messages are committed or rolled back with their transaction, and are published in order, once.

use crate::outbox_support;

use std::time::Duration;

use idem_outbox::{Message, MessageId, Outbox, OutboxError, PublishError, Publisher, Relay};
use idem_test_servers::Postgres;
use outbox_support::{Bed, Broker, Running, Then, wait, wait_for_sql};
use sqlx::{Executor as _, Row as _};

/// Counts the visible messages that a relay has held back: it has served and released the topic since these
/// messages were written, and has not published them.
const HELD_BACK: &str = "select count(*) from idem_outbox_topics t join idem_outbox m on m.topic = t.topic \
     where t.topic = 'orders' and t.owner is null and t.served_at > m.enqueued_at";

#[tokio::test(flavor = "multi_thread")]
async fn what_is_settled_goes_in_as_many_batches_and_turns_as_it_takes_whatever_is_open_by_then() {
    struct Slow(Broker);

    impl Publisher for Slow {
        async fn publish(&self, message: &Message) -> Result<(), PublishError> {
            // All calls of `publish` together take longer than a turn.
            tokio::time::sleep(Duration::from_millis(200)).await;
            self.0.publish(message).await
        }
    }

    let bed = Bed::open().await;
    for number in 0..8 {
        bed.send("orders", &number.to_string()).await;
    }
    let mut first = bed.begin().await;
    bed.outbox.enqueue(&mut first, "orders", "first").await.unwrap();
    let broker = Broker::willing();
    let relay = Relay::new(bed.outbox.clone(), Slow(broker.clone())).batch(2);
    let relay = Running::start(relay.poll_interval(Duration::from_millis(200)));
    wait_for_sql(&bed.server, HELD_BACK, "8").await;
    let mut second = bed.begin().await;
    bed.outbox.enqueue(&mut second, "orders", "second").await.unwrap();
    first.commit().await.unwrap();
    broker.until_taken(8).await;
    assert_eq!(broker.taken().len(), 8, "the second transaction may have earlier numbers than the first");
    second.commit().await.unwrap();
    broker.until_taken(10).await;
    relay.stop().await;
    assert_eq!(broker.payloads()[8..], ["first", "second"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_number_is_given_only_after_the_transaction_shows_itself() {
    let bed = Bed::open().await;
    let mut tx = bed.begin().await;
    bed.outbox.enqueue(&mut tx, "orders", "first").await.unwrap();
    let lock = "SELECT (classid::bigint << 32) | objid::bigint FROM pg_locks \
                WHERE locktype = 'advisory' AND mode = 'ShareLock' AND pid = pg_backend_pid()";
    let lock: i64 = tx.fetch_one(lock).await.unwrap().get(0);
    tx.commit().await.unwrap();
    // An exclusive lock keeps an enqueueing transaction from taking the shared lock.
    let mut alone = bed.begin().await;
    sqlx::query("SELECT pg_advisory_xact_lock($1)").bind(lock).execute(&mut *alone).await.unwrap();
    let (pool, outbox) = (bed.pool.clone(), bed.outbox.clone());
    let enqueuing = tokio::spawn(async move {
        let mut tx = pool.begin().await.unwrap();
        outbox.enqueue(&mut tx, "orders", "second").await.unwrap();
        tx.commit().await.unwrap();
    });
    let waits = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'";
    wait_for_sql(&bed.server, waits, "1").await;
    let given = "select last_value from idem_outbox_sequence_seq";
    assert_eq!(bed.server.sql(given), "1");
    alone.commit().await.unwrap();
    enqueuing.await.unwrap();
    assert_eq!(bed.server.sql(given), "2");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_is_prepared_is_waited_for_until_it_is_committed() {
    let bed = Bed::on(Postgres::with(&["fsync=off", "max_prepared_transactions=2"])).await;
    // The server does not prepare a transaction with a `NOTIFY`.
    let quiet = Outbox::builder(&bed.server.url()).notify(false).connect().await.unwrap();
    let mut first = bed.begin().await;
    quiet.enqueue(&mut first, "orders", "first").await.unwrap();
    first.execute("PREPARE TRANSACTION 'first'").await.unwrap();
    drop(first);
    bed.send("orders", "second").await;
    let broker = Broker::willing();
    let relay = bed.run(broker.clone());
    wait_for_sql(&bed.server, HELD_BACK, "1").await;
    assert_eq!(broker.payloads(), [""; 0]);
    bed.sql("commit prepared 'first'");
    broker.until_taken(2).await;
    relay.stop().await;
    assert_eq!(broker.payloads(), ["first", "second"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_id_is_one_message_as_long_as_it_is_in_the_table() {
    let bed = Bed::open().await;
    let id = MessageId::new("order-42").unwrap();
    let mut tx = bed.begin().await;
    assert!(bed.outbox.enqueue_as(&mut tx, &id, "orders", "one").await.unwrap());
    assert!(!bed.outbox.enqueue_as(&mut tx, &id, "orders", "two").await.unwrap());
    tx.commit().await.unwrap();
    let mut tx = bed.begin().await;
    assert!(!bed.outbox.enqueue_as(&mut tx, &id, "others", "three").await.unwrap());
    tx.commit().await.unwrap();
    let broker = Broker::willing();
    let relay = Running::start(bed.relay(broker.clone()).keep_published(Duration::from_secs(3_600)));
    wait("it is noted", || bed.count("state = 'published'") == 1).await;
    let mut tx = bed.begin().await;
    assert!(!bed.outbox.enqueue_as(&mut tx, &id, "orders", "four").await.unwrap());
    tx.commit().await.unwrap();
    relay.stop().await;
    assert_eq!(broker.payloads(), ["one"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_kept_is_purged_when_its_time_is_over_and_nothing_else_is() {
    let bed = Bed::open().await;
    let broker = Broker::willing();
    for number in 0..10 {
        bed.send("orders", &number.to_string()).await;
    }
    let relay = Running::start(bed.relay(broker.clone()).keep_published(Duration::from_secs(3_600)));
    wait("all are noted", || bed.count("state = 'published'") == 10).await;
    relay.stop().await;
    bed.send("orders", "pending").await;
    assert_eq!(bed.outbox.purge(100).await.unwrap(), 0);
    bed.sql("update idem_outbox set expires_at = 1 where sequence <= 7");
    assert_eq!(bed.outbox.purge(3).await.unwrap(), 3);
    assert_eq!(bed.outbox.purge(100).await.unwrap(), 4);
    let counts = bed.outbox.counts().await.unwrap();
    assert_eq!((counts.pending, counts.published), (1, 3));
    // If a topic has long been idle and has no pending message, its row is deleted. Later, the row is created
    // again.
    bed.sql("update idem_outbox_topics set served_at = 1, due_at = 1");
    bed.outbox.purge(1).await.unwrap();
    assert_eq!(bed.server.sql("select count(*) from idem_outbox_topics"), "1");
    bed.sql("delete from idem_outbox where published_at is null");
    bed.outbox.purge(1).await.unwrap();
    assert_eq!(bed.server.sql("select count(*) from idem_outbox_topics"), "0");
    bed.send("orders", "pending").await;
    let relay = bed.run(broker.clone());
    broker.until_taken(11).await;
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_enqueued_is_refused_and_the_transaction_goes_on() {
    let bed = Bed::open().await;
    let mut tx = bed.begin().await;
    let error = bed.outbox.enqueue(&mut tx, "orders", vec![0; (16 << 20) + 1]).await.unwrap_err();
    assert!(matches!(error, OutboxError::TooLarge { size: 16_777_217, .. }), "{error}");
    let error = bed.outbox.enqueue(&mut tx, "", "x").await.unwrap_err();
    assert!(matches!(error, OutboxError::InvalidTopic), "{error}");
    bed.outbox.enqueue(&mut tx, "orders", "fits").await.unwrap();
    tx.commit().await.unwrap();
    let mut connection = bed.pool.acquire().await.unwrap();
    let error = bed.outbox.enqueue(&mut connection, "orders", "alone").await.unwrap_err();
    assert!(matches!(error, OutboxError::NoTransaction), "{error}");
    assert_eq!(bed.count("true"), 1);
    // The server's error detail contains the refused row with its payload. The outbox's error must not
    // contain the payload.
    bed.sql("alter table idem_outbox add check (octet_length(payload) < 12)");
    let mut tx = bed.begin().await;
    let error = bed.outbox.enqueue(&mut tx, "orders", "secret payload").await.unwrap_err();
    let said = format!("{error} {error:?}");
    assert!(said.contains("23514") && !said.contains("secret"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rights_that_the_runbook_names_are_enough() {
    let bed = Bed::open().await;
    bed.sql("create role writer login; create role relay login");
    bed.sql("grant select on idem_outbox_meta to writer, relay");
    bed.sql("grant select, insert on idem_outbox to writer");
    bed.sql("grant select, insert, update, delete on idem_outbox, idem_outbox_topics to relay");
    let as_user = |user: &str| bed.server.url().replace("postgres@", &format!("{user}@"));
    let pool = sqlx::PgPool::connect(&as_user("writer")).await.unwrap();
    let outbox = Outbox::from_pool(&pool).await.unwrap();
    let mut tx = pool.begin().await.unwrap();
    outbox.enqueue(&mut tx, "orders", "one").await.unwrap();
    tx.commit().await.unwrap();
    let outbox = Outbox::connect(&as_user("relay")).await.unwrap();
    let broker = Broker::new(|seen| if seen.attempt == 1 { Then::Fail } else { Then::Poison });
    let relay =
        Relay::new(outbox.clone(), broker).backoff(Duration::from_millis(1), Duration::from_millis(1));
    let relay = Running::start(relay);
    wait("it is set aside", || bed.count("state = 'set_aside' and attempts = 2") == 1).await;
    relay.stop().await;
    let aside = outbox.set_aside(1).await.unwrap();
    assert!(outbox.retry(&aside[0].id).await.unwrap());
    outbox.purge(1).await.unwrap();
    assert_eq!(outbox.counts().await.unwrap().pending, 1);
}
