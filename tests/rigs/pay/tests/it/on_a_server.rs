//! The program `pay` on servers and on a file, and over TLS.

use crate::shop::Shop;
use idem_test_servers::program::{Ended, Process};
use idem_test_servers::{MariaDb, Nats, PgBouncer, Postgres, Redis};

fn paid(shop: &Shop, store: &str, order: &str, options: &str) -> Ended {
    Process::start(&mut shop.command(store, order, options)).end()
}

#[test]
fn servers_and_a_file_give_the_same_answers() {
    let (redis, mariadb, postgres) = (Redis::start(), MariaDb::shared(), Postgres::shared());
    let (pooler, nats) = (PgBouncer::start(&postgres, ""), Nats::start());
    let stores = ["redis", "sqlite", "mariadb", "pgbouncer", "nats-kv", "object"].map(|kind| {
        let shop = Shop::new();
        let store = match kind {
            "redis" => redis.url(),
            "mariadb" => mariadb.url(),
            "pgbouncer" => pooler.url(),
            "object" => shop.sqlite().replace("sqlite:", "object:"),
            "nats-kv" => format!("{}/shop", nats.url().replace("nats://", "nats-kv://")),
            _ => shop.sqlite(),
        };
        (kind, store, shop)
    });
    // The cases run at the same time, because each waits for a lease.
    std::thread::scope(|scope| {
        for (kind, store, shop) in &stores {
            scope.spawn(move || gives_the_answers(kind, store, shop));
        }
    });
}

fn gives_the_answers(kind: &str, store: &str, shop: &Shop) {
    let first = paid(shop, store, "o1", "--amount 100");
    assert_eq!((first.code, first.outcome().as_str()), (Some(0), "executed"), "{kind}: {first:?}");
    let again = paid(shop, store, "o1", "--amount 100");
    assert_eq!((again.code, again.outcome().as_str()), (Some(0), "replayed"), "{kind}: {again:?}");
    assert_eq!(again.receipt(), first.receipt());
    assert_eq!(paid(shop, store, "o1", "--amount 1").code, Some(65), "{kind}");

    let slow = Process::start(&mut shop.command(store, "o2", "--amount 100 --work-ms 60000 --lease-ms 5000"));
    shop.until_charged("o2");
    let rival = paid(shop, store, "o2", "--amount 100");
    assert_eq!((rival.code, rival.outcome().as_str()), (Some(75), "in_flight"), "{kind}: {rival:?}");
    drop(slow);
    let takeover = paid(shop, store, "o2", "--amount 100 --wait-ms 20000");
    assert_eq!(
        (takeover.code, takeover.json()["attempt"].as_u64()),
        (Some(0), Some(2)),
        "{kind}: {takeover:?}"
    );

    for replayed in [false, true] {
        let declined = paid(shop, store, "o3", "--amount 100 --fail final");
        assert_eq!((declined.code, &declined.json()["replayed"]), (Some(1), &replayed.into()), "{kind}");
    }
    assert_eq!(shop.lines("o1").len() + shop.lines("o3").len(), 2);
}

#[test]
fn a_connection_over_tls_is_checked_against_the_systems_certificates() {
    let (mut redis, shop) = (Redis::with_tls(), Shop::new());
    let url = redis.url().replace("redis://", "rediss://");
    let trusted = redis.server().folder().join("certificate.pem");
    for outcome in ["executed", "replayed"] {
        let ended =
            Process::start(shop.command(&url, "o1", "--amount 100").env("SSL_CERT_FILE", &trusted)).end();
        assert_eq!(ended.outcome(), outcome, "{ended:?}");
    }
    let stranger = paid(&shop, &url, "o2", "--amount 100");
    assert_eq!((stranger.code, stranger.outcome().as_str()), (Some(70), "error"), "{stranger:?}");
    assert!(shop.lines("o2").is_empty());
}
