//! Attribute-based access control: a file of policies, one a line, read at the start
//! (docs/api/authorization.md#abac-policy-file).

use serde_json::{Map, Value};

use super::policy::Rule;
use crate::attributes::Attributes;
use crate::decision::{Decision, Reason};
use go::quote;

use crate::identity::{AUTHENTICATED, User};
use crate::json_error;

/// Group and version of the lines.
const API_VERSION: &str = "abac.authorization.kubernetes.io/v1beta1";

/// The policies of a file.
#[derive(Clone, Debug, Default)]
pub struct Policies(Vec<Policy>);

/// One line: who may do what. Empty parts match nothing but empty attributes.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
struct Policy {
    user: String,
    group: String,
    readonly: bool,
    api_group: String,
    resource: String,
    namespace: String,
    path: String,
}

/// A line that is no policy.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("line {line}: {text}: {why}")]
pub struct LineError {
    /// Number of the line, from 1.
    line: usize,
    /// The line.
    text: String,
    why: String,
}

impl Policies {
    /// Reads a file. `value` reads one line as JSON or YAML.
    ///
    /// # Errors
    /// The first line that is no policy.
    pub fn parse(text: &str, value: impl Fn(&str) -> Result<Value, String>) -> Result<Policies, LineError> {
        let mut policies = Vec::new();
        for (at, line) in text.lines().enumerate() {
            if line.trim().is_empty() || line.trim_start().starts_with('#') {
                continue;
            }
            let policy = value(line).and_then(|value| Policy::read(&value));
            let failed = |why| LineError { line: at + 1, text: line.to_owned(), why };
            policies.push(policy.map_err(failed)?);
        }
        Ok(Policies(policies))
    }

    /// Allows what a line allows.
    pub(super) fn decide(&self, asked: &Attributes<'_>) -> Decision {
        if self.0.iter().any(|policy| policy.allows(asked)) {
            return Decision::Allow { reason: Reason::None };
        }
        Decision::NoOpinion { reason: "No policy matched.".to_owned().into() }
    }

    /// What a user may do in a namespace.
    pub(super) fn rules_for(&self, user: &User, namespace: &str) -> Vec<Rule> {
        let here = |policy: &&Policy| policy.namespace == "*" || policy.namespace == namespace;
        let mut rules = Vec::new();
        for policy in self.0.iter().filter(|policy| policy.concerns(user)).filter(here) {
            let verbs = if policy.readonly { &["get", "list", "watch"][..] } else { &["*"] };
            let verbs: Vec<String> = verbs.iter().map(|verb| (*verb).to_owned()).collect();
            let one = |text: &str| vec![text.to_owned()];
            if !policy.resource.is_empty() {
                let (api_groups, resources) = (one(&policy.api_group), one(&policy.resource));
                rules.push(Rule { verbs: verbs.clone(), api_groups, resources, ..Rule::default() });
            }
            if !policy.path.is_empty() {
                rules.push(Rule { verbs, non_resource_urls: one(&policy.path), ..Rule::default() });
            }
        }
        rules
    }
}

impl Policy {
    fn read(value: &Value) -> Result<Policy, String> {
        let empty = Map::new();
        let members = match value {
            Value::Object(members) => members,
            Value::Null => &empty,
            other => return Err(no_object(other)),
        };
        let member = |name: &str| members.get(name).and_then(Value::as_str).unwrap_or_default();
        match (member("apiVersion"), member("kind")) {
            (API_VERSION, "Policy") => {
                let spec = members.get("spec").and_then(Value::as_object).unwrap_or(&empty);
                let read = Reader { members: spec, within: "PolicySpec.spec" };
                Ok(Policy {
                    api_group: read.text("apiGroup")?,
                    path: read.text("nonResourcePath")?,
                    ..read.common()?
                }
                .for_authenticated())
            }
            (API_VERSION, "") => {
                Err("converting (v1beta1.Policy) to (v0.Policy): unknown conversion".to_owned())
            }
            (version, kind) if !version.is_empty() => Err(format!(
                "no kind {} is registered for version {} in scheme \"pkg/apis/abac/register.go:30\"",
                quote(kind),
                quote(version)
            )),
            // The lines of the first releases name no version. They leave out what may be anything.
            _ => {
                let mut policy = Reader { members, within: "Policy" }.common()?;
                let (anywhere, anything) = (policy.namespace.is_empty(), policy.resource.is_empty());
                if policy.user.is_empty() && policy.group.is_empty() {
                    policy.group = AUTHENTICATED.to_owned();
                }
                let star = || "*".to_owned();
                policy.api_group = star();
                if anywhere {
                    policy.namespace = star();
                }
                if anything {
                    policy.resource = star();
                }
                if anywhere && anything {
                    policy.path = star();
                }
                Ok(policy.for_authenticated())
            }
        }
    }

