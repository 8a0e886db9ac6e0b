//! The header of a JSON web signature (RFC 7515, section 4): the members that a verifier needs, and the
//! errors that make a whole token malformed. Error texts equal the texts of kube-apiserver, because token
//! reviews contain these texts.
//!
//! Keys and certificates in a header are never used, but must be well-formed. A null member counts as absent.

use std::collections::BTreeMap;

use go::base64::standard;
use go::json::syntax_error;
use go::quote;
use serde_json::Value;
use serde_json::value::RawValue;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::json_error::unfit;

/// The only supported extension. The extension says whether the signature covers the base64 text of the
/// payload or the raw payload (RFC 7797).
const PLAIN_PAYLOAD: &str = "b64";

/// The members of a header that a verifier needs.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Header {
    /// Name of the algorithm, which may be an algorithm that is never accepted. The name is empty if the
    /// member is absent.
    pub alg: String,
    /// Id of the key; empty if it is absent.
    pub kid: String,
    /// Whether the signature covers the raw payload instead of its base64 text.
    pub(super) has_plain_payload: bool,
    /// Whether the verifier must understand an extension that this module does not support.
    pub(super) needs_unknown: bool,
}

impl Header {
    /// Parses a header.
    ///
    /// # Errors
    /// Returns the reason why the token is malformed.
    pub(super) fn read(bytes: &[u8]) -> Result<Header, String> {
        if bytes.is_empty() {
            return Ok(Header::default());
        }
        let members: Option<BTreeMap<String, &RawValue>> =
            serde_json::from_slice(bytes).map_err(|_| match serde_json::from_slice::<Value>(bytes) {
                Ok(other) => unfit(&other, "jose.rawHeader"),
                Err(why) => syntax_error(bytes).unwrap_or_else(|| why.to_string()),
            })?;
        let mut header = Header::default();
        for (name, raw) in members.into_iter().flatten() {
            header.take(&name, raw.get())?;
        }
        Ok(header)
    }

    /// Reads one member. `raw` is the JSON text of the value. Errors contain kube-apiserver's description of
    /// the member.
    fn take(&mut self, name: &str, raw: &str) -> Result<(), String> {
        let what = match name {
            "alg" => "algorithm",
            "kid" => "key ID",
            "nonce" => "nonce",
            "x5c" => "x5c header",
            "jwk" => "JWK",
            PLAIN_PAYLOAD => "base64url-encode payload option",
            "crit" => "crit header",
            _ => return Ok(()),
        };
        let failed = |why: String| format!("failed to unmarshal {what}: {why}: {}", quote(raw));
        // Refuse a member that cannot be parsed, because it may name an extension that the verifier must
        // understand.
        let value: Value = serde_json::from_str(raw).map_err(|why| failed(why.to_string()))?;
        if value.is_null() {
            return Ok(());
        }
        match name {
            "alg" => self.alg = text(&value).map_err(failed)?,
            "kid" => self.kid = text(&value).map_err(failed)?,
            "nonce" => drop(text(&value).map_err(failed)?),
            "x5c" => check_chain(&value).map_err(failed)?,
            "jwk" => {
                check_key(&value).map_err(failed)?;
                check_public(&value)?;
            }
            PLAIN_PAYLOAD => self.has_plain_payload = value == Value::Bool(false),
            _ => {
                let is_known = |name: &Value| name.is_null() || name == PLAIN_PAYLOAD;
                self.needs_unknown = !value.as_array().is_some_and(|names| names.iter().all(is_known));
            }
        }
        Ok(())
    }
}

fn text(value: &Value) -> Result<String, String> {
    value.as_str().map(str::to_owned).ok_or_else(|| unfit(value, "string"))
}

/// Checks a certificate chain: a list of certificates, each in DER and base64 (RFC 7515, section 4.1.6).
fn check_chain(value: &Value) -> Result<(), String> {
    let certificates = value.as_array().ok_or_else(|| unfit(value, "[]string"))?;
    certificates.iter().try_for_each(|certificate| {
        let text = text(certificate)?;
        let der = standard(&text)?;
        X509Certificate::from_der(&der).map(drop).map_err(|_| "x509: malformed certificate".to_owned())
    })
}

/// Checks that a key is well-formed (RFC 7517, section 4).
///
/// # Errors
/// Returns the error text of kube-apiserver.
pub(super) fn check_key(value: &Value) -> Result<(), String> {
    let key = value.as_object().ok_or_else(|| unfit(value, "jose.rawJSONWebKey"))?;
    for name in ["use", "kty", "kid", "crv", "alg"] {
        key.get(name).filter(|value| !value.is_null()).map(text).transpose()?;
    }
    if let Some(chain) = key.get("x5c").filter(|value| !value.is_null()) {
        check_chain(chain).map_err(|why| format!("go-jose/go-jose: failed to unmarshal x5c field: {why}"))?;
    }
    let member = |name: &str| key.get(name).and_then(Value::as_str).unwrap_or_default();
    let has = |names: &[&str]| names.iter().all(|name| !member(name).is_empty());
    let why = match (member("kty"), member("crv")) {
        ("RSA", _) if has(&["n", "e"]) => return Ok(()),
        ("RSA", _) => "invalid RSA key, missing n/e values".to_owned(),
        ("EC", "P-256" | "P-384" | "P-521") if has(&["x", "y"]) => return Ok(()),
        ("EC", "P-256" | "P-384" | "P-521") => "invalid EC key, missing x/y values".to_owned(),
        ("EC", curve) => format!("unsupported elliptic curve '{curve}'"),
        ("OKP", "Ed25519") if has(&["x"]) => return Ok(()),
        // The text of kube-apiserver has this unpaired quote.
        ("OKP", curve) => format!("unknown curve {curve}'"),
        ("oct", _) if has(&["k"]) => return Ok(()),
        ("oct", _) => "invalid OCT (symmetric) key, missing k value".to_owned(),
        (kind, _) => format!("unknown json web key type '{kind}'"),
    };
    Err(format!("go-jose/go-jose: {why}"))
}

