//! The component of the server that controls access: authentication, authorization, tokens and certificates,
//! flow control and the audit log.

use std::sync::Arc;

use auth::authz::Module;
use auth::{Attributes, Authenticator, Authorized, Authorizer};
use engine::{Engine, TailError};

use super::types::TypeCatalog;
use crate::state::audit::Auditor;
use crate::state::certificates::Certificates;
use crate::state::edge;
use crate::state::fairness::{self, Fairness};
use crate::state::policy::EnginePolicy;
use crate::state::tokens::Tokens;
use types::features::Feature;
use values::status::{Status, Subject};

/// The configuration of [`AccessControl`].
pub struct Settings {
    /// The authenticators, which identify users.
    pub authenticator: Authenticator,
    /// The authorizers, in their order.
    pub authorizers: Vec<Module>,
    /// Settings for tokens of service accounts.
    pub tokens: Tokens,
    /// Settings for the signing of certificates.
    pub certificates: Certificates,
    /// Limits on the number of concurrent requests.
    pub fairness: fairness::Settings,
    /// Settings for the checks that need only the head of a request.
    pub edge: edge::Settings,
    /// The auditor; `None` if auditing is disabled.
    pub auditor: Option<Auditor>,
}

/// The control of the access of users to the server.
pub struct AccessControl {
    /// The authenticators, which identify users.
    pub authenticator: Authenticator,
    /// The authorizers. The operator can replace the authorizers while the server runs.
    pub authorizer: Arc<Authorizer>,
    /// Settings for tokens of service accounts.
    pub tokens: Tokens,
    /// Settings for the signing of certificates.
    pub certificates: Certificates,
    /// The flow control, which decides when requests run.
    pub fairness: Fairness,
    /// Settings for the checks that need only the head of a request.
    pub edge: edge::Settings,
    /// The auditor; `None` if auditing is disabled.
    pub auditor: Option<Auditor>,
}

impl AccessControl {
    /// Creates the component for a server whose roles and bindings are in `engine`.
    ///
    /// # Errors
    /// Fails if the engine is closed.
    pub(super) fn new(settings: Settings, engine: &Engine, types: &TypeCatalog) -> Result<Self, TailError> {
        let Settings { authenticator, authorizers, tokens, certificates, fairness, edge, auditor } = settings;
        let rbac_group = types.naming.group("rbac.authorization", true);
        let policy = Arc::new(EnginePolicy::new(engine.clone())?);
        let authorizer = Authorizer::new(authorizers, policy, rbac_group);
        let authorizer = if types.features.has(Feature::ConstrainedImpersonation) {
            authorizer
        } else {
            authorizer.without_constrained_impersonation()
        };
        let (authorizer, fairness) = (Arc::new(authorizer), Fairness::new(fairness));
        Ok(AccessControl { authenticator, authorizer, tokens, certificates, fairness, edge, auditor })
    }

    /// Checks that the user of an allowed request may also create the object. A PUT or an apply creates an
    /// object that does not exist.
    ///
    /// # Errors
    /// 403 if the authorizers do not allow the creation.
    pub async fn authorize_create(&self, proof: &Authorized<'_>) -> Result<(), Status> {
        let attributes = Attributes { verb: "create", ..*proof.attributes() };
        self.authorizer
            .authorize(&attributes)
            .await
            .map(drop)
            .map_err(|denied| forbidden(&attributes, &denied.message))
    }
}

/// Returns a 403 about the resource and name in the request attributes.
pub fn forbidden(attributes: &Attributes<'_>, message: &str) -> Status {
    let subject = Subject { group: attributes.group, kind: attributes.resource, name: attributes.name };
    Status::forbidden(subject, message)
}