    /// `*` is every user that has shown who it is.
    fn for_authenticated(mut self) -> Policy {
        if self.user == "*" || self.group == "*" {
            self.group = AUTHENTICATED.to_owned();
        }
        self
    }

    fn allows(&self, asked: &Attributes<'_>) -> bool {
        let only_reads = matches!(asked.verb, "get" | "list" | "watch");
        if !self.concerns(asked.user) || self.readonly && !only_reads {
            return false;
        }
        if !asked.resource_request {
            return match self.path.strip_suffix('*') {
                Some(_) => asked.path.starts_with(self.path.trim_end_matches('*')),
                None => self.path == asked.path,
            };
        }
        let is = |wanted: &str, asked: &str| wanted == "*" || wanted == asked;
        is(&self.namespace, asked.namespace)
            && is(&self.resource, asked.resource)
            && is(&self.api_group, asked.group)
    }

    /// Whether the line is about a user: by name and by group where it has both.
    fn concerns(&self, user: &User) -> bool {
        let by_name = self.user == "*" || self.user == user.name;
        match (self.user.is_empty(), self.group.is_empty()) {
            (true, true) => false,
            (false, true) => by_name,
            (true, false) => user.in_group(&self.group),
            (false, false) => by_name && user.in_group(&self.group),
        }
    }
}

/// The members of a policy.
struct Reader<'v> {
    members: &'v Map<String, Value>,
    /// For messages: the name of the object in Go, and the path to it.
    within: &'static str,
}

impl Reader<'_> {
    fn common(&self) -> Result<Policy, String> {
        Ok(Policy {
            user: self.text("user")?,
            group: self.text("group")?,
            readonly: match self.members.get("readonly") {
                None | Some(Value::Null) => false,
                Some(Value::Bool(flag)) => *flag,
                Some(other) => return Err(self.mismatch(other, "readonly", "bool")),
            },
            resource: self.text("resource")?,
            namespace: self.text("namespace")?,
            ..Policy::default()
        })
    }

    fn text(&self, name: &str) -> Result<String, String> {
        match self.members.get(name) {
            None | Some(Value::Null) => Ok(String::new()),
            Some(Value::String(text)) => Ok(text.clone()),
            Some(other) => Err(self.mismatch(other, name, "string")),
        }
    }

    fn mismatch(&self, found: &Value, name: &str, wanted: &str) -> String {
        let (found, within) = (json_error::kind(found), self.within);
        format!("json: cannot unmarshal {found} into Go struct field {within}.{name} of type {wanted}")
    }
}

