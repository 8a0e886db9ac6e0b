//! Deletes finished jobs after the time to live in their specification
//! (docs/api/controllers.md#finished-jobs).
//!
//! ```text
//! tail on jobs ─► when is it due? ─► agenda, earliest first ─ due ─► newest state: still due? ─► delete, foreground
//! ```
//!
//! The agenda contains only the times of checks. The decision to delete a job uses the newest state of the job, so a
//! changed time, a new job of the same name or a changed clock does no harm.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::StatusCode;
use serde::Deserialize;

use super::{EVENTS_MAX, Ending, Pass, WRITES_MAX};
use crate::writes::bootstrap::ObjectTarget;
use crate::writes::loopback::Loopback;
use crate::writes::server::Server;
use objects::store::{self, ObjectName};
use types::options::{DeleteOptions, Propagation};
use types::schema::registry::Resource;
use values::clock;
use values::status::Status;

/// Maximum sleep before the clock is checked again, because the clock may have been changed.
const SLEEP_MAX: Duration = Duration::from_secs(60);

/// Runs the controller, which follows the jobs.
pub(super) async fn follow(server: Arc<Server>) -> Ending {
    let loopback = Loopback::controller(&server, "ttl-after-finished-controller");
    let (namespace, name) = (String::new(), String::new());
    let jobs = loopback.resource(&ObjectTarget {
        group: "batch",
        version: "v1",
        resource: "jobs",
        namespace,
        name,
    })?;
    let prefix = store::collection(jobs, "");
    let snapshot = server.store.engine().snapshot();
    let mut tail = server.store.engine().tail(snapshot.revision(), prefix.clone())?;
    // Time in seconds since the epoch, and key of the job. A job may have several entries. The controller
    // checks the job at each of these times.
    let mut agenda: BTreeSet<(i64, Bytes)> = BTreeSet::new();
    for entry in snapshot.prefix(&prefix) {
        let Ok(record) = entry.read() else { continue };
        agenda.extend(Life::read(&record.value).and_then(|life| life.due()).map(|due| (due, record.key)));
    }
    drop(snapshot);
    loop {
        let pause = agenda.first().map(|(due, _)| {
            let left = u64::try_from(due - clock::now_seconds()).unwrap_or(0);
            Duration::from_secs(left).min(SLEEP_MAX)
        });
        let sleep = async {
            match pause {
                Some(pause) => clock::sleep(pause).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            events = tail.next(EVENTS_MAX) => for event in events? {
                let Ok(record) = event.entry.read() else { continue };
                if event.kind == engine::EventKind::Put {
                    let due = Life::read(&record.value).and_then(|life| life.due());
                    agenda.extend(due.map(|due| (due, record.key)));
                }
            },
            () = sleep => {
                let later = agenda.split_off(&(clock::now_seconds() + 1, Bytes::new()));
                let due = std::mem::replace(&mut agenda, later);
                let deletions = due.into_iter().map(|(_, key)| async {
                    let name = store::object_name(jobs, &key).name.to_owned();
                    (name, end(&loopback, jobs, key).await)
                });
                let mut outcomes = stream::iter(deletions).buffer_unordered(WRITES_MAX);
                let mut pass = Pass::default();
                while let Some((name, outcome)) = outcomes.next().await {
                    pass.note(&name, outcome.map(|later| agenda.extend(later)));
                }
                pass.end()?;
            }
        }
    }
}

/// Deletes a job if the job is due. If the job is due later, returns the time and the key.
async fn end(loopback: &Loopback<'_>, jobs: &Resource, key: Bytes) -> Result<Option<(i64, Bytes)>, Status> {
    let Some(stored) = loopback.store().get(&key)? else { return Ok(None) };
    let Some(life) = Life::read(&stored.record.value) else { return Ok(None) };
    let Some(due) = life.due() else { return Ok(None) };
    if due > clock::now_seconds() {
        return Ok(Some((due, key)));
    }
    let options = DeleteOptions {
        propagation: Some(Propagation::Foreground),
        uid: Some(life.metadata.uid),
        ..DeleteOptions::default()
    };
    let ObjectName { namespace, name } = store::object_name(jobs, &key);
    match loopback.delete_object(jobs, ObjectName { namespace, name }, &options).await {
        Err(error) if !matches!(error.code, StatusCode::NOT_FOUND | StatusCode::CONFLICT) => Err(error),
        _ => Ok(None),
    }
}

/// The fields of a job that the controller reads.
#[derive(Deserialize)]
struct Life {
    metadata: Metadata,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: State,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    uid: String,
    #[serde(default)]
    deletion_timestamp: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    ttl_seconds_after_finished: Option<i64>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct State {
    conditions: Vec<Condition>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Condition {
    r#type: String,
    status: String,
    last_transition_time: Option<String>,
}

impl Life {
    fn read(value: &[u8]) -> Option<Life> {
        serde_json::from_slice(value).ok()
    }

    /// Returns the time at which the job must be deleted, in seconds since the epoch; `None` if the job is not
    /// finished, has no time to live, or is already being deleted.
    fn due(&self) -> Option<i64> {
        let kept = self.spec.ttl_seconds_after_finished?;
        if !self.metadata.deletion_timestamp.is_empty() {
            return None;
        }
        let finished = self.status.conditions.iter().find(|condition| {
            matches!(condition.r#type.as_str(), "Complete" | "Failed") && condition.status == "True"
        })?;
        Some(clock::parse_seconds(finished.last_transition_time.as_deref()?)?.saturating_add(kept))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finished_job_is_due_when_its_ttl_has_passed() {
        let finished = r#""status":{"conditions":[{"type":"Complete","status":"True","lastTransitionTime":"1970-01-01T00:01:00Z"}]}"#;
        for (job, want) in [
            (
                format!(r#"{{"metadata":{{"uid":"u"}},"spec":{{"ttlSecondsAfterFinished":5}},{finished}}}"#),
                Some(65),
            ),
            (
                format!(r#"{{"metadata":{{"uid":"u"}},"spec":{{"ttlSecondsAfterFinished":0}},{finished}}}"#)
                    .replace("Complete", "Failed"),
                Some(60),
            ),
            (format!(r#"{{"metadata":{{"uid":"u"}},"spec":{{}},{finished}}}"#), None),
            (
                format!(r#"{{"metadata":{{"uid":"u"}},"spec":{{"ttlSecondsAfterFinished":5}},{finished}}}"#)
                    .replace("True", "False"),
                None,
            ),
            (
                format!(r#"{{"metadata":{{"uid":"u"}},"spec":{{"ttlSecondsAfterFinished":5}},{finished}}}"#)
                    .replace("Complete", "Suspended"),
                None,
            ),
            (
                format!(
                    r#"{{"metadata":{{"uid":"u","deletionTimestamp":"t"}},"spec":{{"ttlSecondsAfterFinished":5}},{finished}}}"#
                ),
                None,
            ),
            (r#"{"metadata":{"uid":"u"},"spec":{"ttlSecondsAfterFinished":5}}"#.to_owned(), None),
            ("{}".to_owned(), None),
        ] {
            assert_eq!(Life::read(job.as_bytes()).and_then(|life| life.due()), want, "{job}");
        }
    }
}
