//! Attribute-based access control with the policies of a file, which has one policy per line and is read at
//! start (docs/api/authorization.md#abac-policy-file).

use go::quote;
use serde_json::Value;

use super::policy::Rule;
use crate::attributes::Attributes;
use crate::decision::{Decision, Reason};
use crate::document::{self, Document, Typed};
use crate::identity::{AUTHENTICATED, User};
use crate::strict::{MemberType, Object, text_of};

/// API group of the policies.
const GROUP: &str = "abac.authorization.kubernetes.io";
/// Group and version of the policies.
const API_VERSION: &str = "abac.authorization.kubernetes.io/v1beta1";
/// Group and version of policies with members at the top level instead of below `spec`. A line without a
/// version has this group and version.
const OLD_API_VERSION: &str = "abac.authorization.kubernetes.io/v0";
const KIND: &str = "Policy";

/// Size limit of a line without its line end. A line with this many bytes or more is refused.
const LINE_BYTES_MAX: usize = 64 * 1024;

static POLICY: Object = Object { name: KIND, members: &[("spec", MemberType::Object(&SPEC))] };
static SPEC: Object = Object {
    name: "PolicySpec",
    members: &[
        ("user", MemberType::Text),
        ("group", MemberType::Text),
        ("readonly", MemberType::Flag),
        ("apiGroup", MemberType::Text),
        ("resource", MemberType::Text),
        ("namespace", MemberType::Text),
        ("nonResourcePath", MemberType::Text),
    ],
};
static OLD_POLICY: Object = Object {
    name: KIND,
    members: &[
        ("user", MemberType::Text),
        ("group", MemberType::Text),
        ("readonly", MemberType::Flag),
        ("resource", MemberType::Text),
        ("namespace", MemberType::Text),
    ],
};

/// The policies of an ABAC file.
#[derive(Clone, Debug, Default)]
pub struct Policies(Vec<Policy>);

/// A policy, which is one line of the file. An empty member matches only an empty request attribute.
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

/// The errors of a policy file. The caller inserts the file name before the text.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum PoliciesError {
    /// A line is not a valid policy.
    #[error(", line {line}: {text}: {why}")]
    Line {
        /// Number of the line; the first line has number 1.
        line: usize,
        /// Text of the line.
        text: String,
        /// Reason why the line is invalid.
        why: String,
    },
    /// A line has a length of 64 KiB or more.
    #[error(": bufio.Scanner: token too long")]
    LineTooLong,
}

impl Policies {
    /// Reads a file. `document` parses one line as JSON or YAML.
    ///
    /// # Errors
    /// Returns the error of the first line that is not a valid policy.
    pub fn parse(
        text: &str,
        document: impl Fn(&str) -> Result<Document, String>,
    ) -> Result<Policies, PoliciesError> {
        let mut policies = Vec::new();
        for (at, line) in text.split('\n').enumerate() {
            if line.len() >= LINE_BYTES_MAX {
                return Err(PoliciesError::LineTooLong);
            }
            let line = line.strip_suffix('\r').unwrap_or(line);
            if line.trim().is_empty() || line.trim_start().starts_with('#') {
                continue;
            }
            let policy = document(line).and_then(|document| Policy::read(&document));
            let failed = |why| PoliciesError::Line { line: at + 1, text: line.to_owned(), why };
            policies.push(policy.map_err(failed)?);
        }
        Ok(Policies(policies))
    }

    /// Returns an allow if a policy allows the request, and no opinion otherwise.
    pub(super) fn decide(&self, request: &Attributes<'_>) -> Decision {
        if self.0.iter().any(|policy| policy.allows(request)) {
            return Decision::Allow { reason: Reason::None };
        }
        Decision::NoOpinion { reason: "No policy matched.".to_owned().into() }
    }

    /// Returns the rules that apply to a user in a namespace.
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
    fn read(document: &Document) -> Result<Policy, String> {
        let Typed { members, api_version, kind: given } = document.tree.typed()?;
        let line = Value::Object(document::object(members));
        let kind = if given.is_empty() { KIND } else { given };
        match (self::api_version(api_version)?, kind) {
            (API_VERSION, KIND) => {
                document.check(&POLICY, "v1beta1")?;
                if given.is_empty() {
                    return Err("converting (v1beta1.Policy) to (v0.Policy): unknown conversion".to_owned());
                }
                Ok(Policy::of_spec(&line["spec"]))
            }
            (OLD_API_VERSION, KIND) => {
                document.check(&OLD_POLICY, "v0")?;
                Ok(Policy::of_old(&line))
            }
            (api_version, kind) => Err(format!(
                "no kind {} is registered for version {} in scheme \"pkg/apis/abac/register.go:30\"",
                quote(kind),
                quote(api_version)
            )),
        }
    }

    fn of_spec(spec: &Value) -> Policy {
        let path = text_of(spec, "nonResourcePath");
        Policy { api_group: text_of(spec, "apiGroup"), path, ..Policy::common(spec) }.for_authenticated()
    }

    /// Reads a policy of version v0. In this version, an absent member matches everything.
    fn of_old(line: &Value) -> Policy {
        let mut policy = Policy::common(line);
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
        policy.for_authenticated()
    }

    /// Reads the members that policies have in both versions.
    fn common(members: &Value) -> Policy {
        Policy {
            user: text_of(members, "user"),
            group: text_of(members, "group"),
            readonly: members["readonly"] == true,
            resource: text_of(members, "resource"),
            namespace: text_of(members, "namespace"),
            ..Policy::default()
        }
    }

