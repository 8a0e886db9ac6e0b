//! The plugin MutatingAdmissionPolicy changes objects with the mutations of policies, in the order of the
//! policy names.
//!
//! ```text
//! policy ─► matches as a version of the resource ─► object in that version ─► mutations ─► object as requested
//!        └► cannot be used ─► refusal                                      └► failed ─► refusal
//! ```
//!
//! The plugin decides which policies match before the first policy changes the object. Match conditions and
//! mutations are evaluated on the object with the changes of earlier policies.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use cel::library::authorizer::Authorizer;

use super::condition::{Match, Owner};
use super::matching::PolicyWrite;
use super::mutation::{Mutating, ObjectType, Refused};
use super::request::PolicyRequest;
use super::scope::Inputs;
use super::source::{
    BoundPolicies, CompiledPolicy, Invocation, PolicyCache, UnusablePolicy, WithBindings, handles, inputs,
    misconfigured, policy_write, request,
};
use super::validation::FailurePolicy;
use crate::writes::plugin::kinds::message_of;
use crate::writes::plugin::{AdmissionRecord, Operation, Plugin, Review, Step, Target};
use crate::writes::server::Server;
use types::schema::defaults;
use types::schema::registry::Registry;
use values::field::go_quote;
use values::json::{Object, Value};
use values::naming::Naming;
use values::object::meta;
use values::status::{Cause, Status, StatusReason};
use wire::metrics::Metrics;
use wire::metrics::policies::error_type;

/// The uses of reinvocable policies that the first run evaluated: the policy, the binding, and the namespace
/// and name of the parameters.
#[derive(Default)]
struct Reached(HashSet<(String, String, String)>);

/// The admission plugin MutatingAdmissionPolicy.
pub struct MutatingAdmissionPolicy {
    source: PolicyCache<Mutating>,
    naming: &'static Naming,
    metrics: Arc<Metrics>,
}

/// Refusals because of policies whose failures are not ignored.
#[derive(Default)]
struct Refusals {
    /// Refusals because of policies and bindings that cannot be used.
    of_configuration: Vec<String>,
    /// Refusals because of conditions and mutations that failed.
    of_evaluation: Vec<String>,
}

/// A use of a policy for a write, or the reason why the policy cannot be used.
type Use<'u> = Result<Invocation<'u, Mutating>, UnusablePolicy<'u, Mutating>>;

/// The inputs of expressions that all policies share in one run of the plugin for a write.
struct Round<'r> {
    registry: &'r Registry,
    namespace: Option<Object>,
    authorizer: Arc<dyn Authorizer>,
    options: Value,
    is_again: bool,
}

/// A write, in the version that a policy matched.
struct Asking<'a> {
    /// The write, with objects in the version that the policy matched.
    write: PolicyWrite<'a>,
    request: &'a PolicyRequest<'a>,
    of: ObjectType<'a>,
    round: &'a Round<'a>,
}

impl Asking<'_> {
    /// Returns the inputs of expressions, with `object` as the new object.
    fn inputs<'o>(&'o self, object: &'o Object) -> Inputs<'o> {
        let write = PolicyWrite { new: Some(object), ..self.write };
        inputs(&write, self.request, self.round.namespace.as_ref(), &self.round.authorizer)
    }
}

impl MutatingAdmissionPolicy {
    /// Returns the plugin for this store.
    pub fn new(server: &Server) -> MutatingAdmissionPolicy {
        let policies = "mutatingadmissionpolicies";
        let bindings = "mutatingadmissionpolicybindings";
        MutatingAdmissionPolicy {
            source: PolicyCache::new(server, policies, bindings, Mutating::compile),
            naming: server.types.naming,
            metrics: server.operations.metrics.clone(),
        }
    }

