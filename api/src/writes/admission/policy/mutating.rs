//! The plugin MutatingAdmissionPolicy: changes objects as policies say, in the order of the policy names.
//!
//! ```text
//! policy ─► matches as a version of the resource ─► object in that version ─► mutations ─► object as requested
//!        └► cannot be used ─► refusal                                      └► failed ─► refusal
//! ```
//!
//! The plugin decides which policies match before the first policy changes the object. Match conditions and
//! mutations see the changes of earlier policies.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use cel::library::authorizer::Authorizer;

use super::condition::{Match, Owner};
use super::matching::Asked;
use super::mutation::{Mutating, ObjectType, Refused};
use super::request::PolicyRequest;
use super::scope::Inputs;
use super::source::{
    Bound, Invocation, Misconfigured, Policy, Source, WithBindings, asked, handles, inputs, misconfigured,
    request,
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

/// The uses of reinvocable policies that were reached in the first run: policy, binding, and namespace and
/// name of the parameters.
#[derive(Default)]
struct Reached(HashSet<(String, String, String)>);

/// The admission plugin MutatingAdmissionPolicy.
pub struct MutatingAdmissionPolicy {
    source: Source<Mutating>,
    naming: &'static Naming,
    metrics: Arc<Metrics>,
}

/// Refusals by policies whose failures are not ignored.
#[derive(Default)]
struct Refusals {
    /// From policies and bindings that cannot be used.
    of_configuration: Vec<String>,
    /// From conditions and mutations that failed.
    of_evaluation: Vec<String>,
}

/// A use of a policy for a write, or why the policy cannot be used.
type Use<'u> = Result<Invocation<'u, Mutating>, Misconfigured<'u, Mutating>>;

/// The inputs of expressions that are the same for all policies in one run of a write.
struct Round {
    namespace: Option<Object>,
    authorizer: Arc<dyn Authorizer>,
    options: Value,
    is_again: bool,
}

/// A write as one policy sees it.
struct Asking<'a> {
    /// The write, with its objects in the version as which the policy matched it.
    write: Asked<'a>,
    request: &'a PolicyRequest<'a>,
    of: ObjectType<'a>,
    round: &'a Round,
}

impl Asking<'_> {
    /// Returns the inputs of expressions once the object has become `object`.
    fn inputs<'o>(&'o self, object: &'o Object) -> Inputs<'o> {
        let write = Asked { new: Some(object), ..self.write };
        inputs(&write, self.request, self.round.namespace.as_ref(), &self.round.authorizer)
    }
}

impl MutatingAdmissionPolicy {
    /// Returns the plugin for this store.
    pub fn new(server: &Server) -> MutatingAdmissionPolicy {
        let policies = "mutatingadmissionpolicies";
        let bindings = "mutatingadmissionpolicybindings";
        MutatingAdmissionPolicy {
            source: Source::new(server, policies, bindings, Mutating::compile),
            naming: server.types.naming,
            metrics: server.operations.metrics.clone(),
        }
    }

    async fn change(
        &self,
        bound: Bound<Mutating>,
        record: &mut AdmissionRecord<'_, &mut Object>,
        review: &mut Review,
    ) -> Result<(), Status> {
        let round = Round {
            namespace: self.source.namespace(record)?,
            authorizer: self.source.permissions(record),
            options: self.source.options(record),
            is_again: review.is_reinvocation(),
        };
        let Some(given) = record.new.as_deref().cloned() else { return Ok(()) };
        let given = asked(record, Some(&given));
        let is_asked = |policy: &&WithBindings<Mutating>| !round.is_again || policy.0.compiled.is_reinvoked;
        let uses_of = |policy| self.source.invocations(&bound, policy, &given, round.namespace.as_ref());
        let matched: Vec<_> =
            bound.iter().filter(is_asked).map(|policy| (&*policy.0, uses_of(policy))).collect();
        let mut refusals = Refusals::default();
        for (policy, uses) in &matched {
            let about = (&*record, &mut *review, &mut refusals);
            let changed = self.changed(bound.registry(), (policy, uses), &round, about).await?;
            if let Some(changed) = changed {
                record.replace(changed);
                review.reinvoke();
            }
        }
        refusals.finish(record)
    }

