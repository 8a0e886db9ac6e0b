//! The permission check for writes of policies and bindings that refer to parameters. The expressions of a
//! policy can read the parameters, so the writer of the policy must have permission to read the parameters
//! (docs/api/policies.md#parameters).
//!
//! `paramKind or paramRef ─► resource of the parameters ─► the authorizers: may the writer read it? ─► field
//! error`
//!
//! Members of `system:masters` are exempt. If the resource of the parameters is unknown, the writer needs the
//! permission for all resources.

use std::fmt;

use auth::User;
use auth::attributes::Attributes;
use auth::authz::Authorizer;
use auth::identity::MASTERS;

use crate::writes::server::Server;
use types::schema::registry::Resource;
use values::field::FieldError;
use values::json::{Object, Value};

/// The wildcard for groups, versions, resources, namespaces and names.
const ALL: &str = "*";

/// The kind of object that is written.
#[derive(Clone, Copy, Debug)]
enum WrittenKind {
    /// A validating or mutating policy.
    Policy,
    /// A binding of a policy; `policies` is the resource of the policy.
    Binding {
        policies: &'static str,
        /// Whether the text of the refusal has the verb in the position of the user, and the user in the
        /// position of the verb.
        is_swapped: bool,
    },
}

impl WrittenKind {
    fn from_resource(resource: &Resource) -> Option<WrittenKind> {
        let validating = WrittenKind::Binding { policies: "validatingadmissionpolicies", is_swapped: false };
        let mutating = WrittenKind::Binding { policies: "mutatingadmissionpolicies", is_swapped: true };
        let kinds = [
            ("validatingadmissionpolicies", WrittenKind::Policy),
            ("validatingadmissionpolicybindings", validating),
            ("mutatingadmissionpolicies", WrittenKind::Policy),
            ("mutatingadmissionpolicybindings", mutating),
        ];
        let found = kinds.into_iter().find(|(plural, _)| resource.is_of("admissionregistration", plural));
        found.map(|(_, kind)| kind)
    }
}

/// Checks that the writer of a policy or binding may read the parameters to which the object refers. Objects of
/// other resources pass. An update of a policy is checked only if it changes the reference. Every write of a
/// binding with a reference is checked.
///
/// # Errors
/// Fails with a field error at the reference.
pub async fn confirm_readable(
    server: &Server,
    authorizer: &Authorizer,
    user: &User,
    resource: &Resource,
    new: &Object,
    old: Option<&Object>,
) -> Result<(), FieldError> {
    let Some(kind) = WrittenKind::from_resource(resource) else { return Ok(()) };
    if user.in_group(MASTERS) {
        return Ok(());
    }
    let reader = Reader { server, authorizer, user };
    let (path, refused) = match kind {
        WrittenKind::Policy => ("spec.paramKind", reader.kind_refused(new, old).await),
        WrittenKind::Binding { policies, is_swapped } => {
            ("spec.paramRef", reader.objects_refused(new, policies, is_swapped).await)
        }
    };
    refused.map_or(Ok(()), |why| Err(FieldError::forbidden(path, why)))
}

/// A writer whose permissions are checked.
#[derive(Clone, Copy)]
struct Reader<'r> {
    server: &'r Server,
    authorizer: &'r Authorizer,
    user: &'r User,
}

