//! The policies and bindings in the store, and the selection of the policies that apply to a write.
//!
//! Each write looks up policies and bindings at the newest revision, so a policy applies to all writes that
//! begin after the response to its creation. A compiled policy is cached until it changes.

use std::sync::{Arc, OnceLock};

use hashbrown::HashMap;

use super::matching::{MatchResources, PolicyWrite};
use super::params::{ParamKind, ParamRef};
use super::permission::Permissions;
use super::request::PolicyRequest;
use super::scope::Inputs;
use super::validation::FailurePolicy;
use crate::writes::admission::Parsed;
use crate::writes::plugin::kinds::{is_whole, kind_of, matched_kind};
use crate::writes::plugin::{AdmissionRecord, Operation, Target};
use crate::writes::server::Server;
use crate::writes::server::access::AccessControl;
use crate::writes::server::outgoing::OutgoingCalls;
use crate::writes::server::store::ObjectStorage;
use crate::writes::server::types::TypeCatalog;
use types::schema::registry::{Registry, Resource};
use types::served::Served;
use values::json::{Object, Value};
use values::object::meta;
use values::status::Status;

/// Policies of one kind with their bindings. `P` is the compiled form of a policy's spec.
pub struct PolicyCache<P> {
    store: Arc<ObjectStorage>,
    types: Arc<TypeCatalog>,
    access: Arc<AccessControl>,
    outgoing: Arc<OutgoingCalls>,
    policies: Parsed<CompiledPolicy<P>>,
    bindings: Parsed<Binding>,
    namespaces: Arc<Resource>,
}

/// A validating or mutating policy.
pub struct CompiledPolicy<P> {
    /// Name of the policy object.
    pub name: String,
    /// The action if the evaluation of the policy fails.
    pub failure_policy: FailurePolicy,
    /// The compiled spec of the policy.
    pub compiled: P,
    matching: MatchResources,
    params: Option<ParamKind>,
}

/// A binding of a policy.
pub struct Binding {
    /// Name of the binding object.
    pub name: String,
    /// The actions when a validation fails.
    pub actions: Vec<String>,
    policy: String,
    matching: Option<MatchResources>,
    params: Option<ParamRef>,
}

impl Binding {
    /// Reads a stored binding.
    pub fn read(object: &Object) -> Binding {
        let spec = object.get("spec").unwrap_or(&Value::Null);
        let actions = spec.get("validationActions").and_then(Value::as_array).unwrap_or_default();
        Binding {
            name: meta(object, "name").to_owned(),
            policy: spec.str_at(&["policyName"]).to_owned(),
            actions: actions.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            matching: spec.get("matchResources").filter(|member| !member.is_null()).map(MatchResources::read),
            params: ParamRef::read(spec),
        }
    }
}

/// A policy that applies to a write, with one of its bindings and one set of parameters.
pub struct Invocation<'i, P> {
    /// The policy that applies.
    pub policy: &'i CompiledPolicy<P>,
    /// The binding that applies.
    pub binding: &'i Binding,
    /// The parameters; `None` if the policy or the binding has no parameters.
    pub params: Option<Arc<Object>>,
    /// The resource, in the version that the policy matched.
    pub resource: &'i Resource,
}

/// A policy or binding that cannot be used.
pub struct UnusablePolicy<'i, P> {
    /// The policy. If `binding` is `None`, the policy is the faulty object.
    pub policy: &'i CompiledPolicy<P>,
    /// The binding, if the binding is the faulty object.
    pub binding: Option<&'i Binding>,
    /// Description of the fault.
    pub why: String,
}

/// The objects of a write, in the version that a policy matched.
pub struct ConvertedObjects {
    old: Option<Object>,
    new: Option<Object>,
}

impl ConvertedObjects {
    /// Returns the write with these objects.
    pub fn write<'s>(&'s self, original: &PolicyWrite<'s>) -> PolicyWrite<'s> {
        PolicyWrite { old: self.old.as_ref(), new: self.new.as_ref(), ..*original }
    }
}

/// A policy with its bindings.
pub type WithBindings<P> = (Arc<CompiledPolicy<P>>, Vec<Arc<Binding>>);

/// The policies with bindings at the time of one write.
pub struct BoundPolicies<P> {
    policies: Vec<WithBindings<P>>,
    served: Arc<Served>,
}

