//! Evaluates `authn` and `authz` lines: expressions of configuration files. The inputs are in a file next to the
//! table.

use std::path::Path;

use auth::User;
use auth::authn::jwt::expression::Expression;
use auth::authn::jwt::settings::{
    ClaimRule, IssuerSettings, JwtSettings, Mapping, Mappings, Settings, ValidationRule,
};
use auth::authz::Conditions;
use auth::authz::config::condition_errors;
use auth::expression_fault::ExpressionFault;
use serde_json::{Map, Value as Json, json};

use crate::json::from_value;
use crate::policy::user;

/// The inputs that all lines share.
pub struct Fixture {
    claims: Map<String, Json>,
    user: User,
    issuer: IssuerSettings,
}

impl Fixture {
    /// Reads the inputs next to a table.
    pub fn next_to(table: &Path) -> std::io::Result<Fixture> {
        let text = std::fs::read_to_string(table.with_file_name("auth-inputs.json"))?;
        let json: Json = serde_json::from_str(&text)?;
        let issuer = &json["configBase"]["jwt"][0]["issuer"];
        Ok(Fixture {
            claims: json["claims"].as_object().cloned().unwrap_or_default(),
            user: user(&json["user"]),
            issuer: IssuerSettings {
                url: text_of(&issuer["url"]),
                audiences: items(&issuer["audiences"]).map(text_of).collect(),
                ..IssuerSettings::default()
            },
        })
    }

    /// Returns the output fields of a line; `None` for unknown operations.
    pub fn answer(&self, row: &Json) -> Option<Json> {
        let text = row["expr"].as_str().unwrap_or_default();
        Some(match (row["env"].as_str()?, row["op"].as_str()?) {
            ("authn", "claimMapping") => self.evaluated(Expression::of_claims(text)),
            ("authn", "claimValidation") => self.evaluated(Expression::condition_of_claims(text)),
            ("authn", "userValidation") => self.of_user(Expression::condition_of_user(text)),
            ("authn", "config") => errors(self.settings(&row["config"]).faults(true)),
            ("authz", "matchCondition") => condition(text, &row["vars"]["spec"]),
            ("authz", "config") => {
                let conditions: Vec<String> = items(&row["config"]["matchConditions"]).map(text_of).collect();
                errors(condition_errors("matchConditions", &conditions))
            }
            _ => return None,
        })
    }

    fn evaluated(&self, compiled: Result<Expression, ExpressionFault>) -> Json {
        let expression = match compiled {
            Ok(expression) => expression,
            Err(fault) => return json!({ "error": fault.to_string() }),
        };
        let mut out = json!({ "type": expression.result_type().declared().to_string() });
        match expression.on_claims(&self.claims) {
            Ok(value) => out["result"] = from_value(&value),
            Err(error) => out["runtimeError"] = error.into(),
        }
        out
    }

    fn of_user(&self, compiled: Result<Expression, ExpressionFault>) -> Json {
        let expression = match compiled {
            Ok(expression) => expression,
            Err(fault) => return json!({ "error": fault.to_string() }),
        };
        let mut out = json!({ "type": expression.result_type().declared().to_string() });
        match expression.on_user(&self.user) {
            Ok(value) => out["result"] = from_value(&value),
            Err(error) => out["runtimeError"] = error.into(),
        }
        out
    }

    /// Returns the configuration of an issuer with the expressions of the line.
    fn settings(&self, config: &Json) -> Settings {
        let mapping = |name: &str| {
            let claim = text_of(&config[format!("{name}Claim")]);
            Mapping { prefix: None, claim, expression: text_of(&config[name]) }
        };
        let pairs = |name: &str| -> Vec<(String, String)> {
            items(&config[name]).map(|pair| (text_of(&pair[0]), text_of(&pair[1]))).collect()
        };
        let claim_rules = pairs("ClaimRules").into_iter();
        let user_rules = pairs("UserRules").into_iter();
        Settings {
            jwt: vec![JwtSettings {
                issuer: self.issuer.clone(),
                claim_rules: claim_rules
                    .map(|(expression, message)| ClaimRule { expression, message, ..ClaimRule::default() })
                    .collect(),
                mappings: Mappings {
                    username: mapping("Username"),
                    groups: mapping("Groups"),
                    uid: mapping("UID"),
                    extra: pairs("Extra"),
                },
                user_rules: user_rules
                    .map(|(expression, message)| ValidationRule { expression, message })
                    .collect(),
            }],
        }
    }
}

fn condition(text: &str, spec: &Json) -> Json {
    let conditions = match Conditions::new(&[text.to_owned()]) {
        Ok(conditions) => conditions,
        Err(error) => return json!({ "error": error }),
    };
    let mut out = json!({ "type": "bool" });
    match conditions.hold(spec.as_object().unwrap_or(&Map::new())) {
        Ok(holds) => out["result"] = holds.into(),
        Err(error) => out["runtimeError"] = error.into(),
    }
    out
}

fn errors(errors: Vec<String>) -> Json {
    json!({ "valid": errors.is_empty(), "apiErrors": errors })
}

fn text_of(json: &Json) -> String {
    json.as_str().unwrap_or_default().to_owned()
}

fn items(json: &Json) -> impl Iterator<Item = &Json> {
    json.as_array().into_iter().flatten()
}
