//! The audit policy, which consists of ordered rules. The first rule that matches a request decides how much of
//! the request is recorded (docs/api/audit.md#policy).
//!
//! Unknown members are ignored, so that a policy written for another release is accepted.

use auth::User;

use objects::request::RequestInfo;
use objects::validation::names;
use values::field::{FieldError, child, index};
use values::json::{Object, Value};
use values::naming::Naming;
use values::type_meta::type_of;
use wire::typed;

/// The amount of data that is recorded for a request. Each level includes the levels before it.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum AuditLevel {
    /// The request is not recorded.
    None,
    /// User, target and outcome of the request.
    Metadata,
    /// The metadata, and the object of the request.
    Request,
    /// The metadata, and the objects of the request and of the response.
    RequestResponse,
}

impl AuditLevel {
    const ALL: [AuditLevel; 4] =
        [AuditLevel::None, AuditLevel::Metadata, AuditLevel::Request, AuditLevel::RequestResponse];

    /// Returns the name in policies and events.
    pub fn as_str(self) -> &'static str {
        match self {
            AuditLevel::None => "None",
            AuditLevel::Metadata => "Metadata",
            AuditLevel::Request => "Request",
            AuditLevel::RequestResponse => "RequestResponse",
        }
    }
}

/// A point in the handling of a request at which an event is written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum AuditStage {
    /// The request was authenticated.
    RequestReceived,
    /// The head of a long-running response is about to be sent.
    ResponseStarted,
    /// The response has been sent.
    ResponseComplete,
    /// The handler of the request panicked.
    Panic,
}

impl AuditStage {
    const ALL: [AuditStage; 4] = [
        AuditStage::RequestReceived,
        AuditStage::ResponseStarted,
        AuditStage::ResponseComplete,
        AuditStage::Panic,
    ];

    /// Returns the name in policies and events.
    pub fn as_str(self) -> &'static str {
        match self {
            AuditStage::RequestReceived => "RequestReceived",
            AuditStage::ResponseStarted => "ResponseStarted",
            AuditStage::ResponseComplete => "ResponseComplete",
            AuditStage::Panic => "Panic",
        }
    }
}

/// A set of stages.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Stages(u8);

impl Stages {
    /// Returns whether the set contains `stage`.
    pub fn contains(self, stage: AuditStage) -> bool {
        self.0 & 1 << stage as u8 != 0
    }

    fn insert(&mut self, stage: AuditStage) {
        self.0 |= 1 << stage as u8;
    }
}

/// The decision of the policy for one request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct AuditDecision {
    /// The level at which the request is recorded.
    pub level: AuditLevel,
    /// Stages for which no event is written.
    pub omits: Stages,
    /// Whether objects are recorded without their managed fields.
    pub omits_managed_fields: bool,
}

/// The rules of a policy.
#[derive(Clone, Debug)]
pub struct AuditPolicy {
    rules: Vec<Rule>,
    omits: Stages,
    omits_managed_fields: bool,
}

/// A rule of the policy; an empty list matches everything.
#[derive(Clone, Debug)]
struct Rule {
    level: AuditLevel,
    users: Vec<String>,
    user_groups: Vec<String>,
    verbs: Vec<String>,
    resources: Vec<Resources>,
    namespaces: Vec<String>,
    paths: Vec<String>,
    omits: Stages,
    omits_managed_fields: Option<bool>,
}

/// Resources of one group.
#[derive(Clone, Debug)]
struct Resources {
    group: String,
    resources: Vec<String>,
    names: Vec<String>,
}

