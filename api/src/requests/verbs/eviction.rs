//! `/eviction` of pods: a deletion that disruption budgets may refuse.
//!
//! ```text
//! pod ─ ends or has not begun ──────────────────────────────┐
//!     └ budget: none ───────────────────────────────────────┤
//!               one: pod not ready, and that is allowed ────┼─► condition DisruptionTarget ─► delete
//!                    a disruption is left ─► one less ──────┘
//!                    none left ─► 429
//!               several ─► 500
//! ```

use engine::Revision;
use http::StatusCode;

use super::command::{decode_own, put_condition, success};
use super::write::{intent, scope_to_request};
use super::{Call, admit};
use crate::writes::bootstrap::ObjectTarget;
use crate::writes::loopback::Loopback;
use crate::writes::plugin::Options;
use crate::writes::write::deletion::{check_preconditions, delete_object};
use crate::writes::write::intent::DELETION_WITHOUT_ADMISSION;
use objects::representation::answer::respond_success;
use objects::store::{self, Component, ObjectName, Stored};
use objects::strategy::Endpoint;
use types::options::DeleteOptions;
use types::schema::table::SubresourceTable;
use types::selector::label::LabelSelector;
use values::clock;
use values::json::{Object, Value};
use values::object::{at, meta};
use values::query::WriteOptions;
use values::retry::{Attempts, AttemptsExhausted};
use values::status::{Cause, Details, Status, StatusReason, Subject};
use wire::response::Response;

/// Maximum number of evictions that the budget's controller has not processed yet.
const DISRUPTED_PODS_MAX: usize = 2000;

/// Older versions of Eviction, which older clients still send when they drain a node. The schema is the same in
/// all versions.
const OLDER_VERSIONS: [&str; 1] = ["v1beta1"];

const VIOLATION: &str = "Cannot evict pod as it would violate the pod's disruption budget.";

/// Evicts the pod in the path.
pub async fn evict(call: &mut Call<'_>, table: &SubresourceTable, body: &[u8]) -> Result<Response, Status> {
    let meta_group = call.server().types.naming.meta_group();
    let options = WriteOptions::from_query(&call.request.query, "CreateOptions", &meta_group)?;
    let mut eviction = decode_own(call, table, body, &options, &OLDER_VERSIONS)?;
    scope_to_request(call, &mut eviction)?;
    admit::command(call, Options::Create(&options), &mut eviction).await?;
    let name = call.info.name.clone();
    if meta(&eviction, "name") != name {
        return Err(Status::bad_request("name in URL does not match name in Eviction object"));
    }
    let mut deletion = match eviction.get("deleteOptions").filter(|options| !options.is_null()) {
        Some(given) => DeleteOptions::from_value(given, &meta_group)?,
        None => DeleteOptions::default(),
    };
    agree_on_dry_run(call, &eviction)?;
    deletion.dry_run |= options.dry_run;
    let conditional = deletion.resource_version.is_some();
    let mut attempts = Attempts::new();
    loop {
        let (stored, pod) = read(call, &name)?;
        let revision = stored.entry.revision();
        let mut this = deletion.clone();
        let standing = standing(&pod);
        match standing {
            Standing::Over => {}
            Standing::Beginning => {
                // The eviction fails if a precondition of the client fails. The server retries only if the pod
                // has changed since the pinned revision.
                check_preconditions(call.resource, &name, &deletion, &pod, &stored)?;
                pin(&mut this, revision);
            }
            Standing::Running { ready } => match budget_of(call, &stored)? {
                None => {}
                Some(budget) if !ready && lets_unready_go(&budget) => pin(&mut this, revision),
                Some(budget) => {
                    let namespace = call.info.namespace_of(call.resource);
                    spend(call, namespace, meta(&budget, "name"), &name, this.dry_run).await?;
                }
            },
        }
        match delete(call, &name, &this).await {
            Ok(()) => break,
            Err(error) if error.reason == StatusReason::Conflict && !conditional => match standing {
                // The pod may have become ready in the meantime. A ready pod counts as healthy in its
                // budget, so check the budget.
                Standing::Beginning => {}
                Standing::Running { .. } if this.resource_version.is_some() => {
                    let budget = budget_of(call, &stored)?;
                    let budget = budget.as_ref().map_or("", |budget| meta(budget, "name"));
                    return Err(not_settled(budget));
                }
                _ => return Err(error),
            },
            Err(error) => return Err(error),
        }
        attempts.again().await.map_err(|AttemptsExhausted| Status::stale(call.subject(&name)))?;
    }
    let code = StatusCode::CREATED;
    Ok(respond_success(code, &success(&Details::default(), Some(code)), &call.output))
}

