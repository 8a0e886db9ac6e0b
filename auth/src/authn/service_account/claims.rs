//! What a token whose signature is verified says, read as go-jose reads it. A claim of another JSON type is refused in its
//! words, which token reviews show; a claim that is missing or null is empty.

use serde_json::{Map, Value};

use super::{Reference, TokenError};
use crate::json_error;

/// The claims of RFC 7519 that matter here; times in seconds since 1970.
#[derive(Debug)]
pub(super) struct Claims {
    pub(super) sub: String,
    pub(super) audiences: Vec<String>,
    pub(super) exp: Option<f64>,
    pub(super) nbf: Option<f64>,
    pub(super) iat: Option<f64>,
    pub(super) jti: String,
    all: Map<String, Value>,
}

impl Claims {
    /// Reads a payload.
    pub(super) fn read(payload: &[u8]) -> Result<Claims, TokenError> {
        let all: Map<String, Value> = serde_json::from_slice(payload).map_err(|_| TokenError::Malformed)?;
        // Times and audiences first: an error in one of them ends the reading, whatever else is wrong.
        let audiences = audiences(all.get("aud"))?;
        let [exp, nbf, iat] = ["exp", "nbf", "iat"].map(|name| date(all.get(name)));
        let (exp, nbf, iat) = (exp?, nbf?, iat?);
        let [sub, jti] = ["sub", "jti"].map(|name| text(all.get(name)));
        Ok(Claims { sub: sub?, audiences, exp, nbf, iat, jti: jti?, all })
    }

    /// The claim of this name.
    pub(super) fn get(&self, name: &str) -> Option<&Value> {
        self.all.get(name)
    }
}

/// A claim that is text.
pub(super) fn text(value: Option<&Value>) -> Result<String, TokenError> {
    match value {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(other) => Err(wrong_type(other, "string")),
    }
}

/// A claim that is a time.
pub(super) fn date(value: Option<&Value>) -> Result<Option<f64>, TokenError> {
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(value) => value.as_f64().map(Some).ok_or(TokenError::NoDate),
    }
}

/// The members of a claim that is an object, of the named type of kube-apiserver.
pub(super) fn members<'v>(
    value: Option<&'v Value>,
    wanted: &'static str,
) -> Result<Option<&'v Map<String, Value>>, TokenError> {
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Object(members)) => Ok(Some(members)),
        Some(other) => Err(wrong_type(other, wanted)),
    }
}

/// A claim that names an object.
pub(super) fn reference(value: Option<&Value>) -> Result<Option<Reference>, TokenError> {
    let Some(members) = members(value, "serviceaccount.ref")? else { return Ok(None) };
    Ok(Some(Reference { name: text(members.get("name"))?, uid: text(members.get("uid"))? }))
}

/// One audience or several. Unlike other claims it must not be null.
fn audiences(value: Option<&Value>) -> Result<Vec<String>, TokenError> {
    let text = |value: &Value| value.as_str().map(str::to_owned).ok_or(TokenError::NoAudience);
    match value {
        None => Ok(Vec::new()),
        Some(Value::Array(several)) => several.iter().map(text).collect(),
        Some(one) => Ok(vec![text(one)?]),
    }
}

fn wrong_type(found: &Value, wanted: &'static str) -> TokenError {
    TokenError::WrongType(json_error::unfit(found, wanted))
}