impl AuditPolicy {
    /// Reads a policy, in YAML or JSON.
    ///
    /// # Errors
    /// The text is malformed, or its rules are invalid; the message lists all errors in the rules.
    pub fn parse(text: &[u8], naming: &Naming) -> Result<AuditPolicy, String> {
        let value = typed::parse(text).map_err(|why| format!("failed decoding: {why}"))?;
        let none = Object::new();
        let members = value.as_object().unwrap_or(&none);
        let (kind, api_version) = type_of(&value);
        let group = naming.group("audit", true);
        let scheme = naming.own("apiserver/pkg/audit/scheme.go:31");
        let is_own = api_version == format!("{group}/v1");
        match kind {
            // A missing kind counts as the expected kind.
            "" | "Policy" if is_own => {}
            "" | "Policy" if api_version.is_empty() => {
                return Err(format!("unknown group version field {group}/__internal, Kind=Policy in policy"));
            }
            "Event" | "EventList" | "PolicyList" if is_own => {
                return Err(format!(
                    "failed decoding: converting (v1.{kind}) to (audit.Policy): unknown conversion"
                ));
            }
            kind => {
                let kind = if kind.is_empty() { "Policy" } else { kind };
                let version = match api_version {
                    "" => format!("the internal version of group {group:?}"),
                    version => format!("version {version:?}"),
                };
                return Err(format!(
                    "failed decoding: no kind {kind:?} is registered for {version} in scheme {scheme:?}"
                ));
            }
        }
        let policy = Reader { kind: "Policy", path: "", members };
        if let Some(value) = policy.member("metadata").filter(|value| value.as_object().is_none()) {
            return Err(policy.mismatch(value, "metadata", "v1.ObjectMeta"));
        }
        let omits_managed_fields = policy.boolean("omitManagedFields")?.unwrap_or(false);
        let mut errors = Vec::new();
        let omits = policy.stages("", &mut errors)?;
        let mut rules = Vec::new();
        for (at, rule) in policy.list("rules", "[]v1.PolicyRule")?.iter().enumerate() {
            let empty = Object::new();
            let members = match rule {
                Value::Null => &empty,
                Value::Object(members) => members,
                other => return Err(mismatch(other, "Policy", "rules", "v1.PolicyRule")),
            };
            let reader = Reader { kind: "PolicyRule", path: "rules.", members };
            rules.push(Rule::read(&reader, &index("rules", at), &mut errors)?);
        }
        if let Some(errors) = go::join_errors(&errors) {
            return Err(errors);
        }
        if rules.is_empty() {
            return Err("loaded illegal policy with 0 rules".to_owned());
        }
        Ok(AuditPolicy { rules, omits, omits_managed_fields })
    }

    /// Returns the decision for a request; `user` is `None` if authentication failed.
    pub fn decide(&self, user: Option<&User>, info: &RequestInfo) -> AuditDecision {
        match self.rules.iter().find(|rule| rule.matches(user, info)) {
            None => AuditDecision {
                level: AuditLevel::None,
                omits: self.omits,
                omits_managed_fields: self.omits_managed_fields,
            },
            Some(rule) => AuditDecision {
                level: rule.level,
                omits: Stages(self.omits.0 | rule.omits.0),
                omits_managed_fields: rule.omits_managed_fields.unwrap_or(self.omits_managed_fields),
            },
        }
    }
}

impl Rule {
    fn read(reader: &Reader<'_>, path: &str, errors: &mut Vec<FieldError>) -> Result<Rule, String> {
        let level = reader.text("level", "v1.Level")?;
        let known = AuditLevel::ALL.into_iter().find(|known| known.as_str() == level);
        if known.is_none() {
            let path = child(path, "level");
            errors.push(if level.is_empty() {
                FieldError::required(path, "")
            } else {
                FieldError::not_supported(path, &level.into(), &AuditLevel::ALL.map(AuditLevel::as_str))
            });
        }
        let paths = reader.texts("nonResourceURLs")?;
        let namespaces = reader.texts("namespaces")?;
        let mut resources = Vec::new();
        let given = reader.list("resources", "[]v1.GroupResources")?;
        for group in given {
            let Some(members) = group.as_object() else {
                return Err(mismatch(group, "PolicyRule", "rules.resources", "v1.GroupResources"));
            };
            let reader = Reader { kind: "GroupResources", path: "rules.resources.", members };
            resources.push(Resources {
                group: reader.text("group", "string")?.to_owned(),
                resources: reader.texts("resources")?,
                names: reader.texts("resourceNames")?,
            });
        }
        check_paths(&paths, path, errors);
        check_resources(&resources, path, errors);
        let omits = reader.stages(path, errors)?;
        let has_resources = !resources.is_empty() || !namespaces.is_empty();
        if has_resources && !paths.is_empty() {
            let list = Value::from(paths.as_slice());
            let why = "rules cannot apply to both regular resources and non-resource URLs";
            errors.push(FieldError::invalid(child(path, "nonResourceURLs"), &list, why));
        }
        Ok(Rule {
            level: known.unwrap_or(AuditLevel::None),
            users: reader.texts("users")?,
            user_groups: reader.texts("userGroups")?,
            verbs: reader.texts("verbs")?,
            resources,
            namespaces,
            paths,
            omits,
            omits_managed_fields: reader.boolean("omitManagedFields")?,
        })
    }

