//! Authorization checks: `authorizer.group('apps').resource('deployments').check('update').allowed()`.
//!
//! The functions build a request; the host's [`Authorizer`] decides it at `check`. The host declares the
//! variable `authorizer` with [`authorizer_type`] and gives it the value of [`authorizer`].

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use crate::cost::arithmetic::times_factor;
use crate::cost::rules::{self, LIST_COST, OBJECT_COST, TEXT_FACTOR, arg_size};
use crate::cost::{CallEstimate, CallSite, CostEstimate};
use crate::error::EvalError;
use crate::library::opaque;
use crate::library::{Call, Function, Implementation, Library, Overload, Version};
use crate::types::Type;
use crate::value::{Opaque, Value};

const SINCE: Version = Version::new(1, 27);

/// Cost of a check. Two checks in one expression are within the usual limit, but three checks exceed the
/// limit.
const CHECK_COST: u64 = 350_000;

/// A host that decides authorization requests.
pub trait Authorizer: fmt::Debug + Send + Sync {
    /// Decides the request for the user of this authorizer.
    fn check(&self, request: &Request) -> Decision;

    /// Returns the authorizer for a service account.
    ///
    /// # Errors
    /// The names are not valid.
    fn for_service_account(&self, namespace: &str, name: &str) -> Result<Arc<dyn Authorizer>, String>;
}

/// A request that the authorizer decides.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Request {
    /// A path outside the resource API, such as `/healthz`.
    Path {
        /// URL path of the request.
        path: Arc<str>,
        /// Verb of the request, such as `get`.
        verb: Arc<str>,
    },
    /// A request for an API resource.
    Resource {
        /// Resource that the expression names.
        resource: Resource,
        /// Verb of the request, such as `list`.
        verb: Arc<str>,
    },
}

/// A resource, with the restrictions that the expression has added.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Resource {
    /// API group, empty for the core group.
    pub group: Arc<str>,
    /// Plural name of the resource.
    pub resource: Arc<str>,
    /// Subresource; empty for the object itself.
    pub subresource: Arc<str>,
    /// Namespace; empty for all namespaces.
    pub namespace: Arc<str>,
    /// Name of the object; empty for all objects.
    pub name: Arc<str>,
    /// Field selector as written, not parsed.
    pub field_selector: Option<Arc<str>>,
    /// Label selector as written, not parsed.
    pub label_selector: Option<Arc<str>>,
}

/// The decision about a request.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Decision {
    /// Whether the request is allowed.
    pub allowed: bool,
    /// Reason that the authorizer gives.
    pub reason: String,
    /// Error of the authorizer, if any.
    pub error: Option<String>,
}

/// Creates the value of the variable `authorizer`.
pub fn authorizer(authorizer: Arc<dyn Authorizer>) -> Value<'static> {
    opaque::value(Stage::Authorizer(authorizer))
}

/// Creates the value of a variable for checks of `resource`; the host declares it with
/// [`resource_check_type`].
pub fn resource_authorizer(authorizer: Arc<dyn Authorizer>, resource: Resource) -> Value<'static> {
    opaque::value(Stage::Resource(authorizer, resource))
}

/// Returns the type `kubernetes.authorization.ResourceCheck`.
pub fn resource_check_type() -> Type {
    resource_check()
}

/// Returns the type `kubernetes.authorization.Authorizer`.
pub fn authorizer_type() -> Type {
    Type::object("kubernetes.authorization.Authorizer")
}

/// The current stage of the chain of calls.
#[derive(Clone, Debug)]
enum Stage {
    Authorizer(Arc<dyn Authorizer>),
    Path(Arc<dyn Authorizer>, Arc<str>),
    Group(Arc<dyn Authorizer>, Arc<str>),
    Resource(Arc<dyn Authorizer>, Resource),
    Decided(Decision),
}

fn path_check() -> Type {
    Type::object("kubernetes.authorization.PathCheck")
}

