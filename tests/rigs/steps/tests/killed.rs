//! Steps across processes: the example `steps`, which kills its workers at random moments.

use std::process::Command;

use idem_test_servers::program::Process;

#[test]
fn of_workers_killed_at_random_moments_none_runs_a_step_that_was_acknowledged() {
    let mut steps = Command::new(env!("CARGO_BIN_EXE_steps"));
    let ended = Process::start(steps.args(["--store", "sqlite", "--kills", "40", "--lanes", "4"])).end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let count = |name: &str| ended.json()[name].as_u64().unwrap();
    assert!(count("kills") >= 40 && count("orders") > 0, "{ended:?}");
    assert_eq!(count("violations"), 0, "{ended:?}");
    // Neither count is 0, because workers died within steps and between steps.
    assert!(count("repeated_before_acknowledged") > 0 && count("resumed") > 0, "{ended:?}");
}
