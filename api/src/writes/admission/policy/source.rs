//! The policies and bindings in the store, and the selection of those that apply to a write.
//!
//! Each write looks them up at the newest revision, so a policy takes effect for the first write after the
//! response to its creation. A compiled policy is cached until it changes.

use std::sync::{Arc, OnceLock};

use hashbrown::HashMap;

use super::matching::{Asked, Matching};
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
pub struct Source<P> {
    store: Arc<ObjectStorage>,
    types: Arc<TypeCatalog>,
    access: Arc<AccessControl>,
    outgoing: Arc<OutgoingCalls>,
    policies: Parsed<Policy<P>>,
    bindings: Parsed<Binding>,
    namespaces: Arc<Resource>,
}

/// A validating or mutating policy.
pub struct Policy<P> {
    /// Name of the policy object.
    pub name: String,
    /// The action if the policy cannot be evaluated.
    pub failure_policy: FailurePolicy,
    /// The compiled spec of the policy.
    pub compiled: P,
    matching: Matching,
    params: Option<ParamKind>,
}

/// A binding of a policy.
pub struct Binding {
    /// Name of the binding object.
    pub name: String,
    /// The actions when a validation fails.
    pub actions: Vec<String>,
    policy: String,
    matching: Option<Matching>,
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
            matching: spec.get("matchResources").filter(|member| !member.is_null()).map(Matching::read),
            params: ParamRef::read(spec),
        }
    }
}

/// A policy that applies to a write, with one of its bindings and one set of parameters.
pub struct Invocation<'i, P> {
    /// The policy that applies.
    pub policy: &'i Policy<P>,
    /// The binding that applies.
    pub binding: &'i Binding,
    /// The parameters; `None` if the policy or the binding has none.
    pub params: Option<Arc<Object>>,
    /// The resource as which the write was matched.
    pub resource: &'i Resource,
}

/// A policy or binding that cannot be used.
pub struct Misconfigured<'i, P> {
    /// The policy, faulty unless `binding` is set.
    pub policy: &'i Policy<P>,
    /// The binding, if it is the faulty object.
    pub binding: Option<&'i Binding>,
    /// Description of the fault.
    pub why: String,
}

/// The objects of a write in the version as which a policy matched it.
pub struct Seen {
    old: Option<Object>,
    new: Option<Object>,
}

impl Seen {
    /// Returns the write with these objects.
    pub fn asked<'s>(&'s self, asked: &Asked<'s>) -> Asked<'s> {
        Asked { old: self.old.as_ref(), new: self.new.as_ref(), ..*asked }
    }
}

/// A policy with its bindings.
pub type WithBindings<P> = (Arc<Policy<P>>, Vec<Arc<Binding>>);

/// The policies with bindings at the time of one write.
pub struct Bound<P> {
    policies: Vec<WithBindings<P>>,
    served: Arc<Served>,
}

/// Returns whether policies apply to such writes. They do not apply to writes of policies and bindings, or to
/// reviews.
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