fn no_object(value: &Value) -> String {
    format!(
        "couldn't get version/kind; json parse error: json: cannot unmarshal {} into Go value of type struct {{ APIVersion \
         string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}",
        json_error::kind(value)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Policies, LineError> {
        Policies::parse(text, |line| serde_json::from_str(line).map_err(|error| error.to_string()))
    }

    #[test]
    fn a_line_allows_what_it_says() {
        let line = |spec: &str| format!(r#"{{"apiVersion":"{API_VERSION}","kind":"Policy","spec":{spec}}}"#);
        let pods = ("get", "pods", "ns");
        for (text, user, (verb, resource, namespace), want) in [
            (line(r#"{"user":"a","resource":"pods","namespace":"ns"}"#), "a", pods, true),
            (line(r#"{"user":"a","resource":"pods","namespace":"ns"}"#), "b", pods, false),
            (line(r#"{"user":"a","resource":"pods","namespace":"x"}"#), "a", pods, false),
            (line(r#"{"user":"a","resource":"*","namespace":"*"}"#), "a", pods, true),
            (line(r#"{"user":"a","resource":"*","namespace":"*","apiGroup":"apps"}"#), "a", pods, false),
            (line(r#"{"user":"a","resource":"*","namespace":"*","readonly":true}"#), "a", pods, true),
            (
                line(r#"{"user":"a","resource":"*","namespace":"*","readonly":true}"#),
                "a",
                ("create", "pods", "ns"),
                false,
            ),
            (line(r#"{"group":"dev","resource":"*","namespace":"*"}"#), "a", pods, true),
            (line(r#"{"user":"b","group":"dev","resource":"*","namespace":"*"}"#), "a", pods, false),
            (line(r#"{"user":"*","resource":"*","namespace":"*"}"#), "a", pods, true),
            (line(r#"{"resource":"*","namespace":"*"}"#), "a", pods, false),
            (r#"{"user":"a"}"#.to_owned(), "a", pods, true),
            (r#"{"user":"a","readonly":true}"#.to_owned(), "a", ("delete", "pods", "ns"), false),
            (r#"{"resource":"pods"}"#.to_owned(), "a", pods, true),
        ] {
            let policies = parse(&text).unwrap();
            let user = User::new(user, ["dev", AUTHENTICATED]);
            let asked = Attributes {
                resource_request: true,
                resource,
                namespace,
                ..Attributes::path(&user, verb, "")
            };
            assert_eq!(policies.decide(&asked).is_allowed(), want, "{text} {verb}");
        }
    }

    #[test]
    fn paths_match_exactly_or_from_their_beginning() {
        for (path, asked, want) in [
            ("/healthz", "/healthz", true),
            ("/healthz", "/healthz/x", false),
            ("/foo/*", "/foo/", true),
            ("/foo/*", "/foo", false),
            ("/a*b", "/axb", false),
            ("*", "/anything", true),
            ("", "/anything", false),
        ] {
            let text = format!(
                r#"{{"apiVersion":"{API_VERSION}","kind":"Policy","spec":{{"user":"a","nonResourcePath":"{path}"}}}}"#
            );
            let user = User::new("a", ["dev"]);
            let decision = parse(&text).unwrap().decide(&Attributes::path(&user, "get", asked));
            assert_eq!(decision.is_allowed(), want, "{path} {asked}");
        }
    }

    #[test]
    fn a_wrong_line_is_named() {
        for (text, want) in [
            ("# a\n\n  # b\n", Ok(0)),
            ("null", Ok(1)),
            (r#"{"kind":"Policy","spec":{"user":"a"}}"#, Ok(1)),
            (
                r#"{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","spec":{}}"#,
                Err("converting (v1beta1.Policy) to (v0.Policy): unknown conversion"),
            ),
            (
                r#"{"apiVersion":"v0","kind":"Policy"}"#,
                Err(
                    r#"no kind "Policy" is registered for version "v0" in scheme "pkg/apis/abac/register.go:30""#,
                ),
            ),
            (
                r#"{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"readonly":"true"}}"#,
                Err(
                    "json: cannot unmarshal string into Go struct field PolicySpec.spec.readonly of type bool",
                ),
            ),
            (
                r#"{"user":5}"#,
                Err("json: cannot unmarshal number into Go struct field Policy.user of type string"),
            ),
        ] {
            let got = parse(text).map(|policies| policies.0.len()).map_err(|error| error.to_string());
            assert_eq!(got, want.map_err(|why| format!("line 1: {text}: {why}")), "{text}");
        }
    }
}
