//! Bound tokens. A bound token expires at its end time, or when its account or its bound object is deleted.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;

use super::accounts::{AccountSource, Incarnation, Reference};
use super::claims::{AccountClaims, date, members, reference, text};
use super::token_error::TokenError;
use crate::authn::NameDomains;
use crate::identity::{User, service_account_groups, service_account_user};

/// Tolerated clock difference. The tokens of a deleted object also stay valid for this time.
const LEEWAY: Duration = Duration::from_secs(60);

/// The private claim. The name of the claim is the domain of the naming profile.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Private {
    pub(super) namespace: String,
    pub(super) serviceaccount: Reference,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) pod: Option<Reference>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) secret: Option<Reference>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) node: Option<Reference>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) warnafter: Option<u64>,
}

impl Private {
    fn read(claims: &AccountClaims, domains: &NameDomains) -> Result<Private, TokenError> {
        let Some(members) = members(claims.get(domains.claim()), "serviceaccount.kubernetes")? else {
            return Ok(Private::default());
        };
        // A malformed time is reported before all other errors.
        let warnafter = date(members.get("warnafter"))?.map(whole_seconds);
        let named = |name: &str| reference(members.get(name));
        Ok(Private {
            namespace: text(members.get("namespace"))?,
            serviceaccount: named("serviceaccount")?.unwrap_or_default(),
            pod: named("pod")?,
            secret: named("secret")?,
            node: named("node")?,
            warnafter,
        })
    }
}

/// The verified contents of a bound token. Times are in seconds since the Unix epoch.
pub(super) struct BoundToken {
    expires: Option<u64>,
    not_before: u64,
    issued: u64,
    id: String,
    private: Private,
}

impl BoundToken {
    /// Reads the claims of a token whose signature is verified.
    pub(super) fn read(claims: &AccountClaims, domains: &NameDomains) -> Result<BoundToken, TokenError> {
        Ok(BoundToken {
            expires: claims.exp.map(whole_seconds),
            not_before: claims.nbf.map_or(0, whole_seconds),
            issued: claims.iat.map_or(0, whole_seconds),
            id: claims.jti.clone(),
            private: Private::read(claims, domains)?,
        })
    }

    /// Checks the dates, the account and the bound object at the time `now`.
    pub(super) fn check(&self, accounts: &dyn AccountSource, now: SystemTime) -> Result<(), TokenError> {
        self.check_dates(now)?;
        let Private { namespace, serviceaccount: account, pod, secret, node, .. } = &self.private;
        if account.name.is_empty() {
            return Err(TokenError::NoName);
        }
        if namespace.is_empty() {
            return Err(TokenError::NoNamespace);
        }
        let found = accounts.service_account(namespace, &account.name);
        let found = found.ok_or_else(|| TokenError::NoAccount(account.name.clone()))?;
        check_uid("service account", "claim", &found, account)?;
        if is_gone(&found, now) {
            let (namespace, name) = (namespace.clone(), account.name.clone());
            return Err(TokenError::AccountDeleted { namespace, name });
        }
        if let Some(secret) = secret {
            let found = accounts.secret(namespace, &secret.name);
            check_object("secret", "service account secret ref claim", secret, found, now)?;
        }
        if let Some(pod) = pod {
            let found = accounts.pod(namespace, &pod.name);
            check_object("pod", "service account pod ref claim", pod, found, now)?;
        }
        // If a token is bound to a pod, the node in the token only describes the pod, so the node is not
        // checked. A token that is bound only to a node expires when the node is deleted.
        if let (Some(node), None) = (node, pod) {
            let found = accounts.node(&node.name);
            check_object("node", "service account node ref claim", node, found, now)?;
        }
        Ok(())
    }

    fn check_dates(&self, now: SystemTime) -> Result<(), TokenError> {
        // The comparison uses fractions of seconds, so that a token expires exactly at its end and not up to
        // one second later.
        let since_epoch = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        let is_after = |seconds: u64| since_epoch > Duration::from_secs(seconds).saturating_add(LEEWAY);
        let is_before = |seconds: u64| since_epoch.saturating_add(LEEWAY) < Duration::from_secs(seconds);
        if self.expires.is_some_and(is_after) {
            Err(TokenError::Expired)
        } else if is_before(self.not_before) {
            Err(TokenError::NotYetValid)
        } else if is_before(self.issued) {
            Err(TokenError::IssuedInFuture)
        } else {
            Ok(())
        }
    }

    /// Returns the user of the token.
    pub(super) fn user(&self, domains: &NameDomains) -> User {
        let Private { namespace, serviceaccount: account, pod, node, .. } = &self.private;
        let name = service_account_user(namespace, &account.name);
        let mut user = User::new(name, service_account_groups(namespace));
        user.uid.clone_from(&account.uid);
        let mut add = |fact: &str, value: &str| {
            if !value.is_empty() {
                user.extra.insert(domains.extra(fact), vec![value.to_owned()]);
            }
        };
        if !self.id.is_empty() {
            add("credential-id", &format!("JTI={}", self.id));
        }
        if let Some(pod) = pod {
            add("pod-name", &pod.name);
            add("pod-uid", &pod.uid);
        }
        if let Some(node) = node {
            add("node-name", &node.name);
            add("node-uid", &node.uid);
        }
        user.mark_authenticated();
        user
    }
}

/// Truncates a numeric date to seconds. A date before 1970, or outside the range of Go's clock, gives 0.
fn whole_seconds(seconds: f64) -> u64 {
    u64::try_from(go::date::seconds(seconds)).unwrap_or(0)
}

fn is_gone(found: &Incarnation, now: SystemTime) -> bool {
    found.deleted.and_then(|since| now.duration_since(since).ok()).is_some_and(|ago| ago > LEEWAY)
}

fn check_uid(
    kind: &'static str,
    claim: &'static str,
    found: &Incarnation,
    claimed: &Reference,
) -> Result<(), TokenError> {
    if found.uid == claimed.uid {
        return Ok(());
    }
    let (current, claimed) = (found.uid.clone(), claimed.uid.clone());
    Err(TokenError::OtherIncarnation { kind, current, claim, claimed })
}

fn check_object(
    kind: &'static str,
    claim: &'static str,
    claimed: &Reference,
    found: Option<Incarnation>,
    now: SystemTime,
) -> Result<(), TokenError> {
    let found = found.ok_or(TokenError::Invalidated)?;
    check_uid(kind, claim, &found, claimed)?;
    if is_gone(&found, now) { Err(TokenError::Invalidated) } else { Ok(()) }
}