    /// Restricts the policy to authenticated users if the policy is for the user or group `*`.
    fn for_authenticated(mut self) -> Policy {
        if self.user == "*" || self.group == "*" {
            self.group = AUTHENTICATED.to_owned();
        }
        self
    }

    fn allows(&self, request: &Attributes<'_>) -> bool {
        let only_reads = matches!(request.verb, "get" | "list" | "watch");
        if !self.concerns(request.user) || self.readonly && !only_reads {
            return false;
        }
        if !request.resource_request {
            return match self.path.strip_suffix('*') {
                Some(_) => request.path.starts_with(self.path.trim_end_matches('*')),
                None => self.path == request.path,
            };
        }
        let is = |pattern: &str, value: &str| pattern == "*" || pattern == value;
        is(&self.namespace, request.namespace)
            && is(&self.resource, request.resource)
            && is(&self.api_group, request.group)
    }

    /// Returns whether the policy applies to a user. If a policy has both a user and a group, both must
    /// match.
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

/// Returns the API version of a line. The line may leave out the API version, or contain only the group.
///
/// # Errors
/// Fails if the API version is malformed.
fn api_version(text: &str) -> Result<&str, String> {
    match names::group_version(text)? {
        ("" | GROUP, "") => Ok(OLD_API_VERSION),
        _ => Ok(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Policies, PoliciesError> {
        Policies::parse(text, |line| {
            Document::new(line.as_bytes(), line.as_bytes(), None).map_err(|error| error.to_string())
        })
    }

    #[test]
    fn an_abac_line_allows_the_requests_that_it_describes() {
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
            // The names `apiVersion` and `kind` are not case-sensitive. All other names are case-sensitive.
            (line(r#"{"user":"b"}"#).replace("apiVersion", "apiversion"), "a", pods, false),
            (line(r#"{"user":"b"}"#).replace("apiVersion", "apiVer\u{17f}ion"), "a", pods, false),
            (line(r#"{"user":"a","resource":"*","namespace":"*"}"#).replace("kind", "Kind"), "a", pods, true),
            (line(r#"{"User":"a","resource":"*","namespace":"*"}"#), "a", pods, false),
        ] {
            let policies = parse(&text).unwrap();
            let user = User::new(user, ["dev", AUTHENTICATED]);
            let request = Attributes {
                resource_request: true,
                resource,
                namespace,
                ..Attributes::path(&user, verb, "")
            };
            assert_eq!(policies.decide(&request).is_allowed(), want, "{text} {verb}");
        }
    }

    #[test]
    fn abac_paths_match_exactly_or_by_prefix() {
        for (path, requested, want) in [
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
            let decision = parse(&text).unwrap().decide(&Attributes::path(&user, "get", requested));
            assert_eq!(decision.is_allowed(), want, "{path} {requested}");
        }
    }

    #[test]
    fn an_error_in_an_abac_file_names_its_line() {
        for (text, want) in [
            ("# a\n\n  # b\n", Ok(0)),
            ("null", Ok(1)),
            (r#"{"kind":"Policy","spec":{"user":"a"}}"#, Ok(1)),
            (
                r#"{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","spec":{}}"#,
                Err("converting (v1beta1.Policy) to (v0.Policy): unknown conversion"),
            ),
            (r#"{"apiVersion":"abac.authorization.kubernetes.io/v0","kind":"Policy","user":"a"}"#, Ok(1)),
            (
                r#"{"kind":"Foo"}"#,
                Err(
                    r#"no kind "Foo" is registered for version "abac.authorization.kubernetes.io/v0" in scheme "pkg/apis/abac/register.go:30""#,
                ),
            ),
            (
                r#"{"apiVersion":"v1"}"#,
                Err(
                    r#"no kind "Policy" is registered for version "v1" in scheme "pkg/apis/abac/register.go:30""#,
                ),
            ),
            (
                r#"{"KIND":"Foo"}"#,
                Err(
                    r#"no kind "Foo" is registered for version "abac.authorization.kubernetes.io/v0" in scheme "pkg/apis/abac/register.go:30""#,
                ),
            ),
            (r#"{"apiVersion":"a/b/c"}"#, Err("unexpected GroupVersion string: a/b/c")),
            (
                r#"{"apiVersion":5}"#,
                Err(
                    "couldn't get version/kind; json parse error: json: cannot unmarshal number into Go struct field \
                     .apiVersion of type string",
                ),
            ),
            (
                r#"{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":"x"}"#,
                Err(
                    "json: cannot unmarshal string into Go struct field Policy.spec of type v1beta1.PolicySpec",
                ),
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
            assert_eq!(got, want.map_err(|why| format!(", line 1: {text}: {why}")), "{text}");
        }
    }

    #[test]
    fn an_abac_line_of_64_kib_is_too_long() {
        for (bytes, end, want) in [
            (LINE_BYTES_MAX - 1, "", Ok(0)),
            (LINE_BYTES_MAX - 1, "\n# b", Ok(0)),
            (LINE_BYTES_MAX, "", Err(": bufio.Scanner: token too long")),
            (LINE_BYTES_MAX, "\n# b", Err(": bufio.Scanner: token too long")),
        ] {
            let text = format!("#{}{end}", "a".repeat(bytes - 1));
            let got = parse(&text).map(|policies| policies.0.len()).map_err(|error| error.to_string());
            assert_eq!(got, want.map_err(str::to_owned), "{bytes} {end}");
        }
    }
}
