//! The demo, in small: workers killed over an emulated queue and table.

use std::process::Command;

use serde_json::Value;

#[test]
fn killed_functions_ship_every_order_and_tell_everybody_the_same() {
    let output = Command::new(env!("CARGO_BIN_EXE_lambda-orders-demo"))
        .args(["--messages", "120", "--duplicates", "30", "--kill-every", "500"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let line: Value = serde_json::from_slice(&output.stdout).unwrap();
    let number = |name: &str| line[name].as_u64().unwrap_or_else(|| panic!("no {name} in {line}"));
    assert_eq!((number("messages"), number("dead_letters"), number("violations")), (120, 0, 0), "{said}");
    assert!(number("effects") >= 120 && number("replays") >= 30 && number("deliveries") >= 156, "{line}");
}