/// Checks that the dry run options in the query and in the body are equal if both are given.
fn agree_on_dry_run(call: &Call<'_>, eviction: &Object) -> Result<(), Status> {
    let in_query: Vec<&str> = call.request.query.all("dryRun").collect();
    let given = eviction.get("deleteOptions").and_then(|options| options.get("dryRun"));
    let given: Vec<&str> =
        given.and_then(Value::as_array).unwrap_or_default().iter().filter_map(Value::as_str).collect();
    if in_query.is_empty() || given.is_empty() || in_query == given {
        return Ok(());
    }
    let why = format!(
        "Non-matching dry-run options in request and content: [{}] and [{}]",
        in_query.join(" "),
        given.join(" ")
    );
    Err(Status::new(StatusReason::Unknown, why))
}

/// State of a pod with respect to its budget.
#[derive(Clone, Copy)]
enum Standing {
    /// The pod has finished, or is being deleted already.
    Over,
    /// The pod is not running yet.
    Beginning,
    /// The budget counts the pod if the pod is ready.
    Running { ready: bool },
}

fn standing(pod: &Object) -> Standing {
    let phase = at(pod, "status.phase").and_then(Value::as_str).unwrap_or_default();
    if !meta(pod, "deletionTimestamp").is_empty() || matches!(phase, "Succeeded" | "Failed") {
        return Standing::Over;
    }
    if phase == "Pending" {
        return Standing::Beginning;
    }
    let conditions = at(pod, "status.conditions").and_then(Value::as_array).unwrap_or_default();
    let ready = conditions
        .iter()
        .any(|condition| condition.str_at(&["type"]) == "Ready" && condition.str_at(&["status"]) == "True");
    Standing::Running { ready }
}

/// Makes the checked revision a precondition of the deletion, unless the client gave a resourceVersion.
fn pin(options: &mut DeleteOptions, revision: Revision) {
    options.resource_version.get_or_insert_with(|| revision.to_string());
}

fn read(call: &Call<'_>, name: &str) -> Result<(Stored, Object), Status> {
    let key = store::key(call.resource, call.info.namespace_of(call.resource), name);
    let stored = call.store().get(&key)?.ok_or_else(|| Status::not_found(call.subject(name)))?;
    let pod = stored.object(call.resource)?;
    Ok((stored, pod))
}

fn budgets(namespace: &str, name: &str) -> ObjectTarget {
    let (namespace, name) = (namespace.to_owned(), name.to_owned());
    ObjectTarget { group: "policy", version: "v1", resource: "poddisruptionbudgets", namespace, name }
}

/// Returns the budget that covers the pod.
///
/// # Errors
/// 500 if several budgets cover the pod.
fn budget_of(call: &Call<'_>, pod: &Stored) -> Result<Option<Object>, Status> {
    let labels = types::attributes::Attributes::new(&pod.record.attributes);
    if labels.labels().next().is_none() {
        return Ok(None);
    }
    let namespace = call.info.namespace_of(call.resource);
    let resource = Loopback::new(call.server()).resource(&budgets(namespace, ""))?;
    let mut found = None;
    for entry in call
        .server()
        .store
        .open_for(Component::Evictions)
        .view()
        .prefix(&store::collection(resource, namespace))
    {
        let budget = store::read(entry)?.object(resource)?;
        // An invalid selector selects nothing; an empty selector selects everything.
        let selector = at(&budget, "spec.selector").filter(|selector| !selector.is_null());
        let Some(Ok(selector)) = selector.map(|selector| LabelSelector::from_object(Some(selector))) else {
            continue;
        };
        if !selector.matches(|key| labels.label(key)) {
            continue;
        }
        if found.replace(budget).is_some() {
            let mut status = Status::new(
                StatusReason::Unknown,
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
            );
            status.code = StatusCode::INTERNAL_SERVER_ERROR;
            return Err(status);
        }
    }
    Ok(found)
}

fn count(budget: &Object, name: &str) -> i64 {
    at(budget, &format!("status.{name}")).and_then(Value::as_i64).unwrap_or(0)
}

/// Returns whether the budget lets the server evict a pod that is not ready without using an allowed
/// disruption.
fn lets_unready_go(budget: &Object) -> bool {
    let policy = at(budget, "spec.unhealthyPodEvictionPolicy").and_then(Value::as_str);
    let (healthy, desired) = (count(budget, "currentHealthy"), count(budget, "desiredHealthy"));
    policy == Some("AlwaysAllow") || desired > 0 && healthy >= desired
}