    fn matches(&self, user: Option<&User>, info: &RequestInfo) -> bool {
        let holds = |list: &[String], text: &str| list.iter().any(|entry| entry == text);
        if !self.users.is_empty() && !user.is_some_and(|user| holds(&self.users, &user.name)) {
            return false;
        }
        let is_member = |user: &User| user.groups.iter().any(|group| holds(&self.user_groups, group));
        if !self.user_groups.is_empty() && !user.is_some_and(is_member) {
            return false;
        }
        if !self.verbs.is_empty() && !holds(&self.verbs, info.verb_name()) {
            return false;
        }
        if !self.namespaces.is_empty() || !self.resources.is_empty() {
            return info.is_resource
                && (self.namespaces.is_empty() || holds(&self.namespaces, &info.namespace))
                && (self.resources.is_empty() || self.resources.iter().any(|some| some.contain(info)));
        }
        if !self.paths.is_empty() {
            return !info.is_resource && self.paths.iter().any(|pattern| matches_path(pattern, &info.path));
        }
        true
    }
}

impl Resources {
    fn contain(&self, info: &RequestInfo) -> bool {
        if self.group != "*" && self.group != info.group {
            return false;
        }
        if self.resources.is_empty() {
            return true;
        }
        if !self.names.is_empty() && !self.names.contains(&info.name) {
            return false;
        }
        self.resources.iter().any(|pattern| match pattern.split_once('/') {
            None if pattern == "*" => true,
            None => info.subresource.is_empty() && *pattern == info.resource,
            // Patterns such as `*/scale`, `pods/*` and `pods/log` match only subresources.
            Some((resource, subresource)) => {
                !info.subresource.is_empty()
                    && (resource == info.resource || resource == "*" && subresource != "*")
                    && (subresource == "*" || subresource == info.subresource)
            }
        })
    }
}

/// Returns whether a pattern matches a path. A pattern is a path, or a prefix followed by a final `*`.
fn matches_path(pattern: &str, path: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => path.starts_with(start),
        None => pattern == path,
    }
}

fn check_paths(paths: &[String], rule: &str, errors: &mut Vec<FieldError>) {
    let field = child(rule, "nonResourceURLs");
    for (at, path) in paths.iter().enumerate().filter(|(_, path)| *path != "*") {
        let field = index(&field, at);
        let value = path.as_str().into();
        if !path.starts_with('/') {
            let why = "non-resource URL rules must begin with a '/' character";
            errors.push(FieldError::invalid(field.as_str(), &value, why));
        }
        if path.strip_suffix('*').unwrap_or(path).contains('*') {
            let why = "non-resource URL wildcards '*' must be the final character of the rule";
            errors.push(FieldError::invalid(field, &value, why));
        }
    }
}

fn check_resources(resources: &[Resources], rule: &str, errors: &mut Vec<FieldError>) {
    let field = child(rule, "resources");
    for Resources { group, resources, names } in resources {
        if !group.is_empty() && group != "*" {
            let faults = names::subdomain(group);
            if !faults.is_empty() {
                let why = faults.join(",");
                errors.push(FieldError::invalid(child(&field, "group"), &group.as_str().into(), why));
            }
        }
        if !names.is_empty() && resources.is_empty() {
            let list = Value::from(names.as_slice());
            let why = "using resourceNames requires at least one resource";
            errors.push(FieldError::invalid(child(&field, "resourceNames"), &list, why));
        }
    }
}

/// Reads the members of a policy or a rule, and checks their types.
struct Reader<'v> {
    kind: &'static str,
    path: &'static str,
    members: &'v Object,
}

