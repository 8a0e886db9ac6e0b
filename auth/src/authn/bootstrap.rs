//! Bootstrap tokens: `<id>.<secret>`. A secret object whose name contains the id stores the token
//! (docs/api/authentication.md#bootstrap-tokens).
//!
//! The id is public and leads to the secret object. Only the text after the dot is confidential, and it is
//! compared in constant time. If any field of the secret object is invalid, the token is not accepted as a
//! bootstrap token.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::SystemTime;

use aws_lc_rs::constant_time;

use super::authenticator::Accepted;
use super::{Cause, TokenAuthenticator};
use crate::identity::User;

/// Prefix of the names of secrets that store bootstrap tokens.
pub const SECRET_PREFIX: &str = "bootstrap-token-";

/// Group of the users of all bootstrap tokens. The names of additional groups begin with this name and a
/// colon.
const GROUP: &str = "system:bootstrappers";

/// Prefix of the names of the users.
const USER_PREFIX: &str = "system:bootstrap:";

/// The secret object that stores a bootstrap token.
#[derive(Clone, Debug, Default)]
pub struct BootstrapSecret {
    /// Value of the `type` field of the secret.
    pub kind: String,
    /// Whether the secret is being deleted.
    pub is_deleted: bool,
    /// Data of the secret, decoded from base64.
    pub data: BTreeMap<String, Vec<u8>>,
}

/// A lookup of the secrets that store bootstrap tokens. Implementations must not wait for I/O.
pub trait BootstrapSecrets: Send + Sync {
    /// Returns the secret `name` in the system namespace.
    fn bootstrap_secret(&self, name: &str) -> Option<BootstrapSecret>;
    /// Parses RFC 3339 text; `None` if the text is malformed.
    fn time(&self, text: &str) -> Option<SystemTime>;
}

/// The authenticator of bootstrap tokens.
pub struct BootstrapTokens {
    secrets: Arc<dyn BootstrapSecrets>,
    kind: String,
}

impl BootstrapTokens {
    /// Creates an authenticator that accepts tokens whose secret object has the type `kind`.
    pub fn new(secrets: Arc<dyn BootstrapSecrets>, kind: String) -> BootstrapTokens {
        BootstrapTokens { secrets, kind }
    }

    fn user(&self, token: &str, now: SystemTime) -> Option<User> {
        let (id, secret) = parts(token)?;
        let stored = self.secrets.bootstrap_secret(&format!("{SECRET_PREFIX}{id}"))?;
        if stored.is_deleted || stored.kind != self.kind {
            return None;
        }
        let text = |key: &str| stored.data.get(key).map_or(&[][..], Vec::as_slice);
        constant_time::verify_slices_are_equal(text("token-secret"), secret.as_bytes()).ok()?;
        let expiration = std::str::from_utf8(text("expiration")).ok()?;
        if !expiration.is_empty() && self.secrets.time(expiration).is_none_or(|end| now >= end) {
            return None;
        }
        if text("token-id") != id.as_bytes() || text("usage-bootstrap-authentication") != b"true" {
            return None;
        }
        let groups = groups(std::str::from_utf8(text("auth-extra-groups")).ok()?)?;
        let mut user = User::new(format!("{USER_PREFIX}{id}"), groups);
        user.mark_authenticated();
        Some(user)
    }
}

impl TokenAuthenticator for BootstrapTokens {
    fn authenticate(&self, token: &str, _: &[String], now: SystemTime) -> Result<Option<Accepted>, Cause> {
        Ok(self.user(token, now).map(|user| Accepted::for_this_server(Arc::new(user))))
    }
}

/// Splits a token into id and secret: 6 and 16 characters of `a-z0-9`.
pub fn parts(token: &str) -> Option<(&str, &str)> {
    let (id, secret) = token.split_once('.')?;
    let fits = |text: &str, len| {
        text.len() == len && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    };
    (fits(id, 6) && fits(secret, 16)).then_some((id, secret))
}

/// Returns the common group and the groups of a comma-separated list, sorted. Returns `None` if a group in
/// the list is not an allowed additional group.
fn groups(list: &str) -> Option<BTreeSet<String>> {
    let mut groups = BTreeSet::from([GROUP.to_owned()]);
    if !list.is_empty() {
        for group in list.split(',') {
            groups.insert(is_extra_group(group).then(|| group.to_owned())?);
        }
    }
    Some(groups)
}

