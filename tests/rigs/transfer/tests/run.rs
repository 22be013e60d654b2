//! The rig on a small scale.

use std::process::Command;

use idem_test_servers::program::Process;

#[test]
fn transfers_of_killed_workers_are_made_and_published_once() {
    let mut transfer = Command::new(env!("CARGO_BIN_EXE_transfer"));
    let ended = Process::start(transfer.args(["--transfers", "100", "--kill-every", "1000"])).end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
}
