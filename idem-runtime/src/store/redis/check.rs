//! What is looked at when a store connects: that the server can keep what it is given.
//!
//! What cannot be asked (a managed service, an ACL) is said, and is no fault.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use redis::{Value, cmd};
use tracing::{debug, warn};

use super::link::Link;
use super::scripts::Request;
use crate::error::{StoreError, StoreErrorKind};
use crate::inspection::{Inspection, Standing};
use crate::store::retry::retried;

/// The oldest server: `PXAT`, and error codes that come through a script.
const OLDEST: u32 = 7;

/// What a server, or each master of a cluster, says of itself.
pub(super) struct Look {
    nodes: Vec<String>,
    has_save: Option<bool>,
    refused: Vec<&'static str>,
}

/// Asks the server.
pub(super) async fn look(link: &Link, time: Duration) -> Result<Look, StoreError> {
    let ping = Request::plain(cmd("PING"));
    retried(time, || link.ask(&ping)).await?;
    let mut look = Look { nodes: Vec::new(), has_save: None, refused: Vec::new() };
    let mut info = cmd("INFO");
    info.arg("everything");
    match allowed(link, Request::plain(info)).await? {
        Some(answer) => look.nodes = nodes(answer),
        None => look.refused.push("INFO"),
    }
    let mut save = cmd("CONFIG");
    save.arg("GET").arg("save");
    match allowed(link, Request::plain(save)).await? {
        Some(answer) => look.has_save = Some(has_save(&answer)),
        None => look.refused.push("CONFIG GET"),
    }
    Ok(look)
}

impl Look {
    /// What there is to say of each server.
    pub(super) fn inspection(&self) -> Inspection {
        let mut found = Inspection::default();
        for what in &self.refused {
            let text = "the server does not answer this to this user: that it keeps what it is given is for you to check";
            found.find(Standing::Unknown, *what, text);
        }
        let servers: BTreeSet<String> = self.nodes.iter().map(|node| server(&fields(node))).collect();
        found.server = servers.into_iter().collect::<Vec<_>>().join(", ");
        for node in &self.nodes {
            node_findings(&fields(node), self.has_save, &mut found);
        }
        found
    }

    /// Says what weakens the guarantee, and fails where it is gone.
    pub(super) fn judge(&self) -> Result<(), StoreError> {
        for what in &self.refused {
            debug!(
                target: "idem",
                event = "unchecked",
                "the Redis server does not answer {what} to this user: that it keeps what it is given is for you \
                 to check"
            );
        }
        self.nodes.iter().try_for_each(|node| node_is_fit(&fields(node), self.has_save))
    }
}

/// The answer, or nothing where the server does not give it to this user.
async fn allowed(link: &Link, request: Request) -> Result<Option<Value>, StoreError> {
    match link.ask(&request).await {
        Ok(answer) => Ok(Some(answer)),
        Err(error) if error.kind() == StoreErrorKind::Configuration => Ok(None),
        Err(error) => Err(error),
    }
}

/// The text of each node: a cluster's answer is a map from addresses.
fn nodes(answer: Value) -> Vec<String> {
    match answer {
        Value::BulkString(text) => vec![String::from_utf8_lossy(&text).into_owned()],
        Value::VerbatimString { text, .. } => vec![text],
        Value::Map(nodes) => nodes.into_iter().flat_map(|(_, answer)| self::nodes(answer)).collect(),
        _ => Vec::new(),
    }
}

fn fields(info: &str) -> BTreeMap<&str, &str> {
    info.lines().filter_map(|line| line.trim_end().split_once(':')).collect()
}

/// Whether snapshots are configured. `CONFIG GET save` is a name and a value, in a cluster for a node each.
fn has_save(answer: &Value) -> bool {
    match answer {
        Value::Array(items) => items.iter().any(has_save),
        Value::Map(items) => items.iter().any(|(_, value)| has_save(value)),
        Value::BulkString(text) => text.first().is_some_and(u8::is_ascii_digit),
        _ => false,
    }
}

