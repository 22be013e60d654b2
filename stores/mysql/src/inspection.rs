//! Checks a server and its settings.

use std::collections::HashMap;

use super::rows::{self, NOW, column};
use crate::db::failure::{Failure, Stage};
use crate::db::session::{Answers, Server, Session};
use idem_core::inspection::{Inspection, Standing};

/// Each setting, its safe values, and what another value may cost.
const SETTINGS: [(&str, &[&str], &str); 4] = [
    (
        "innodb_flush_log_at_trx_commit",
        &["1"],
        "a crash of the machine (with 0, of the server) may lose the last acknowledged steps, and bodies run again",
    ),
    ("innodb_doublewrite", &["ON", "1"], "a power cut may damage the database"),
    (
        "binlog_format",
        &["ROW", "MIXED"],
        "with a binary log the server refuses to write; set it to ROW or MIXED",
    ),
    (
        "sync_binlog",
        &["1"],
        "after a power cut a replica may have data that this server lost, or lack data that it has",
    ),
];

pub(super) async fn look(session: &mut Session) -> Result<Inspection, Failure> {
    let text = format!(
        "SELECT {NOW}; SHOW GLOBAL VARIABLES WHERE Variable_name IN ('read_only', 'log_bin', \
         'wsrep_on', 'max_allowed_packet', 'innodb_flush_log_at_trx_commit', 'innodb_doublewrite', \
         'binlog_format', 'sync_binlog')"
    );
    let response = session.run(text, Stage::Open).await?;
    Ok(read(session.server(), &response))
}

fn read(server: &Server, response: &Answers) -> Inspection {
    let product = if server.is_mariadb { "MariaDB" } else { "MySQL" };
    let now = rows::now(response.rows(0).first(), 0).ok();
    let mut inspection = Inspection::of(format!("{product} {}", server.version)).with_now(now);
    let settings: HashMap<String, String> = response
        .rows(1)
        .iter()
        .filter_map(|row| Some((column(row, 0, "name").ok()?, column(row, 1, "value").ok()?)))
        .collect();
    findings(&settings, &mut inspection);
    inspection
}

fn findings(settings: &HashMap<String, String>, inspection: &mut Inspection) {
    let value = |name: &str| settings.get(name).map_or("", String::as_str);
    match value("read_only") {
        "" | "OFF" | "0" => inspection.find(Standing::Fine, "role", "takes writes"),
        _ => inspection.find(
            Standing::Broken,
            "role",
            "`read_only` is on: a replica, which takes no writes; use an address that follows the primary",
        ),
    }
    if value("wsrep_on") == "ON" {
        inspection.find(
            Standing::Weak,
            "wsrep_on",
            "a Galera cluster: send all processes to one node, since another may not have applied an acknowledged step yet",
        );
    }
    let has_log = matches!(value("log_bin"), "ON" | "1");
    for (name, fine, loss) in SETTINGS {
        let value = value(name);
        if value.is_empty() || !has_log && matches!(name, "binlog_format" | "sync_binlog") {
            continue;
        }
        if fine.iter().any(|fine| fine.eq_ignore_ascii_case(value)) {
            inspection.find(Standing::Fine, name, value);
        } else {
            inspection.find(Standing::Weak, name, format!("{value}: {loss}"));
        }
    }
    inspection.find(Standing::Fine, "max_allowed_packet", value("max_allowed_packet"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_weaken_the_guarantee_are_reported_and_those_of_a_binary_log_where_there_is_one() {
        for (log_bin, setting, subject, standing) in [
            ("ON", ("read_only", "ON"), "role", Some(Standing::Broken)),
            (
                "ON",
                ("innodb_flush_log_at_trx_commit", "2"),
                "innodb_flush_log_at_trx_commit",
                Some(Standing::Weak),
            ),
            ("ON", ("innodb_doublewrite", "ON"), "innodb_doublewrite", Some(Standing::Fine)),
            ("ON", ("binlog_format", "STATEMENT"), "binlog_format", Some(Standing::Weak)),
            ("OFF", ("binlog_format", "STATEMENT"), "binlog_format", None),
            ("ON", ("wsrep_on", "ON"), "wsrep_on", Some(Standing::Weak)),
        ] {
            let settings = [setting, ("log_bin", log_bin)];
            let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
            let mut inspection = Inspection::of("x");
            findings(&settings.into(), &mut inspection);
            let finding = inspection.findings.iter().find(|finding| finding.subject == subject);
            assert_eq!(finding.map(|finding| finding.standing), standing, "{subject}");
        }
    }
}
