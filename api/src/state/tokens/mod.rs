//! Service account tokens: the settings for issuing tokens, and the documents with which other programs verify
//! tokens (docs/api/authentication.md#issuer-documents).

pub mod external;
pub mod uses;

use std::sync::Arc;
use std::time::Duration;

use auth::authn::service_account::{Issued, TokenIssuer, TokenSpec};
use auth::authn::{SigningKey, VerificationKey};
use bytes::Bytes;
use http::header::{ACCEPT, CACHE_CONTROL};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use parking_lot::RwLock;
use serde_json::json;

use self::external::External;
use self::uses::TokenUses;
use values::status::Status;
use wire::response::{Response, respond};

/// The lifetime of tokens for clients that do not renew tokens: one year. An external signer may allow only a
/// shorter lifetime.
pub const EXTENDED_LIFETIME: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// The settings for issuing tokens.
pub struct Tokens {
    /// The signer of tokens.
    pub signer: TokenSigner,
    /// Audiences of this server. A token has these audiences if the token request names no audiences.
    pub audiences: Vec<String>,
    /// Maximum lifetime of a token.
    pub lifetime_max: Option<Duration>,
    /// Whether tokens for clients that do not renew tokens are valid for longer than requested.
    pub extends: bool,
    /// Lifetime of these extended tokens.
    pub extended_lifetime: Duration,
    /// Documents about the issuer, if this server has the key. `None` if other programs cannot request the
    /// address of the issuer.
    pub documents: RwLock<Option<IssuerDocuments>>,
    /// Legacy tokens that are in use.
    pub uses: Arc<TokenUses>,
}

/// The signer of service account tokens.
pub enum TokenSigner {
    /// This server signs the tokens.
    Own(TokenIssuer),
    /// Another process signs the tokens.
    External(Arc<External>),
}

impl Tokens {
    /// Issues a token. This method waits if another process signs tokens.
    ///
    /// # Errors
    /// 500 if the token was not signed.
    pub async fn issue(&self, spec: &TokenSpec) -> Result<Issued, Status> {
        match &self.signer {
            TokenSigner::Own(issuer) => {
                issuer.issue(spec).map_err(|error| Status::internal(error.to_string()))
            }
            TokenSigner::External(external) => external.issue(spec).await.map_err(|error| {
                tracing::warn!(%error, "service account token not signed");
                Status::internal(format!("failed to generate token: {error}"))
            }),
        }
    }

    /// Returns the current documents about the issuer.
    pub fn documents(&self) -> Option<IssuerDocuments> {
        match &self.signer {
            TokenSigner::Own(_) => self.documents.read().clone(),
            TokenSigner::External(external) => external.documents(),
        }
    }

    /// Replaces the signing key and the documents. Has no effect if another process signs.
    pub fn replace(&self, key: SigningKey, documents: Option<IssuerDocuments>) {
        if let TokenSigner::Own(issuer) = &self.signer {
            // The documents are replaced first, so that verifiers can read a key before tokens are signed with
            // the key.
            *self.documents.write() = documents;
            issuer.replace_key(key);
        }
    }
}

/// Path of the discovery document (OpenID Connect Discovery 1.0, section 4).
const CONFIGURATION_PATH: &str = "/.well-known/openid-configuration";

/// Path of the key set.
const KEYS_PATH: &str = "/openid/v1/jwks";

/// Media type of key sets (RFC 7517, section 8.5).
const KEY_SET: &str = "application/jwk-set+json";

/// Time for which clients may cache the documents. A server should accept a key for at least this time after it
/// has stopped signing with the key.
const FRESH: Duration = Duration::from_secs(60 * 60);

/// The documents with which other programs verify tokens of this server.
#[derive(Clone, Debug)]
pub struct IssuerDocuments {
    configuration: Bytes,
    keys: Bytes,
    fresh: Duration,
}

impl IssuerDocuments {
    /// Returns the documents of `issuer` with its `keys`; `None` if the issuer is not an https address. The
    /// documents name `keys_uri` as the address of the keys. If `keys_uri` is absent, the documents name a
    /// URL at this server's `address`.
    pub fn new(
        issuer: &str,
        keys: &[VerificationKey],
        keys_uri: Option<&str>,
        address: &str,
    ) -> Option<IssuerDocuments> {
        issuer.strip_prefix("https://").filter(|rest| !rest.is_empty())?;
        let mut algorithms: Vec<&str> = keys.iter().map(VerificationKey::algorithm).collect();
        algorithms.sort_unstable();
        algorithms.dedup();
        let keys_uri = keys_uri.map_or_else(|| format!("https://{address}{KEYS_PATH}"), str::to_owned);
        let configuration = json!({
            "issuer": issuer,
            "jwks_uri": keys_uri,
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": algorithms,
        });
        let keys: Vec<_> = keys.iter().map(VerificationKey::to_jwk).collect();
        let text = |value: serde_json::Value| Bytes::from(value.to_string());
        let (configuration, keys) = (text(configuration), text(json!({ "keys": keys })));
        Some(IssuerDocuments { configuration, keys, fresh: FRESH })
    }