impl<'v> Reader<'v> {
    fn member(&self, name: &str) -> Option<&'v Value> {
        self.members.get(name).filter(|value| !value.is_null())
    }

    fn mismatch(&self, value: &Value, name: &str, expected: &str) -> String {
        mismatch(value, self.kind, &format!("{}{name}", self.path), expected)
    }

    fn text(&self, name: &str, expected: &str) -> Result<&'v str, String> {
        let Some(value) = self.member(name) else { return Ok("") };
        value.as_str().ok_or_else(|| self.mismatch(value, name, expected))
    }

    fn boolean(&self, name: &str) -> Result<Option<bool>, String> {
        let Some(value) = self.member(name) else { return Ok(None) };
        value.as_bool().map(Some).ok_or_else(|| self.mismatch(value, name, "bool"))
    }

    fn list(&self, name: &str, expected: &str) -> Result<&'v [Value], String> {
        let Some(value) = self.member(name) else { return Ok(&[]) };
        value.as_array().ok_or_else(|| self.mismatch(value, name, expected))
    }

    fn texts(&self, name: &str) -> Result<Vec<String>, String> {
        self.texts_of(name, "string")
    }

    /// Reads strings of a named type.
    fn texts_of(&self, name: &str, expected: &str) -> Result<Vec<String>, String> {
        let text = |value: &Value| match value {
            Value::Null => Ok(String::new()),
            value => value.as_str().map(str::to_owned).ok_or_else(|| self.mismatch(value, name, expected)),
        };
        self.list(name, &format!("[]{expected}"))?.iter().map(text).collect()
    }

    fn stages(&self, path: &str, errors: &mut Vec<FieldError>) -> Result<Stages, String> {
        let mut stages = Stages::default();
        for (at, text) in self.texts_of("omitStages", "v1.Stage")?.iter().enumerate() {
            match AuditStage::ALL.into_iter().find(|stage| stage.as_str() == text) {
                Some(stage) => stages.insert(stage),
                None => {
                    let field =
                        if path.is_empty() { "omitStages".to_owned() } else { child(path, "omitStages") };
                    let why =
                        format!("allowed stages are {}", AuditStage::ALL.map(AuditStage::as_str).join(","));
                    errors.push(FieldError::invalid(index(&field, at), &text.as_str().into(), why));
                }
            }
        }
        Ok(stages)
    }
}

