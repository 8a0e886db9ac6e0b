//! Executes a plan step by step, until the server refuses a step.

use std::time::{Duration, Instant};

use http::{Method, StatusCode};
use serde_json::json;

use super::super::MANAGER;
use super::super::discovery::object_label;
use super::UndoResult;
use super::step::{UndoAction, UndoPlan, UndoStep};
use super::survey::ObjectState;
use crate::cli::progress::Progress;
use crate::remote::client::{Client, WholeResponse};

/// Maximum time until the server serves the type of a new definition, or accepts objects in a new namespace.
const SERVED_AFTER: Duration = Duration::from_secs(30);

/// Maximum number of conflicts between a restore and writes of the status.
const CONFLICTS_MAX: u32 = 10;

/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(100);

/// Executes the plan.
///
/// # Errors
/// The server cannot be reached. Earlier steps have been executed.
pub async fn carry_out(client: &Client, plan: &UndoPlan) -> anyhow::Result<UndoResult> {
    let mut progressed = UndoResult::default();
    let mut line = Progress::of_count("undo", plan.steps.len() as u64);
    // After this run has created a type or a namespace, the server may need some time until it accepts
    // objects of the type or in the namespace.
    let makes_room = |step: &UndoStep| step.action == UndoAction::Create && is_room(&step.resource);
    let deadline = plan.steps.iter().any(makes_room).then(|| Instant::now() + SERVED_AFTER);
    for step in &plan.steps {
        let response = match step.action {
            UndoAction::Delete => delete(client, step).await?,
            UndoAction::Create | UndoAction::Restore => restore(client, step, deadline).await?,
        };
        let is_gone = step.action == UndoAction::Delete && response.code == StatusCode::NOT_FOUND;
        if !response.code.is_success() && !is_gone {
            let place = object_label(&step.namespace, &step.name);
            progressed.stopped = Some(format!(
                "{} {place}: {} ({})",
                step.resource,
                response.message(),
                response.code.as_u16()
            ));
            break;
        }
        let place = format!("{} {}", step.resource, object_label(&step.namespace, &step.name));
        let warnings = response.warnings.iter().map(|warning| format!("{place}: {warning}"));
        progressed.warnings.extend(warnings);
        progressed.done += 1;
        line.update(progressed.done as u64);
    }
    Ok(progressed)
}

/// Returns whether other objects depend on the existence of objects of this type, as on a namespace or a
/// definition.
fn is_room(resource: &str) -> bool {
    resource == "namespaces" || resource.starts_with("customresourcedefinitions.")
}

/// Deletes an object, if it still has the uid in the plan.
async fn delete(client: &Client, step: &UndoStep) -> anyhow::Result<WholeResponse> {
    let options = json!({"preconditions": {"uid": step.uid}, "propagationPolicy": "Background"});
    client.exchange(Method::DELETE, &step.path, Some(&options)).await
}

/// Restores the state of an object, if the object still has the state that the plan found. Until the deadline, tries
/// again if the type or the namespace is not ready yet.
async fn restore(
    client: &Client,
    step: &UndoStep,
    deadline: Option<Instant>,
) -> anyhow::Result<WholeResponse> {
    let revision = step.revision.unwrap_or_default();
    let path = format!("/history{}/restore?revision={revision}&fieldManager={MANAGER}", step.path);
    let (mut version, mut conflicts) = (step.version.clone(), 0);
    loop {
        let precondition =
            if version.is_empty() { String::new() } else { format!("&resourceVersion={version}") };
        let response =
            client.exchange(Method::POST, &format!("{path}{precondition}"), Some(&json!({}))).await?;
        match response.code {
            StatusCode::NOT_FOUND | StatusCode::FORBIDDEN
                if deadline.is_some_and(|deadline| Instant::now() < deadline) =>
            {
                tokio::time::sleep(PAUSE).await;
            }
            StatusCode::CONFLICT if conflicts < CONFLICTS_MAX => {
                conflicts += 1;
                match current_version(client, step).await? {
                    Some(current) => version = current,
                    None => return Ok(response),
                }
            }
            _ => return Ok(response),
        }
    }
}

/// Returns the current version of an object, or `None` if the object has another state than the plan found, or does not
/// exist. Only the status may have changed, because controllers write it often.
async fn current_version(client: &Client, step: &UndoStep) -> anyhow::Result<Option<String>> {
    let found = client.find(&step.path).await?;
    let found = found.map(|object| ObjectState::from_object(object, &step.resource, step.has_status).1);
    Ok(found.filter(|found| found.fingerprint == step.fingerprint).map(|found| found.version))
}
