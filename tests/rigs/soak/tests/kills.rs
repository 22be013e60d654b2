//! The soak for some seconds, on one SQLite file.

#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

use std::process::Command;

use idem_test_servers::program::Process;

#[test]
fn two_thousand_keys_over_eight_processes_with_random_kills_end_with_one_result_each() {
    let folder = tempfile::tempdir().unwrap();
    let mut soak = Command::new(env!("CARGO_BIN_EXE_soak"));
    soak.args(["--seconds", "15", "--keys", "2000", "--workers", "8", "--folder"]).arg(folder.path());
    let ended = Process::start(&mut soak).end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let report = ended.json();
    assert_eq!(report["violations"], 0);
    let count = |disturbance: &str| report[disturbance].as_u64().unwrap();
    for disturbance in ["timed_out", "failed", "not_due", "ended", "drained"] {
        assert!(count(disturbance) > 0, "no {disturbance}: {report}");
    }
    // Of the results that an outage outlasted, only some are recorded before their workers are killed.
    assert!(count("recorded_late") + count("unrecorded") > 0, "no result was late: {report}");
    assert!(report["kills"].as_u64().unwrap() > 10 && report["takeovers"].as_u64().unwrap() > 0, "{report}");
}

#[test]
fn a_machine_without_servers_is_told_how_to_get_them() {
    idem_test_servers::says_what_is_missing(
        env!("CARGO_BIN_EXE_soak"),
        &[
            (&["--store", "redis"], &["redis"]),
            (&["--store", "redis-replica"], &["redis"]),
            (&["--store", "redis-cluster"], &["redis"]),
            (&["--store", "redis-sentinel"], &["redis"]),
            (&["--store", "postgres"], &["postgres"]),
            (&["--store", "mysql"], &["mysql"]),
            (&["--store", "nats-kv"], &["nats"]),
            (&["--store", "dynamodb"], &["aws"]),
        ],
    );
}
