//! Error texts and exit codes if the store cannot be opened, or the command line is wrong.

use idem::protocol::State;

use crate::idem_command::*;

#[test]
fn a_url_that_names_no_store_is_wrong_usage() {
    for store in [
        "",
        "sqlite",
        "sqlite:",
        "mssql://h/db",
        "file.db",
        "redis-sentinel://h:1",
        "dynamodb://",
        "nats-kv://h:1/",
        "object:",
    ] {
        let wrong = Idem::new(store).run(&["list"]).ended(2);
        assert!(!wrong.err.is_empty() && wrong.out.is_empty(), "{wrong:?}");
    }
    let mut without = Idem::new("").command(&["list"]);
    let wrong = without.env_remove("IDEM_STORE").output().unwrap();
    assert_eq!(wrong.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("--store"));
}

#[test]
fn a_file_may_hold_the_stores_url() {
    let shop = Shop::new();
    let file = shop.folder().join("url");
    std::fs::write(&file, format!("{}\n", shop.idem.store)).unwrap();
    let list = |file: &std::path::Path| {
        let mut command = shop.idem.command(&["list", "--store-file", file.to_str().unwrap()]);
        command.env_remove("IDEM_STORE").output().unwrap()
    };
    assert_eq!(list(&file).status.code(), Some(1));
    assert_eq!(list(&shop.folder().join("none")).status.code(), Some(2));
    // `--store` and `--store-file` together are refused.
    shop.idem.run(&["list", "--store-file", file.to_str().unwrap()]).ended(2);
}

#[tokio::test]
async fn a_wrong_command_line_is_wrong_usage_and_nothing_is_done() {
    let shop = Shop::new();
    bring(&shop.store, &key("a"), State::Completed).await;
    bring(&shop.store, &key("order-1"), State::InDoubt).await;
    for words in [
        &["lisst"][..],
        &["show"],
        &["show", "a", "--digest", "b"],
        &["list", "--state", "odd"],
        &["list", "--older", "10"],
        &["show", "a", "--scope", " "],
        // A missing option must not make the command forget every record.
        &["forget", "--all", "--yes"],
        &["forget", "--all", "--expired", "--yes"],
        &["forget", "a", "--state", "completed", "--yes"],
        &["forget", "a", "--all", "--yes"],
        &["forget", "--yes"],
        &["resolve", "--all", "--state", "completed", "--release", "--yes"],
        &["forget", "--all", "--state", "unreadable", "--yes"],
        &["forget", "--all", "--state", "unreadable,completed", "--yes"],
        &["resolve", "order-1", "--yes"],
        &["resolve", "order-1", "--yes", "--release", "--completed", "1"],
    ] {
        shop.idem.run(words).ended(2);
    }
    for text in ["done", "", "{\"receipt\": }", "1 2"] {
        let refused = shop.idem.run(&["resolve", "order-1", "--completed", text, "--yes"]).ended(2);
        assert!(refused.err.contains("expected JSON"), "{refused:?}");
    }
    for (name, state) in [("a", State::Completed), ("order-1", State::InDoubt)] {
        assert_eq!(state_of(&shop.store, &key(name)).await, Some(state));
    }
    let help = shop.idem.run(&["--help"]).ended(0).out;
    assert!(help.contains("Exit codes:") && help.contains("doctor"), "{help}");
    assert!(!help.contains(shop.folder().to_str().unwrap()), "the value of IDEM_STORE is shown: {help}");
}

#[test]
fn a_missing_file_is_not_created() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("typo.db");
    for words in [&["list"][..], &["purge"], &["doctor"], &["stats"]] {
        let missing = Idem::new(format!("sqlite:{}", file.display())).run(words).ended(5);
        assert!(missing.err.contains("there is no file"), "{missing:?}");
    }
    assert!(std::fs::read_dir(folder.path()).unwrap().next().is_none());
}

#[test]
fn a_server_that_is_down_is_not_reached_and_no_password_is_told() {
    // Nobody listens on this port.
    let port = 1;
    for store in [
        format!("redis://user:{SECRET}@127.0.0.1:{port}/"),
        format!("redis-cluster://user:{SECRET}@127.0.0.1:{port}"),
        format!("redis-sentinel://user:{SECRET}@mymaster@127.0.0.1:{port}"),
        format!("postgres://user:{SECRET}@127.0.0.1:{port}/shop"),
        format!("mysql://user:{SECRET}@127.0.0.1:{port}/shop"),
    ] {
        let down = Idem::new(store.as_str()).run(&["list"]).ended(4);
        assert!(!down.err.contains(SECRET) && down.out.is_empty(), "{down:?}");
    }
}