fn group_check() -> Type {
    Type::object("kubernetes.authorization.GroupCheck")
}

fn resource_check() -> Type {
    Type::object("kubernetes.authorization.ResourceCheck")
}

fn decision() -> Type {
    Type::object("kubernetes.authorization.Decision")
}

impl Opaque for Stage {
    fn type_of(&self) -> Type {
        match self {
            Self::Authorizer(_) => authorizer_type(),
            Self::Path(..) => path_check(),
            Self::Group(..) => group_check(),
            Self::Resource(..) => resource_check(),
            Self::Decided(_) => decision(),
        }
    }

    fn equals(&self, other: &dyn Opaque) -> bool {
        match (self, other.as_any().downcast_ref()) {
            (Self::Authorizer(a), Some(Self::Authorizer(b))) => Arc::ptr_eq(a, b),
            (Self::Path(a, path), Some(Self::Path(b, other))) => Arc::ptr_eq(a, b) && path == other,
            (Self::Group(a, group), Some(Self::Group(b, other))) => Arc::ptr_eq(a, b) && group == other,
            (Self::Resource(a, resource), Some(Self::Resource(b, other))) => {
                Arc::ptr_eq(a, b) && resource == other
            }
            (Self::Decided(a), Some(Self::Decided(b))) => a == b,
            _ => false,
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Returns the declarations of the library.
pub fn library() -> Library {
    use Type::{Bool, String as Text};
    let overload = |id, params: &[Type], result, implementation: Implementation| {
        Overload { since: SINCE, ..Overload::member(id, params, result) }.computed_by(implementation)
    };
    let step = |id, params: &[Type], result, implementation: Implementation| {
        overload(id, params, result, implementation).costing(rules::nominal, rules::nominal_actual)
    };
    let check = |id, on| overload(id, &[on, Text], decision(), check).costing(check_estimate, check_actual);
    let narrow = |name, id, implementation: Implementation| {
        Function::new(name, [step(id, &[resource_check(), Text], resource_check(), implementation)])
    };
    let select = |name, id, implementation: Implementation| {
        let overload = overload(id, &[resource_check(), Text], resource_check(), implementation);
        Function::new(name, [overload.costing(selector_estimate, selector_actual)])
    };
    let answer = |name, id, result, implementation: Implementation| {
        Function::new(name, [step(id, &[decision()], result, implementation)])
    };
    let account = step(
        "authorizer_serviceaccount",
        &[authorizer_type(), Text, Text],
        authorizer_type(),
        service_account,
    );
    let types = [authorizer_type(), path_check(), group_check(), resource_check(), decision()];
    Library {
        functions: vec![
            Function::new("path", [step("authorizer_path", &[authorizer_type(), Text], path_check(), path)]),
            Function::new(
                "group",
                [step("authorizer_group", &[authorizer_type(), Text], group_check(), group)],
            ),
            Function::new("serviceAccount", [account]),
            Function::new(
                "resource",
                [step("groupcheck_resource", &[group_check(), Text], resource_check(), resource)],
            ),
            narrow("subresource", "resourcecheck_subresource", |call| {
                narrowed(call, |resource, text| resource.subresource = text)
            }),
            narrow("namespace", "resourcecheck_namespace", |call| {
                narrowed(call, |resource, text| resource.namespace = text)
            }),
            narrow("name", "resourcecheck_name", |call| {
                narrowed(call, |resource, text| resource.name = text)
            }),
            select("fieldSelector", "authorizer_fieldselector", |call| {
                narrowed(call, |resource, text| resource.field_selector = Some(text))
            }),
            select("labelSelector", "authorizer_labelselector", |call| {
                narrowed(call, |resource, text| resource.label_selector = Some(text))
            }),
            Function::new(
                "check",
                [check("pathcheck_check", path_check()), check("resourcecheck_check", resource_check())],
            ),
            answer("allowed", "decision_allowed", Bool, |call| Ok(Value::Bool(decided(call)?.allowed))),
            answer("reason", "decision_reason", Text, |call| Ok(Value::string(&*decided(call)?.reason))),
            answer("errored", "decision_errored", Bool, |call| {
                Ok(Value::Bool(decided(call)?.error.is_some()))
            }),
            answer("error", "decision_error", Text, |call| {
                Ok(Value::string(decided(call)?.error.as_deref().unwrap_or_default()))
            }),
        ],
        types: types.map(|of| (of, SINCE)).to_vec(),
    }
}

fn check_estimate(_: &dyn CallSite) -> Option<CallEstimate> {
    Some(CallEstimate::cost(CostEstimate::exactly(CHECK_COST)))
}

fn check_actual(_: &[Value<'_>], _: &Value<'_>) -> u64 {
    CHECK_COST
}

/// Estimates the parsing of a selector into a list of requirements. The shortest requirement has two
/// characters.
fn selector_estimate(site: &dyn CallSite) -> Option<CallEstimate> {
    let size = site.size(1);
    let requirements = size.times_factor(0.5).times_factor((LIST_COST + OBJECT_COST) as f64);
    let cost = CostEstimate::exactly(LIST_COST).plus(size.times_factor(TEXT_FACTOR)).plus(requirements);
    Some(CallEstimate::cost(cost))
}

fn selector_actual(args: &[Value<'_>], _: &Value<'_>) -> u64 {
    let size = arg_size(args, 1);
    let requirements = times_factor(times_factor(size, 0.5), (LIST_COST + OBJECT_COST) as f64);
    LIST_COST.saturating_add(times_factor(size, TEXT_FACTOR)).saturating_add(requirements)
}

fn stage<'c>(call: &'c Call<'_, '_>) -> Result<&'c Stage, EvalError> {
    opaque::expect(call.args.first().unwrap_or(&Value::Null))
}

fn text(call: &Call<'_, '_>, arg: usize) -> Result<Arc<str>, EvalError> {
    match call.args.get(arg) {
        Some(Value::String(text)) => Ok(Arc::from(&**text)),
        _ => Err(EvalError::no_such_overload()),
    }
}

/// Returns the text of the first argument, which must not be blank.
fn named(call: &Call<'_, '_>, what: &str) -> Result<Arc<str>, EvalError> {
    let text = text(call, 1)?;
    if text.trim().is_empty() {
        return Err(EvalError::new(format!("{what} must not be empty")));
    }
    Ok(text)
}

fn path<'v>(call: &Call<'_, 'v>) -> Result<Value<'v>, EvalError> {
    let Stage::Authorizer(authorizer) = stage(call)? else { return Err(EvalError::no_such_overload()) };
    Ok(opaque::value(Stage::Path(authorizer.clone(), named(call, "path")?)))
}

fn group<'v>(call: &Call<'_, 'v>) -> Result<Value<'v>, EvalError> {
    let Stage::Authorizer(authorizer) = stage(call)? else { return Err(EvalError::no_such_overload()) };
    Ok(opaque::value(Stage::Group(authorizer.clone(), text(call, 1)?)))
}

fn service_account<'v>(call: &Call<'_, 'v>) -> Result<Value<'v>, EvalError> {
    let Stage::Authorizer(authorizer) = stage(call)? else { return Err(EvalError::no_such_overload()) };
    let (namespace, name) = (text(call, 1)?, text(call, 2)?);
    let account = authorizer.for_service_account(&namespace, &name).map_err(EvalError::new)?;
    Ok(opaque::value(Stage::Authorizer(account)))
}

fn resource<'v>(call: &Call<'_, 'v>) -> Result<Value<'v>, EvalError> {
    let Stage::Group(authorizer, group) = stage(call)? else { return Err(EvalError::no_such_overload()) };
    let resource =
        Resource { group: group.clone(), resource: named(call, "resource")?, ..Resource::default() };
    Ok(opaque::value(Stage::Resource(authorizer.clone(), resource)))
}

fn narrowed<'v>(call: &Call<'_, 'v>, set: fn(&mut Resource, Arc<str>)) -> Result<Value<'v>, EvalError> {
    let Stage::Resource(authorizer, resource) = stage(call)? else {
        return Err(EvalError::no_such_overload());
    };
    let mut resource = resource.clone();
    set(&mut resource, text(call, 1)?);
    Ok(opaque::value(Stage::Resource(authorizer.clone(), resource)))
}

fn check<'v>(call: &Call<'_, 'v>) -> Result<Value<'v>, EvalError> {
    let verb = text(call, 1)?;
    let (authorizer, request) = match stage(call)? {
        Stage::Path(authorizer, path) => (authorizer, Request::Path { path: path.clone(), verb }),
        Stage::Resource(authorizer, resource) => {
            (authorizer, Request::Resource { resource: resource.clone(), verb })
        }
        _ => return Err(EvalError::no_such_overload()),
    };
    Ok(opaque::value(Stage::Decided(authorizer.check(&request))))
}

fn decided<'c>(call: &'c Call<'_, '_>) -> Result<&'c Decision, EvalError> {
    match stage(call)? {
        Stage::Decided(decision) => Ok(decision),
        _ => Err(EvalError::no_such_overload()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evaluation::steps::Steps;

    /// An authorizer that allows reads and returns the request as its reason.
    #[derive(Debug)]
    struct Reader;

    impl Authorizer for Reader {
        fn check(&self, request: &Request) -> Decision {
            let (Request::Path { verb, .. } | Request::Resource { verb, .. }) = request;
            Decision { allowed: &**verb == "get", reason: format!("{request:?}"), error: None }
        }

        fn for_service_account(&self, _: &str, _: &str) -> Result<Arc<dyn Authorizer>, String> {
            Err("invalid service account".to_owned())
        }
    }

    fn run<'v>(
        implementation: Implementation,
        on: &Value<'v>,
        args: &[&str],
    ) -> Result<Value<'v>, EvalError> {
        let mut all = vec![on.clone()];
        all.extend(args.iter().map(|arg| Value::string(*arg)));
        implementation(&Call { args: &all, steps: &Steps::unlimited() })
    }

    #[test]
    fn authorizer_calls_collect_a_request_step_by_step() -> Result<(), EvalError> {
        let start = authorizer(Arc::new(Reader));
        let pods = run(resource, &run(group, &start, &[""])?, &["pods"])?;
        let named = run(|call| narrowed(call, |resource, text| resource.name = text), &pods, &["web"])?;
        let decided = run(check, &named, &["get"])?;
        let Some(Stage::Decided(decision)) = opaque::get(&decided) else { panic!("{decided:?}") };
        let want = Resource { resource: "pods".into(), name: "web".into(), ..Resource::default() };
        let want = Request::Resource { resource: want, verb: "get".into() };
        assert_eq!((decision.allowed, &decision.reason), (true, &format!("{want:?}")));

        let decided = run(check, &run(path, &start, &["/healthz"])?, &["post"])?;
        assert!(matches!(opaque::get(&decided), Some(Stage::Decided(Decision { allowed: false, .. }))));
        Ok(())
    }

    #[test]
    fn authorizer_calls_in_the_wrong_order_or_with_blank_names_are_errors() -> Result<(), EvalError> {
        let start = authorizer(Arc::new(Reader));
        let core = run(group, &start, &[""])?;
        for (result, want) in [
            (run(path, &start, &[" "]), "path must not be empty"),
            (run(resource, &core, &[""]), "resource must not be empty"),
            (run(resource, &start, &["pods"]), "no such overload"),
            (run(check, &core, &["get"]), "no such overload"),
            (run(service_account, &start, &["a", "b"]), "invalid service account"),
        ] {
            assert_eq!(result.err().map(|error| error.message.into_owned()).as_deref(), Some(want));
        }
        Ok(())
    }
}
