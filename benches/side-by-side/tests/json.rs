//! Tests that the JSON file has the figures of the printed tables.

use std::process::Command;

use serde_json::Value;

#[test]
fn every_line_of_the_tables_is_in_the_file() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("figures.json");
    let program = env!("CARGO_BIN_EXE_idem-side-by-side");
    let told = Command::new(program)
        .args(["--store", "memory", "--millis", "2", "--rounds", "1", "--json"])
        .arg(&file)
        .output()?;
    assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));

    let lines: Vec<Value> = serde_json::from_slice(&std::fs::read(&file)?)?;
    let tables = String::from_utf8(told.stdout)?;
    let rows = tables.lines().filter(|line| line.starts_with("| ") && !line.contains("at once")).count();
    assert_eq!(lines.len(), rows);
    for line in &lines {
        assert_eq!(line["store"], "memory");
        assert!(line["arm"].as_str().is_some_and(|arm| !arm.is_empty()), "{line}");
        for figure in ["calls_per_s", "of_first", "p50_us", "p99_us"] {
            assert!(line[figure].as_f64().is_some_and(|figure| figure > 0.0), "{figure} of {line}");
        }
    }
    Ok(())
}