    async fn change(
        &self,
        bound: BoundPolicies<Mutating>,
        record: &mut AdmissionRecord<'_, &mut Object>,
        review: &mut Review,
    ) -> Result<(), Status> {
        let round = Round {
            registry: bound.registry(),
            namespace: self.source.namespace(record)?,
            authorizer: self.source.permissions(record),
            options: self.source.options(record),
            is_again: review.is_reinvocation(),
        };
        let Some(given) = record.new.as_deref().cloned() else { return Ok(()) };
        let given = policy_write(record, Some(&given));
        let is_due = |policy: &&WithBindings<Mutating>| !round.is_again || policy.0.compiled.is_reinvoked;
        let uses_of = |policy| self.source.invocations(&bound, policy, &given, round.namespace.as_ref());
        let matched: Vec<_> =
            bound.iter().filter(is_due).map(|policy| (&*policy.0, uses_of(policy))).collect();
        let mut refusals = Refusals::default();
        for (policy, uses) in &matched {
            let changed = self.changed(policy, uses, &round, record, review, &mut refusals).await?;
            if let Some(changed) = changed {
                record.replace(changed);
                review.reinvoke();
            }
        }
        refusals.finish(record)
    }

    /// Applies all uses of one policy. Returns the changed object, or `None` if the object does not change.
    async fn changed(
        &self,
        policy: &CompiledPolicy<Mutating>,
        uses: &[Use<'_>],
        round: &Round<'_>,
        record: &AdmissionRecord<'_, &mut Object>,
        review: &mut Review,
        refusals: &mut Refusals,
    ) -> Result<Option<Object>, Status> {
        for fault in uses.iter().filter_map(|used| used.as_ref().err()) {
            let binding = fault.binding.map(|binding| &*binding.name);
            refusals.configuration(fault.policy, binding, &misconfigured(fault));
        }
        let mut uses = uses.iter().flatten().peekable();
        let Some(matched) = uses.peek().map(|used| used.resource) else { return Ok(None) };
        let Some(before) = record.new.as_deref().cloned() else { return Ok(None) };
        let before = policy_write(record, Some(&before));
        let seen = match self.source.converted_objects(&before, matched).await {
            Ok(seen) => seen,
            Err(status) => {
                let why = format!("failed to configure policy: {}", status.message);
                refusals.configuration(policy, None, &why);
                return Ok(None);
            }
        };
        let write = seen.as_ref().map_or(before, |seen| seen.write(&before));
        let Some(mut object) = write.new.cloned() else { return Ok(None) };
        let request = request(record, &before, matched, &round.options);
        let message = message_of(&object, matched, record.subresource);
        let of = ObjectType { message, registry: round.registry };
        let asking = Asking { write, request: &request, of, round };
        let mut is_changed = false;
        for used in uses {
            is_changed |= self.apply(used, &asking, &mut object, review, refusals)?;
        }
        match (is_changed, seen) {
            (false, _) => Ok(None),
            (true, None) => Ok(Some(object)),
            (true, Some(_)) => {
                self.source.converted_back(object, matched, record.write.resource).await.map(Some)
            }
        }
    }

    /// Applies the mutations of a policy with one binding and one set of parameters. Returns whether the
    /// object changed.
    fn apply(
        &self,
        used: &Invocation<'_, Mutating>,
        asking: &Asking<'_>,
        object: &mut Object,
        review: &mut Review,
        refusals: &mut Refusals,
    ) -> Result<bool, Status> {
        let (policy, binding, params) = (used.policy, &*used.binding.name, used.params.as_deref());
        let compiled = &policy.compiled;
        if let Some(evaluation) = compiled.matches(&asking.inputs(object), params) {
            let owner = Owner { kind: "policy", name: &policy.name, point: "validate" };
            evaluation.count(&self.metrics, owner, asking.write.operation);
            match evaluation.outcome {
                Match::Yes => {}
                Match::No(_) => return Ok(false),
                Match::Failed(why) => {
                    refusals.evaluation(policy, binding, &why);
                    return Ok(false);
                }
            }
        }
        if compiled.is_reinvoked && !is_reached(used, asking.round.is_again, review) {
            return Ok(false);
        }
        let mut is_changed = false;
        for mutation in &compiled.mutations {
            let began = Instant::now();
            let applied = compiled.apply(mutation, &asking.inputs(object), params, asking.of, object);
            let error = error_type(applied.as_ref().err().map(Refused::to_string).as_deref());
            self.metrics.mutations.record(&[error, &policy.name, binding], began.elapsed());
            match applied {
                Ok(mut changed) => {
                    defaults::apply(asking.of.message, &mut changed, self.naming);
                    is_changed |= changed != *object;
                    *object = changed;
                }
                Err(Refused::Broken(why)) => return Err(Status::internal(why)),
                Err(Refused::Invalid(status)) => return Err(*status),
                // The next mutation gets the object from before the failed mutation.
                Err(Refused::Failed(why)) => refusals.evaluation(policy, binding, &why),
            }
        }
        Ok(is_changed)
    }
}

/// Returns whether to apply an invocation of a reinvocable policy. The second run applies an invocation only if the
/// first run has evaluated the same invocation.
fn is_reached(used: &Invocation<'_, Mutating>, is_again: bool, review: &mut Review) -> bool {
    let of = |params: &Object| format!("{}/{}", meta(params, "namespace"), meta(params, "name"));
    let params = used.params.as_deref().map_or_else(String::new, of);
    let used = (used.policy.name.clone(), used.binding.name.clone(), params);
    let Reached(reached) = review.state();
    if is_again {
        return reached.contains(&used);
    }
    reached.insert(used);
    true
}

impl Refusals {
    fn configuration(&mut self, policy: &CompiledPolicy<Mutating>, binding: Option<&str>, why: &str) {
        if policy.failure_policy == FailurePolicy::Fail {
            self.of_configuration.push(match binding {
                Some(binding) => refused(policy, binding, why),
                None => format!("policy {} denied request: {why}", go_quote(&policy.name)),
            });
        }
    }

