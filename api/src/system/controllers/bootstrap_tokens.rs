//! Bootstrap tokens: expired tokens are deleted, and the other tokens sign the information about the cluster
//! that a node needs before it can verify any certificate
//! (docs/api/controllers.md#bootstrap-tokens-and-cluster-information).
//!
//! ```text
//! tail on secrets of the system ─ tokens ─┬─ expired ─► delete         (token-cleaner-controller)
//! tail on cluster-info ───────────────────┴─ the others ─► signatures  (bootstrap-signer-controller)
//! ```

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use ::bytes::Bytes;
use auth::authn::bootstrap::SECRET_PREFIX;
use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use http::StatusCode;

use super::collections::objects;
use super::{EVENTS_MAX, Ending, Pass};
use crate::writes::bootstrap::{ObjectStore, ObjectTarget, WriteResult};
use crate::writes::loopback::Loopback;
use crate::writes::server::Server;
use objects::store::{self, ObjectName};
use types::options::DeleteOptions;
use types::schema::registry::Resource;
use values::base64_text;
use values::clock;
use values::json::{Object, Value};
use values::naming::Naming;
use values::status::Status;

/// Maximum sleep before the clock is checked again, because the clock may have been changed.
const SLEEP_MAX: Duration = Duration::from_secs(60);

/// Name of the ConfigMap with the cluster information, the key of this information, and the prefix of the
/// signature keys.
const CLUSTER_INFO: &str = "cluster-info";
const SIGNED: &str = "kubeconfig";
const SIGNATURE_PREFIX: &str = "jws-kubeconfig-";

/// A bootstrap token, read from its secret.
#[derive(Debug, Eq, PartialEq)]
struct Token {
    name: String,
    uid: String,
    id: String,
    secret: String,
    signs: bool,
    /// Expiration time in seconds since the epoch; `None` if the token does not expire.
    end: Option<i64>,
}

impl Token {
    /// Reads a token from a secret; `None` if the secret is not a bootstrap token.
    fn read(secret: &Value, naming: &Naming) -> Option<Token> {
        if secret.str_at(&["type"]) != format!("bootstrap.{}/token", naming.domain) {
            return None;
        }
        let text = |member: &str| {
            let text = base64_text::decode(secret.str_at(&["data", member])).unwrap_or_default();
            String::from_utf8(text).unwrap_or_default()
        };
        let name = secret.str_at(&["metadata", "name"]);
        let id = text("token-id");
        let expiration = text("expiration");
        Some(Token {
            uid: secret.str_at(&["metadata", "uid"]).to_owned(),
            signs: text("usage-bootstrap-signing") == "true"
                && name.strip_prefix(SECRET_PREFIX) == Some(&*id)
                && secret.str_at(&["metadata", "deletionTimestamp"]).is_empty(),
            // A token with an unreadable expiration time counts as expired, as in authentication.
            end: (!expiration.is_empty()).then(|| clock::parse_seconds(&expiration).unwrap_or(i64::MIN)),
            name: name.to_owned(),
            secret: text("token-secret"),
            id,
        })
    }

    fn is_over(&self, now: i64) -> bool {
        self.end.is_some_and(|end| now >= end)
    }
}

/// Returns the tokens of the newest state.
fn tokens(server: &Server, prefix: &Bytes) -> Vec<Token> {
    let secrets = objects(&server.store.engine().snapshot(), prefix);
    secrets.iter().filter_map(|(_, secret)| Token::read(secret, server.types.naming)).collect()
}

fn target(resource: &'static str, namespace: String, name: &str) -> ObjectTarget {
    ObjectTarget { group: "", version: "v1", resource, namespace, name: name.to_owned() }
}

fn secrets<'a>(loopback: &Loopback<'a>) -> Result<(&'a Resource, Bytes), Status> {
    let namespace = loopback.server().types.naming.system("system");
    let resource = loopback.resource(&target("secrets", namespace.clone(), ""))?;
    Ok((resource, store::collection(resource, &namespace)))
}

/// Sleeps until the next token expires.
async fn until_next_end(tokens: &[Token]) {
    let now = clock::now_seconds();
    let next = tokens.iter().filter_map(|token| token.end).filter(|end| *end > now).min();
    match next {
        Some(end) => {
            let left = Duration::from_secs(u64::try_from(end - now).unwrap_or(0));
            clock::sleep(left.min(SLEEP_MAX)).await;
        }
        None => std::future::pending().await,
    }
}