impl Reader<'_> {
    /// Returns the reason why the writer may not refer to this kind of parameters, if any.
    async fn kind_refused(&self, policy: &Object, old: Option<&Object>) -> Option<String> {
        let kind = reference(policy, "paramKind")?;
        if old.and_then(|old| reference(old, "paramKind")) == Some(kind) {
            return None;
        }
        let parameters = Parameters::for_kind(self.server, Some(kind));
        if self.may("get", &parameters, ALL, ALL).await {
            return None;
        }
        let (version, kind) = (kind.str_at(&["apiVersion"]), kind.str_at(&["kind"]));
        Some(format!(
            "user {} must have \"get\" permission on all objects of the referenced paramKind (kind={kind}, \
             apiVersion={version})",
            FormattedUser(self.user)
        ))
    }

    /// Returns the reason why the writer may not refer to the objects that a binding names or selects, if any.
    async fn objects_refused(&self, binding: &Object, policies: &str, is_swapped: bool) -> Option<String> {
        let objects = reference(binding, "paramRef")?;
        let policies = self.server.types.resource("admissionregistration", "v1", policies);
        let policy_name = reference(binding, "policyName").and_then(Value::as_str).unwrap_or_default();
        let policy = self.server.store.get(&policies, "", policy_name).ok().flatten();
        let kind = policy.as_ref().and_then(|policy| reference(policy, "paramKind"));
        let parameters = Parameters::for_kind(self.server, kind);
        let (namespace, name) = (objects.str_at(&["namespace"]), objects.str_at(&["name"]));
        let verb = if name.is_empty() { "list" } else { "get" };
        if self.may(verb, &parameters, namespace, name).await {
            return None;
        }
        let user = FormattedUser(self.user);
        let unknown = match kind {
            _ if is_swapped => None,
            None if policy.is_none() => Some(format!("get policy {policy_name}")),
            Some(kind) if parameters.resource == ALL => {
                let (version, kind) = (kind.str_at(&["apiVersion"]), kind.str_at(&["kind"]));
                Some(format!("resolve paramKind &{{{version} {kind}}}"))
            }
            _ => None,
        };
        Some(match unknown {
            Some(what) => format!(
                "unable to {what} to determine minimum required permissions and user {user} does not have \"{verb}\" \
                 permission for all groups, versions and resources"
            ),
            None if is_swapped => refused(&verb, &user),
            None => refused(&user, &verb),
        })
    }

    /// Returns whether the writer may read the parameters with this namespace and name.
    async fn may(&self, verb: &str, parameters: &Parameters, namespace: &str, name: &str) -> bool {
        let attributes = Attributes {
            resource_request: true,
            group: &parameters.group,
            version: &parameters.version,
            resource: &parameters.resource,
            namespace,
            name,
            ..Attributes::path(self.user, verb, "")
        };
        self.authorizer.decide(&attributes).await.decision.is_allowed()
    }
}

/// Returns a member of an object's spec, if present.
fn reference<'o>(object: &'o Object, name: &str) -> Option<&'o Value> {
    object.get("spec")?.get(name).filter(|value| !value.is_null())
}

fn refused(user: &dyn fmt::Display, verb: &dyn fmt::Display) -> String {
    format!("user {user} does not have \"{verb}\" permission on the object referenced by paramRef")
}

/// The resource of parameters. A field has the value [`ALL`] if the field is unknown.
struct Parameters {
    group: String,
    version: String,
    resource: String,
}

impl Parameters {
    fn for_kind(server: &Server, kind: Option<&Value>) -> Parameters {
        let all = || ALL.to_owned();
        let Some(kind) = kind else {
            return Parameters { group: all(), version: all(), resource: all() };
        };
        let api_version = kind.str_at(&["apiVersion"]);
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let served = server.types.now();
        let found = served.registry().by_kind(group, version, kind.str_at(&["kind"]));
        Parameters {
            group: group.to_owned(),
            version: version.to_owned(),
            resource: found.map_or_else(all, |found| found.table.plural.to_string()),
        }
    }
}

/// A user in the format of refusals: `&{name uid [groups] map[extra]}`.
struct FormattedUser<'u>(&'u User);