/// Uses one allowed disruption of the budget for the pod.
///
/// # Errors
/// 429 if no allowed disruption is left or the controller has not computed the number yet; 403 if the budget is
/// in an invalid state.
async fn spend(
    call: &Call<'_>,
    namespace: &str,
    budget: &str,
    pod: &str,
    dry_run: bool,
) -> Result<(), Status> {
    let loopback = Loopback::new(call.server());
    let resource = loopback.resource(&budgets(namespace, budget))?;
    if dry_run {
        let stored = loopback.store().get(&store::key(resource, namespace, budget))?;
        return match stored {
            Some(stored) => check(&stored.object(resource)?),
            None => Ok(()),
        };
    }
    let mut refusal = None;
    loopback
        .change(resource, ObjectName { namespace, name: budget }, Endpoint::Status, |old| match check(old) {
            Ok(()) => {
                refusal = None;
                Some(with_one_disruption_less(old, pod))
            }
            Err(error) => {
                refusal = Some(error);
                None
            }
        })
        .await?;
    refusal.map_or(Ok(()), Err)
}

/// Returns the budget after the eviction of `pod`. The budget then allows one disruption less.
fn with_one_disruption_less(budget: &Object, pod: &str) -> Object {
    let mut budget = budget.clone();
    let left = count(&budget, "disruptionsAllowed") - 1;
    let generation = at(&budget, "metadata.generation").cloned();
    let status = budget.object_entry("status");
    status.insert("disruptionsAllowed", Value::Int(left));
    let pods = status.object_entry("disruptedPods");
    pods.insert(pod.to_owned(), clock::now().into());
    objects::strategy::sort_members(pods);
    if left == 0 {
        let members = [
            ("type", "DisruptionAllowed".into()),
            ("status", "False".into()),
            ("observedGeneration", generation.unwrap_or(Value::Int(0))),
            ("lastTransitionTime", clock::now().into()),
            ("reason", "InsufficientPods".into()),
            ("message", "".into()),
        ];
        put_condition(status, Object::from_iter(members.map(|(name, value)| (name.into(), value))));
    }
    budget
}

/// Checks that the budget has a disruption left.
fn check(budget: &Object) -> Result<(), Status> {
    let name = meta(budget, "name");
    let generation = at(budget, "metadata.generation").and_then(Value::as_i64).unwrap_or(0);
    if count(budget, "observedGeneration") < generation {
        return Err(not_settled(name));
    }
    let forbid = |why: &str| {
        let subject = Subject { group: "policy", kind: "poddisruptionbudget", name };
        Err(Status::forbidden(subject, why))
    };
    let left = count(budget, "disruptionsAllowed");
    if left < 0 {
        return forbid("pdb disruptions allowed is negative");
    }
    let disrupted = at(budget, "status.disruptedPods").and_then(Value::as_object).map_or(0, Object::len);
    if disrupted > DISRUPTED_PODS_MAX {
        return forbid("DisruptedPods map too big - too many evictions not confirmed by PDB controller");
    }
    if left > 0 {
        return Ok(());
    }
    let conditions = at(budget, "status.conditions").and_then(Value::as_array).unwrap_or_default();
    let failed = conditions.iter().find(|condition| {
        condition.str_at(&["type"]) == "DisruptionAllowed"
            && condition.str_at(&["status"]) == "False"
            && condition.str_at(&["reason"]) == "SyncFailed"
            && !condition.str_at(&["message"]).is_empty()
    });
    let (desired, healthy) = (count(budget, "desiredHealthy"), count(budget, "currentHealthy"));
    let cause = match failed {
        Some(failed) => format!(
            "The disruption budget {name} does not allow evicting pods currently because it failed sync: {}",
            failed.str_at(&["message"])
        ),
        None => {
            format!("The disruption budget {name} needs {desired} healthy pods and has {healthy} currently")
        }
    };
    Err(violation(cause, 0))
}

/// Returns the 429 for a budget whose status is not up to date yet.
fn not_settled(budget: &str) -> Status {
    violation(format!("The disruption budget {budget} is still being processed by the server."), 10)
}

fn violation(cause: String, retry_after_seconds: u32) -> Status {
    let cause = Cause { reason: "DisruptionBudget".to_owned(), message: cause, field: String::new() };
    let mut status = Status::new(StatusReason::TooManyRequests, VIOLATION);
    let details = Details { causes: vec![cause], retry_after_seconds, ..Details::default() };
    status.details = Some(Box::new(details));
    status
}

