//! The authentication configuration file. An unknown member is an error, because a mistyped name could
//! otherwise silently grant or refuse access.

use serde_json::Value;

use super::settings::{ClaimRule, IssuerSettings, JwtSettings, Mapping, Mappings, Settings, ValidationRule};
use crate::document::Document;
use crate::strict::{File, INTERNAL, MemberType, Object, items, text_of};

/// Kind of the object in the file.
const KIND: &str = "AuthenticationConfiguration";

/// Versions of the file. All versions except the internal version have the same members.
const VERSIONS: [&str; 4] = ["v1", "v1beta1", "v1alpha1", INTERNAL];

/// The settings in the file for requests without credentials.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct AnonymousSettings {
    /// Whether anonymous requests are served.
    pub enabled: bool,
    /// Paths that anonymous requests may use. An empty list allows all paths.
    pub paths: Vec<String>,
}

/// The contents of the file.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Contents {
    /// Settings of the token issuers.
    pub settings: Settings,
    /// Settings of anonymous requests, if the file has them.
    pub anonymous: Option<AnonymousSettings>,
}

static ROOT: Object = Object {
    name: KIND,
    members: &[
        ("apiVersion", MemberType::Text),
        ("kind", MemberType::Text),
        ("jwt", MemberType::List(&MemberType::Object(&JWT))),
        ("anonymous", MemberType::Object(&ANONYMOUS)),
    ],
};
/// In the internal version, the members have other names: `JWT` and `Anonymous`. These names are accepted,
/// but have no effect.
static INTERNAL_ROOT: Object =
    Object { name: KIND, members: &[("apiVersion", MemberType::Text), ("kind", MemberType::Text)] };
static ANONYMOUS: Object = Object {
    name: "AnonymousAuthConfig",
    members: &[
        ("enabled", MemberType::Flag),
        ("conditions", MemberType::List(&MemberType::Object(&CONDITION))),
    ],
};
static CONDITION: Object = Object { name: "AnonymousAuthCondition", members: &[("path", MemberType::Text)] };
static JWT: Object = Object {
    name: "JWTAuthenticator",
    members: &[
        ("issuer", MemberType::Object(&ISSUER)),
        ("claimValidationRules", MemberType::List(&MemberType::Object(&CLAIM_RULE))),
        ("claimMappings", MemberType::Object(&MAPPINGS)),
        ("userValidationRules", MemberType::List(&MemberType::Object(&USER_RULE))),
    ],
};
static ISSUER: Object = Object {
    name: "Issuer",
    members: &[
        ("url", MemberType::Text),
        ("discoveryURL", MemberType::Text),
        ("certificateAuthority", MemberType::Text),
        ("audiences", MemberType::List(&MemberType::Text)),
        ("audienceMatchPolicy", MemberType::Text),
        ("egressSelectorType", MemberType::Text),
    ],
};
static CLAIM_RULE: Object = Object {
    name: "ClaimValidationRule",
    members: &[
        ("claim", MemberType::Text),
        ("requiredValue", MemberType::Text),
        ("expression", MemberType::Text),
        ("message", MemberType::Text),
    ],
};
static USER_RULE: Object = Object {
    name: "UserValidationRule",
    members: &[("expression", MemberType::Text), ("message", MemberType::Text)],
};
static MAPPINGS: Object = Object {
    name: "ClaimMappings",
    members: &[
        ("username", MemberType::Object(&PREFIXED)),
        ("groups", MemberType::Object(&PREFIXED)),
        ("uid", MemberType::Object(&PLAIN)),
        ("extra", MemberType::List(&MemberType::Object(&EXTRA))),
    ],
};
static PREFIXED: Object = Object {
    name: "PrefixedClaimOrExpression",
    members: &[("claim", MemberType::Text), ("prefix", MemberType::Text), ("expression", MemberType::Text)],
};
static PLAIN: Object = Object {
    name: "ClaimOrExpression",
    members: &[("claim", MemberType::Text), ("expression", MemberType::Text)],
};
static EXTRA: Object = Object {
    name: "ExtraMapping",
    members: &[("key", MemberType::Text), ("valueExpression", MemberType::Text)],
};

/// Reads the file. `group` is the API group of the file's version.
///
/// # Errors
/// Returns the error text of kube-apiserver.
pub fn read(document: &Document, group: &str) -> Result<Contents, String> {
    let form = |version: &str| if version == INTERNAL { &INTERNAL_ROOT } else { &ROOT };
    let file = File { kind: KIND, versions: &VERSIONS, group, form };
    let root = file.read(document)?;
    let jwt = items(root.get("jwt")).map(jwt).collect();
    let anonymous = root.get("anonymous").filter(|value| !value.is_null()).map(|value| AnonymousSettings {
        enabled: value["enabled"].as_bool().unwrap_or_default(),
        paths: items(value.get("conditions")).map(|condition| text_of(condition, "path")).collect(),
    });
    Ok(Contents { settings: Settings { jwt }, anonymous })
}

impl AnonymousSettings {
    /// Returns an error if paths are set although anonymous requests are not allowed.
    pub fn fault(&self) -> Option<String> {
        if self.enabled || self.paths.is_empty() {
            return None;
        }
        let paths: Vec<Value> = self.paths.iter().map(|path| serde_json::json!({ "Path": path })).collect();
        Some(format!(
            "anonymous.conditions: Invalid value: {}: enabled should be set to true when conditions are defined",
            Value::from(paths)
        ))
    }
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
            .map(|rule| ValidationRule {
                expression: text_of(rule, "expression"),
                message: text_of(rule, "message"),
            })
            .collect(),
    }
}
