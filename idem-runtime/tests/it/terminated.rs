//! Tests of the signals that end a program.

use std::process::Command;
use std::time::Duration;

#[tokio::test]
async fn sigterm_and_ctrl_c_both_end_a_program_that_listens() {
    for signal in ["-TERM", "-INT"] {
        let ended = Box::pin(idem::terminated());
        let sent = Command::new("kill").args([signal, &std::process::id().to_string()]).status().unwrap();
        assert!(sent.success());
        tokio::time::timeout(Duration::from_secs(10), ended)
            .await
            .unwrap_or_else(|_| panic!("{signal} is not heard"));
    }
}