    fn evaluation(&mut self, policy: &CompiledPolicy<Mutating>, binding: &str, why: &str) {
        if policy.failure_policy == FailurePolicy::Fail {
            self.of_evaluation.push(refused(policy, binding, why));
        }
    }

    /// Returns the first refusal, with all refusals as causes. Refusals because of unusable policies and
    /// bindings come first; their reason is `Forbidden` instead of `Invalid`. The status code is always 403.
    fn finish(self, record: &AdmissionRecord<'_, &mut Object>) -> Result<(), Status> {
        let reason =
            if self.of_configuration.is_empty() { StatusReason::Invalid } else { StatusReason::Forbidden };
        let refusals: Vec<String> = self.of_configuration.into_iter().chain(self.of_evaluation).collect();
        let Some(first) = refusals.first() else { return Ok(()) };
        let mut status = record.forbidden("admission request denied by policy");
        status.reason = reason;
        status.message.clone_from(first);
        if let Some(details) = &mut status.details {
            let cause = |message| Cause { reason: String::new(), message, field: String::new() };
            details.causes.extend(refusals.into_iter().map(cause));
        }
        Err(status)
    }
}

fn refused(policy: &CompiledPolicy<Mutating>, binding: &str, why: &str) -> String {
    format!("policy '{}' with binding '{binding}' denied request: {why}", policy.name)
}

impl Plugin for MutatingAdmissionPolicy {
    fn handles(&self, target: &Target<'_>) -> bool {
        handles(target) && target.operation != Operation::Delete
    }

    fn mutate<'p>(
        &'p self,
        record: &'p mut AdmissionRecord<'_, &mut Object>,
        review: &'p mut Review,
    ) -> Step<'p> {
        match self.source.bound() {
            Err(status) => Err(status).into(),
            Ok(bound) if bound.is_empty() => Ok(()).into(),
            Ok(bound) => Step::wait(self.change(bound, record, review)),
        }
    }
}