fn mismatch(value: &Value, kind: &str, field: &str, expected: &str) -> String {
    let why = go::json::unfit_member(value.go_kind(), &format!("{kind}.{field}"), expected);
    format!("failed decoding: {why}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Method;
    use values::naming::KUBERNETES;
    use values::query::Query;

    const HEAD: &str = "apiVersion: audit.k8s.io/v1\nkind: Policy\n";

    fn policy(text: &str) -> Result<AuditPolicy, String> {
        AuditPolicy::parse(format!("{HEAD}{text}").as_bytes(), &KUBERNETES)
    }

    #[test]
    fn an_invalid_audit_policy_is_refused_with_all_its_errors() {
        for (text, want) in [
            ("rules: [{level: Metadata}]", ""),
            ("rules: [{level: Metadata, verb: [get], verbs: ['']}]", ""),
            ("rules: []", "loaded illegal policy with 0 rules"),
            (
                "omitStages: [X]",
                "omitStages[0]: Invalid value: \"X\": allowed stages are \
                 RequestReceived,ResponseStarted,ResponseComplete,Panic",
            ),
            (
                "metadata: 5",
                "failed decoding: json: cannot unmarshal number into Go struct field Policy.metadata of type \
                 v1.ObjectMeta",
            ),
            (
                "omitStages: Panic",
                "failed decoding: json: cannot unmarshal string into Go struct field Policy.omitStages of type \
                 []v1.Stage",
            ),
            (
                "rules: [{level: Metadata, omitStages: Panic}]",
                "failed decoding: json: cannot unmarshal string into Go struct field PolicyRule.rules.omitStages of \
                 type []v1.Stage",
            ),
            (
                "rules: [{level: Metadata, omitStages: [1]}]",
                "failed decoding: json: cannot unmarshal number into Go struct field PolicyRule.rules.omitStages of \
                 type v1.Stage",
            ),
            (
                "rules: [{level: Metadata, namespaces: [a], nonResourceURLs: ['a']}]",
                "[rules[0].nonResourceURLs[0]: Invalid value: \"a\": non-resource URL rules must begin with a '/' \
                 character, rules[0].nonResourceURLs: Invalid value: [\"a\"]: rules cannot apply to both regular \
                 resources and non-resource URLs]",
            ),
            ("rules: [null]", "rules[0].level: Required value"),
            (
                "rules: [{level: 1}]",
                "failed decoding: json: cannot unmarshal number into Go struct field PolicyRule.rules.level of type \
                 v1.Level",
            ),
            (
                "rules: [{level: Metadata, verbs: get}]",
                "failed decoding: json: cannot unmarshal string into Go struct field PolicyRule.rules.verbs of type \
                 []string",
            ),
            (
                "rules: [{level: Metadata, namespaces: [a], nonResourceURLs: ['/a']}]",
                "rules[0].nonResourceURLs: Invalid value: [\"/a\"]: rules cannot apply to both regular resources and \
                 non-resource URLs",
            ),
            (
                "rules: [{level: Metadata, resources: [{group: '', resourceNames: [a]}]}]",
                "rules[0].resources.resourceNames: Invalid value: [\"a\"]: using resourceNames requires at least one \
                 resource",
            ),
            (
                "omitStages: [X]\nrules: [{level: Yy}, {level: Metadata, nonResourceURLs: ['/a**', b]}]",
                "[omitStages[0]: Invalid value: \"X\": allowed stages are \
                 RequestReceived,ResponseStarted,ResponseComplete,Panic, rules[0].level: Unsupported value: \"Yy\": \
                 supported values: \"None\", \"Metadata\", \"Request\", \"RequestResponse\", \
                 rules[1].nonResourceURLs[0]: Invalid value: \"/a**\": non-resource URL wildcards '*' must be the final \
                 character of the rule, rules[1].nonResourceURLs[1]: Invalid value: \"b\": non-resource URL rules must \
                 begin with a '/' character]",
            ),
        ] {
            assert_eq!(policy(text).map_or_else(|error| error, |_| String::new()), want, "{text}");
        }
    }

    #[test]
    fn an_audit_policy_in_json_has_the_errors_of_a_json_parser() {
        for (text, want) in [
            (r#" {"apiVersion":"audit.k8s.io/v1","kind":"Policy","rules":[{"level":"None"}]}"#, ""),
            (
                r#"{"apiVersion":"audit.k8s.io/v1","kind":"#,
                "failed decoding: couldn't get version/kind; json parse error: unexpected end of JSON input",
            ),
            (r#"{"apiVersion":"a/b/c"}"#, "failed decoding: unexpected GroupVersion string: a/b/c"),
            (
                r#"{"apiVersion":1}"#,
                "failed decoding: couldn't get version/kind; json parse error: json: cannot unmarshal number into Go \
                 struct field .apiVersion of type string",
            ),
        ] {
            let got = AuditPolicy::parse(text.as_bytes(), &KUBERNETES);
            assert_eq!(got.map_or_else(|error| error, |_| String::new()), want, "{text}");
        }
    }

    #[test]
    fn the_first_matching_rule_of_an_audit_policy_decides() {
        let text = "omitStages: [RequestReceived]\nomitManagedFields: true\nrules:\n\
             - {level: None, users: [quiet]}\n\
             - {level: Request, userGroups: [devs], verbs: [update], omitStages: [Panic], omitManagedFields: false}\n\
             - {level: RequestResponse, resources: [{group: '', resources: [pods, '*/status'], resourceNames: [a]}]}\n\
             - {level: Request, namespaces: ['n'], resources: [{group: apps, resources: ['deployments/*']}]}\n\
             - {level: Metadata, nonResourceURLs: ['/health*', /version]}\n";
        let policy = policy(text).unwrap();
        for (user, method, path, want) in [
            ("quiet", "PUT", "/api/v1/namespaces/n/pods/a", AuditLevel::None),
            ("dev", "PUT", "/api/v1/namespaces/n/pods/a", AuditLevel::Request),
            ("joe", "GET", "/api/v1/namespaces/n/pods/a", AuditLevel::RequestResponse),
            ("joe", "GET", "/api/v1/namespaces/n/pods/b", AuditLevel::None),
            ("joe", "GET", "/api/v1/namespaces/n/pods/a/status", AuditLevel::RequestResponse),
            ("joe", "GET", "/api/v1/namespaces/n/pods/a/log", AuditLevel::None),
            ("joe", "GET", "/apis/apps/v1/namespaces/n/deployments/d/scale", AuditLevel::Request),
            ("joe", "GET", "/apis/apps/v1/namespaces/n/deployments/d", AuditLevel::None),
            ("joe", "GET", "/apis/apps/v1/namespaces/m/deployments/d/scale", AuditLevel::None),
            ("joe", "GET", "/healthz/ping", AuditLevel::Metadata),
            ("joe", "GET", "/version", AuditLevel::Metadata),
            ("joe", "GET", "/version/", AuditLevel::None),
        ] {
            let user = User::new(user, (user == "dev").then_some("devs"));
            let method = Method::from_bytes(method.as_bytes()).unwrap();
            let info = RequestInfo::parse(&method, path, &Query::parse("")).unwrap();
            let decision = policy.decide(Some(&user), &info);
            assert_eq!(decision.level, want, "{} {method} {path}", user.name);
            let is_devs = want == AuditLevel::Request && user.name == "dev";
            assert!(decision.omits.contains(AuditStage::RequestReceived));
            assert_eq!(decision.omits.contains(AuditStage::Panic), is_devs);
            assert_eq!(decision.omits_managed_fields, !is_devs);
        }
    }
}