/// Returns whether policies apply to writes of this target. Policies do not apply to writes of policies and
/// bindings, or to reviews.
pub fn handles(target: &Target<'_>) -> bool {
    const POLICIES: [&str; 4] = [
        "validatingadmissionpolicies",
        "validatingadmissionpolicybindings",
        "mutatingadmissionpolicies",
        "mutatingadmissionpolicybindings",
    ];
    const REVIEWS: [(&str, &str); 6] = [
        ("authentication", "selfsubjectreviews"),
        ("authentication", "tokenreviews"),
        ("authorization", "localsubjectaccessreviews"),
        ("authorization", "selfsubjectaccessreviews"),
        ("authorization", "selfsubjectrulesreviews"),
        ("authorization", "subjectaccessreviews"),
    ];
    let of = |(group, plural): (&str, &str)| target.resource.is_of(group, plural);
    !POLICIES.iter().any(|plural| of(("admissionregistration", plural))) && !REVIEWS.into_iter().any(of)
}

impl<P: Send + Sync + 'static> PolicyCache<P> {
    /// Returns the cache for the resources with these plural names. `compile` compiles the spec of a policy.
    pub fn new(server: &Server, policies: &str, bindings: &str, compile: fn(&Value) -> P) -> PolicyCache<P> {
        let resource = |plural: &str| server.types.resource("admissionregistration", "v1", plural);
        let none = Value::Null;
        PolicyCache {
            policies: Parsed::new(&server.store, resource(policies), move |object| {
                let spec = object.get("spec").unwrap_or(&none);
                CompiledPolicy {
                    name: meta(object, "name").to_owned(),
                    failure_policy: FailurePolicy::from_spec(spec),
                    compiled: compile(spec),
                    matching: MatchResources::read(spec.get("matchConstraints").unwrap_or(&Value::Null)),
                    params: ParamKind::read(spec),
                }
            }),
            bindings: Parsed::new(&server.store, resource(bindings), Binding::read),
            namespaces: server.types.resource("", "v1", "namespaces"),
            store: server.store.clone(),
            types: server.types.clone(),
            access: server.access.clone(),
            outgoing: server.outgoing.clone(),
        }
    }

    /// Returns the policies that have bindings, sorted by name. If the server has no bindings, the call costs
    /// one read of a number.
    ///
    /// # Errors
    /// Fails if a policy or binding cannot be read.
    pub fn bound(&self) -> Result<BoundPolicies<P>, Status> {
        let mut by_policy: HashMap<String, Vec<Arc<Binding>>> = HashMap::new();
        for binding in &*self.bindings.list(&self.store, "")? {
            by_policy.entry(binding.policy.clone()).or_default().push(binding.clone());
        }
        let mut policies = Vec::new();
        if !by_policy.is_empty() {
            for policy in &*self.policies.list(&self.store, "")? {
                if let Some(bindings) = by_policy.remove(&policy.name) {
                    policies.push((policy.clone(), bindings));
                }
            }
        }
        Ok(BoundPolicies { policies, served: self.types.now() })
    }

    /// Returns the namespace of a write; `None` for cluster-scoped objects and for namespaces themselves.
    ///
    /// # Errors
    /// Fails if the namespace cannot be read.
    pub fn namespace<N>(&self, record: &AdmissionRecord<'_, N>) -> Result<Option<Object>, Status> {
        if !record.is_namespaced() {
            return Ok(None);
        }
        self.store.get(&self.namespaces, "", record.write.namespace)
    }

    /// Returns the permissions of the writer.
    pub fn permissions<N>(
        &self,
        record: &AdmissionRecord<'_, N>,
    ) -> Arc<dyn cel::library::authorizer::Authorizer> {
        Permissions::for_user(&self.access.authorizer, record.write.user)
    }

    /// Returns the uses of one policy for a write, one for each matching binding and set of parameters.
    pub fn invocations<'i>(
        &self,
        bound: &'i BoundPolicies<P>,
        policy: &'i WithBindings<P>,
        write: &PolicyWrite<'i>,
        namespace: Option<&'i Object>,
    ) -> Vec<Result<Invocation<'i, P>, UnusablePolicy<'i, P>>> {
        let (policy, bindings) = policy;
        let registry = bound.served.registry();
        let Some(resource) = policy.matching.matches(write, registry, || namespace) else {
            return Vec::new();
        };
        let kind = match policy.params.as_ref().map(|kind| kind.resource(&bound.served)).transpose() {
            Ok(kind) => kind,
            Err(why) => return vec![Err(UnusablePolicy { policy, binding: None, why })],
        };
        let mut found = Vec::new();
        for binding in bindings {
            let matched = match &binding.matching {
                None => Some(resource),
                Some(matching) => matching.matches(write, registry, || namespace),
            };
            if matched.is_none() {
                continue;
            }
            let invocation = |params| Invocation { policy, binding, params, resource };
            match (kind, &binding.params) {
                (Some(kind), Some(reference)) => {
                    match reference.collect(&self.store, kind, write.namespace) {
                        Ok(params) => {
                            found.extend(params.into_iter().map(|params| Ok(invocation(Some(params)))));
                        }
                        Err(why) => found.push(Err(UnusablePolicy { policy, binding: Some(binding), why })),
                    }
                }
                _ => found.push(Ok(invocation(None))),
            }
        }
        found
    }

    /// Returns the objects of a write in the version that a policy matched. Returns `None` if the objects
    /// already have that version.
    ///
    /// # Errors
    /// Fails if an object cannot be converted.
    pub async fn converted_objects(
        &self,
        write: &PolicyWrite<'_>,
        matched: &Resource,
    ) -> Result<Option<ConvertedObjects>, Status> {
        if std::ptr::eq(write.resource, matched) || !is_whole(write.subresource) {
            return Ok(None);
        }
        let mut seen = ConvertedObjects { old: None, new: None };
        for (object, into) in [(write.old, &mut seen.old), (write.new, &mut seen.new)] {
            if let Some(object) = object {
                *into =
                    Some(self.outgoing.converter.converted(object.clone(), write.resource, matched).await?);
            }
        }
        Ok(Some(seen))
    }

    /// Converts an object that a policy changed back to the version of the request.
    ///
    /// # Errors
    /// 500 if the object cannot be converted.
    pub async fn converted_back(
        &self,
        object: Object,
        matched: &Resource,
        requested: &Resource,
    ) -> Result<Object, Status> {
        let converted = self.outgoing.converter.converted(object, matched, requested).await;
        converted.map_err(|why| Status::internal(format_args!("failed to convert object: {}", why.message)))
    }

    /// Returns the options of a write as a value for expressions.
    pub fn options<N>(&self, record: &AdmissionRecord<'_, N>) -> Value {
        record.write.options.to_value(record.write.operation, self.types.naming)
    }
}

