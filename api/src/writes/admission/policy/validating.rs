//! The plugin ValidatingAdmissionPolicy refuses writes, or adds warnings and annotations, as policies
//! require. The expressions of a policy read the objects of a write in the version that the policy matched.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;

use super::condition::Owner;
use super::matching::PolicyWrite;
use super::source::{
    Binding, BoundPolicies, PolicyCache, handles, inputs, misconfigured, policy_write, request,
};
use super::validation::{Annotated, Decision, FailurePolicy, Published, Validation};
use crate::writes::plugin::{AdmissionRecord, Plugin, Review, Step, Target};
use crate::writes::server::Server;
use values::json::{Object, Value, write};
use values::status::{Cause, Status, StatusReason};
use wire::metrics::Metrics;
use wire::metrics::policies::error_type;

/// Maximum length of the value of an audit annotation in bytes. A longer value is cut.
const ANNOTATION_BYTES_MAX: usize = 10 * 1024;

/// Key of the annotation about the first failed validation.
const FAILURES: &str = "validation.policy.admission.k8s.io/validation_failure";

/// The admission plugin ValidatingAdmissionPolicy.
pub struct ValidatingAdmissionPolicy {
    source: PolicyCache<Validation>,
    metrics: Arc<Metrics>,
}

/// A validation that refuses the write.
struct Denial {
    policy: String,
    binding: Option<String>,
    message: String,
    reason: Cow<'static, str>,
}

impl Denial {
    /// Returns a denial with the reason `Invalid`.
    fn invalid(policy: &str, binding: Option<&Binding>, message: String) -> Denial {
        let binding = binding.map(|binding| binding.name.clone());
        Denial { policy: policy.to_owned(), binding, message, reason: "Invalid".into() }
    }
}

impl ValidatingAdmissionPolicy {
    /// Returns the plugin for this store.
    pub fn new(server: &Server) -> ValidatingAdmissionPolicy {
        let policies = "validatingadmissionpolicies";
        let bindings = "validatingadmissionpolicybindings";
        ValidatingAdmissionPolicy {
            source: PolicyCache::new(server, policies, bindings, Validation::compile),
            metrics: server.operations.metrics.clone(),
        }
    }

    async fn evaluate(
        &self,
        bound: BoundPolicies<Validation>,
        record: &AdmissionRecord<'_, &Object>,
        review: &mut Review,
    ) -> Result<(), Status> {
        let namespace = self.source.namespace(record)?;
        let namespace = namespace.as_ref();
        let authorizer = self.source.permissions(record);
        let options = self.source.options(record);
        let write: PolicyWrite<'_> = policy_write(record, record.new);
        let mut verdict = Verdict::default();
        for policy in bound.iter() {
            let uses = self.source.invocations(&bound, policy, &write, namespace);
            // The request is built once for all uses of a policy.
            let matched = uses.iter().flatten().next().map(|invocation| invocation.resource);
            let request = matched.map(|matched| request(record, &write, matched, &options));
            let seen = match matched {
                Some(matched) => self.source.converted_objects(&write, matched).await,
                None => Ok(None),
            };
            let seen = match seen {
                Ok(seen) => seen,
                Err(_) if policy.0.failure_policy == FailurePolicy::Ignore => continue,
                Err(status) => {
                    let message = format!("failed to configure policy: {}", status.message);
                    verdict.denials.push(Denial::invalid(&policy.0.name, None, message));
                    continue;
                }
            };
            let seen = seen.as_ref().map_or(write, |seen| seen.write(&write));
            let mut annotations = Annotations::new();
            for used in &uses {
                let invocation = match used {
                    Ok(invocation) => invocation,
                    Err(fault) if fault.policy.failure_policy == FailurePolicy::Ignore => continue,
                    Err(fault) => {
                        let (name, binding) = (&fault.policy.name, fault.binding);
                        verdict.denials.push(Denial::invalid(name, binding, misconfigured(fault)));
                        continue;
                    }
                };
                let Some(request) = &request else { continue };
                let inputs = inputs(&seen, request, namespace, &authorizer);
                let outcome = invocation.policy.compiled.evaluate(&inputs, invocation.params.as_deref());
                let used = Use {
                    name: &invocation.policy.name,
                    binding: invocation.binding,
                    metrics: &self.metrics,
                };
                if let Some(evaluation) = outcome.conditions {
                    let owner = Owner { kind: "policy", name: used.name, point: "validate" };
                    evaluation.count(&self.metrics, owner, record.write.operation);
                }
                verdict.decide(&used, outcome.decisions, &outcome.took);
                verdict.annotate(&used, outcome.annotations, &mut annotations);
            }
            let owner = &policy.0.name;
            let annotations = annotations.into_iter();
            review
                .annotations
                .extend(annotations.map(|(key, values)| (format!("{owner}/{key}"), values.join(", "))));
        }
        review.warnings.extend(verdict.warnings);
        review.annotations.extend(verdict.failed.annotation());
        verdict.denials.into_iter().next().map_or(Ok(()), |denial| Err(refusal(record, &denial)))
    }
}

/// The values of the annotations of one policy, by key.
type Annotations = HashMap<String, Vec<String>>;

/// A policy that applies to a write, with one of its bindings.
struct Use<'u> {
    name: &'u str,
    binding: &'u Binding,
    metrics: &'u Metrics,
}

impl Use<'_> {
    /// Counts the result of one validation.
    fn count(&self, action: &str, error: &str, took: Duration) {
        self.metrics.validations.record(&[action, error, self.name, &self.binding.name], took);
    }
}

/// The result of all policies for one write.
#[derive(Default)]
struct Verdict {
    denials: Vec<Denial>,
    failed: FirstFailure,
    warnings: Vec<String>,
}