    /// Returns the object as changed by the uses of one policy; `None` if it does not change.
    async fn changed(
        &self,
        registry: &Registry,
        (policy, uses): (&Policy<Mutating>, &[Use<'_>]),
        round: &Round,
        (record, review, refusals): (&AdmissionRecord<'_, &mut Object>, &mut Review, &mut Refusals),
    ) -> Result<Option<Object>, Status> {
        for fault in uses.iter().filter_map(|used| used.as_ref().err()) {
            let binding = fault.binding.map(|binding| &*binding.name);
            refusals.configuration(fault.policy, binding, &misconfigured(fault));
        }
        let mut uses = uses.iter().flatten().peekable();
        let Some(matched) = uses.peek().map(|used| used.resource) else { return Ok(None) };
        let Some(before) = record.new.as_deref().cloned() else { return Ok(None) };
        let before = asked(record, Some(&before));
        let seen = match self.source.seen(&before, matched).await {
            Ok(seen) => seen,
            Err(status) => {
                let why = format!("failed to configure policy: {}", status.message);
                refusals.configuration(policy, None, &why);
                return Ok(None);
            }
        };
        let write = seen.as_ref().map_or(before, |seen| seen.asked(&before));
        let Some(mut object) = write.new.cloned() else { return Ok(None) };
        let request = request(record, &before, matched, &round.options);
        let message = message_of(&object, matched, record.subresource);
        let of = ObjectType { message, registry };
        let asking = Asking { write, request: &request, of, round };
        let mut is_changed = false;
        for used in uses {
            is_changed |= self.apply(used, &asking, (&mut object, &mut *review, &mut *refusals))?;
        }
        match (is_changed, seen) {
            (false, _) => Ok(None),
            (true, None) => Ok(Some(object)),
            (true, Some(_)) => self.source.given_back(object, matched, record.write.resource).await.map(Some),
        }
    }

    /// Applies the mutations of a policy with one binding and one set of parameters. Returns whether the
    /// object changed.
    fn apply(
        &self,
        used: &Invocation<'_, Mutating>,
        asking: &Asking<'_>,
        (object, review, refusals): (&mut Object, &mut Review, &mut Refusals),
    ) -> Result<bool, Status> {
        let (policy, binding, params) = (used.policy, &*used.binding.name, used.params.as_deref());
        let compiled = &policy.compiled;
        if let Some(judged) = compiled.matches(&asking.inputs(object), params) {
            let owner = Owner { kind: "policy", name: &policy.name, point: "validate" };
            judged.count(&self.metrics, owner, asking.write.operation);
            match judged.outcome {
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
                // The next mutation gets the object as it was before the failed one.
                Err(Refused::Failed(why)) => refusals.evaluation(policy, binding, &why),
            }
        }
        Ok(is_changed)
    }
}

/// Returns whether a use of a reinvocable policy is to be applied. In the second run it is applied only if
/// the first run reached it.
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
    fn configuration(&mut self, policy: &Policy<Mutating>, binding: Option<&str>, why: &str) {
        if policy.failure_policy == FailurePolicy::Fail {
            self.of_configuration.push(match binding {
                Some(binding) => refused(policy, binding, why),
                None => format!("policy {} denied request: {why}", go_quote(&policy.name)),
            });
        }
    }

    fn evaluation(&mut self, policy: &Policy<Mutating>, binding: &str, why: &str) {
        if policy.failure_policy == FailurePolicy::Fail {
            self.of_evaluation.push(refused(policy, binding, why));
        }
    }

    /// Returns the first refusal, with all refusals as causes. Refusals because of the configuration come
    /// first and have another reason. The status code is 403 in both cases.
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

fn refused(policy: &Policy<Mutating>, binding: &str, why: &str) -> String {
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
