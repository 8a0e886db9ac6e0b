//! The decision of authorization (allow, deny or no opinion), and the proof that a request is allowed.

use std::fmt;
use std::sync::Arc;

use crate::attributes::Attributes;
use crate::authz::policy::Grant;

/// The decision of one authorizer, or of the whole chain.
#[derive(Clone, Debug)]
pub enum Decision {
    /// The request may proceed. Later authorizers do not run.
    Allow {
        /// The reason, for the audit event.
        reason: Reason,
    },
    /// The request is denied. Later authorizers do not run.
    Deny {
        /// The reason, for the audit event and the client.
        reason: Reason,
    },
    /// The next authorizer decides. If no authorizer is left, the request is denied.
    NoOpinion {
        /// The reason why the authorizer has no opinion; often empty.
        reason: Reason,
    },
}

impl Default for Decision {
    fn default() -> Decision {
        Decision::NoOpinion { reason: Reason::None }
    }
}

impl Decision {
    /// Returns whether the decision is [`Decision::Allow`].
    pub fn is_allowed(&self) -> bool {
        matches!(self, Decision::Allow { .. })
    }

    /// Returns whether the decision is [`Decision::Deny`] (`status.denied` of an access review).
    pub fn is_denied(&self) -> bool {
        matches!(self, Decision::Deny { .. })
    }

    /// Returns the reason for the decision.
    pub fn reason(&self) -> &Reason {
        match self {
            Decision::Allow { reason } | Decision::Deny { reason } | Decision::NoOpinion { reason } => reason,
        }
    }
}

/// The reason for a decision. The text is built only when it is read, so an allowed request does not spend
/// time on it.
#[derive(Clone, Debug, Default)]
pub enum Reason {
    /// No reason is given.
    #[default]
    None,
    /// The reason is this text.
    Text(Arc<str>),
    /// A binding grants the permission.
    Granted(Grant),
}

impl Reason {
    /// Returns whether there is no reason.
    pub fn is_empty(&self) -> bool {
        match self {
            Reason::None => true,
            Reason::Text(text) => text.is_empty(),
            Reason::Granted(_) => false,
        }
    }
}

impl From<String> for Reason {
    fn from(text: String) -> Reason {
        if text.is_empty() { Reason::None } else { Reason::Text(text.into()) }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::None => Ok(()),
            Reason::Text(text) => f.write_str(text),
            Reason::Granted(grant) => write!(f, "RBAC: allowed by {grant}"),
        }
    }
}

/// Proof that the authorizers allowed exactly these attributes.
///
/// Only [`Authorizer::authorize`](crate::Authorizer::authorize) creates this proof. In the `api` crate, a
/// request can access the store only with this proof, and the store compares the proof with the requested
/// access. Therefore a handler without an authorization check does not compile.
#[derive(Clone, Debug)]
#[must_use]
pub struct Authorized<'r> {
    attributes: &'r Attributes<'r>,
    reason: Reason,
}

impl<'r> Authorized<'r> {
    pub(crate) fn allowed(attributes: &'r Attributes<'r>, reason: Reason) -> Authorized<'r> {
        Authorized { attributes, reason }
    }

    /// Returns the attributes that the authorizers allowed.
    pub fn attributes(&self) -> &'r Attributes<'r> {
        self.attributes
    }

    /// Returns the user of the allowed request.
    pub fn user(&self) -> &'r crate::User {
        self.attributes.user
    }

    /// Returns the reason, for the audit event.
    pub fn reason(&self) -> &Reason {
        &self.reason
    }
}

/// The refusal of a request that the authorizers did not allow.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct Denied {
    /// Inner text of the 403 response (docs/api/authorization.md#authorizers), for example `User "u" cannot
    /// get resource "pods" in API group "" in the namespace "ns"`. The text is HTML-escaped. If there is a
    /// reason, `: <reason>` follows.
    pub message: String,
    /// The reason without other text, for the audit event.
    pub reason: Reason,
    /// Error of an authorizer that failed. Without this error, the request might have been allowed.
    pub error: Option<String>,
    /// Whether an authorizer denied the request explicitly. If false, no authorizer had an opinion.
    pub is_final: bool,
}

impl Denied {
    pub(crate) fn new(attributes: &Attributes<'_>, reason: Reason) -> Denied {
        let mut message = escape_html(&attributes.to_string());
        // The reason is not escaped, because the server builds the text. If the reason is empty, the message
        // has no colon at the end.
        if !reason.is_empty() {
            message.push_str(": ");
            message.push_str(&reason.to_string());
        }
        Denied { message, reason, error: None, is_final: false }
    }
}

fn escape_html(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::User;

    #[test]
    fn a_denial_has_the_text_of_the_reference_server() {
        // The expected texts are in docs/api/authorization.md#authorizers.
        let user = User::new("jane", ["dev"]);
        let odd = User::new("<j&\"d>", ["dev"]);
        let pods = Attributes {
            resource_request: true,
            version: "v1",
            resource: "pods",
            namespace: "ns",
            name: "p",
            ..Attributes::path(&user, "get", "/api/v1/namespaces/ns/pods/p")
        };
        let scale = Attributes { group: "apps", resource: "deployments", subresource: "scale", ..pods };
        for (request, reason, message) in [
            (pods, "", r#"User "jane" cannot get resource "pods" in API group "" in the namespace "ns""#),
            (
                Attributes { namespace: "", verb: "list", ..scale },
                "",
                r#"User "jane" cannot list resource "deployments/scale" in API group "apps" at the cluster scope"#,
            ),
            (
                Attributes::path(&odd, "get", "/metrics"),
                "RBAC: <x>",
                r#"User "&lt;j&amp;\"d&gt;" cannot get path "/metrics": RBAC: <x>"#,
            ),
        ] {
            assert_eq!(Denied::new(&request, Reason::from(reason.to_owned())).message, message);
        }
    }
}
