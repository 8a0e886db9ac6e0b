//! The claims of a verified token. Errors about claims of the wrong type have the texts of Go.

use go::date::{in_range, seconds};
use serde_json::{Map, Value};

use crate::json_error::{unfit, unfit_member};

/// The claims of a token, by name.
pub type TokenClaims = Map<String, Value>;

/// Reads a claim that is a string. A null value gives an empty string.
pub(super) fn text(claims: &TokenClaims, name: &str) -> Result<String, String> {
    match claims.get(name) {
        None => Err("claim not present".to_owned()),
        Some(Value::Null) => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(other) => Err(unfit(other, "string")),
    }
}

/// Reads a claim that is a Boolean. A null value gives false.
pub(super) fn flag(value: &Value) -> Result<bool, String> {
    match value {
        Value::Null => Ok(false),
        Value::Bool(flag) => Ok(*flag),
        other => Err(unfit(other, "bool")),
    }
}

/// Reads a claim that is a string or a list of strings. A null value gives an empty list.
pub(super) fn texts(value: &Value) -> Result<Vec<String>, String> {
    match value {
        Value::Null => Ok(Vec::new()),
        Value::String(text) => Ok(vec![text.clone()]),
        Value::Array(items) => {
            let all = items.iter().map(|item| match item {
                Value::String(text) => Some(text.clone()),
                Value::Null => Some(String::new()),
                _ => None,
            });
            all.collect::<Option<_>>().ok_or_else(|| unfit(value, "string"))
        }
        other => Err(unfit(other, "string")),
    }
}

/// The claims that are checked for every token, regardless of the mapping of the user. If a claim does not
/// have the type in the OpenID Connect specification, the token is refused.
pub(super) struct Registered {
    pub(super) audiences: Vec<String>,
    /// Expiry (`exp`) in seconds since the Unix epoch; `None` without the claim.
    pub(super) end: Option<i64>,
    /// Start of validity (`nbf`) in seconds since the Unix epoch; `None` without the claim.
    pub(super) start: Option<i64>,
}

impl Registered {
    /// Reads the claims of a token.
    ///
    /// # Errors
    /// Returns the error text of go-oidc.
    pub(super) fn read(claims: &TokenClaims) -> Result<Registered, String> {
        let registered =
            Self::decode(claims).map_err(|why| format!("oidc: failed to unmarshal claims: {why}"))?;
        let members = |name: &str| claims.get(name).and_then(Value::as_object);
        for source in members("_claim_names").into_iter().flat_map(Map::values) {
            let source = source.as_str().unwrap_or_default();
            if source.is_empty() {
                return Err("oidc: failed to obtain source from claim name".to_owned());
            }
            if !members("_claim_sources").is_some_and(|sources| sources.contains_key(source)) {
                return Err("oidc: source does not exist".to_owned());
            }
        }
        Ok(registered)
    }

    fn decode(claims: &TokenClaims) -> Result<Registered, String> {
        let text = |name: &str| check_text(claims.get(name), &format!("idToken.{name}"));
        text("iss")?;
        text("sub")?;
        let audiences = audiences(claims.get("aud"))?;
        let end = claims.get("exp").map(|value| date(value, "exp")).transpose()?;
        claims.get("iat").map(|value| date(value, "iat")).transpose()?;
        let start = claims.get("nbf").filter(|value| !value.is_null());
        let start = start.map(|value| date(value, "nbf")).transpose()?;
        text("nonce")?;
        text("at_hash")?;
        for value in members(claims, "_claim_names", "map[string]string")? {
            check_text(Some(value), "idToken._claim_names")?;
        }
        for value in members(claims, "_claim_sources", "map[string]oidc.claimSource")? {
            check_source(value)?;
        }
        Ok(Registered { audiences, end, start })
    }
}

fn check_text(value: Option<&Value>, place: &str) -> Result<(), String> {
    match value {
        None | Some(Value::Null | Value::String(_)) => Ok(()),
        Some(other) => Err(unfit_member(other, place, "string")),
    }
}

/// Reads one or several audiences. A null value gives one empty audience.
fn audiences(value: Option<&Value>) -> Result<Vec<String>, String> {
    const PLACE: &str = "idToken.aud";
    let one = |value: &Value| {
        check_text(Some(value), PLACE)?;
        Ok(value.as_str().unwrap_or_default().to_owned())
    };
    match value {
        None => Ok(Vec::new()),
        Some(value @ (Value::Null | Value::String(_))) => Ok(vec![one(value)?]),
        Some(Value::Array(items)) => items.iter().map(one).collect(),
        Some(other) => Err(unfit_member(other, PLACE, "[]string")),
    }
}

/// Iterates over the values of a claim that is an object. An absent claim has no values.
fn members<'c>(
    claims: &'c TokenClaims,
    name: &str,
    expected: &str,
) -> Result<impl Iterator<Item = &'c Value> + use<'c>, String> {
    let members = match claims.get(name) {
        None | Some(Value::Null) => None,
        Some(Value::Object(members)) => Some(members),
        Some(other) => return Err(unfit_member(other, &format!("idToken.{name}"), expected)),
    };
    Ok(members.into_iter().flat_map(Map::values))
}