/// Runs the controller that deletes expired tokens.
pub(super) async fn clean(server: Arc<Server>) -> Ending {
    let loopback = Loopback::controller(&server, "token-cleaner");
    let (resource, prefix) = secrets(&loopback)?;
    let mut tail = server.store.engine().tail(server.store.engine().revision(), prefix.clone())?;
    let namespace = server.types.naming.system("system");
    loop {
        let tokens = tokens(&server, &prefix);
        let now = clock::now_seconds();
        let mut pass = Pass::default();
        for token in tokens.iter().filter(|token| token.is_over(now)) {
            let options = DeleteOptions { uid: Some(token.uid.clone()), ..DeleteOptions::default() };
            match loopback
                .delete_object(resource, ObjectName { namespace: &namespace, name: &token.name }, &options)
                .await
            {
                Err(error) if !matches!(error.code, StatusCode::NOT_FOUND | StatusCode::CONFLICT) => {
                    pass.note(&token.name, Err(error));
                }
                _ => tracing::info!(secret = token.name, "deleted an expired bootstrap token"),
            }
        }
        pass.end()?;
        tokio::select! {
            events = tail.next(EVENTS_MAX) => drop(events?),
            () = until_next_end(&tokens) => {}
        }
    }
}

/// Runs the controller that maintains the signatures of the cluster information.
pub(super) async fn sign(server: Arc<Server>) -> Ending {
    let loopback = Loopback::controller(&server, "bootstrap-signer");
    let (_, prefix) = secrets(&loopback)?;
    let target = target("configmaps", server.types.naming.system("public"), CLUSTER_INFO);
    let maps = loopback.resource(&target)?;
    let revision = server.store.engine().revision();
    let mut of_tokens = server.store.engine().tail(revision, prefix.clone())?;
    let mut of_map =
        server.store.engine().tail(revision, store::key(maps, &target.namespace, CLUSTER_INFO))?;
    loop {
        let tokens = tokens(&server, &prefix);
        let written = match loopback.get(&target)? {
            Some(found) => match signed(&found, &tokens, clock::now_seconds()) {
                Some(changed) => loopback.update(&target, changed).await?,
                None => WriteResult::Done,
            },
            None => match information(&server, &target) {
                Some(object) => loopback.create(&target, object).await?,
                None => WriteResult::Done,
            },
        };
        // After a conflict, the write of the other writer causes an event, which triggers the next attempt.
        let _: WriteResult = written;
        let (map, secrets) = (pin!(of_map.next(EVENTS_MAX)), pin!(of_tokens.next(EVENTS_MAX)));
        tokio::select! {
            events = map => drop(events?),
            events = secrets => drop(events?),
            () = until_next_end(&tokens) => {}
        }
    }
}

/// Returns the information that a node needs to find this server; `None` if the server's address is unknown.
fn information(server: &Server, target: &ObjectTarget) -> Option<Value> {
    let text = |members: &[(&str, &str)]| {
        Object::from_iter(members.iter().map(|(name, text)| ((*name).to_owned().into(), (*text).into())))
    };
    let authority = STANDARD.encode(&*server.operations.root_ca.borrow());
    let config = format!(
        "apiVersion: v1\nclusters:\n- cluster:\n    certificate-authority-data: {authority}\n    server: https://{}\n  \
         name: \"\"\ncontexts: null\ncurrent-context: \"\"\nkind: Config\nusers: null\n",
        server.operations.own_service.advertised?
    );
    let mut object = text(&[("kind", "ConfigMap"), ("apiVersion", "v1")]);
    object.push("metadata", text(&[("name", &target.name), ("namespace", &target.namespace)]).into());
    object.push("data", text(&[(SIGNED, &config)]).into());
    Some(object.into())
}

/// Returns the ConfigMap with the signatures of exactly these tokens; `None` if the ConfigMap already has these
/// signatures.
fn signed(map: &Value, tokens: &[Token], now: i64) -> Option<Value> {
    let data = map.get("data").and_then(Value::as_object)?;
    let config = data.get(SIGNED).and_then(Value::as_str)?;
    let desired: BTreeMap<String, String> = tokens
        .iter()
        .filter(|token| token.signs && !token.is_over(now) && !token.secret.is_empty())
        .map(|token| (format!("{SIGNATURE_PREFIX}{}", token.id), signature(token, config)))
        .collect();
    let held = data.iter().filter(|(name, _)| name.starts_with(SIGNATURE_PREFIX));
    let held: BTreeMap<String, String> =
        held.map(|(name, value)| (name.to_owned(), value.as_str().unwrap_or_default().to_owned())).collect();
    if held == desired {
        return None;
    }
    let mut new = map.as_object()?.clone();
    let data = new.object_entry("data");
    data.retain(|name, _| !name.starts_with(SIGNATURE_PREFIX));
    for (name, value) in desired {
        data.insert(name, value.into());
    }
    Some(new.into())
}

