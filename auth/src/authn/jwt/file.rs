//! The configuration file of authentication, decoded strictly: a member that is not known is an error, so that a typing
//! mistake does not open or close a door.

use serde_json::{Map, Value};

use super::settings::{ClaimRule, IssuerSettings, JwtSettings, Mapping, Mappings, Rule, Settings};
use crate::go::quote;

/// The kind of the file's object.
const KIND: &str = "AuthenticationConfiguration";

/// Versions of the file. All have the same members.
const VERSIONS: [&str; 4] = ["v1", "v1beta1", "v1alpha1", "__internal"];

/// What the file says about requests without credentials.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct AnonymousSettings {
    /// Whether they are served.
    pub enabled: bool,
    /// Paths that they may ask for; empty: all.
    pub paths: Vec<String>,
}

/// The contents of the file.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Contents {
    /// The issuers.
    pub settings: Settings,
    /// Anonymous requests, if the file speaks of them.
    pub anonymous: Option<AnonymousSettings>,
}

/// The form of a value.
enum Form {
    Text,
    Flag,
    List(&'static Form),
    Object(&'static Object),
}

/// An object: its name in Go, and its members.
struct Object {
    name: &'static str,
    members: &'static [(&'static str, Form)],
}

static ROOT: Object = Object {
    name: KIND,
    members: &[
        ("apiVersion", Form::Text),
        ("kind", Form::Text),
        ("jwt", Form::List(&Form::Object(&JWT))),
        ("anonymous", Form::Object(&ANONYMOUS)),
    ],
};
static ANONYMOUS: Object = Object {
    name: "AnonymousAuthConfig",
    members: &[("enabled", Form::Flag), ("conditions", Form::List(&Form::Object(&CONDITION)))],
};
static CONDITION: Object = Object { name: "AnonymousAuthCondition", members: &[("path", Form::Text)] };
static JWT: Object = Object {
    name: "JWTAuthenticator",
    members: &[
        ("issuer", Form::Object(&ISSUER)),
        ("claimValidationRules", Form::List(&Form::Object(&CLAIM_RULE))),
        ("claimMappings", Form::Object(&MAPPINGS)),
        ("userValidationRules", Form::List(&Form::Object(&USER_RULE))),
    ],
};
static ISSUER: Object = Object {
    name: "Issuer",
    members: &[
        ("url", Form::Text),
        ("discoveryURL", Form::Text),
        ("certificateAuthority", Form::Text),
        ("audiences", Form::List(&Form::Text)),
        ("audienceMatchPolicy", Form::Text),
        ("egressSelectorType", Form::Text),
    ],
};
static CLAIM_RULE: Object = Object {
    name: "ClaimValidationRule",
    members: &[
        ("claim", Form::Text),
        ("requiredValue", Form::Text),
        ("expression", Form::Text),
        ("message", Form::Text),
    ],
};
static USER_RULE: Object =
    Object { name: "UserValidationRule", members: &[("expression", Form::Text), ("message", Form::Text)] };
static MAPPINGS: Object = Object {
    name: "ClaimMappings",
    members: &[
        ("username", Form::Object(&PREFIXED)),
        ("groups", Form::Object(&PREFIXED)),
        ("uid", Form::Object(&PLAIN)),
        ("extra", Form::List(&Form::Object(&EXTRA))),
    ],
};
static PREFIXED: Object = Object {
    name: "PrefixedClaimOrExpression",
    members: &[("claim", Form::Text), ("prefix", Form::Text), ("expression", Form::Text)],
};
static PLAIN: Object =
    Object { name: "ClaimOrExpression", members: &[("claim", Form::Text), ("expression", Form::Text)] };
static EXTRA: Object =
    Object { name: "ExtraMapping", members: &[("key", Form::Text), ("valueExpression", Form::Text)] };

/// Reads the file: `text` as it is, for messages, and `value`, what it says. `group` is the group of its version.
///
/// # Errors
/// The text of kube-apiserver's error.
pub fn read(text: &str, value: &Value, group: &str) -> Result<Contents, String> {
    let empty = Map::new();
    let root = value.as_object().unwrap_or(&empty);
    let member = |name: &str| root.get(name).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (member("apiVersion"), member("kind"));
    if kind.is_empty() {
        return Err(format!("Object 'Kind' is missing in '{text}'"));
    }
    if api_version.is_empty() {
        return Err(format!("Object 'apiVersion' is missing in '{text}'"));
    }
    let version =
        api_version.split_once('/').filter(|(found, _)| *found == group).map(|(_, version)| version);
    let version = version.filter(|version| VERSIONS.contains(version));
    match (version, kind) {
        (Some(_), KIND) => {}
        (Some(_), "AuthorizationConfiguration" | "EgressSelectorConfiguration" | "TracingConfiguration") => {
            return Err(format!("expected {KIND}, got *apiserver.{kind}"));
        }
        _ => {
            return Err(format!(
                "no kind {} is registered for version {} in scheme \"apiserver\"",
                quote(kind),
                quote(api_version)
            ));
        }
    }
    let mut unknown = Vec::new();
    let version = version.unwrap_or_default();
    check_object(root, &ROOT, &Place { path: "", fields: "", version }, &mut unknown)?;
    if !unknown.is_empty() {
        return Err(format!("strict decoding error: {}", unknown.join(", ")));
    }
    let jwt = items(root.get("jwt")).map(jwt).collect();
    let anonymous = root.get("anonymous").filter(|value| !value.is_null()).map(|value| AnonymousSettings {
        enabled: value["enabled"].as_bool().unwrap_or_default(),
        paths: items(value.get("conditions")).map(|condition| text_of(condition, "path")).collect(),
    });
    Ok(Contents { settings: Settings { jwt }, anonymous })
}

