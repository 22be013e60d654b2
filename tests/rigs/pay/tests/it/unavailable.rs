//! The program `pay` on a store that cannot be used: it ends in time with a typed error, creates and
//! destroys nothing, charges nothing, and works again afterwards.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::shop::Shop;
use idem_test_servers::program::Ended;
use rusqlite::Connection;

/// Asserts that the program ended with a store error, in time, without running the body.
fn assert_refused(shop: &Shop, order: &str, started: Instant, ended: &Ended) {
    assert_eq!(
        (ended.code, ended.stdout.trim()),
        (Some(70), r#"{"outcome":"error","kind":"store"}"#),
        "{ended:?}"
    );
    assert!(ended.stderr.contains("store"), "{ended:?}");
    assert!(started.elapsed() < Duration::from_secs(30));
    assert!(shop.lines(order).is_empty(), "the body ran");
}

fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap()))
        .collect();
    files.sort();
    files
}

#[test]
fn a_file_locked_for_ever_is_an_error_and_one_locked_for_a_second_is_waited_for() {
    let shop = Shop::new();
    let before = shop.pay("o1", "");
    let other = Connection::open(shop.db()).unwrap();
    other.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let started = Instant::now();
    assert_refused(&shop, "o2", started, &shop.pay("o2", ""));
    assert_eq!(shop.pay("o1", "").receipt(), before.receipt(), "a replay needs no lock");

    let waiting = shop.start("o2", "");
    // The sleep is the subject of this test: a lock that lasts a second.
    std::thread::sleep(Duration::from_secs(1));
    other.execute_batch("COMMIT").unwrap();
    assert_eq!(waiting.end().outcome(), "executed");
    assert_eq!(shop.pay("o1", "").receipt(), before.receipt());
}

#[test]
fn a_removed_folder_is_an_error_and_is_not_created() {
    let shop = Shop::new();
    let before = shop.pay("o1", "");
    let (folder, aside) = (shop.folder.path().to_owned(), tempfile::tempdir().unwrap());
    let aside = aside.path().join("aside");
    fs::rename(&folder, &aside).unwrap();
    let started = Instant::now();
    let refused = shop.pay("o2", "");
    assert!(!folder.exists());
    fs::rename(&aside, &folder).unwrap();
    assert_refused(&shop, "o2", started, &refused);
    assert_eq!(shop.pay("o1", "").receipt(), before.receipt());
}

#[test]
fn a_file_that_is_not_ours_is_an_error_and_is_not_changed() {
    let foreign = |path: &Path| {
        let connection = Connection::open(path).unwrap();
        connection
            .execute_batch("CREATE TABLE customers (name TEXT); INSERT INTO customers VALUES ('Ada')")
            .unwrap();
    };
    let text = |path: &Path| fs::write(path, "These are somebody's notes.\n".repeat(100)).unwrap();
    let damaged = |path: &Path| {
        let shop = Shop::new();
        shop.pay("o1", "");
        let mut bytes = fs::read(shop.db()).unwrap();
        bytes[..1_000].fill(0x5a);
        fs::write(path, bytes).unwrap();
    };
    for make in [&foreign as &dyn Fn(&Path), &text, &damaged] {
        let shop = Shop::new();
        make(&shop.db());
        let before = files(shop.folder.path());
        let started = Instant::now();
        assert_refused(&shop, "o1", started, &shop.pay("o1", ""));
        assert_eq!(files(shop.folder.path()), before);
    }
}

#[test]
fn a_folder_in_the_place_of_the_file_is_an_error() {
    let shop = Shop::new();
    fs::create_dir(shop.db()).unwrap();
    let started = Instant::now();
    assert_refused(&shop, "o1", started, &shop.pay("o1", ""));
}

#[test]
fn a_payment_whose_result_cannot_be_recorded_still_gives_its_receipt() {
    let shop = Shop::new();
    let paying = shop.start("o1", "--work-ms 4000 --lease-ms 6000");
    shop.until_charged("o1", 1);
    let other = Connection::open(shop.db()).unwrap();
    other.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let paid = paying.end();
    assert_eq!((paid.code, paid.outcome().as_str()), (Some(0), "executed"), "{paid:?}");
    assert!(paid.stderr.contains("unrecorded"), "{paid:?}");
    other.execute_batch("COMMIT").unwrap();
    assert_eq!(shop.pay("o1", "--wait-ms 20000").json()["attempt"], 2);
}
