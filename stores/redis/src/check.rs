//! Checks of the server, by `connect` and `inspect`: whether the store can use the server, and whether the
//! server keeps the data that it acknowledges.
//!
//! A check that the server does not allow (a managed service, an ACL) is reported; it is not an error.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::future::join_all;
use redis::{InfoDict, Pipeline, Value, cmd};
use tokio::time::timeout;
use tracing::{debug, warn};

use super::connection::{Connection, Node};
use super::failure::understood;
use super::scripts::Request;
use idem_core::inspection::{Inspection, Standing};
use idem_core::{StoreError, StoreErrorKind};
use idem_store_kit::retry::retried_with_cause;

/// The oldest supported major version. From this version on, Redis has `PEXPIRETIME`, and an error inside a
/// script keeps its error code.
const OLDEST: u32 = 7;

/// The subject of the finding about eviction.
const EVICTION: &str = "maxmemory-policy";
/// The subject of the finding about the log on disk.
const LOG: &str = "appendonly";

/// What the server, or each master of a cluster, reports about itself.
pub(super) async fn look(connection: &Connection, time: Duration) -> Result<Inspection, StoreError> {
    let ping = Request::plain(cmd("PING"));
    let masters = retried_with_cause(time, || async {
        // A cluster gets no `PING`, because one of its masters may be down while the others serve.
        if !connection.is_cluster() {
            connection.ask(&ping).await?;
        }
        connection.masters().await
    })
    .await?;
    let mut question = Pipeline::new();
    question.cmd("INFO").arg("everything");
    let (mut inspection, mut servers) = (Inspection::default(), BTreeSet::new());
    let answers =
        masters.into_iter().map(|slot| timeout(time / 3, connection.ask_each(&question, Node::OfSlot(slot))));
    for answers in join_all(answers).await {
        let late = |_| Err(StoreError::unavailable("the Redis server did not answer in time"));
        match answers.unwrap_or_else(late).and_then(|answers| allowed(answers.into_iter().next())) {
            Ok(Some(info)) => {
                servers.extend(server(&info));
                find_about(&info, &mut inspection);
            }
            Ok(None) => find_unknown("INFO", &mut inspection),
            Err(_) if connection.is_cluster() => {
                find_unknown("INFO of a master that is down", &mut inspection);
            }
            Err(error) => return Err(error),
        }
    }
    inspection.server = servers.into_iter().collect::<Vec<_>>().join(", ");
    Ok(inspection)
}

/// Warns about settings that weaken the guarantee, and fails if the server cannot be used.
pub(super) fn report(inspection: &Inspection) -> Result<(), StoreError> {
    for finding in &inspection.findings {
        let (subject, text) = (&*finding.subject, &finding.text);
        match (finding.standing, subject) {
            (Standing::Broken, _) => return Err(StoreError::configuration(text.clone())),
            (Standing::Unknown, _) => debug!(target: "idem", event = "unchecked", "{subject}: {text}"),
            (Standing::Weak, EVICTION) => warn!(target: "idem", event = "may_evict", "{text}"),
            (Standing::Weak, LOG) => warn!(target: "idem", event = "not_persistent", "{text}"),
            _ => {}
        }
    }
    Ok(())
}

/// The server's answer; `None` if the server does not allow the command to the store's user.
fn allowed(answer: Option<Result<Value, StoreError>>) -> Result<Option<InfoDict>, StoreError> {
    match answer.transpose() {
        Ok(answer) => answer.map(understood).transpose(),
        Err(error) if error.kind() == StoreErrorKind::Configuration => Ok(None),
        Err(error) => Err(error),
    }
}

fn find_unknown(what: &'static str, inspection: &mut Inspection) {
    if inspection.findings.iter().all(|finding| finding.subject != what) {
        let text = "this user may not read the setting; check yourself that the server keeps what is written";
        inspection.find(Standing::Unknown, what, text);
    }
}

/// The product and the version. Valkey also reports the Redis version with which it is compatible.
fn server(info: &InfoDict) -> Option<String> {
    let version = |product: &str, field: &str| Some(format!("{product} {}", info.get::<String>(field)?));
    version("Valkey", "valkey_version").or_else(|| version("Redis", "redis_version"))
}

fn find_about(info: &InfoDict, inspection: &mut Inspection) {
    let text = |field: &str| info.get::<String>(field).unwrap_or_default();
    let version = text("redis_version");
    let major = version.split('.').next().and_then(|major| major.parse::<u32>().ok());
    if major.is_some_and(|major| major < OLDEST) {
        let text = format!("the Redis server is version {version} and must be {OLDEST}.0 or newer");
        inspection.find(Standing::Broken, "version", text);
    }
    if text("role") == "slave" {
        let text = "the Redis server is a replica; connect to its master";
        inspection.find(Standing::Broken, "role", text);
    }
    match &*text("maxmemory_policy") {
        "" => {}
        "noeviction" => inspection.find(Standing::Fine, EVICTION, "noeviction"),
        policy => inspection.find(
            Standing::Weak,
            EVICTION,
            format!(
                "{policy}, so the Redis server may evict records when its memory is full, and their bodies would run again: \
                 set `maxmemory-policy noeviction`"
            ),
        ),
    }
    match &*text("aof_enabled") {
        "1" => inspection.find(
            Standing::Fine,
            LOG,
            "yes; with `appendfsync everysec` a power cut may lose the last second or two",
        ),
        "0" => inspection.find(
            Standing::Weak,
            LOG,
            "no, so a restart of the Redis server loses what came after its last snapshot, or everything without snapshots, \
             and bodies run again: set `appendonly yes`",
        ),
        _ => {}
    }
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
            let mut inspection = Inspection::default();
            find_about(&InfoDict::new(info), &mut inspection);
            let fitness = report(&inspection);
            assert_eq!(fitness.is_ok(), fit, "{info:?}");
            assert!(fitness.is_ok() || fitness.unwrap_err().kind() == StoreErrorKind::Configuration);
        }
    }
}