/// What it is: a Valkey says which Redis it stands for, too.
fn server(info: &BTreeMap<&str, &str>) -> String {
    match (info.get("valkey_version"), info.get("redis_version")) {
        (Some(version), _) => format!("Valkey {version}"),
        (None, Some(version)) => format!("Redis {version}"),
        (None, None) => String::new(),
    }
}

fn node_findings(info: &BTreeMap<&str, &str>, save: Option<bool>, found: &mut Inspection) {
    if let Err(error) = node_is_usable(info) {
        found.find(Standing::Broken, "role", error.to_string());
    }
    match info.get("maxmemory_policy") {
        Some(&"noeviction") => found.find(Standing::Fine, "maxmemory-policy", "noeviction"),
        Some(policy) => found.find(Standing::Weak, "maxmemory-policy", format!("{policy}: {MAY_EVICT}")),
        None => {}
    }
    match (info.get("aof_enabled"), save) {
        (Some(&"1"), _) => found.find(
            Standing::Fine,
            "appendonly",
            "yes; with `appendfsync everysec` a power cut may lose the last second or two",
        ),
        (Some(&"0"), Some(true)) => found.find(
            Standing::Weak,
            "appendonly",
            "no, only snapshots: a crash loses what came after the last one, and bodies run again: set `appendonly yes`",
        ),
        (Some(&"0"), _) => found.find(Standing::Weak, "appendonly", format!("no: {NOT_PERSISTENT}")),
        _ => {}
    }
}

const MAY_EVICT: &str = "the Redis server may evict records when its memory is full, and their bodies would run again: \
                         set `maxmemory-policy noeviction`";
const NOT_PERSISTENT: &str = "the Redis server keeps nothing on disk, and after a restart every body would run again: \
                              set `appendonly yes`";

fn node_is_usable(info: &BTreeMap<&str, &str>) -> Result<(), StoreError> {
    if let Some(version) = info.get("redis_version")
        && version
            .split('.')
            .next()
            .and_then(|major| major.parse().ok())
            .is_some_and(|major: u32| major < OLDEST)
    {
        return Err(StoreError::configuration(format!(
            "the Redis server is version {version} and must be {OLDEST}.0 or newer"
        )));
    }
    if info.get("role") == Some(&"slave") {
        return Err(StoreError::configuration("the Redis server is a replica; connect to its master"));
    }
    Ok(())
}

fn node_is_fit(info: &BTreeMap<&str, &str>, save: Option<bool>) -> Result<(), StoreError> {
    node_is_usable(info)?;
    if let Some(policy) = info.get("maxmemory_policy").filter(|policy| **policy != "noeviction") {
        warn!(
            target: "idem",
            event = "may_evict",
            policy = *policy,
            "{MAY_EVICT}"
        );
    }
    if info.get("aof_enabled") == Some(&"0") && save != Some(true) {
        warn!(
            target: "idem",
            event = "not_persistent",
            "{NOT_PERSISTENT}"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_server_and_a_replica_are_refused() {
        for (info, fit) in [
            ("redis_version:6.2.14\r\nrole:master\r\n", false),
            ("redis_version:7.0.0\r\nrole:slave\r\n", false),
            ("redis_version:7.0.0\r\nrole:master\r\n", true),
            ("redis_version:10.0.0\r\n", true),
            ("", true),
        ] {
            let found = node_is_fit(&fields(info), Some(true));
            assert_eq!(found.is_ok(), fit, "{info:?}");
            assert!(found.is_ok() || found.unwrap_err().kind() == StoreErrorKind::Configuration);
        }
    }

    #[test]
    fn snapshots_are_seen_in_what_config_get_answers() {
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        assert!(has_save(&Value::Array(vec![text("save"), text("3600 1 300 100")])));
        assert!(!has_save(&Value::Array(vec![text("save"), text("")])));
        assert!(has_save(&Value::Map(vec![(text("save"), text("60 1"))])));
    }
}
