//! The authenticating proxy. The proxy authenticates with a client certificate and names the user in headers
//! (docs/api/authentication.md#authenticating-proxy).
//!
//! The headers are read only if the authority of proxies verifies the certificate, and the common name of the
//! certificate is allowed. If other clients send these headers, they have no effect.

use std::sync::Arc;
use std::time::SystemTime;

use super::authenticator::{Cause, Credentials, HeaderFields};
use super::x509::ClientCertificates;
use crate::identity::User;

/// The names of the headers that the authenticator reads. The case of the letters does not matter.
#[derive(Clone, Debug, Default)]
pub struct HeaderNames {
    /// Headers for the user name; the first header with a value is used.
    pub user: Vec<String>,
    /// Headers for the uid; the first header with a value is used.
    pub uid: Vec<String>,
    /// Headers for groups; all values of all these headers are used.
    pub groups: Vec<String>,
    /// Prefixes of headers for extra values.
    pub extra_prefixes: Vec<String>,
}

/// The authenticator of users that a proxy names.
pub struct RequestHeaders {
    proxies: Arc<ClientCertificates>,
    /// Allowed common names of proxies. An empty list allows every name.
    allowed: Vec<String>,
    names: HeaderNames,
}

impl RequestHeaders {
    /// Creates an authenticator for proxies whose certificate chain ends at the CA bundle of `proxies`, and
    /// whose common name is in `allowed`.
    pub fn new(proxies: Arc<ClientCertificates>, allowed: Vec<String>, names: HeaderNames) -> RequestHeaders {
        RequestHeaders { proxies, allowed, names }
    }

    /// Returns the user that the proxy names. Returns `None` if the request has no certificate, or if the
    /// headers name no user.
    pub(super) fn user(&self, credentials: &Credentials<'_>, now: SystemTime) -> Result<Option<User>, Cause> {
        let Some(chain) = credentials.certificates.filter(|chain| !chain.is_empty()) else { return Ok(None) };
        let Some(headers) = credentials.headers else { return Ok(None) };
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

/// Returns the values of a header, in order.
fn values(headers: &dyn HeaderFields, header: &str) -> Vec<String> {
    let mut found = Vec::new();
    headers.each(&mut |name, value| {
        if name.eq_ignore_ascii_case(header) {
            found.push(value.to_owned());
        }
    });
    found
}

/// Returns the value of the first header whose first value is not empty.
fn first_value(headers: &dyn HeaderFields, names: &[String]) -> String {
    let first = |name: &String| values(headers, name).into_iter().next().filter(|value| !value.is_empty());
    names.iter().find_map(first).unwrap_or_default()
}

fn strip_prefix<'n>(name: &'n str, prefix: &str) -> Option<&'n str> {
    let (start, rest) = name.split_at_checked(prefix.len())?;
    start.eq_ignore_ascii_case(prefix).then_some(rest)
}

/// Decodes percent escapes: `acme.com%2fproject` becomes `acme.com/project`. A text with a malformed escape
/// is returned unchanged. Bytes that are not UTF-8 become U+FFFD.
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
