//! The authorization configuration file, which lists the authorizers in their order
//! (docs/api/authorization.md#authorization-configuration).

use std::time::Duration;

use go::{duration, quote};
use serde_json::{Value, json};

use super::condition;
use super::webhook::FailurePolicy;
use crate::document::Document;
use crate::strict::{File, INTERNAL, MemberType, Object, items, text_of};

const KIND: &str = "AuthorizationConfiguration";
const VERSIONS: [&str; 4] = ["v1", "v1beta1", "v1alpha1", INTERNAL];

/// Maximum number of conditions of one webhook.
const CONDITIONS_MAX: usize = 64;

/// Maximum timeout of a webhook in nanoseconds.
const TIMEOUT_MAX: i64 = 30_000_000_000;

static ROOT: Object = Object {
    name: KIND,
    members: &[
        ("apiVersion", MemberType::Text),
        ("kind", MemberType::Text),
        ("authorizers", MemberType::List(&MemberType::Object(&AUTHORIZER))),
    ],
};
static AUTHORIZER: Object = Object {
    name: "AuthorizerConfiguration",
    members: &[
        ("type", MemberType::Text),
        ("name", MemberType::Text),
        ("webhook", MemberType::Object(&WEBHOOK)),
    ],
};
/// In the internal version, the members below the first level have other names. Therefore a file of that
/// version cannot configure an authorizer.
static INTERNAL_ROOT: Object = Object {
    name: KIND,
    members: &[
        ("apiVersion", MemberType::Text),
        ("kind", MemberType::Text),
        ("authorizers", MemberType::List(&MemberType::Object(&INTERNAL_AUTHORIZER))),
    ],
};
static INTERNAL_AUTHORIZER: Object = Object { name: "AuthorizerConfiguration", members: &[] };
static WEBHOOK: Object = Object {
    name: "WebhookConfiguration",
    members: &[
        ("authorizedTTL", MemberType::Duration),
        ("cacheAuthorizedRequests", MemberType::Flag),
        ("unauthorizedTTL", MemberType::Duration),
        ("cacheUnauthorizedRequests", MemberType::Flag),
        ("timeout", MemberType::Duration),
        ("subjectAccessReviewVersion", MemberType::Text),
        ("matchConditionSubjectAccessReviewVersion", MemberType::Text),
        ("failurePolicy", MemberType::Text),
        ("connectionInfo", MemberType::Object(&CONNECTION)),
        ("matchConditions", MemberType::List(&MemberType::Object(&CONDITION))),
    ],
};
static CONNECTION: Object = Object {
    name: "WebhookConnectionInfo",
    members: &[("type", MemberType::Text), ("kubeConfigFile", MemberType::Text)],
};
static CONDITION: Object =
    Object { name: "WebhookMatchCondition", members: &[("expression", MemberType::Text)] };

/// The settings of one authorizer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AuthorizerSettings {
    /// Type of the authorizer, for example `Webhook`, `Node` or `RBAC`.
    pub kind: String,
    /// Name of the authorizer, which must be unique in the file.
    pub name: String,
    /// Settings of an authorizer of type `Webhook`.
    pub webhook: Option<WebhookSettings>,
}

/// The settings of a webhook, including defaults.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct WebhookSettings {
    /// Cache lifetime of decisions that allow a request.
    pub authorized: CacheLifetime,
    /// Cache lifetime of decisions that refuse a request.
    pub unauthorized: CacheLifetime,
    /// Timeout of one review in nanoseconds.
    timeout: i64,
    /// Version of the reviews: `v1` or `v1beta1`.
    pub version: String,
    condition_version: String,
    failure_policy: String,
    connection: String,
    file: Option<String>,
    /// Match conditions, as CEL expressions.
    pub conditions: Vec<String>,
}

/// The cache lifetime of one kind of decision.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct CacheLifetime {
    /// Lifetime in nanoseconds, which is validated even if the cache is disabled.
    ttl: i64,
    is_on: bool,
}

impl CacheLifetime {
    /// Returns the cache lifetime; zero if the cache is disabled.
    pub fn time(self) -> Duration {
        let nanos = if self.is_on { u64::try_from(self.ttl).unwrap_or(0) } else { 0 };
        Duration::from_nanos(nanos)
    }
}