impl fmt::Display for FormattedUser<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let User { name, uid, groups, extra } = self.0;
        let extra: Vec<String> =
            extra.iter().map(|(key, values)| format!("{key}:[{}]", values.join(" "))).collect();
        write!(formatter, "&{{{name} {uid} [{}] map[{}]}}", groups.join(" "), extra.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use auth::authz::Module;

    use super::*;
    use crate::testing::jane_may_get_pods;
    use crate::writes::write::server_fixture::TestServer;
    use values::testing::object;

    #[test]
    fn the_refused_user_is_printed_with_groups_uid_and_extra_values() {
        let mut jane = User::new("jane", ["devs", "system:authenticated"]);
        assert_eq!(FormattedUser(&jane).to_string(), "&{jane  [devs system:authenticated] map[]}");
        jane.uid = "7".to_owned();
        jane.extra.insert("b".to_owned(), vec!["1".to_owned(), "2".to_owned()]);
        jane.extra.insert("a".to_owned(), Vec::new());
        assert_eq!(
            FormattedUser(&jane).to_string(),
            "&{jane 7 [devs system:authenticated] map[a:[] b:[1 2]]}"
        );
    }

    fn authorizer() -> Authorizer {
        Authorizer::new(vec![Module::Rbac], Arc::new(jane_may_get_pods()), "rbac")
    }

    /// Starts a server with a validating and a mutating policy for each kind of parameters in this list.
    async fn server() -> TestServer {
        let server = TestServer::start();
        for (name, kind) in [
            ("none", ""),
            ("pods", r#","paramKind":{"apiVersion":"v1","kind":"Pod"}"#),
            ("maps", r#","paramKind":{"apiVersion":"v1","kind":"ConfigMap"}"#),
            ("odd", r#","paramKind":{"apiVersion":"g.example/v1","kind":"Odd"}"#),
        ] {
            let rules = r#""matchConstraints":{"resourceRules":[{"operations":["*"],"apiGroups":["*"],"apiVersions":["*"],"resources":["*"]}]}"#;
            for (plural, more) in [
                ("validatingadmissionpolicies", r#""validations":[{"expression":"true"}]"#),
                (
                    "mutatingadmissionpolicies",
                    r#""reinvocationPolicy":"Never","mutations":[{"patchType":"ApplyConfiguration","applyConfiguration":{"expression":"Object{}"}}]"#,
                ),
            ] {
                let body = format!(r#"{{"metadata":{{"name":"{name}"}},"spec":{{{rules},{more}{kind}}}}}"#);
                let path = format!("POST /apis/admissionregistration.k8s.io/v1/{plural}");
                let (code, _, answer) = server.send(&path, &body).await;
                assert_eq!(code, 201, "{}", answer.str_at(&["message"]));
            }
        }
        server
    }

    #[tokio::test]
    async fn the_writer_of_a_policy_or_binding_must_be_allowed_to_read_its_parameters() {
        let (server, authorizer) = (server().await, authorizer());
        let policy =
            |kind: &str| format!(r#"{{"spec":{{"paramKind":{{"apiVersion":"v1","kind":"{kind}"}}}}}}"#);
        let binding = |policy: &str, reference: &str| {
            format!(r#"{{"spec":{{"policyName":"{policy}","paramRef":{{{reference}}}}}}}"#)
        };
        let (named, selected) = (r#""name":"x","namespace":"n""#, r#""selector":{}"#);
        let jane = "&{jane  [] map[]}";
        let kind_refused = format!(
            "spec.paramKind: Forbidden: user {jane} must have \"get\" permission on all objects of the referenced \
             paramKind (kind=ConfigMap, apiVersion=v1)"
        );
        let refused = |user: &str, verb: &str| {
            format!(
                "spec.paramRef: Forbidden: user {user} does not have \"{verb}\" permission on the object referenced by \
                 paramRef"
            )
        };
        let unknown = |what: &str| {
            format!(
                "spec.paramRef: Forbidden: unable to {what} to determine minimum required permissions and user {jane} does \
                 not have \"get\" permission for all groups, versions and resources"
            )
        };
        let (validating, mutating) = ("validatingadmissionpolic", "mutatingadmissionpolic");
        for (resource, new, old, want) in [
            (format!("{validating}ies"), policy("Pod"), "{}".to_owned(), String::new()),
            (format!("{validating}ies"), policy("ConfigMap"), "{}".to_owned(), kind_refused.clone()),
            (format!("{mutating}ies"), policy("ConfigMap"), policy("Pod"), kind_refused),
            (format!("{mutating}ies"), policy("ConfigMap"), policy("ConfigMap"), String::new()),
            (format!("{validating}ies"), "{}".to_owned(), policy("Pod"), String::new()),
            (format!("{validating}ybindings"), binding("pods", named), "{}".to_owned(), String::new()),
            (
                format!("{validating}ybindings"),
                binding("maps", named),
                binding("maps", named),
                refused(jane, "get"),
            ),
            (
                format!("{validating}ybindings"),
                binding("pods", selected),
                "{}".to_owned(),
                refused(jane, "list"),
            ),
            (format!("{validating}ybindings"), binding("none", named), "{}".to_owned(), refused(jane, "get")),
            (
                format!("{validating}ybindings"),
                binding("gone", named),
                "{}".to_owned(),
                unknown("get policy gone"),
            ),
            (
                format!("{validating}ybindings"),
                binding("odd", named),
                "{}".to_owned(),
                unknown("resolve paramKind &{g.example/v1 Odd}"),
            ),
            (format!("{mutating}ybindings"), binding("pods", named), "{}".to_owned(), String::new()),
            (
                format!("{mutating}ybindings"),
                binding("pods", selected),
                "{}".to_owned(),
                refused("list", jane),
            ),
            (format!("{mutating}ybindings"), binding("gone", named), "{}".to_owned(), refused("get", jane)),
        ] {
            let server: &Server = &server;
            let about = server.types.resource("admissionregistration", "v1", &resource);
            let (new, old) = (object(&new), object(&old));
            let answer = async |user: &User| {
                let old = Some(&old);
                confirm_readable(server, &authorizer, user, &about, &new, old).await
            };
            let got = answer(&User::new("jane", [""; 0])).await;
            assert_eq!(got.map_or_else(|error| error.to_string(), |()| String::new()), want, "{resource}");
            assert_eq!(answer(&User::new("root", [MASTERS])).await, Ok(()), "{resource}");
        }
    }
}
