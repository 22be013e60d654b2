//! The soak for some seconds, on one SQLite file.

#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

use std::process::Command;

use idem_test_servers::program::Process;

#[test]
fn two_thousand_keys_over_eight_processes_with_random_kills_end_with_one_result_each() {
    let mut seen = [0; 8];
    // On a busy machine, one run may lack a rare disturbance, so the counts of several runs are added.
    for run in 1..=4 {
        let mut soak = Command::new(env!("CARGO_BIN_EXE_soak"));
        soak.args(["--seconds", "15", "--keys", "2000", "--workers", "8"]);
        let ended = Process::start(&mut soak).end();
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let report = ended.json();
        assert_eq!(report["violations"], 0);
        let count = |disturbance: &str| report[disturbance].as_u64().unwrap();
        let counts = ["timed_out", "failed", "not_due", "ended", "drained", "kills", "takeovers"].map(count);
        // If an outage lasts longer than a call, the result is recorded late. If the worker is killed before
        // that, the result is never recorded.
        let late = count("recorded_late") + count("unrecorded");
        seen.iter_mut().zip(counts.into_iter().chain([late])).for_each(|(seen, count)| *seen += count);
        if seen.iter().all(|count| *count > 0) {
            return;
        }
        println!("run {run}: {report}");
    }
    panic!("a disturbance did not happen: {seen:?}");
}

#[test]
fn a_machine_without_a_server_is_told_how_to_get_it() {
    let mut soak = Command::new(env!("CARGO_BIN_EXE_soak"));
    soak.args(["--store", "redis"]).env("PATH", "").env_remove("IDEM_REDIS_SERVER");
    let ended = Process::start(&mut soak).end();
    let line = "Redis is not installed: run `scripts/servers redis`, which installs it\n";
    assert_eq!((ended.code, ended.stdout.as_str(), ended.stderr.as_str()), (Some(2), "", line));
}