/// Returns a detached JWS (RFC 7515, appendix F) whose HMAC key is the whole token.
fn signature(token: &Token, payload: &str) -> String {
    let Token { id, secret, .. } = token;
    let head = URL_SAFE_NO_PAD.encode(format!(r#"{{"alg":"HS256","kid":"{id}"}}"#));
    let key = hmac::Key::new(hmac::HMAC_SHA256, format!("{id}.{secret}").as_bytes());
    let said = format!("{head}.{}", URL_SAFE_NO_PAD.encode(payload));
    let tag = hmac::sign(&key, said.as_bytes());
    format!("{head}..{}", URL_SAFE_NO_PAD.encode(tag.as_ref()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use values::json;
    use values::naming::KUBERNETES;

    fn secret(name: &str, members: &[(&str, &str)]) -> Value {
        let data = members
            .iter()
            .map(|(name, text)| ((*name).to_owned().into(), base64_text::encode(text.as_bytes()).into()));
        let data = Value::Object(Object::from_iter(data));
        let mut secret = json::parse(
            format!(r#"{{"metadata":{{"name":"{name}","uid":"1"}},"type":"bootstrap.kubernetes.io/token"}}"#)
                .as_bytes(),
        )
        .unwrap();
        secret.as_object_mut().unwrap().push("data", data);
        secret
    }

    const WHOLE: [(&str, &str); 3] =
        [("token-id", "abcdef"), ("token-secret", "0123456789abcdef"), ("usage-bootstrap-signing", "true")];

    #[test]
    fn a_bootstrap_token_signs_under_its_own_name_until_it_expires() {
        type Members = Vec<(&'static str, &'static str)>;
        let with = |more: &[(&'static str, &'static str)]| -> Members { [&WHOLE, more].concat() };
        let cases = [
            ("bootstrap-token-abcdef", with(&[]), true, false),
            ("bootstrap-token-other0", with(&[]), false, false),
            ("bootstrap-token-abcdef", WHOLE[..2].to_vec(), false, false),
            ("bootstrap-token-abcdef", with(&[("expiration", "1970-01-01T00:01:40Z")]), true, true),
            ("bootstrap-token-abcdef", with(&[("expiration", "1970-01-01T00:01:41Z")]), true, false),
            ("bootstrap-token-abcdef", with(&[("expiration", "soon")]), true, true),
        ];
        for (name, members, signs, is_over) in cases {
            let token = Token::read(&secret(name, &members), &KUBERNETES).unwrap();
            assert_eq!((token.signs, token.is_over(100)), (signs, is_over), "{name} {members:?}");
        }
        let other = json::parse(br#"{"type":"Opaque"}"#).unwrap();
        assert_eq!(Token::read(&other, &KUBERNETES), None);
    }

    #[test]
    fn cluster_info_has_exactly_the_signatures_of_the_current_tokens() {
        let token = Token::read(&secret("bootstrap-token-abcdef", &WHOLE), &KUBERNETES).unwrap();
        let map =
            json::parse(br#"{"data":{"kubeconfig":"text","jws-kubeconfig-gone00":"x","own":"y"}}"#).unwrap();
        let signed_map = signed(&map, std::slice::from_ref(&token), 0).unwrap();
        assert_eq!(signed_map.str_at(&["data", "own"]), "y");
        assert_eq!(signed_map.at(&["data", "jws-kubeconfig-gone00"]), None);
        let text = signed_map.str_at(&["data", "jws-kubeconfig-abcdef"]).to_owned();
        let (head, tag) = text.split_once("..").unwrap();
        assert_eq!(URL_SAFE_NO_PAD.decode(head).unwrap(), br#"{"alg":"HS256","kid":"abcdef"}"#);
        let key = hmac::Key::new(hmac::HMAC_SHA256, b"abcdef.0123456789abcdef");
        let said = format!("{head}.{}", URL_SAFE_NO_PAD.encode("text"));
        hmac::verify(&key, said.as_bytes(), &URL_SAFE_NO_PAD.decode(tag).unwrap()).unwrap();
        assert_eq!(signed(&signed_map, std::slice::from_ref(&token), 0), None);
        assert_eq!(signed(&json::parse(br#"{"data":{}}"#).unwrap(), &[token], 0), None);
    }
}