/// Sets the pod's condition with the reason, and deletes the pod.
async fn delete(call: &mut Call<'_>, name: &str, options: &DeleteOptions) -> Result<(), Status> {
    let namespace = call.info.namespace_of(call.resource);
    let mut options = options.clone();
    if !options.dry_run {
        let updated = say_why(call, namespace, name, &options).await?;
        if let (Some(expected), Some(updated)) = (&mut options.resource_version, updated) {
            // The precondition contains the revision before the write of the condition, so the new revision replaces
            // that revision.
            *expected = updated;
        }
    }
    let mut intent = intent(call, Endpoint::Main, Options::Delete(&options), "");
    intent.leaves_out = DELETION_WITHOUT_ADMISSION;
    delete_object(call, &intent, &options).await.map(drop)
}

/// Writes the condition if the pod has not changed since the check. Returns the new revision of the pod.
async fn say_why(
    call: &Call<'_>,
    namespace: &str,
    name: &str,
    options: &DeleteOptions,
) -> Result<Option<String>, Status> {
    let mut mismatch = Ok(());
    let loopback = Loopback::new(call.server()).without_admission();
    let written = loopback
        .change_reporting(call.resource, ObjectName { namespace, name }, Endpoint::Status, |stored, pod| {
            mismatch = check_preconditions(call.resource, name, options, pod, stored);
            if mismatch.is_err() {
                return None;
            }
            let mut pod = pod.clone();
            let members = [
                ("type", "DisruptionTarget".into()),
                ("status", "True".into()),
                ("lastProbeTime", Value::Null),
                ("lastTransitionTime", clock::now().into()),
                ("reason", "EvictionByEvictionAPI".into()),
                ("message", "Eviction API: evicting".into()),
            ];
            let condition = Object::from_iter(members.map(|(name, value)| (name.into(), value)));
            put_condition(pod.object_entry("status"), condition);
            Some(pod)
        })
        .await?;
    mismatch.map(|()| written.map(|revision| revision.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use values::testing::object;

    #[test]
    fn an_eviction_spends_the_budget_or_explains_its_refusal() {
        // See docs/api/subresources.md#eviction.
        for (budget, want) in [
            (r#"{"metadata":{"name":"b"},"status":{"disruptionsAllowed":1}}"#, None),
            (
                r#"{"metadata":{"name":"b","generation":2},"status":{"observedGeneration":1,"disruptionsAllowed":1}}"#,
                Some((429, 10, "The disruption budget b is still being processed by the server.")),
            ),
            (
                r#"{"metadata":{"name":"b"},"status":{"disruptionsAllowed":0,"desiredHealthy":3,"currentHealthy":2}}"#,
                Some((429, 0, "The disruption budget b needs 3 healthy pods and has 2 currently")),
            ),
            (
                r#"{"metadata":{"name":"b"},"status":{"disruptionsAllowed":0,"conditions":[{"type":"DisruptionAllowed","status":"False","reason":"SyncFailed","message":"no"}]}}"#,
                Some((
                    429,
                    0,
                    "The disruption budget b does not allow evicting pods currently because it failed sync: no",
                )),
            ),
            (r#"{"metadata":{"name":"b"},"status":{"disruptionsAllowed":-1}}"#, Some((403, 0, ""))),
        ] {
            let got = check(&object(budget)).err().map(|status| {
                let details = status.details.clone().unwrap_or_default();
                let cause = details.causes.first().map(|cause| cause.message.clone()).unwrap_or_default();
                (status.code.as_u16(), details.retry_after_seconds, cause)
            });
            let want = want.map(|(code, wait, cause)| (code, wait, cause.to_owned()));
            assert_eq!(got, want, "{budget}");
        }
    }

    #[test]
    fn the_last_allowed_disruption_sets_the_condition_of_the_budget() {
        let budget = object(r#"{"metadata":{"name":"b","generation":4},"status":{"disruptionsAllowed":2}}"#);
        let once = with_one_disruption_less(&budget, "one");
        assert_eq!(count(&once, "disruptionsAllowed"), 1);
        assert!(at(&once, "status.conditions").is_none());
        let twice = with_one_disruption_less(&once, "another");
        assert_eq!(count(&twice, "disruptionsAllowed"), 0);
        let pods = at(&twice, "status.disruptedPods").and_then(Value::as_object).unwrap();
        assert_eq!(pods.iter().map(|(name, _)| name).collect::<Vec<_>>(), ["another", "one"]);
        let conditions = at(&twice, "status.conditions").and_then(Value::as_array).unwrap();
        assert_eq!(conditions[0].str_at(&["reason"]), "InsufficientPods");
        assert_eq!(conditions[0].get("observedGeneration"), Some(&Value::Int(4)));
        assert!(check(&twice).is_err());
    }
}
