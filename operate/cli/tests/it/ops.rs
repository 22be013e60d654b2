//! The alert rules and the dashboard in `ops/` use metrics and labels that exist, and `docs/alerts.md` has a
//! section for each alert.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use idem::protocol::State;

use crate::idem_command::*;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The rules: the name and the expression of each alert.
fn rules() -> Vec<(String, String)> {
    let text = read("ops/prometheus/idem-alerts.yml");
    let mut rules = Vec::new();
    for rule in text.split("- alert: ").skip(1) {
        let name = rule.lines().next().unwrap().trim().to_owned();
        let line = rule.lines().find_map(|line| line.trim().strip_prefix("expr: ")).unwrap();
        assert!(rule.contains(&format!("runbook: docs/alerts.md#{}", name.to_lowercase())), "{name}");
        rules.push((name, line.trim_matches('\'').replace("''", "'")));
    }
    rules
}

fn panels() -> Vec<(String, String)> {
    let dashboard: serde_json::Value = serde_json::from_str(&read("ops/grafana/idem.json")).unwrap();
    let mut panels = Vec::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().unwrap() {
            let of = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
            panels.push((of(&panel["title"]), of(&target["expr"])));
        }
    }
    panels
}

#[test]
fn every_metric_label_and_value_that_a_rule_or_a_panel_names_exists() {
    let pages = ["docs/events.md", "docs/cli.md", "docs/http.md"].map(read).concat();
    let states = ["in_flight", "in_doubt", "released", "completed", "failed"];
    let (rules, panels) = (rules(), panels());
    assert!(rules.len() >= 18 && panels.len() >= 14, "{} {}", rules.len(), panels.len());
    for (place, expression) in rules.iter().chain(&panels) {
        let is_other = |c: char| !c.is_ascii_alphanumeric() && c != '_';
        // Quotes split the expression into pieces, numbered from 0. An even piece ends with a label and its
        // comparison, and an odd piece is the compared value.
        let code = || expression.split('"').step_by(2);
        let values = expression.split('"').skip(1).step_by(2).flat_map(|values| values.split('|'));
        let names = code().flat_map(|code| code.split(is_other)).filter(|word| word.starts_with("idem_"));
        // In the pages, the row of a metric also names the metric's labels. The row of a histogram begins
        // with the name without the ending `_sum` or `_count` of its series.
        let row = |name: &str| {
            let begin = format!("| `{}`", name.trim_end_matches("_sum").trim_end_matches("_count"));
            let row = pages.lines().find(|line| line.starts_with(&begin));
            row.unwrap_or_else(|| panic!("{place}: no metric {name}"))
        };
        let metrics: Vec<_> = names.map(row).collect();
        assert!(!metrics.is_empty(), "{place}: {expression}");
        let lists = expression.split("by (").skip(1).filter_map(|rest| rest.split(')').next());
        let compared =
            code().filter_map(|code| code.trim_end_matches('~').strip_suffix('=')?.rsplit(is_other).next());
        for label in lists.flat_map(|list| list.split(", ")).chain(compared) {
            let is_there = metrics.iter().all(|row| row.contains(&format!("`{label}`")));
            assert!(is_there, "{place}: no label {label}: {expression}");
        }
        for value in values.filter(|value| !value.starts_with('$')) {
            let is_there = states.contains(&value) || pages.contains(&format!("`{value}`"));
            assert!(is_there, "{place}: no value {value}: {expression}");
        }
    }
}

#[tokio::test]
async fn the_metrics_of_a_store_are_those_of_the_page() {
    let shop = Shop::new();
    bring(&shop.store, &key("a"), State::InDoubt).await;
    bring(&shop.store, &key_of("quotes\"\\\n", "b"), State::Completed).await;
    let shown = shop.idem.run(&["stats", "--format", "prometheus"]).ended(0).out;
    let page = read("docs/cli.md");
    let names = shown.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    let names: BTreeSet<&str> = names.collect();
    let listed = page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let listed: BTreeSet<&str> = listed.filter(|name| name.starts_with("idem_store_")).collect();
    assert_eq!(names, listed);
    assert!(
        shown.contains("idem_store_records{operation=\"shop.charge\",state=\"in_doubt\"} 1\n"),
        "{shown}"
    );
    let file = shop.folder().join("idem.prom");
    std::fs::write(&file, &shown).unwrap();
    let checked = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(std::fs::File::open(file).unwrap())
        .output()
        .expect("promtool is not installed: run `scripts/test`, which installs it");
    assert!(checked.status.success() && checked.stderr.is_empty(), "{checked:?}\n{shown}");
}

#[test]
fn every_alert_fires_and_has_a_section_in_the_runbook() {
    let page = read("docs/alerts.md");
    let sections: BTreeSet<&str> = page.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    let rules = rules();
    assert_eq!(rules.iter().map(|(name, _)| name.as_str()).collect::<BTreeSet<_>>(), sections);
    let fired = read("ops/prometheus/idem-alerts-test.yml");
    for (name, _) in &rules {
        assert!(fired.contains(&format!("- name: {name}\n")), "{name} is not fired");
    }
    for words in [["check", "idem-alerts.yml"], ["test", "idem-alerts-test.yml"]] {
        let checked = Command::new("promtool")
            .args([words[0], "rules", words[1]])
            .current_dir(root().join("ops/prometheus"))
            .output()
            .expect("promtool is not installed: run `scripts/test`, which installs it");
        assert!(checked.status.success(), "{checked:?}");
    }
}

#[test]
fn the_commands_in_manifests_are_ones_that_this_command_takes() {
    let idem = Idem::new("");
    let mut commands = 0;
    for file in ["ops/kubernetes/idem.yml", "ops/compose/compose.yml"] {
        for line in read(file).lines() {
            let line = line.trim();
            let Some(list) = line.strip_prefix("args: ").or_else(|| line.strip_prefix("command: ")) else {
                continue;
            };
            let words: Vec<String> = serde_json::from_str(list).unwrap();
            if ["redis-server", "--addr"].contains(&words[0].as_str()) {
                continue;
            }
            let mut words: Vec<&str> = words.iter().map(String::as_str).collect();
            // clap refuses an unknown option before it prints the help.
            words.push("--help");
            idem.run(&words).ended(0);
            commands += 1;
        }
    }
    assert_eq!(commands, 4);
}