impl AnonymousSettings {
    /// Checks the settings.
    ///
    /// # Errors
    /// Conditions without permission.
    pub fn validate(&self) -> Result<(), String> {
        if self.enabled || self.paths.is_empty() {
            return Ok(());
        }
        let shown: Vec<Value> = self.paths.iter().map(|path| serde_json::json!({ "Path": path })).collect();
        Err(format!(
            "invalid authentication configuration: anonymous.conditions: Invalid value: {}: enabled should be set to \
             true when conditions are defined",
            Value::from(shown)
        ))
    }
}

/// Where a value stands.
struct Place<'p> {
    /// With indices: `jwt[0].issuer`.
    path: &'p str,
    /// Without: `jwt.issuer`.
    fields: &'p str,
    version: &'p str,
}

/// Checks the members of an object. The depth is that of the forms.
fn check_object(
    members: &Map<String, Value>,
    object: &Object,
    place: &Place<'_>,
    unknown: &mut Vec<String>,
) -> Result<(), String> {
    let joined = |before: &str, name: &str| {
        if before.is_empty() { name.to_owned() } else { format!("{before}.{name}") }
    };
    for (name, value) in members {
        let path = joined(place.path, name);
        let Some((_, form)) = object.members.iter().find(|(known, _)| known == name) else {
            unknown.push(format!("unknown field {}", quote(&path)));
            continue;
        };
        let fields = joined(place.fields, name);
        let place = Place { path: &path, fields: &fields, version: place.version };
        check(value, form, object, &place, unknown)?;
    }
    Ok(())
}

fn check(
    value: &Value,
    form: &Form,
    within: &Object,
    place: &Place<'_>,
    unknown: &mut Vec<String>,
) -> Result<(), String> {
    match (value, form) {
        (Value::Null, _) | (Value::String(_), Form::Text) | (Value::Bool(_), Form::Flag) => Ok(()),
        (Value::Array(items), Form::List(form)) => {
            for (at, item) in items.iter().enumerate() {
                let path = format!("{}[{at}]", place.path);
                check(item, form, within, &Place { path: &path, ..*place }, unknown)?;
            }
            Ok(())
        }
        (Value::Object(members), Form::Object(object)) => check_object(members, object, place, unknown),
        _ => {
            let found = match value {
                Value::Null => "null",
                Value::Bool(_) => "bool",
                Value::Number(_) => "number",
                Value::String(_) => "string",
                Value::Array(_) => "array",
                Value::Object(_) => "object",
            };
            Err(format!(
                "json: cannot unmarshal {found} into Go struct field {}.{} of type {}",
                within.name,
                place.fields,
                go_type(form, place.version)
            ))
        }
    }
}

fn go_type(form: &Form, version: &str) -> String {
    match form {
        Form::Text => "string".to_owned(),
        Form::Flag => "bool".to_owned(),
        Form::List(form) => format!("[]{}", go_type(form, version)),
        Form::Object(object) => format!("{version}.{}", object.name),
    }
}

fn items(list: Option<&Value>) -> impl Iterator<Item = &Value> {
    list.and_then(Value::as_array).into_iter().flatten()
}

fn text_of(value: &Value, name: &str) -> String {
    value[name].as_str().unwrap_or_default().to_owned()
}

fn jwt(value: &Value) -> JwtSettings {
    let issuer = &value["issuer"];
    let mappings = &value["claimMappings"];
    let mapping = |name: &str| {
        let value = &mappings[name];
        Mapping {
            claim: text_of(value, "claim"),
            prefix: value["prefix"].as_str().map(str::to_owned),
            expression: text_of(value, "expression"),
        }
    };
    JwtSettings {
        issuer: IssuerSettings {
            url: text_of(issuer, "url"),
            discovery_url: text_of(issuer, "discoveryURL"),
            certificate_authority: text_of(issuer, "certificateAuthority"),
            audiences: items(issuer.get("audiences"))
                .map(|audience| audience.as_str().unwrap_or_default().to_owned())
                .collect(),
            audience_match_policy: text_of(issuer, "audienceMatchPolicy"),
            egress_selector_type: text_of(issuer, "egressSelectorType"),
        },
        claim_rules: items(value.get("claimValidationRules"))
            .map(|rule| ClaimRule {
                claim: text_of(rule, "claim"),
                required_value: text_of(rule, "requiredValue"),
                expression: text_of(rule, "expression"),
                message: text_of(rule, "message"),
            })
            .collect(),
        mappings: Mappings {
            username: mapping("username"),
            groups: mapping("groups"),
            uid: mapping("uid"),
            extra: items(mappings.get("extra"))
                .map(|extra| (text_of(extra, "key"), text_of(extra, "valueExpression")))
                .collect(),
        },
        user_rules: items(value.get("userValidationRules"))
            .map(|rule| Rule { expression: text_of(rule, "expression"), message: text_of(rule, "message") })
            .collect(),
    }
}
