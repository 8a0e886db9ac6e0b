//! Legacy tokens, which never expire and are stored in a secret. A legacy token is valid as long as its
//! secret contains the token.

use aws_lc_rs::constant_time;

use super::accounts::AccountSource;
use super::claims::{AccountClaims, text};
use super::token_error::TokenError;
use crate::authn::NameDomains;
use crate::identity::{User, service_account_groups, service_account_user};

/// The verified contents of a legacy token.
pub(super) struct Legacy {
    namespace: String,
    secret: String,
    account: String,
    account_uid: String,
}

impl Legacy {
    /// Reads the claims of a token whose signature is verified.
    pub(super) fn read(claims: &AccountClaims, domains: &NameDomains) -> Result<Legacy, TokenError> {
        let claim = |claim: &str| text(claims.get(&domains.legacy_claim(claim)));
        let legacy = Legacy {
            namespace: claim("namespace")?,
            secret: claim("secret.name")?,
            account: claim("service-account.name")?,
            account_uid: claim("service-account.uid")?,
        };
        let missing = [
            ("sub", &claims.sub),
            ("namespace", &legacy.namespace),
            ("secretName", &legacy.secret),
            ("serviceAccountName", &legacy.account),
            ("serviceAccountUID", &legacy.account_uid),
        ];
        if let Some((name, _)) = missing.into_iter().find(|(_, value)| value.is_empty()) {
            return Err(TokenError::MissingClaim(name));
        }
        if claims.sub == service_account_user(&legacy.namespace, &legacy.account) {
            Ok(legacy)
        } else {
            Err(TokenError::OtherSubject)
        }
    }

    /// Checks that the secret still contains the token, and that the account exists.
    pub(super) fn check(&self, accounts: &dyn AccountSource, token: &str) -> Result<(), TokenError> {
        let secret = accounts.token_secret(&self.namespace, &self.secret);
        let secret = secret.filter(|secret| !secret.is_deleted).ok_or(TokenError::SecretGone)?;
        constant_time::verify_slices_are_equal(&secret.token, token.as_bytes())
            .map_err(|_| TokenError::OtherToken)?;
        let (namespace, name) = (self.namespace.clone(), self.account.clone());
        let account = accounts.service_account(&namespace, &name);
        let account = account.ok_or_else(|| TokenError::NoAccount(name.clone()))?;
        if account.deleted.is_some() {
            return Err(TokenError::LegacyAccountDeleted { namespace, name });
        }
        if account.uid != self.account_uid {
            return Err(TokenError::OtherAccount { current: account.uid, claimed: self.account_uid.clone() });
        }
        if !secret.is_use_noted {
            accounts.note_use(&namespace, &self.secret, &secret.uid);
        }
        if let Some(label) = secret.invalid_by {
            return Err(TokenError::MarkedInvalid {
                namespace,
                secret: self.secret.clone(),
                account: name,
                label,
            });
        }
        Ok(())
    }

    /// Returns the user of the token.
    pub(super) fn user(&self) -> User {
        let name = service_account_user(&self.namespace, &self.account);
        let mut user = User::new(name, service_account_groups(&self.namespace));
        user.uid.clone_from(&self.account_uid);
        user.mark_authenticated();
        user
    }
}