    /// Sets how long clients may cache the documents, instead of an hour.
    #[must_use]
    pub fn fresh_for(self, fresh: Duration) -> IssuerDocuments {
        IssuerDocuments { fresh, ..self }
    }

    /// Answers the path of a document, with or without a trailing slash, and the paths below it. Returns
    /// `None` for other paths.
    ///
    /// # Errors
    /// 404 below a document, 405 for methods other than GET, 406 if the client does not accept the media
    /// type.
    pub fn respond(
        &self,
        method: &Method,
        path: &str,
        headers: &HeaderMap,
    ) -> Option<Result<Response, Status>> {
        let is_below = |document: &str| path.strip_prefix(document).is_some_and(|rest| rest.starts_with('/'));
        let (media_type, text) = match path.strip_suffix('/').unwrap_or(path) {
            CONFIGURATION_PATH => ("application/json", &self.configuration),
            KEYS_PATH => (KEY_SET, &self.keys),
            _ if is_below(CONFIGURATION_PATH) || is_below(KEYS_PATH) => {
                return Some(Err(Status::no_such_route()));
            }
            _ => return None,
        };
        if *method != Method::GET {
            return Some(Err(Status::method_not_allowed()));
        }
        if !accepts(headers, media_type) {
            return Some(Err(Status::no_such_representation(media_type)));
        }
        let mut response = respond(StatusCode::OK, media_type, text.clone());
        let cache = format!("public, max-age={}", self.fresh.as_secs());
        response.headers_mut().insert(CACHE_CONTROL, HeaderValue::try_from(cache).expect("a number"));
        Some(Ok(response))
    }
}

/// Returns whether `Accept` is absent, names the media type, or accepts all types.
fn accepts(headers: &HeaderMap, media_type: &str) -> bool {
    let Some(accept) = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()) else { return true };
    let mut clauses = accept.split(',').map(|clause| clause.split(';').next().unwrap_or_default().trim());
    clauses.any(|clause| clause == "*/*" || clause == media_type || clause.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn issuer_documents_are_served_if_their_media_type_is_accepted() {
        let documents = IssuerDocuments::new("https://issuer.example", &[], None, "10.0.0.1:6443").unwrap();
        for (request, accept, want) in [
            ("GET /.well-known/openid-configuration", "application/json", "200 application/json"),
            ("GET /.well-known/openid-configuration", "*/*", "200 application/json"),
            ("GET /.well-known/openid-configuration/", "*/*", "200 application/json"),
            ("GET /openid/v1/jwks", "*/*", "200 application/jwk-set+json"),
            ("GET /openid/v1/jwks/", "*/*", "200 application/jwk-set+json"),
            (
                "GET /openid/v1/jwks",
                "text/html;q=1, application/jwk-set+json;q=0.5",
                "200 application/jwk-set+json",
            ),
            ("GET /openid/v1/jwks", "application/json", "406"),
            ("GET /openid/v1/jwks/x", "*/*", "404"),
            ("POST /openid/v1/jwks", "application/json", "405"),
            ("HEAD /openid/v1/jwks", "*/*", "405"),
            ("POST /openid/v1/jwks/x", "*/*", "404"),
            ("GET /openid/v1/jwksx", "*/*", "none"),
            ("GET /openid/v1", "*/*", "none"),
        ] {
            let (method, path) = request.split_once(' ').unwrap();
            let method = method.parse().unwrap();
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, HeaderValue::from_static(accept));
            let got = match documents.respond(&method, path, &headers) {
                None => "none".to_owned(),
                Some(Err(status)) => status.code.as_u16().to_string(),
                Some(Ok(response)) => {
                    let media_type = response.headers()["content-type"].to_str().unwrap();
                    format!("{} {media_type}", response.status().as_u16())
                }
            };
            assert_eq!(got, want, "{request} {accept}");
        }
        let text = String::from_utf8(documents.configuration.to_vec()).unwrap();
        assert!(text.contains(r#""jwks_uri":"https://10.0.0.1:6443/openid/v1/jwks""#), "{text}");
    }

    #[test]
    fn an_issuer_that_is_not_an_https_url_has_no_discovery_documents() {
        for issuer in ["kubernetes", "http://issuer.example", "https://", "HTTPS:issuer"] {
            assert!(IssuerDocuments::new(issuer, &[], None, "10.0.0.1:6443").is_none(), "{issuer}");
        }
    }
}
