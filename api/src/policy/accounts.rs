//! Looks up service accounts and the objects their tokens are bound to, for every token presented.

use std::time::SystemTime;

use auth::authn::service_account::{AccountSource, Incarnation};
use engine::Engine;
use serde::Deserialize;

/// Looks objects up in the newest snapshot: an index search and a few hundred bytes of JSON.
pub struct EngineAccounts {
    engine: Engine,
}

impl EngineAccounts {
    /// Looks things up in `engine`.
    pub fn new(engine: Engine) -> EngineAccounts {
        EngineAccounts { engine }
    }

    /// One incarnation of the object at `/core/<resource>/<place>`. An object that cannot be read counts as gone: its
    /// tokens are refused.
    fn find(&self, resource: &str, place: &str) -> Option<Incarnation> {
        let entry = self.engine.snapshot().get(format!("/core/{resource}/{place}").as_bytes())?;
        let record = entry.read().inspect_err(|error| tracing::error!(%error, "token lookup")).ok()?;
        let Head { metadata } = serde_json::from_slice(&record.value).ok()?;
        let deleted = match metadata.deletion_timestamp {
            Some(text) => Some(SystemTime::from(text.parse::<jiff::Timestamp>().ok()?)),
            None => None,
        };
        Some(Incarnation { uid: metadata.uid, deleted })
    }
}

/// The members that are read of an object; the others are skipped.
#[derive(Deserialize)]
struct Head {
    metadata: Metadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    uid: String,
    deletion_timestamp: Option<String>,
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
}
