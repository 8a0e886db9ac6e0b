//! The variable `authorizer`: permission checks for the writer by the server's authorizers.

use std::sync::Arc;

use auth::authz::Verdict;
use auth::{Attributes, User};
use cel::library::authorizer::{Authorizer, Decision, Request};

use objects::validation::names;

/// The authorizers of the server, for one user.
pub struct Permissions {
    authorizer: Arc<auth::Authorizer>,
    user: User,
}

impl std::fmt::Debug for Permissions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Permissions").field("user", &self.user.name).finish()
    }
}

impl Permissions {
    /// Returns the permissions of `user`.
    pub fn for_user(authorizer: &Arc<auth::Authorizer>, user: &User) -> Arc<dyn Authorizer> {
        Arc::new(Permissions { authorizer: Arc::clone(authorizer), user: user.clone() })
    }
}

impl Permissions {
    /// Decides a permission check. The evaluation of an expression cannot await, so the thread blocks if an
    /// authorizer calls another server. The runtime uses other threads in the meantime.
    #[expect(
        clippy::disallowed_methods,
        reason = "an expression cannot pause, and its task has no other futures"
    )]
    fn decide(&self, attributes: &Attributes<'_>) -> Verdict {
        self.authorizer.decide_now(attributes).unwrap_or_else(|| {
            let decision = self.authorizer.decide(attributes);
            tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(decision))
        })
    }
}

impl Authorizer for Permissions {
    fn check(&self, request: &Request) -> Decision {
        let decided = match request {
            Request::Path { path, verb } => self.decide(&Attributes::path(&self.user, verb, path)),
            Request::Resource { resource, verb } => self.decide(&Attributes {
                resource_request: true,
                group: &resource.group,
                version: "*",
                resource: &resource.resource,
                subresource: &resource.subresource,
                namespace: &resource.namespace,
                name: &resource.name,
                ..Attributes::path(&self.user, verb, "")
            }),
        };
        let Verdict { decision, error } = decided;
        Decision { allowed: decision.is_allowed(), reason: decision.reason().to_string(), error }
    }

    fn for_service_account(&self, namespace: &str, name: &str) -> Result<Arc<dyn Authorizer>, String> {
        if !names::subdomain(name).is_empty() {
            return Err("Invalid service account name".to_owned());
        }
        if !names::label(namespace).is_empty() {
            return Err("Invalid service account namespace".to_owned());
        }
        let groups = [
            "system:serviceaccounts".to_owned(),
            format!("system:serviceaccounts:{namespace}"),
            "system:authenticated".to_owned(),
        ];
        let user = User::new(format!("system:serviceaccount:{namespace}:{name}"), groups);
        Ok(Permissions::for_user(&self.authorizer, &user))
    }
}