impl WebhookSettings {
    /// Returns the timeout of one review.
    pub fn timeout(&self) -> Duration {
        Duration::from_nanos(self.timeout.unsigned_abs())
    }

    /// Returns the path of the kubeconfig file that names the server.
    pub fn file(&self) -> &str {
        self.file.as_deref().unwrap_or_default()
    }

    /// Returns the consequence of a failed call.
    pub fn failure_policy(&self) -> FailurePolicy {
        match self.failure_policy.as_str() {
            "Deny" => FailurePolicy::Deny,
            _ => FailurePolicy::NoOpinion,
        }
    }
}

/// Reads the file. `group` is the API group of the file's version.
///
/// # Errors
/// Returns the error text of kube-apiserver.
pub fn read(document: &Document, group: &str) -> Result<Vec<AuthorizerSettings>, String> {
    let form = |version: &str| if version == INTERNAL { &INTERNAL_ROOT } else { &ROOT };
    let file = File { kind: KIND, versions: &VERSIONS, group, form };
    let root = file.read(document)?;
    let authorizers = items(root.get("authorizers")).map(|value| AuthorizerSettings {
        kind: text_of(value, "type"),
        name: text_of(value, "name"),
        webhook: value.get("webhook").filter(|webhook| !webhook.is_null()).map(webhook),
    });
    Ok(authorizers.collect())
}

fn webhook(value: &Value) -> WebhookSettings {
    // If a duration is absent or zero, the default is used.
    let nanos = |name: &str| duration::parse(value[name].as_str().unwrap_or("0")).unwrap_or(0);
    let lifetime = |name: &str, default: i64, flag: &str| {
        let ttl = Some(nanos(name)).filter(|ttl| *ttl != 0).unwrap_or(default);
        CacheLifetime { ttl, is_on: value[flag].as_bool() != Some(false) }
    };
    const SECOND: i64 = 1_000_000_000;
    let connection = &value["connectionInfo"];
    WebhookSettings {
        authorized: lifetime("authorizedTTL", 300 * SECOND, "cacheAuthorizedRequests"),
        unauthorized: lifetime("unauthorizedTTL", 30 * SECOND, "cacheUnauthorizedRequests"),
        timeout: nanos("timeout"),
        version: text_of(value, "subjectAccessReviewVersion"),
        condition_version: text_of(value, "matchConditionSubjectAccessReviewVersion"),
        failure_policy: text_of(value, "failurePolicy"),
        connection: text_of(connection, "type"),
        file: connection["kubeConfigFile"].as_str().map(str::to_owned),
        conditions: items(value.get("matchConditions")).map(|each| text_of(each, "expression")).collect(),
    }
}

#[derive(Default)]
struct Errors(Vec<String>);

impl Errors {
    fn required(&mut self, path: &str) {
        self.0.push(format!("{path}: Required value"));
    }

    fn invalid(&mut self, path: &str, value: &str, why: &str) {
        self.0.push(format!("{path}: Invalid value: {}: {why}", quote(value)));
    }

    fn unsupported(&mut self, path: &str, value: &str, supported: &[&str]) {
        let supported: Vec<String> = supported.iter().map(|text| quote(text)).collect();
        self.0
            .push(format!("{path}: Unsupported value: {value}: supported values: {}", supported.join(", ")));
    }

    /// Adds an error if `value` is not in `supported`.
    fn one_of(&mut self, path: &str, value: &str, supported: &[&str]) {
        match value {
            "" => self.required(path),
            value if supported.contains(&value) => {}
            value => self.unsupported(path, &quote(value), supported),
        }
    }

    fn end(self) -> Result<(), String> {
        go::join_errors(&self.0).map_or(Ok(()), Err)
    }
}