impl Verdict {
    /// Performs the actions of the binding for each validation that failed.
    fn decide(&mut self, used: &Use<'_>, decisions: Vec<Decision>, took: &[Duration]) {
        for (at, decision) in decisions.into_iter().enumerate() {
            let took = took.get(at).copied().unwrap_or_default();
            let (message, reason) = match decision {
                Decision::Deny { message, reason } => (message, reason),
                Decision::Error { message, is_denied: true } => (message, "Invalid".into()),
                Decision::Error { message, is_denied: false } => {
                    used.count("allow", error_type(Some(&message)), took);
                    continue;
                }
                Decision::Admit => continue,
            };
            let (name, binding) = (used.name, used.binding);
            for action in &binding.actions {
                used.count(&action.to_ascii_lowercase(), error_type(Some(&message)), took);
                match action.as_str() {
                    "Warn" => self.warnings.push(format!(
                        "Validation failed for ValidatingAdmissionPolicy '{name}' with binding '{}': {message}",
                        binding.name
                    )),
                    "Audit" => self.failed.note(name, binding, at, &message),
                    _ => {
                        let denial = Denial::invalid(name, Some(binding), message.clone());
                        self.denials.push(Denial { reason: reason.clone(), ..denial });
                    }
                }
            }
        }
    }

    /// Collects the values of the annotations. Refuses the write if the expression of an annotation failed
    /// and the failure policy requires a refusal.
    fn annotate(&mut self, used: &Use<'_>, annotated: Vec<Annotated>, annotations: &mut Annotations) {
        for annotation in annotated {
            match annotation.value {
                Published::Value(value) => {
                    let values = annotations.entry(annotation.key).or_default();
                    let value = cut(value);
                    if !values.contains(&value) {
                        values.push(value);
                    }
                }
                Published::Error(why) => {
                    used.count("deny", error_type(Some(&why)), Duration::ZERO);
                    self.denials.push(Denial::invalid(used.name, Some(used.binding), why));
                }
                Published::Nothing | Published::Excluded(_) => {}
            }
        }
    }
}

impl Plugin for ValidatingAdmissionPolicy {
    fn handles(&self, target: &Target<'_>) -> bool {
        handles(target)
    }

    fn validate<'p>(&'p self, record: &'p AdmissionRecord<'_, &Object>, review: &'p mut Review) -> Step<'p> {
        match self.source.bound() {
            Err(status) => Err(status).into(),
            Ok(bound) if bound.is_empty() => Ok(()).into(),
            Ok(bound) => Step::wait(self.evaluate(bound, record, review)),
        }
    }
}

/// The first failed validation. The audit event contains only this failure, because annotations are not
/// overwritten.
#[derive(Default)]
struct FirstFailure(Option<Value>);

impl FirstFailure {
    /// Records that the validation with index `at` of a policy failed, unless an earlier failure is recorded.
    fn note(&mut self, policy: &str, binding: &Binding, at: usize, message: &str) {
        self.0.get_or_insert_with(|| {
            let mut members = Object::with_capacity(5);
            members.insert("message", message.into());
            members.insert("policy", policy.into());
            members.insert("binding", binding.name.as_str().into());
            members.insert("expressionIndex", i64::try_from(at).unwrap_or(i64::MAX).into());
            members.insert("validationActions", binding.actions.as_slice().into());
            members.into()
        });
    }

    /// Returns the annotation, a list with one failure. Returns `None` if no validation failed.
    fn annotation(self) -> Option<(String, String)> {
        let mut text = Vec::new();
        write(&Value::Array(vec![self.0?]), &mut text);
        Some((FAILURES.to_owned(), String::from_utf8_lossy(&text).into_owned()))
    }
}

fn cut(mut value: String) -> String {
    let mut end = value.len().min(ANNOTATION_BYTES_MAX);
    while !value.is_char_boundary(end) {
        end -= 1;
    }
    value.truncate(end);
    value
}

fn refusal(record: &AdmissionRecord<'_, &Object>, denial: &Denial) -> Status {
    let Denial { policy, binding, message, reason } = denial;
    let why = match binding {
        Some(binding) => {
            format!("ValidatingAdmissionPolicy '{policy}' with binding '{binding}' denied request: {message}")
        }
        None => format!("ValidatingAdmissionPolicy '{policy}' denied request: {message}"),
    };
    let mut status = record.forbidden(&why).with_reason(match &**reason {
        "Unauthorized" => StatusReason::Unauthorized,
        "Forbidden" => StatusReason::Forbidden,
        "RequestEntityTooLarge" => StatusReason::RequestEntityTooLarge,
        _ => StatusReason::Invalid,
    });
    if let Some(details) = &mut status.details {
        details.causes.push(Cause { reason: String::new(), message: why, field: String::new() });
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;
    use values::testing::object;

    #[test]
    fn the_audit_annotation_has_the_first_failure() {
        let binding = |name: &str| {
            let spec = r#""spec":{"policyName":"p","validationActions":["Warn","Audit"]}"#;
            Binding::read(&object(&format!(r#"{{"metadata":{{"name":"{name}"}},{spec}}}"#)))
        };
        for (failures, want) in [
            (vec![], None),
            (
                vec![("b", 1, "<one>"), ("b", 2, "two"), ("c", 0, "three")],
                Some(
                    r#"[{"message":"\u003cone\u003e","policy":"p","binding":"b","expressionIndex":1,"validationActions":["Warn","Audit"]}]"#,
                ),
            ),
        ] {
            let mut first = FirstFailure::default();
            for (name, at, message) in failures {
                first.note("p", &binding(name), at, message);
            }
            let annotation = first.annotation();
            assert_eq!(annotation.as_ref().map(|(_, text)| text.as_str()), want);
        }
    }
}
