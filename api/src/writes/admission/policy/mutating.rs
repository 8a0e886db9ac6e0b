//! The plugin MutatingAdmissionPolicy: changes objects as policies say, in the order of their names.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use super::condition::{Match, Owner};
use super::mutation::Mutating;
use super::source::{Source, asked, handles, inputs, misconfigured, request};
use super::validation::FailurePolicy;
use crate::types::schema::defaults;
use crate::values::json::Object;
use crate::values::naming::Naming;
use crate::values::object::meta;
use crate::values::status::{Cause, Reason, Status};
use crate::wire::metrics::Metrics;
use crate::wire::metrics::policies::error_type;
use crate::writes::admission::{Lookup, Operation, Plugin, Record, Review, Step, Target};

/// What the first round came to of what may be asked once more: policy, binding, and namespace and name of the parameters.
#[derive(Default)]
struct Reached(HashSet<(String, String, String)>);

/// The plugin.
pub struct MutatingAdmissionPolicy {
    source: Source<Mutating>,
    naming: &'static Naming,
    metrics: Arc<Metrics>,
}

impl MutatingAdmissionPolicy {
    /// The plugin over this store.
    pub fn new(lookup: &Lookup) -> MutatingAdmissionPolicy {
        let policies = "mutatingadmissionpolicies";
        let bindings = "mutatingadmissionpolicybindings";
        MutatingAdmissionPolicy {
            source: Source::new(lookup, policies, bindings, Mutating::compile),
            naming: lookup.naming,
            metrics: lookup.metrics.clone(),
        }
    }

    fn change(&self, record: &mut Record<'_, &mut Object>, review: &mut Review) -> Result<(), Status> {
        let bound = self.source.bound()?;
        if bound.is_empty() || record.operation == Operation::Delete || record.new.is_none() {
            return Ok(());
        }
        let namespace = self.source.namespace(record)?;
        let namespace = namespace.as_ref();
        let authorizer = self.source.permissions(record);
        let options = self.source.options(record);
        let is_again = review.is_reinvocation();
        let mut refusals: Vec<String> = Vec::new();
        for policy in bound.iter() {
            let compiled = &policy.0.compiled;
            if is_again && !compiled.is_reinvoked {
                continue;
            }
            let Some(mut object) = record.new.as_deref().cloned() else { return Ok(()) };
            let mut is_changed = false;
            // A copy that stays as it is: matching is asked of the object before the policy.
            let before = object.clone();
            let before = asked(record, Some(&before));
            for used in self.source.invocations(&bound, policy, &before, namespace) {
                let name = &policy.0.name;
                let mut refuse = |binding: Option<&str>, why: &str| {
                    if policy.0.failure_policy == FailurePolicy::Fail {
                        refusals.push(match binding {
                            Some(binding) => {
                                format!("policy '{name}' with binding '{binding}' denied request: {why}")
                            }
                            None => format!("policy '{name}' denied request: {why}"),
                        });
                    }
                };
                let invocation = match used {
                    Ok(invocation) => invocation,
                    Err(fault) => {
                        refuse(fault.binding.map(|binding| &*binding.name), &misconfigured(&fault));
                        continue;
                    }
                };
                let binding = &*invocation.binding.name;
                let params = invocation.params.as_deref();
                let request = request(record, &before, invocation.resource, &options);
                let current = object.clone();
                let now = asked(record, Some(&current));
                let known = inputs(&now, &request, namespace, &authorizer);
                if let Some(judged) = compiled.matches(&known, params) {
                    judged.count(
                        &self.metrics,
                        Owner { kind: "policy", name, point: "validate" },
                        record.operation,
                    );
                    match judged.outcome {
                        Match::Yes => {}
                        Match::No(_) => continue,
                        Match::Failed(why) => {
                            refuse(Some(binding), &why);
                            continue;
                        }
                    }
                }
                if compiled.is_reinvoked {
                    let of =
                        |params: &Object| format!("{}/{}", meta(params, "namespace"), meta(params, "name"));
                    let used = (name.clone(), binding.to_owned(), params.map_or_else(String::new, of));
                    let Reached(reached) = review.state();
                    match is_again {
                        true if !reached.contains(&used) => continue,
                        true => {}
                        false => {
                            reached.insert(used);
                        }
                    }
                }
                let message = &record.resource.table.message;
                for mutation in &compiled.mutations {
                    let current = object.clone();
                    let now = asked(record, Some(&current));
                    let known = inputs(&now, &request, namespace, &authorizer);
                    let began = Instant::now();
                    let applied = compiled.apply(mutation, &known, params, message, &current);
                    let error = error_type(applied.as_ref().err().map(|why| &**why));
                    self.metrics.mutations.record(&[error, name, binding], began.elapsed());
                    match applied {
                        Ok(mut changed) => {
                            defaults::apply(message, &mut changed, self.naming);
                            is_changed |= changed != current;
                            object = changed;
                        }
                        // The next mutation gets what this one got.
                        Err(why) => refuse(Some(binding), &why),
                    }
                }
            }
            if is_changed {
                if let Some(new) = record.new.as_deref_mut() {
                    *new = object;
                }
                review.reinvoke();
            }
        }
        if refusals.is_empty() { Ok(()) } else { Err(refusal(record, refusals)) }
    }
}

impl Plugin for MutatingAdmissionPolicy {
    fn handles(&self, target: &Target<'_>) -> bool {
        handles(target) && matches!(target.operation, Operation::Create | Operation::Update)
    }

    fn mutate<'p>(&'p self, record: &'p mut Record<'_, &mut Object>, review: &'p mut Review) -> Step<'p> {
        self.change(record, review).into()
    }
}

/// The refusal: that of the first policy, with all of them as causes. The code stays that of a forbidden request.
fn refusal(record: &Record<'_, &mut Object>, refusals: Vec<String>) -> Status {
    let mut status = record.forbidden("admission request denied by policy");
    status.reason = Reason::Invalid;
    if let Some(first) = refusals.first() {
        status.message = first.clone();
    }
    if let Some(details) = &mut status.details {
        let cause = |message| Cause { reason: String::new(), message, field: String::new() };
        details.causes.extend(refusals.into_iter().map(cause));
    }
    status
}
