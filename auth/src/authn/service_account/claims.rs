//! The claims of a token whose signature is verified. The decoding has the rules of go-jose. If a claim has
//! the wrong JSON type, the token is refused with the error text of go-jose, because token reviews contain
//! this text. A missing or null claim counts as empty.

use serde_json::{Map, Value};

use super::accounts::Reference;
use super::token_error::TokenError;
use crate::json_error;

/// The claims of a service account token. Times are in seconds since the Unix epoch.
#[derive(Debug)]
pub(super) struct AccountClaims {
    pub(super) sub: String,
    pub(super) audiences: Vec<String>,
    pub(super) exp: Option<f64>,
    pub(super) nbf: Option<f64>,
    pub(super) iat: Option<f64>,
    pub(super) jti: String,
    all: Map<String, Value>,
}

impl AccountClaims {
    /// Parses the payload of a token.
    pub(super) fn read(payload: &[u8]) -> Result<AccountClaims, TokenError> {
        let all: Map<String, Value> = serde_json::from_slice(payload).map_err(|_| TokenError::Malformed)?;
        // Read audiences and times first, so that their errors are reported before other errors.
        let audiences = audiences(all.get("aud"))?;
        let [exp, nbf, iat] = ["exp", "nbf", "iat"].map(|name| date(all.get(name)));
        let (exp, nbf, iat) = (exp?, nbf?, iat?);
        let [sub, jti] = ["sub", "jti"].map(|name| text(all.get(name)));
        Ok(AccountClaims { sub: sub?, audiences, exp, nbf, iat, jti: jti?, all })
    }

    /// Returns the claim with this name.
    pub(super) fn get(&self, name: &str) -> Option<&Value> {
        self.all.get(name)
    }
}

/// Reads a string claim.
pub(super) fn text(value: Option<&Value>) -> Result<String, TokenError> {
    match value {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(other) => Err(wrong_type(other, "string")),
    }
}

/// Reads a numeric date.
pub(super) fn date(value: Option<&Value>) -> Result<Option<f64>, TokenError> {
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(value) => value.as_f64().map(Some).ok_or(TokenError::NoDate),
    }
}

/// Returns the members of a claim that is an object. `expected` is the Go type of the claim in kube-apiserver,
/// for the error text.
pub(super) fn members<'v>(
    value: Option<&'v Value>,
    expected: &'static str,
) -> Result<Option<&'v Map<String, Value>>, TokenError> {
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Object(members)) => Ok(Some(members)),
        Some(other) => Err(wrong_type(other, expected)),
    }
}

/// Reads a claim that refers to an object.
pub(super) fn reference(value: Option<&Value>) -> Result<Option<Reference>, TokenError> {
    let Some(members) = members(value, "serviceaccount.ref")? else { return Ok(None) };
    Ok(Some(Reference { name: text(members.get("name"))?, uid: text(members.get("uid"))? }))
}

/// Reads one or several audiences. Unlike other claims, this claim must not be null.
fn audiences(value: Option<&Value>) -> Result<Vec<String>, TokenError> {
    let text = |value: &Value| value.as_str().map(str::to_owned).ok_or(TokenError::NoAudience);
    match value {
        None => Ok(Vec::new()),
        Some(Value::Array(several)) => several.iter().map(text).collect(),
        Some(one) => Ok(vec![text(one)?]),
    }
}

fn wrong_type(found: &Value, expected: &'static str) -> TokenError {
    TokenError::WrongType(json_error::unfit(found, expected))
}