impl<P: Send + Sync + 'static> Source<P> {
    /// Returns the source for policies and bindings of these resources.
    pub fn new(server: &Server, policies: &str, bindings: &str, compile: fn(&Value) -> P) -> Source<P> {
        let resource = |plural: &str| server.types.resource("admissionregistration", "v1", plural);
        let none = Value::Null;
        Source {
            policies: Parsed::new(&server.store, resource(policies), move |object| {
                let spec = object.get("spec").unwrap_or(&none);
                Policy {
                    name: meta(object, "name").to_owned(),
                    failure_policy: FailurePolicy::of(spec),
                    compiled: compile(spec),
                    matching: Matching::read(spec.get("matchConstraints").unwrap_or(&Value::Null)),
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

    /// Returns the policies that have bindings, by name. Most servers have none; the call then costs one read
    /// of a number.
    ///
    /// # Errors
    /// Fails if a policy or binding cannot be read.
    pub fn bound(&self) -> Result<Bound<P>, Status> {
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
        Ok(Bound { policies, served: self.types.now() })
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
        Permissions::of(&self.access.authorizer, record.write.user)
    }

    /// Returns the uses of one policy for a write.
    pub fn invocations<'i>(
        &self,
        bound: &'i Bound<P>,
        policy: &'i WithBindings<P>,
        asked: &Asked<'i>,
        namespace: Option<&'i Object>,
    ) -> Vec<Result<Invocation<'i, P>, Misconfigured<'i, P>>> {
        let (policy, bindings) = policy;
        let registry = bound.served.registry();
        let Some(resource) = policy.matching.matches(asked, registry, || namespace) else {
            return Vec::new();
        };
        let kind = match policy.params.as_ref().map(|kind| kind.resource(&bound.served)).transpose() {
            Ok(kind) => kind,
            Err(why) => return vec![Err(Misconfigured { policy, binding: None, why })],
        };
        let mut found = Vec::new();
        for binding in bindings {
            let matched = match &binding.matching {
                None => Some(resource),
                Some(matching) => matching.matches(asked, registry, || namespace),
            };
            if matched.is_none() {
                continue;
            }
            let invocation = |params| Invocation { policy, binding, params, resource };
            match (kind, &binding.params) {
                (Some(kind), Some(reference)) => {
                    match reference.collect(&self.store, kind, asked.namespace) {
                        Ok(params) => {
                            found.extend(params.into_iter().map(|params| Ok(invocation(Some(params)))));
                        }
                        Err(why) => found.push(Err(Misconfigured { policy, binding: Some(binding), why })),
                    }
                }
                _ => found.push(Ok(invocation(None))),
            }
        }
        found
    }

    /// Returns the objects of a write in the version as which a policy matched it; `None` if they are in that
    /// version already.
    ///
    /// # Errors
    /// Fails if an object cannot be converted.
    pub async fn seen(&self, asked: &Asked<'_>, matched: &Resource) -> Result<Option<Seen>, Status> {
        if std::ptr::eq(asked.resource, matched) || !is_whole(asked.subresource) {
            return Ok(None);
        }
        let mut seen = Seen { old: None, new: None };
        for (object, into) in [(asked.old, &mut seen.old), (asked.new, &mut seen.new)] {
            if let Some(object) = object {
                *into =
                    Some(self.outgoing.converter.converted(object.clone(), (asked.resource, matched)).await?);
            }
        }
        Ok(Some(seen))
    }

    /// Converts an object that a policy changed back to the version of the request.
    ///
    /// # Errors
    /// 500 if the object cannot be converted.
    pub async fn given_back(
        &self,
        object: Object,
        matched: &Resource,
        requested: &Resource,
    ) -> Result<Object, Status> {
        let converted = self.outgoing.converter.converted(object, (matched, requested)).await;
        converted.map_err(|why| Status::internal(format_args!("failed to convert object: {}", why.message)))
    }

    /// Returns the options of a write, as expressions see them.
    pub fn options<N>(&self, record: &AdmissionRecord<'_, N>) -> Value {
        record.write.options.shown(record.write.operation, self.types.naming)
    }
}

impl<P> Bound<P> {
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

/// Returns a write as rules see it, with this new object.
pub fn asked<'r, N>(record: &AdmissionRecord<'r, N>, new: Option<&'r Object>) -> Asked<'r> {
    let name = match (record.write.name, new) {
        ("", Some(new)) => meta(new, "name"),
        (name, _) => name,
    };
    Asked {
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

/// Returns the request as expressions see it.
pub fn request<'r, N>(
    record: &AdmissionRecord<'r, N>,
    asked: &Asked<'r>,
    matched: &'r Resource,
    options: &'r Value,
) -> PolicyRequest<'r> {
    let requested = kind_of(asked.new.or(asked.old), record.write.resource);
    let named = |resource: &'r Resource| (&*resource.group, &*resource.version, &*resource.table.plural);
    PolicyRequest {
        operation: record.write.operation,
        kind: matched_kind(requested, matched, record.subresource),
        resource: named(matched),
        request_kind: requested,
        request_resource: named(record.write.resource),
        subresource: record.subresource,
        name: asked.name,
        namespace: asked.namespace,
        user: record.write.user,
        dry_run: record.write.dry_run(),
        options,
        made: OnceLock::new(),
    }
}

/// Returns the inputs of expressions for a write. A deletion has no new object, and a creation has no old
/// one.
pub fn inputs<'a>(
    asked: &Asked<'a>,
    request: &'a PolicyRequest<'a>,
    namespace: Option<&'a Object>,
    authorizer: &'a Arc<dyn cel::library::authorizer::Authorizer>,
) -> Inputs<'a> {
    Inputs {
        object: asked.new.filter(|_| asked.operation != Operation::Delete),
        old: asked.old.filter(|_| asked.operation != Operation::Create),
        namespace,
        request,
        authorizer: Some(authorizer),
    }
}

/// Returns the text about a faulty policy or binding for refusals.
pub fn misconfigured<P>(fault: &Misconfigured<'_, P>) -> String {
    match fault.binding {
        None => format!("failed to configure policy: {}", fault.why),
        Some(_) => format!("failed to configure binding: {}", fault.why),
    }
}