/// Refuses a key that is not public: a shared secret or a private key.
fn check_public(key: &Value) -> Result<(), String> {
    let is_public =
        key.get("kty").is_none_or(|kind| kind != "oct") && key.get("d").is_none_or(Value::is_null);
    if is_public {
        Ok(())
    } else {
        Err("go-jose/go-jose: invalid embedded jwk, must be public key".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_members_must_have_the_right_type_and_unknown_members_are_ignored() {
        let read = |alg: &str, kid: &str, has_plain_payload, needs_unknown| {
            Ok(Header { alg: alg.to_owned(), kid: kid.to_owned(), has_plain_payload, needs_unknown })
        };
        for (text, want) in [
            ("", read("", "", false, false)),
            ("null", read("", "", false, false)),
            ("{}", read("", "", false, false)),
            (r#"{"alg":"a","kid":"k","typ":5,"zip":"x"}"#, read("a", "k", false, false)),
            (r#"{"alg":null,"kid":null,"jwk":null}"#, read("", "", false, false)),
            (r#"{"ALG":"a"}"#, read("", "", false, false)),
            (r#"{"b64":false}"#, read("", "", true, false)),
            (r#"{"b64":"x"}"#, read("", "", false, false)),
            (r#"{"crit":[]}"#, read("", "", false, false)),
            (r#"{"crit":["b64"],"b64":true}"#, read("", "", false, false)),
            (r#"{"crit":["exp"]}"#, read("", "", false, true)),
            (r#"{"crit":"b64"}"#, read("", "", false, true)),
            (r#"{"jwk":{"kty":"RSA","n":"AQAB","e":"AQAB"},"x5c":[]}"#, read("", "", false, false)),
            ("[]", Err("json: cannot unmarshal array into Go value of type jose.rawHeader")),
            ("hello", Err("invalid character 'h' looking for beginning of value")),
            (
                r#"{"alg":5}"#,
                Err(
                    "failed to unmarshal algorithm: json: cannot unmarshal number into Go value of type string: \"5\"",
                ),
            ),
            (
                r#"{"kid":[ ]}"#,
                Err(
                    "failed to unmarshal key ID: json: cannot unmarshal array into Go value of type string: \"[ ]\"",
                ),
            ),
            (
                r#"{"nonce":{}}"#,
                Err(
                    "failed to unmarshal nonce: json: cannot unmarshal object into Go value of type string: \"{}\"",
                ),
            ),
            (
                r#"{"x5c":"x"}"#,
                Err(
                    "failed to unmarshal x5c header: json: cannot unmarshal string into Go value of type []string: \
                     \"\\\"x\\\"\"",
                ),
            ),
            (
                r#"{"x5c":["AAAA"]}"#,
                Err("failed to unmarshal x5c header: x509: malformed certificate: \"[\\\"AAAA\\\"]\""),
            ),
            (
                r#"{"jwk":"x"}"#,
                Err(
                    "failed to unmarshal JWK: json: cannot unmarshal string into Go value of type jose.rawJSONWebKey: \
                     \"\\\"x\\\"\"",
                ),
            ),
            (
                r#"{"jwk":{"kty":"RSA"}}"#,
                Err("failed to unmarshal JWK: go-jose/go-jose: invalid RSA key, missing n/e values: \
                     \"{\\\"kty\\\":\\\"RSA\\\"}\""),
            ),
            (
                r#"{"jwk":{"kty":"oct","k":"AAAA"}}"#,
                Err("go-jose/go-jose: invalid embedded jwk, must be public key"),
            ),
        ] {
            assert_eq!(Header::read(text.as_bytes()), want.map_err(str::to_owned), "{text}");
        }
    }

    #[test]
    fn an_unreadable_header_member_is_refused() {
        let deep = format!(r#"{{"crit":{}1{}}}"#, "[".repeat(200), "]".repeat(200));
        for text in
            [r#"{"crit":["\ud800"]}"#, r#"{"crit":1e999}"#, r#"{"b64":1e999}"#, r#"{"jwk":1e999}"#, &deep]
        {
            let refused = Header::read(text.as_bytes()).unwrap_err();
            assert!(refused.starts_with("failed to unmarshal "), "{text}: {refused}");
        }
        // Members that the verifier does not need are not parsed.
        assert!(Header::read(br#"{"other":1e999}"#).is_ok());
    }
}
