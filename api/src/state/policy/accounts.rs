//! Looks up service accounts, the objects to which their tokens are bound, and the secrets of tokens, whenever
//! a client presents a token.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use auth::authn::bootstrap::{BootstrapSecret, BootstrapSecrets};
use auth::authn::service_account::{AccountSource, Incarnation, TokenSecret};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use engine::Engine;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::state::tokens::uses::{TokenUses, last_used_label};
use types::schema::scalars::time;
use values::clock;
use values::naming::Naming;

/// Looks up objects in the newest snapshot. A lookup costs an index search and parsing a few hundred bytes of
/// JSON.
pub struct EngineAccounts {
    engine: Engine,
    naming: &'static Naming,
    uses: Arc<TokenUses>,
    /// Labels of secrets with legacy tokens: the day of the last use, and the day from which the token is
    /// invalid.
    last_used: String,
    invalid_since: String,
}

impl EngineAccounts {
    /// Returns a lookup for the objects in `engine`.
    pub fn new(engine: Engine, naming: &'static Naming) -> EngineAccounts {
        let (last_used, invalid_since) =
            (last_used_label(naming), naming.label("legacy-token-invalid-since"));
        EngineAccounts { engine, naming, uses: Arc::default(), last_used, invalid_since }
    }

    /// Returns the record of legacy tokens in use.
    pub fn uses(&self) -> Arc<TokenUses> {
        self.uses.clone()
    }

    /// Reads members of the object at `/core/<resource>/<place>`, where `place` consists of namespace and name
    /// as in the key. An object that cannot be read counts as missing, so the tokens that depend on the object
    /// are refused.
    fn read<T: DeserializeOwned>(&self, resource: &str, place: &str) -> Option<T> {
        let entry = self.engine.snapshot().get(format!("/core/{resource}/{place}").as_bytes())?;
        let record = entry
            .read()
            .inspect_err(|error| tracing::error!(%error, "object of a service account token cannot be read"))
            .ok()?;
        serde_json::from_slice(&record.value).ok()
    }

    fn find(&self, resource: &str, place: &str) -> Option<Incarnation> {
        let Head { metadata } = self.read(resource, place)?;
        let deleted = match metadata.deletion_timestamp {
            Some(text) => Some(SystemTime::from(text.parse::<jiff::Timestamp>().ok()?)),
            None => None,
        };
        Some(Incarnation { uid: metadata.uid, deleted })
    }
}

/// The members of an object that are read; other members are skipped.
#[derive(Deserialize)]
struct Head {
    metadata: Metadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    uid: String,
    deletion_timestamp: Option<String>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

/// The members of a secret that are read.
#[derive(Deserialize)]
struct Secret {
    metadata: Metadata,
    #[serde(default, rename = "type")]
    kind: String,
    #[serde(default)]
    data: BTreeMap<String, String>,
}

impl AccountSource for EngineAccounts {
    fn service_account(&self, namespace: &str, name: &str) -> Option<Incarnation> {
        self.find("serviceaccounts", &format!("{namespace}/{name}"))
    }

    fn pod(&self, namespace: &str, name: &str) -> Option<Incarnation> {
        self.find("pods", &format!("{namespace}/{name}"))
    }

    fn secret(&self, namespace: &str, name: &str) -> Option<Incarnation> {
        self.find("secrets", &format!("{namespace}/{name}"))
    }

    fn node(&self, name: &str) -> Option<Incarnation> {
        self.find("nodes", name)
    }

    fn token_secret(&self, namespace: &str, name: &str) -> Option<TokenSecret> {
        let secret: Secret = self.read("secrets", &format!("{namespace}/{name}"))?;
        let Metadata { uid, deletion_timestamp, labels } = secret.metadata;
        let is_marked = labels.get(&self.invalid_since).is_some_and(|mark| !mark.is_empty());
        Some(TokenSecret {
            uid,
            is_deleted: deletion_timestamp.is_some(),
            token: STANDARD.decode(secret.data.get("token")?).ok()?,
            invalid_by: is_marked.then(|| self.invalid_since.clone()),
            is_use_noted: labels.get(&self.last_used).is_some_and(|day| *day == clock::today()),
        })
    }

    fn note_use(&self, namespace: &str, secret: &str, uid: &str) {
        self.uses.add(namespace, secret, uid);
    }
}

impl BootstrapSecrets for EngineAccounts {
    fn bootstrap_secret(&self, name: &str) -> Option<BootstrapSecret> {
        let secret: Secret = self.read("secrets", &format!("{}/{name}", self.naming.system("system")))?;
        let decoded = secret.data.into_iter().map(|(key, value)| Some((key, STANDARD.decode(value).ok()?)));
        Some(BootstrapSecret {
            kind: secret.kind,
            is_deleted: secret.metadata.deletion_timestamp.is_some(),
            data: decoded.collect::<Option<_>>()?,
        })
    }

    fn time(&self, text: &str) -> Option<SystemTime> {
        rfc3339(text)
    }
}

/// Parses a time as the reference server does; a time before 1970 counts as 1970.
fn rfc3339(text: &str) -> Option<SystemTime> {
    let (seconds, nanos) = time::unix(text)?;
    let since = u64::try_from(seconds).map_or(Duration::ZERO, |seconds| Duration::new(seconds, nanos));
    UNIX_EPOCH.checked_add(since)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc3339_parses_times_as_strictly_as_the_reference_server() {
        // Each row: text, seconds since 1970; `None` if the text is not a time.
        for (text, want) in [
            ("1970-01-02T00:00:00Z", Some(86_400)),
            ("1970-01-02T01:00:00+01:00", Some(86_400)),
            ("1970-01-01T1:00:00Z", Some(3600)),
            ("1960-01-01T00:00:00Z", Some(0)),
            ("1970-01-02t00:00:00z", None),
            ("1970-01-02 00:00:00Z", None),
            ("1970-01-02T00:00:60Z", None),
            ("1970-01-02T00:00:00+25:00", None),
            ("1970-01-02", None),
        ] {
            let since = rfc3339(text).map(|time| time.duration_since(UNIX_EPOCH).unwrap().as_secs());
            assert_eq!(since, want, "{text}");
        }
    }
}
