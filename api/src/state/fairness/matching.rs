//! Assigns requests to flows: the first flow schema that matches a request, and the distinguisher between
//! flows of a schema (docs/api/fairness.md#flows).

use auth::Attributes;
use sha2::{Digest, Sha256};

use values::json::Value;

/// The part of a flow schema that is used to match requests.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Schema {
    /// Name of the flow schema.
    pub name: String,
    /// UID of the object.
    pub uid: String,
    /// Precedence; schemas with a lower value are tried first.
    pub precedence: i64,
    /// Name of the priority level that serves the requests of the schema.
    pub level: String,
    /// The distinguisher of the flows of the schema.
    pub distinguisher: Distinguisher,
    rules: Vec<Rule>,
}

/// The property by which the flows of a schema are distinguished.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Distinguisher {
    /// All requests of the schema are one flow.
    #[default]
    Nothing,
    /// Each user has a flow.
    User,
    /// Each namespace has a flow.
    Namespace,
}

#[derive(Clone, Debug, PartialEq)]
struct Rule {
    subjects: Vec<Subject>,
    resources: Vec<ResourceRule>,
    paths: Vec<PathRule>,
}

#[derive(Clone, Debug, PartialEq)]
enum Subject {
    User(String),
    Group(String),
    /// Namespace and name.
    ServiceAccount(String, String),
}

#[derive(Clone, Debug, PartialEq)]
struct ResourceRule {
    verbs: Names,
    groups: Names,
    resources: Names,
    namespaces: Names,
    cluster_scope: bool,
}

#[derive(Clone, Debug, PartialEq)]
struct PathRule {
    verbs: Names,
    paths: Vec<String>,
}

/// A list of names, in which `*` matches all names.
#[derive(Clone, Debug, PartialEq)]
enum Names {
    All,
    Of(Vec<String>),
}

impl Schema {
    /// Reads a FlowSchema object.
    pub fn read(object: &Value) -> Schema {
        let spec = object.get("spec").unwrap_or(&Value::Null);
        Schema {
            name: object.str_at(&["metadata", "name"]).to_owned(),
            uid: object.str_at(&["metadata", "uid"]).to_owned(),
            precedence: spec.get("matchingPrecedence").and_then(Value::as_i64).unwrap_or_default(),
            level: spec.str_at(&["priorityLevelConfiguration", "name"]).to_owned(),
            distinguisher: match spec.str_at(&["distinguisherMethod", "type"]) {
                "ByUser" => Distinguisher::User,
                "ByNamespace" => Distinguisher::Namespace,
                _ => Distinguisher::Nothing,
            },
            rules: list(spec, "rules").iter().map(Rule::read).collect(),
        }
    }

    /// Returns whether requests with these request attributes match the schema.
    pub fn matches(&self, attributes: &Attributes<'_>) -> bool {
        self.rules.iter().any(|rule| rule.matches(attributes))
    }

    /// Returns the flow of a request: the value of the distinguisher.
    pub fn flow<'r>(&self, attributes: &Attributes<'r>) -> &'r str {
        match self.distinguisher {
            Distinguisher::Nothing => "",
            Distinguisher::User => &attributes.user.name,
            Distinguisher::Namespace => attributes.namespace,
        }
    }
}

/// Returns the hash that spreads flows over queues.
pub fn hash(schema: &str, flow: &str) -> u64 {
    let digest = Sha256::new().chain_update(schema).chain_update([0]).chain_update(flow).finalize();
    let (first, _) = digest.split_first_chunk().expect("a digest has 32 bytes");
    u64::from_le_bytes(*first)
}

impl Rule {
    fn read(rule: &Value) -> Rule {
        Rule {
            subjects: list(rule, "subjects").iter().filter_map(Subject::read).collect(),
            resources: list(rule, "resourceRules").iter().map(ResourceRule::read).collect(),
            paths: list(rule, "nonResourceRules").iter().map(PathRule::read).collect(),
        }
    }