/// Checks an entry of `_claim_sources`.
fn check_source(source: &Value) -> Result<(), String> {
    match source {
        Value::Null => Ok(()),
        Value::Object(members) => {
            for name in ["endpoint", "access_token"] {
                check_text(members.get(name), &format!("claimSource._claim_sources.{name}"))?;
            }
            Ok(())
        }
        other => Err(unfit_member(other, "idToken._claim_sources", "oidc.claimSource")),
    }
}

/// Reads a date in seconds since the Unix epoch. The value is a number or a string that contains a number.
/// Fractions are truncated.
fn date(value: &Value, name: &str) -> Result<i64, String> {
    let number = match value {
        Value::Null => return Err("strconv.ParseFloat: parsing \"\": invalid syntax".to_owned()),
        Value::Number(number) => Some(number.clone()),
        Value::String(text) => number(text),
        other => return Err(unfit_member(other, &format!("idToken.{name}"), "json.Number")),
    };
    let date = number.and_then(|number| number.as_i64().map(in_range).or(number.as_f64().map(seconds)));
    date.ok_or_else(|| {
        let text = go::quote(&value.to_string());
        format!("json: invalid number literal, trying to unmarshal {text} into Number")
    })
}

/// Parses a number from a string.
fn number(text: &str) -> Option<serde_json::Number> {
    // White space is not allowed here, but the parser would skip it.
    let is_bare = text.ends_with(|c: char| c.is_ascii_digit()) && !text.starts_with(char::is_whitespace);
    serde_json::from_str(text).ok().filter(|_| is_bare)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_registered_claim_of_another_type_makes_a_token_invalid() {
        const FIELD: &str = "oidc: failed to unmarshal claims: json: cannot unmarshal ";
        for (name, value, want) in [
            ("sub", json!(null), Ok((vec![], None, None))),
            ("sub", json!(5), Err("number into Go struct field idToken.sub of type string")),
            ("aud", json!(["a", "b"]), Ok((vec!["a", "b"], None, None))),
            ("aud", json!(null), Ok((vec![""], None, None))),
            ("aud", json!(5), Err("number into Go struct field idToken.aud of type []string")),
            ("aud", json!({}), Err("object into Go struct field idToken.aud of type []string")),
            ("aud", json!([5]), Err("number into Go struct field idToken.aud of type string")),
            ("exp", json!(1.9e3), Ok((vec![], Some(1900), None))),
            ("exp", json!("1900"), Ok((vec![], Some(1900), None))),
            ("exp", json!(9.2e18), Ok((vec![], Some(9_200_000_000_000_000_000), None))),
            ("exp", json!(1e20), Ok((vec![], Some(i64::MIN), None))),
            ("nbf", json!(-1e20), Ok((vec![], None, Some(i64::MIN)))),
            ("exp", json!([1]), Err("array into Go struct field idToken.exp of type json.Number")),
            ("nbf", json!(null), Ok((vec![], None, None))),
            ("nbf", json!(7), Ok((vec![], None, Some(7)))),
            ("at_hash", json!(5), Err("number into Go struct field idToken.at_hash of type string")),
            (
                "_claim_names",
                json!(5),
                Err("number into Go struct field idToken._claim_names of type map[string]string"),
            ),
            (
                "_claim_sources",
                json!({"a": 5}),
                Err("number into Go struct field idToken._claim_sources of type oidc.claimSource"),
            ),
            (
                "_claim_sources",
                json!({"a": {"endpoint": 5}}),
                Err("number into Go struct field claimSource._claim_sources.endpoint of type string"),
            ),
        ] {
            let claims = json!({name: value});
            let got = Registered::read(claims.as_object().unwrap());
            let got = got.map(|read| (read.audiences, read.end, read.start));
            let want = want.map_err(|why| format!("{FIELD}{why}"));
            let want = want.map(|(audiences, end, start)| {
                (audiences.into_iter().map(str::to_owned).collect::<Vec<_>>(), end, start)
            });
            assert_eq!(got, want, "{claims}");
        }
        for (claims, want) in [
            (
                json!({"exp": null}),
                "oidc: failed to unmarshal claims: strconv.ParseFloat: parsing \"\": invalid syntax",
            ),
            (
                json!({"iat": "x"}),
                "oidc: failed to unmarshal claims: json: invalid number literal, trying to unmarshal \"\\\"x\\\"\" into \
                 Number",
            ),
            (json!({"_claim_names": {"a": ""}}), "oidc: failed to obtain source from claim name"),
            (json!({"_claim_names": {"a": "b"}}), "oidc: source does not exist"),
        ] {
            let got = Registered::read(claims.as_object().unwrap());
            assert_eq!(got.err().as_deref(), Some(want), "{claims}");
        }
    }
}