/// Returns whether the group is an allowed additional group: `system:bootstrappers:`, followed by 1 to 256
/// characters of `a-z0-9:-`. The last character must be a letter or a digit.
fn is_extra_group(group: &str) -> bool {
    let Some(rest) = group.strip_prefix(GROUP).and_then(|rest| rest.strip_prefix(':')) else { return false };
    let is_word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    rest.len() <= 256
        && rest.bytes().all(|byte| is_word(byte) || matches!(byte, b':' | b'-'))
        && rest.bytes().last().is_some_and(is_word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, UNIX_EPOCH};

    struct One(BootstrapSecret);

    impl BootstrapSecrets for One {
        fn bootstrap_secret(&self, name: &str) -> Option<BootstrapSecret> {
            (name == "bootstrap-token-abcdef").then(|| self.0.clone())
        }

        fn time(&self, text: &str) -> Option<SystemTime> {
            Some(UNIX_EPOCH + Duration::from_secs(text.parse().ok()?))
        }
    }

    #[test]
    fn a_bootstrap_token_authenticates_as_its_secret_specifies() {
        let valid = [
            ("token-id", "abcdef"),
            ("token-secret", "0123456789abcdef"),
            ("usage-bootstrap-authentication", "true"),
        ];
        let with = |more: &[(&str, &str)]| {
            let data = valid.iter().chain(more);
            let data = data.map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec())).collect();
            BootstrapSecret { kind: "bootstrap/token".to_owned(), is_deleted: false, data }
        };
        const GOOD: &str = "abcdef.0123456789abcdef";
        const USER: &str = "system:bootstrap:abcdef/system:bootstrappers+system:authenticated";
        let other_kind = BootstrapSecret { kind: "Opaque".to_owned(), ..with(&[]) };
        let deleted = BootstrapSecret { is_deleted: true, ..with(&[]) };
        for (case, secret, token, want) in [
            ("right", with(&[]), GOOD, USER),
            ("other secret", with(&[]), "abcdef.0123456789abcdee", ""),
            ("short secret", with(&[]), "abcdef.0123456789abcde", ""),
            ("upper case", with(&[]), "abcdef.0123456789ABCDEF", ""),
            ("other id", with(&[]), "abcdeg.0123456789abcdef", ""),
            ("path in the id", with(&[]), "../../.0123456789abcdef", ""),
            ("no dot", with(&[]), "abcdef0123456789abcdef", ""),
            ("id of another", with(&[("token-id", "abcdeg")]), GOOD, ""),
            ("no secret", with(&[("token-secret", "")]), "abcdef.", ""),
            ("not for authentication", with(&[("usage-bootstrap-authentication", "TRUE")]), GOOD, ""),
            ("other type", other_kind, GOOD, ""),
            ("being deleted", deleted, GOOD, ""),
            ("not expired", with(&[("expiration", "101")]), GOOD, USER),
            ("expired", with(&[("expiration", "100")]), GOOD, ""),
            ("odd end", with(&[("expiration", "soon")]), GOOD, ""),
            (
                "groups",
                with(&[("auth-extra-groups", "system:bootstrappers:b,system:bootstrappers:a-1")]),
                GOOD,
                "system:bootstrap:abcdef/system:bootstrappers+system:bootstrappers:a-1+system:bootstrappers:b\
                 +system:authenticated",
            ),
            (
                "a space",
                with(&[("auth-extra-groups", "system:bootstrappers:a, system:bootstrappers:b")]),
                GOOD,
                "",
            ),
            ("escalation", with(&[("auth-extra-groups", "system:masters")]), GOOD, ""),
            ("the common group", with(&[("auth-extra-groups", "system:bootstrappers")]), GOOD, ""),
            ("an end", with(&[("auth-extra-groups", "system:bootstrappers:a-")]), GOOD, ""),
        ] {
            let tokens = BootstrapTokens::new(Arc::new(One(secret)), "bootstrap/token".to_owned());
            let user = tokens.user(token, UNIX_EPOCH + Duration::from_secs(100));
            let user = user.map(|user| format!("{}/{}", user.name, user.groups.join("+")));
            assert_eq!(user.unwrap_or_default(), want, "{case}");
        }
    }
}