/// Checks the authorizers. `modes` are the supported types. `file_fault` returns the error of a kubeconfig
/// file, if any.
///
/// # Errors
/// Returns all problems.
pub fn validate(
    authorizers: &[AuthorizerSettings],
    modes: &[&str],
    file_fault: impl Fn(&str) -> Option<String>,
) -> Result<(), String> {
    let mut errors = Errors::default();
    if authorizers.is_empty() {
        return Err("authorizers: Required value: at least one authorization mode must be defined".to_owned());
    }
    let (mut kinds, mut names) = (Vec::new(), Vec::new());
    for (at, authorizer) in authorizers.iter().enumerate() {
        let path = format!("authorizers[{at}]");
        let AuthorizerSettings { kind, name, webhook } = authorizer;
        if kind.is_empty() {
            errors.required(&format!("{path}.type"));
            continue;
        }
        if !modes.contains(&kind.as_str()) {
            errors.unsupported(&format!("{path}.type"), &quote(kind), modes);
            continue;
        }
        if kind != "Webhook" && kinds.contains(&kind) {
            errors.0.push(format!("{path}.type: Duplicate value: {}", quote(kind)));
            continue;
        }
        kinds.push(kind);
        if name.is_empty() {
            errors.required(&format!("{path}.name"));
        } else if names.contains(&name) {
            errors.0.push(format!("{path}.name: Duplicate value: {}", quote(name)));
        } else {
            let faults = ::names::subdomain(name);
            if !faults.is_empty() {
                let why = format!("authorizer name is invalid: {}", faults.join(", "));
                errors.invalid(&format!("{path}.name"), name, &why);
            }
        }
        names.push(name);
        match (kind.as_str(), webhook) {
            ("Webhook", Some(webhook)) => webhook.validate(&path, &file_fault, &mut errors),
            ("Webhook", None) => {
                errors.0.push(format!("{path}.webhook: Required value: required when type=Webhook"));
            }
            (_, Some(_)) => {
                errors.invalid(
                    &format!("{path}.webhook"),
                    "non-null",
                    "may only be specified when type=Webhook",
                );
            }
            (_, None) => {}
        }
    }
    errors.end()?;
    // All types except Webhook can occur only once, and an authorizer of such a type must have the name of
    // its type.
    let mut errors = Errors::default();
    for AuthorizerSettings { kind, name, .. } in authorizers {
        let expected = kind.to_lowercase();
        if kind != "Webhook" && *name != expected {
            errors.0.push(format!("expected name {expected} for authorizer {kind} instead of {name}"));
        }
    }
    errors.end()
}

impl WebhookSettings {
    fn validate(&self, path: &str, file_fault: &dyn Fn(&str) -> Option<String>, errors: &mut Errors) {
        let at = |name: &str| format!("{path}.{name}");
        match self.timeout {
            0 => errors.required(&at("timeout")),
            1..=TIMEOUT_MAX => {}
            nanos => errors.invalid(&at("timeout"), &duration::to_text(nanos), "must be > 0s and <= 30s"),
        }
        for (name, CacheLifetime { ttl, .. }) in
            [("authorizedTTL", self.authorized), ("unauthorizedTTL", self.unauthorized)]
        {
            if ttl < 0 {
                errors.invalid(&at(name), &duration::to_text(ttl), "must be > 0s");
            }
        }
        errors.one_of(&at("subjectAccessReviewVersion"), &self.version, &["v1", "v1beta1"]);
        let condition_version = at("matchConditionSubjectAccessReviewVersion");
        match self.condition_version.as_str() {
            "v1" => {}
            "" if self.conditions.is_empty() => {}
            "" => {
                let why = "required if match conditions are specified";
                errors.0.push(format!("{condition_version}: Required value: {why}"));
            }
            version => errors.one_of(&condition_version, version, &["v1"]),
        }
        errors.one_of(&at("failurePolicy"), &self.failure_policy, &["NoOpinion", "Deny"]);
        let file = at("connectionInfo.kubeConfigFile");
        match (self.connection.as_str(), self.file.as_deref()) {
            ("", _) => errors.required(&at("connectionInfo.type")),
            ("InClusterConfig", Some(given)) => {
                errors.invalid(&file, given, "can only be set when type=KubeConfigFile");
            }
            ("KubeConfigFile", None | Some("")) => errors.required(&file),
            ("KubeConfigFile", Some(given)) if !given.starts_with('/') => {
                errors.invalid(&file, given, "must be an absolute path");
            }
            ("KubeConfigFile", Some(given)) => {
                if let Some(why) = file_fault(given) {
                    errors.invalid(&file, given, &why);
                }
            }
            ("InClusterConfig", None) => {}
            (kind, given) => {
                let settings = json!({"Type": kind, "KubeConfigFile": given});
                let settings = format_connection_settings(&settings);
                errors.unsupported(
                    &at("connectionInfo.type"),
                    &settings,
                    &["InClusterConfig", "KubeConfigFile"],
                );
            }
        }
        let conditions = at("matchConditions");
        if self.conditions.len() > CONDITIONS_MAX {
            let count = self.conditions.len();
            errors
                .0
                .push(format!("{conditions}: Too many: {count}: must have at most {CONDITIONS_MAX} items"));
            return;
        }
        errors.0.extend(condition_errors(&conditions, &self.conditions));
    }
}