    fn matches(&self, attributes: &Attributes<'_>) -> bool {
        self.subjects.iter().any(|subject| subject.matches(&attributes.user.name, &attributes.user.groups))
            && if attributes.resource_request {
                self.resources.iter().any(|rule| rule.matches(attributes))
            } else {
                self.paths.iter().any(|rule| rule.matches(attributes))
            }
    }
}

impl Subject {
    fn read(subject: &Value) -> Option<Subject> {
        let text = |path: &[&str]| subject.str_at(path).to_owned();
        Some(match subject.str_at(&["kind"]) {
            "User" => Subject::User(text(&["user", "name"])),
            "Group" => Subject::Group(text(&["group", "name"])),
            "ServiceAccount" => Subject::ServiceAccount(
                text(&["serviceAccount", "namespace"]),
                text(&["serviceAccount", "name"]),
            ),
            _ => return None,
        })
    }

    fn matches(&self, user: &str, groups: &[String]) -> bool {
        match self {
            Subject::User(name) => name == "*" || name == user,
            Subject::Group(name) => name == "*" || groups.contains(name),
            Subject::ServiceAccount(namespace, name) => user
                .strip_prefix("system:serviceaccount:")
                .and_then(|account| account.split_once(':'))
                .is_some_and(|(its_namespace, its_name)| {
                    its_namespace == namespace && (name == "*" || its_name == name)
                }),
        }
    }
}

impl ResourceRule {
    fn read(rule: &Value) -> ResourceRule {
        ResourceRule {
            verbs: Names::read(rule, "verbs"),
            groups: Names::read(rule, "apiGroups"),
            resources: Names::read(rule, "resources"),
            namespaces: Names::read(rule, "namespaces"),
            cluster_scope: rule.get("clusterScope").and_then(Value::as_bool).unwrap_or_default(),
        }
    }

    fn matches(&self, attributes: &Attributes<'_>) -> bool {
        let Attributes { verb, group, resource, subresource, namespace, .. } = *attributes;
        self.verbs.have(verb)
            && self.groups.have(group)
            && self.resources.have_resource(resource, subresource)
            && if namespace.is_empty() { self.cluster_scope } else { self.namespaces.have(namespace) }
    }
}

impl PathRule {
    fn read(rule: &Value) -> PathRule {
        let paths = list(rule, "nonResourceURLs").iter().filter_map(Value::as_str);
        PathRule { verbs: Names::read(rule, "verbs"), paths: paths.map(str::to_owned).collect() }
    }

    fn matches(&self, attributes: &Attributes<'_>) -> bool {
        self.verbs.have(attributes.verb) && self.paths.iter().any(|path| covers(path, attributes.path))
    }
}

/// Returns whether the path of a rule is the path of a request, or a directory that contains this path.
fn covers(rule: &str, path: &str) -> bool {
    if rule == "*" || rule == path {
        return true;
    }
    let directory = rule.strip_suffix('*').unwrap_or(rule).trim_end_matches('/');
    !directory.is_empty() && path.strip_prefix(directory).is_some_and(|rest| rest.starts_with('/'))
}

impl Names {
    fn read(rule: &Value, member: &str) -> Names {
        let names: Vec<String> =
            list(rule, member).iter().filter_map(Value::as_str).map(str::to_owned).collect();
        if names == ["*"] { Names::All } else { Names::Of(names) }
    }

    fn have(&self, name: &str) -> bool {
        match self {
            Names::All => true,
            Names::Of(names) => names.iter().any(|own| own == name),
        }
    }

    /// Returns whether the list contains a resource, or a subresource written `resource/subresource`.
    fn have_resource(&self, resource: &str, subresource: &str) -> bool {
        match self {
            _ if subresource.is_empty() => self.have(resource),
            Names::All => true,
            Names::Of(names) => names
                .iter()
                .any(|own| own.split_once('/').is_some_and(|(r, s)| r == resource && s == subresource)),
        }
    }
}

fn list<'v>(value: &'v Value, member: &str) -> &'v [Value] {
    value.get(member).and_then(Value::as_array).unwrap_or_default()
}
