//! The authenticating proxy: it proves itself by a client certificate, and names the user in headers
//! (docs/api/authentication.md#authenticating-proxy).
//!
//! Nothing is read from headers before the certificate is verified under the proxy's own authority and its name is
//! allowed, so that no other client can send them with effect.

use std::sync::Arc;
use std::time::SystemTime;

use super::Cause;
use super::chain::{Credentials, HeaderFields};
use super::x509::ClientCertificates;
use crate::identity::User;

/// Which headers are read; names are compared without regard to case.
#[derive(Clone, Debug, Default)]
pub struct HeaderNames {
    /// The first of these with a value is the user.
    pub user: Vec<String>,
    /// The first of these with a value is the uid.
    pub uid: Vec<String>,
    /// All values of all of these are groups.
    pub groups: Vec<String>,
    /// Headers that begin with one of these are extra values.
    pub extra_prefixes: Vec<String>,
}

/// The authenticator behind a proxy.
pub struct RequestHeaders {
    proxies: Arc<ClientCertificates>,
    /// Common names of proxies; empty: every name.
    allowed: Vec<String>,
    names: HeaderNames,
}

impl RequestHeaders {
    /// Believes proxies whose certificate leads to the bundle of `proxies` and has one of the `allowed` names.
    pub fn new(proxies: Arc<ClientCertificates>, allowed: Vec<String>, names: HeaderNames) -> RequestHeaders {
        RequestHeaders { proxies, allowed, names }
    }

    /// The user that the proxy names; `None` without a certificate or without a user.
    pub(super) fn user(&self, shown: &Credentials<'_>, now: SystemTime) -> Result<Option<User>, Cause> {
        let Some(chain) = shown.certificates.filter(|chain| !chain.is_empty()) else { return Ok(None) };
        let Some(headers) = shown.headers else { return Ok(None) };
        let proxy = self.proxies.user(chain, now)?;
        let proxy = proxy.as_ref().map_or("", |proxy| &proxy.name);
        if !self.allowed.is_empty() && !self.allowed.iter().any(|allowed| allowed == proxy) {
            return Err(Cause::ProxyName(proxy.to_owned()));
        }
        let name = first_value(headers, &self.names.user);
        if name.is_empty() {
            return Ok(None);
        }
        let groups = self.names.groups.iter().flat_map(|name| values(headers, name));
        let mut user = User::new(name, groups.filter(|group| !group.is_empty()));
        user.uid = first_value(headers, &self.names.uid);
        for prefix in &self.names.extra_prefixes {
            headers.each(&mut |name, value| {
                if let Some(key) = strip_prefix(name, prefix) {
                    let key = percent_decoded(&key.to_ascii_lowercase());
                    user.extra.entry(key).or_default().push(value.to_owned());
                }
            });
        }
        user.mark_authenticated();
        Ok(Some(user))
    }
}

/// The values of a header, in order.
fn values(headers: &dyn HeaderFields, wanted: &str) -> Vec<String> {
    let mut found = Vec::new();
    headers.each(&mut |name, value| {
        if name.eq_ignore_ascii_case(wanted) {
            found.push(value.to_owned());
        }
    });
    found
}

/// The first value of the first header that has one which is not empty.
fn first_value(headers: &dyn HeaderFields, names: &[String]) -> String {
    let first = |name: &String| values(headers, name).into_iter().next().filter(|value| !value.is_empty());
    names.iter().find_map(first).unwrap_or_default()
}

fn strip_prefix<'n>(name: &'n str, prefix: &str) -> Option<&'n str> {
    let (start, rest) = name.split_at_checked(prefix.len())?;
    start.eq_ignore_ascii_case(prefix).then_some(rest)
}

/// `acme.com%2fproject` → `acme.com/project`; text with a malformed escape stays as it is, and bytes that are no
/// UTF-8 become U+FFFD.
pub fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |at: usize| after.get(at).and_then(|byte| char::from(*byte).to_digit(16));
        let (Some(high), Some(low)) = (digit(0), digit(1)) else { return text.to_owned() };
        bytes.push((high * 16 + low) as u8);
        rest = &after[2..];
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
#[path = "request_header_test.rs"]
mod tests;
