//! All kinds of failures at once, at random.

use crate::outbox_support;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use outbox_support::{Bed, Broker, Running, Then, check_first_deliveries, wait};

/// Three relays that are killed at random, one broker that fails at random, five topics.
#[tokio::test(flavor = "multi_thread")]
async fn at_random_nothing_is_lost_nothing_overtakes_and_every_id_comes() {
    const MESSAGES: usize = 5_000;
    let bed = Arc::new(Bed::open().await);
    let broker = Broker::new(|_| match rand::random::<u16>() {
        0..60 => Then::Unavailable,
        60..120 => Then::Fail,
        120..140 => Then::Panic,
        140..150 => Then::Hang,
        _ => Then::Take,
    });
    let enqueuers: Vec<_> = (0..5)
        .map(|enqueuer| {
            let bed = bed.clone();
            tokio::spawn(async move {
                let mut ids = Vec::new();
                while ids.len() < MESSAGES / 5 {
                    let mut tx = bed.begin().await;
                    let mut new = Vec::new();
                    if rand::random_ratio(1, 8) {
                        sqlx::query("SAVEPOINT sp").execute(&mut *tx).await.unwrap();
                        bed.outbox.enqueue(&mut tx, "topic 0", "rolled back").await.unwrap();
                        sqlx::query("ROLLBACK TO sp").execute(&mut *tx).await.unwrap();
                    }
                    for number in 0..rand::random_range(1..=20_usize).min(MESSAGES / 5 - ids.len()) {
                        let topic = format!("topic {}", (enqueuer + number) % 5);
                        new.push(bed.outbox.enqueue(&mut tx, &topic, "x").await.unwrap().to_string());
                    }
                    if rand::random_ratio(1, 16) {
                        drop(tx);
                    } else if rand::random_ratio(1, 16) {
                        tx.rollback().await.unwrap();
                    } else {
                        tx.commit().await.unwrap();
                        ids.extend(new);
                    }
                }
                ids
            })
        })
        .collect();
    let start = || {
        let relay = bed.relay(broker.clone()).publish_timeout(Duration::from_millis(100));
        let relay = relay.max_attempts(1_000).batch(25);
        Running::start(relay.backoff(Duration::from_millis(2), Duration::from_millis(20)))
    };
    let mut relays: Vec<_> = (0..3).map(|_| start()).collect();
    let (mut kills, begin) = (0, Instant::now());
    while kills < 6 || bed.count("true") > 0 || enqueuers.iter().any(|enqueuer| !enqueuer.is_finished()) {
        assert!(begin.elapsed() < Duration::from_secs(240), "{} are left", bed.count("true"));
        let before = broker.offered().len();
        let some = rand::random_range(1..500);
        let ends = Instant::now() + Duration::from_millis(500);
        wait("it goes on", || broker.offered().len() > before + some || Instant::now() > ends).await;
        let victim = rand::random_range(0..relays.len());
        std::mem::replace(&mut relays[victim], start()).kill().await;
        kills += 1;
    }
    for relay in relays {
        relay.stop().await;
    }
    let mut ids = BTreeSet::new();
    for enqueuer in enqueuers {
        ids.extend(enqueuer.await.unwrap());
    }
    let taken = broker.taken();
    check_first_deliveries(&taken, MESSAGES);
    assert_eq!(taken.into_iter().map(|seen| seen.id).collect::<BTreeSet<_>>(), ids);
}
