//! Checks of the server when a store connects: whether it keeps what it acknowledges.
//!
//! A check that the server does not allow (a managed service, an ACL) is reported; it is not an error.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::future::join_all;
use redis::{Pipeline, Value, cmd};
use tokio::time::timeout;
use tracing::{debug, warn};

use super::connection::{Connection, Node};
use super::masters::masters;
use super::scripts::Request;
use idem_core::inspection::{Inspection, Standing};
use idem_core::{StoreError, StoreErrorKind};
use idem_store_kit::retry::retried;

/// The oldest supported server. It has `PXAT`, and passes error codes through a script.
const OLDEST: u32 = 7;

/// What a server, or each master of a cluster, reports about itself.
pub(super) struct Look {
    nodes: Vec<String>,
    has_save: Option<bool>,
    refused: Vec<&'static str>,
}

/// Asks the server.
pub(super) async fn look(connection: &Connection, time: Duration) -> Result<Look, StoreError> {
    // A cluster to which the client is connected may have a master that is down while the others serve.
    let servers = if connection.is_cluster() {
        retried(time, || masters(connection)).await?
    } else {
        let ping = Request::plain(cmd("PING"));
        retried(time, || connection.ask(&ping)).await?;
        vec![0]
    };
    let mut look = Look { nodes: Vec::new(), has_save: None, refused: Vec::new() };
    let mut info = Pipeline::new();
    info.cmd("INFO").arg("everything");
    let answers =
        servers.into_iter().map(|slot| timeout(time / 3, connection.ask_all(&info, 1, Node::OfSlot(slot))));
    for answer in join_all(answers).await {
        match answer {
            Ok(Ok(answers)) => look.nodes.extend(answers.into_iter().flat_map(nodes)),
            Ok(Err(error)) if error.kind() == StoreErrorKind::Configuration => look.refuses("INFO"),
            Ok(Err(_)) | Err(_) if connection.is_cluster() => look.refuses("INFO of a master that is down"),
            Ok(Err(error)) => return Err(error),
            Err(_) => return Err(StoreError::unavailable("the Redis server did not answer in time")),
        }
    }
    let mut save = cmd("CONFIG");
    save.arg("GET").arg("save");
    match allowed(connection, Request::plain(save)).await? {
        Some(answer) => look.has_save = Some(has_save(&answer)),
        None => look.refuses("CONFIG GET"),
    }
    Ok(look)
}

impl Look {
    fn refuses(&mut self, what: &'static str) {
        if !self.refused.contains(&what) {
            self.refused.push(what);
        }
    }

    /// The findings about each server.
    pub(super) fn inspection(&self) -> Inspection {
        let mut inspection = Inspection::default();
        for what in &self.refused {
            let text = "the server does not answer this to this user: that it keeps what it is given is for you to check";
            inspection.find(Standing::Unknown, *what, text);
        }
        let servers: BTreeSet<String> = self.nodes.iter().map(|node| server(&fields(node))).collect();
        inspection.server = servers.into_iter().collect::<Vec<_>>().join(", ");
        for node in &self.nodes {
            node_findings(&fields(node), self.has_save, &mut inspection);
        }
        inspection
    }

    /// Warns about settings that weaken the guarantee, and fails if the server cannot be used.
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

/// The answer; `None` if this user may not get it.
async fn allowed(connection: &Connection, request: Request) -> Result<Option<Value>, StoreError> {
    match connection.ask(&request).await {
        Ok(answer) => Ok(Some(answer)),
        Err(error) if error.kind() == StoreErrorKind::Configuration => Ok(None),
        Err(error) => Err(error),
    }
}

/// The text of each node. In a cluster, the answer is a map from addresses to texts.
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

/// Whether snapshots are configured. `CONFIG GET save` returns a name and a value, in a cluster for each node.
fn has_save(answer: &Value) -> bool {
    match answer {
        Value::Array(items) => items.iter().any(has_save),
        Value::Map(items) => items.iter().any(|(_, value)| has_save(value)),
        Value::BulkString(text) => text.first().is_some_and(u8::is_ascii_digit),
        _ => false,
    }
}

/// The product and the version. Valkey also reports the Redis version with which it is compatible.
fn server(info: &BTreeMap<&str, &str>) -> String {
    match (info.get("valkey_version"), info.get("redis_version")) {
        (Some(version), _) => format!("Valkey {version}"),
        (None, Some(version)) => format!("Redis {version}"),
        (None, None) => String::new(),
    }
}

fn node_findings(info: &BTreeMap<&str, &str>, save: Option<bool>, inspection: &mut Inspection) {
    if let Err(error) = node_is_usable(info) {
        inspection.find(Standing::Broken, "role", error.to_string());
    }
    match info.get("maxmemory_policy") {
        Some(&"noeviction") => inspection.find(Standing::Fine, "maxmemory-policy", "noeviction"),
        Some(policy) => inspection.find(Standing::Weak, "maxmemory-policy", format!("{policy}: {MAY_EVICT}")),
        None => {}
    }
    match (info.get("aof_enabled"), save) {
        (Some(&"1"), _) => inspection.find(
            Standing::Fine,
            "appendonly",
            "yes; with `appendfsync everysec` a power cut may lose the last second or two",
        ),
        (Some(&"0"), Some(true)) => inspection.find(
            Standing::Weak,
            "appendonly",
            "no, only snapshots: a crash loses what came after the last one, and bodies run again: set `appendonly yes`",
        ),
        (Some(&"0"), _) => inspection.find(Standing::Weak, "appendonly", format!("no: {NOT_PERSISTENT}")),
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
            let fitness = node_is_fit(&fields(info), Some(true));
            assert_eq!(fitness.is_ok(), fit, "{info:?}");
            assert!(fitness.is_ok() || fitness.unwrap_err().kind() == StoreErrorKind::Configuration);
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