/// Returns the errors of the conditions at `path`.
pub fn condition_errors(path: &str, conditions: &[String]) -> Vec<String> {
    let mut errors = Errors::default();
    for (at, text) in conditions.iter().enumerate() {
        let place = format!("{path}[{at}].expression");
        if text.trim().is_empty() {
            errors.required(&place);
        } else if conditions[..at].contains(text) {
            errors.0.push(format!("{place}: Duplicate value: {}", quote(text)));
        } else {
            errors.0.extend(condition::compile(text).err().map(|fault| fault.at(&place, text)));
        }
    }
    errors.0
}

/// Formats the connection settings with the type as the first member.
fn format_connection_settings(value: &Value) -> String {
    format!("{{\"Type\":{},\"KubeConfigFile\":{}}}", value["Type"], value["KubeConfigFile"])
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODES: [&str; 5] = ["ABAC", "AlwaysAllow", "Node", "RBAC", "Webhook"];

    fn checked(authorizers: &Value) -> Result<Vec<AuthorizerSettings>, String> {
        let value = json!({"apiVersion": "config.example/v1", "kind": KIND, "authorizers": authorizers});
        let read = read(&Document::from_value("", &value), "config.example")?;
        let gone = |path: &str| (path == "/gone").then(|| "error loading file: it is gone".to_owned());
        validate(&read, &MODES, gone).map(|()| read)
    }

    fn webhook(change: &[(&str, Value)]) -> Value {
        let mut value = json!({
            "timeout": "3s", "subjectAccessReviewVersion": "v1", "failurePolicy": "NoOpinion",
            "connectionInfo": {"type": "KubeConfigFile", "kubeConfigFile": "/f"},
        });
        for (name, changed) in change {
            value[*name] = changed.clone();
        }
        json!([{"type": "Webhook", "name": "w", "webhook": value}])
    }

    #[test]
    fn every_member_of_an_authorization_configuration_is_validated() {
        let connection = |kind: &str, file: &str| json!({"type": kind, "kubeConfigFile": file});
        let conditions = |text: &str| json!([{"expression": text}]);
        for (authorizers, want) in [
            (json!([]), "authorizers: Required value: at least one authorization mode must be defined"),
            (json!([{}]), "authorizers[0].type: Required value"),
            (json!([{"type": "RBAC", "name": "rbac"}]), ""),
            (
                json!([{"type": "RBAC", "name": "mine"}]),
                "expected name rbac for authorizer RBAC instead of mine",
            ),
            (
                json!([{"type": "RBAC", "name": "rbac"}, {"type": "RBAC", "name": "b"}]),
                "authorizers[1].type: Duplicate value: \"RBAC\"",
            ),
            (
                json!([{"type": "Webhook", "name": "w"}]),
                "authorizers[0].webhook: Required value: required when type=Webhook",
            ),
            (webhook(&[]), ""),
            (webhook(&[("timeout", json!("0s"))]), "authorizers[0].timeout: Required value"),
            (
                webhook(&[("timeout", json!("31s"))]),
                "authorizers[0].timeout: Invalid value: \"31s\": must be > 0s and <= 30s",
            ),
            (
                webhook(&[("authorizedTTL", json!("-1m"))]),
                "authorizers[0].authorizedTTL: Invalid value: \"-1m0s\": must be > 0s",
            ),
            (
                webhook(&[("unauthorizedTTL", json!("-1s")), ("cacheUnauthorizedRequests", json!(false))]),
                "authorizers[0].unauthorizedTTL: Invalid value: \"-1s\": must be > 0s",
            ),
            (webhook(&[("authorizedTTL", json!("5"))]), "time: missing unit in duration \"5\""),
            (
                webhook(&[("timeout", json!(5))]),
                "json: cannot unmarshal number into Go struct field WebhookConfiguration.authorizers.webhook.timeout of type \
                 string",
            ),
            (
                webhook(&[("failurePolicy", json!("deny"))]),
                "authorizers[0].failurePolicy: Unsupported value: \"deny\": supported values: \"NoOpinion\", \"Deny\"",
            ),
            (
                webhook(&[("connectionInfo", connection("KubeConfigFile", "a/b"))]),
                "authorizers[0].connectionInfo.kubeConfigFile: Invalid value: \"a/b\": must be an absolute path",
            ),
            (
                webhook(&[("connectionInfo", connection("KubeConfigFile", "/gone"))]),
                "authorizers[0].connectionInfo.kubeConfigFile: Invalid value: \"/gone\": error loading file: it is gone",
            ),
            (
                webhook(&[("timeout", json!("-1500us"))]),
                "authorizers[0].timeout: Invalid value: \"-1.5ms\": must be > 0s and <= 30s",
            ),
            (
                webhook(&[("connectionInfo", json!({"type": "x"}))]),
                "authorizers[0].connectionInfo.type: Unsupported value: {\"Type\":\"x\",\"KubeConfigFile\":null}: supported \
                 values: \"InClusterConfig\", \"KubeConfigFile\"",
            ),
            (
                webhook(&[("matchConditions", conditions("true"))]),
                "authorizers[0].matchConditionSubjectAccessReviewVersion: Required value: required if match conditions are \
                 specified",
            ),
            (
                webhook(&[
                    ("matchConditions", conditions("'a'")),
                    ("matchConditionSubjectAccessReviewVersion", json!("v1")),
                ]),
                "authorizers[0].matchConditions[0].expression: Invalid value: \"'a'\": must evaluate to bool but got string",
            ),
            (
                webhook(&[
                    ("matchConditions", conditions("int('x') == 1")),
                    ("matchConditionSubjectAccessReviewVersion", json!("v1")),
                ]),
                "authorizers[0].matchConditions[0].expression: Internal error: program instantiation failed: type conversion \
                 error from 'string' to 'int'",
            ),
        ] {
            let got = checked(&authorizers).map(drop).err().unwrap_or_default();
            assert_eq!(got, want, "{authorizers}");
        }
    }

    #[test]
    fn omitted_webhook_settings_have_their_defaults() {
        let read = checked(&webhook(&[("cacheUnauthorizedRequests", json!(false))])).unwrap();
        let webhook = read[0].webhook.as_ref().unwrap();
        assert_eq!(webhook.authorized.time(), Duration::from_secs(300));
        assert_eq!(webhook.unauthorized.time(), Duration::ZERO);
        assert_eq!(webhook.timeout(), Duration::from_secs(3));
        assert_eq!(webhook.failure_policy(), FailurePolicy::NoOpinion);
    }

    #[test]
    fn the_internal_version_of_the_configuration_has_no_authorizers() {
        for (authorizers, want) in [
            (json!([]), ""),
            (
                json!([{"name": "rbac", "type": "RBAC"}]),
                "strict decoding error: unknown field \"authorizers[0].name\", unknown field \"authorizers[0].type\"",
            ),
            (
                json!("x"),
                "json: cannot unmarshal string into Go struct field AuthorizationConfiguration.authorizers of type \
                 []apiserver.AuthorizerConfiguration",
            ),
        ] {
            let value =
                json!({"apiVersion": "config.example/__internal", "kind": KIND, "authorizers": authorizers});
            let got =
                read(&Document::from_value("", &value), "config.example").map(drop).err().unwrap_or_default();
            assert_eq!(got, want, "{authorizers}");
        }
    }
}