impl<P> BoundPolicies<P> {
    /// Returns whether there are no policies.
    pub fn is_empty(&self) -> bool {
        self.policies.is_empty()
    }

    /// Returns the types that are served.
    pub fn registry(&self) -> &Registry {
        self.served.registry()
    }

    /// Returns the policies with their bindings, by name.
    pub fn iter(&self) -> impl Iterator<Item = &WithBindings<P>> {
        self.policies.iter()
    }
}

/// Returns the properties of a write that policies match, with `new` as the new object.
pub fn policy_write<'r, N>(record: &AdmissionRecord<'r, N>, new: Option<&'r Object>) -> PolicyWrite<'r> {
    let name = match (record.write.name, new) {
        ("", Some(new)) => meta(new, "name"),
        (name, _) => name,
    };
    PolicyWrite {
        operation: record.write.operation,
        resource: record.write.resource,
        subresource: record.subresource,
        // The namespace of a namespace is its own name.
        namespace: if record.write.resource.is_of("", "namespaces") {
            name
        } else if record.is_namespaced() {
            record.write.namespace
        } else {
            ""
        },
        name,
        old: record.old,
        new,
    }
}

/// Returns the request as a value for expressions.
pub fn request<'r, N>(
    record: &AdmissionRecord<'r, N>,
    write: &PolicyWrite<'r>,
    matched: &'r Resource,
    options: &'r Value,
) -> PolicyRequest<'r> {
    let requested = kind_of(write.new.or(write.old), record.write.resource);
    let named = |resource: &'r Resource| (&*resource.group, &*resource.version, &*resource.table.plural);
    PolicyRequest {
        operation: record.write.operation,
        kind: matched_kind(requested, matched, record.subresource),
        resource: named(matched),
        request_kind: requested,
        request_resource: named(record.write.resource),
        subresource: record.subresource,
        name: write.name,
        namespace: write.namespace,
        user: record.write.user,
        dry_run: record.write.dry_run(),
        options,
        value: OnceLock::new(),
    }
}

/// Returns the inputs of expressions for a write. A deletion has no new object, and a creation has no old
/// object.
pub fn inputs<'a>(
    write: &PolicyWrite<'a>,
    request: &'a PolicyRequest<'a>,
    namespace: Option<&'a Object>,
    authorizer: &'a Arc<dyn cel::library::authorizer::Authorizer>,
) -> Inputs<'a> {
    Inputs {
        object: write.new.filter(|_| write.operation != Operation::Delete),
        old: write.old.filter(|_| write.operation != Operation::Create),
        namespace,
        request,
        authorizer: Some(authorizer),
    }
}

/// Returns the text of a refusal because of a faulty policy or binding.
pub fn misconfigured<P>(fault: &UnusablePolicy<'_, P>) -> String {
    match fault.binding {
        None => format!("failed to configure policy: {}", fault.why),
        Some(_) => format!("failed to configure binding: {}", fault.why),
    }
}
