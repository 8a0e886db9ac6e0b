//! Impersonation: decides whether a user may act as another user, and determines the resulting user of the
//! request (docs/api/authentication.md#impersonation).
//!
//! The modes are tried in order, beginning with the mode that last succeeded for the caller. The first mode
//! that succeeds decides. If all modes fail, the first refusal is returned. The constrained modes require the
//! verb `impersonate:<mode>` on each property of the wanted identity, and `impersonate-on:<mode>:<verb>` on
//! the requested object. The permissions of these modes are cached for a short time. The legacy mode requires
//! only `impersonate`, and is checked for every request. The code that calls this module reads the headers.

use go::{Quoted, join_errors};

use super::chain::Authorizer;
use super::impersonation_mode::{ImpersonationMode, domain_of_node_key, node, service_account};
use super::permitted::PermissionKey;
use crate::attributes::Attributes;
use crate::decision::{Denied, Reason};
use crate::domain_keys;
use crate::identity::{
    ANONYMOUS, AUTHENTICATED, MASTERS, NODE_PREFIX, NODES, UNAUTHENTICATED, User, service_account_groups,
};

/// API group of the resources in the checks of constrained modes.
const AUTHENTICATION: &str = "authentication.k8s.io";
/// If there are at least this many groups or extra values, the mode `user-info` first checks a permission for
/// all of them.
const MANY: usize = 4;
/// The refusal of an impersonation, because of one permission.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct Refused {
    /// API group of the resource.
    pub group: String,
    /// Plural resource name; empty for a path.
    pub resource: String,
    /// Name of the object, which may be empty.
    pub name: String,
    /// Text of the error, as in [`Denied`].
    pub message: String,
}

/// The result of an allowed impersonation.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Acting {
    /// The resulting user, including the groups that the name of the user implies.
    pub user: User,
    /// Verb of the constrained mode that allowed the impersonation, for the audit event; `None` for the
    /// legacy mode.
    pub constraint: Option<&'static str>,
}

impl Refused {
    fn new(attributes: &Attributes<'_>, denied: Denied) -> Refused {
        Refused {
            group: attributes.group.to_owned(),
            resource: attributes.resource.to_owned(),
            name: attributes.name.to_owned(),
            message: denied.message,
        }
    }
}

impl Authorizer {
    /// Decides whether the user of `request` may make the request as `impersonated`. Returns the resulting
    /// user: `impersonated`, with the groups that the name implies.
    ///
    /// # Errors
    /// Fails if no mode allows the impersonation. The error is the first refusal.
    pub async fn impersonate(
        &self,
        request: &Attributes<'_>,
        impersonated: &User,
    ) -> Result<Acting, Refused> {
        let mut first = None;
        for mode in self.last_modes.order(request.user, impersonated) {
            match self.try_mode(mode, request, impersonated).await {
                Ok(()) => {
                    self.last_modes.remember(request.user, mode);
                    let (verb, on) = mode.verbs();
                    return Ok(Acting { user: completed(mode, impersonated), constraint: on.map(|_| verb) });
                }
                Err(refused) => first = first.or(Some(refused)),
            }
        }
        // The legacy mode is always tried, so `first` is always set here.
        Err(first.unwrap_or_else(|| Refused::new(request, Denied::new(request, Reason::None))))
    }

    async fn try_mode(
        &self,
        mode: ImpersonationMode,
        request: &Attributes<'_>,
        impersonated: &User,
    ) -> Result<(), Refused> {
        let (verb, on) = mode.verbs();
        let Some(on) = on else { return self.require_identity(mode, request.user, impersonated).await };
        let is_own_node = mode == ImpersonationMode::AssociatedNode;
        let on_node = is_own_node.then(|| on_its_node(request.user));
        let request = &Attributes { user: on_node.as_ref().unwrap_or(request.user), ..*request };
        let any_node = is_own_node.then(|| User::new(format!("{NODE_PREFIX}*"), [""; 0]));
        let target = any_node.as_ref().unwrap_or(impersonated);
        let whole = PermissionKey::request(verb, request, target);
        if self.permitted.has(whole) {
            return Ok(());
        }
        let on_what = format!("{on}{}", request.verb);
        self.require(&Attributes { verb: &on_what, ..*request }).await?;
        let identity = PermissionKey::identity(verb, request.user, target);
        if !self.permitted.has(identity) {
            self.require_identity(mode, request.user, impersonated).await?;
            self.permitted.keep(identity);
        }
        self.permitted.keep(whole);
        Ok(())
    }

    /// Checks that the caller may use each property of the wanted identity.
    async fn require_identity(
        &self,
        mode: ImpersonationMode,
        caller: &User,
        impersonated: &User,
    ) -> Result<(), Refused> {
        let (verb, on) = mode.verbs();
        let authentication = Attributes {
            resource_request: true,
            group: AUTHENTICATION,
            version: "v1",
            ..Attributes::path(caller, verb, "")
        };
        let identity = Attributes { group: on.map_or("", |_| AUTHENTICATION), ..authentication };
        let name = match service_account(&impersonated.name) {
            // The permission is for the node of the caller, regardless of the name of the node.
            None if mode == ImpersonationMode::AssociatedNode => {
                Attributes { resource: "nodes", name: "*", ..identity }
            }
            None if mode == ImpersonationMode::ArbitraryNode => Attributes {
                resource: "nodes",
                name: node(&impersonated.name).unwrap_or_default(),
                ..identity
            },
            Some((namespace, name)) => {
                Attributes { resource: "serviceaccounts", namespace, name, ..identity }
            }
            None => Attributes { resource: "users", name: &impersonated.name, ..identity },
        };
        self.require(&name).await?;
        if !impersonated.uid.is_empty() {
            self.require(&Attributes { resource: "uids", name: &impersonated.uid, ..authentication }).await?;
        }
        let groups = Attributes { resource: "groups", ..identity };
        self.require_groups(mode, &groups, &impersonated.groups).await?;
        let extra = Attributes { resource: "userextras", ..authentication };
        self.require_extra(mode, &extra, impersonated).await
    }

    /// Checks that the caller may impersonate these groups. If there are many groups, the mode `user-info`
    /// first checks a permission for all groups.
    async fn require_groups(
        &self,
        mode: ImpersonationMode,
        attributes: &Attributes<'_>,
        groups: &[String],
    ) -> Result<(), Refused> {
        if mode == ImpersonationMode::UserInfo {
            if groups.iter().any(String::is_empty) {
                let why = "impersonating the empty string group is not allowed";
                return Err(refuse(attributes, why.to_owned()));
            }
            if groups.iter().any(|group| group == MASTERS) {
                let why = format!("impersonating the {MASTERS} group is not allowed");
                return Err(refuse(&Attributes { name: MASTERS, ..*attributes }, why));
            }
            let all = Attributes { name: "*", ..*attributes };
            if groups.len() >= MANY && self.require(&all).await.is_ok() {
                return Ok(());
            }
        }
        for group in groups {
            self.require(&Attributes { name: group, ..*attributes }).await?;
        }
        Ok(())
    }

    /// Checks that the caller may impersonate these extra values. If there are many values, the mode
    /// `user-info` first checks a permission for all values.
    async fn require_extra(
        &self,
        mode: ImpersonationMode,
        attributes: &Attributes<'_>,
        impersonated: &User,
    ) -> Result<(), Refused> {
        if mode == ImpersonationMode::UserInfo {
            if let Some(why) = impersonated.extra.iter().find_map(|(key, values)| extra_fault(key, values)) {
                return Err(refuse(attributes, why));
            }
            let is_large = impersonated.extra.values().map(Vec::len).sum::<usize>() >= MANY;
            let all = Attributes { subresource: "*", name: "*", ..*attributes };
            if is_large && self.require(&all).await.is_ok() {
                return Ok(());
            }
        }
        for (key, values) in &impersonated.extra {
            for value in values {
                self.require(&Attributes { subresource: key, name: value, ..*attributes }).await?;
            }
        }
        Ok(())
    }

    /// Checks one permission. If an authorizer fails, the permission is refused, and the message begins with
    /// the error of the authorizer.
    async fn require(&self, attributes: &Attributes<'_>) -> Result<(), Refused> {
        let denied = match self.authorize(attributes).await {
            Ok(_) => return Ok(()),
            Err(denied) => denied,
        };
        Err(match (&denied.error, denied.reason.is_empty()) {
            (None, _) => Refused::new(attributes, denied),
            (Some(error), true) => refuse(attributes, error.clone()),
            (Some(error), false) => refuse(attributes, format!("{error}: {}", denied.reason)),
        })
    }
}

fn refuse(attributes: &Attributes<'_>, why: String) -> Refused {
    Refused::new(attributes, Denied::new(attributes, Reason::from(why)))
}

/// Adds the groups that the name of the wanted user implies.
fn completed(mode: ImpersonationMode, impersonated: &User) -> User {
    let mut user = impersonated.clone();
    if matches!(mode, ImpersonationMode::AssociatedNode | ImpersonationMode::ArbitraryNode) {
        user.groups.push(NODES.to_owned());
    }
    if let Some((namespace, _)) = service_account(&user.name).filter(|_| user.groups.is_empty()) {
        user.groups.extend(service_account_groups(namespace));
    }
    let implied = if user.name == ANONYMOUS { UNAUTHENTICATED } else { AUTHENTICATED };
    if !user.in_group(implied) && (user.name == ANONYMOUS || !user.in_group(UNAUTHENTICATED)) {
        user.groups.push(implied.to_owned());
    }
    user
}

/// Returns the user for permission checks when a caller impersonates its own node. A list of the keys of the
/// extra values replaces the extra values. Without the name of the node, one decision applies to all nodes.
fn on_its_node(caller: &User) -> User {
    let keys: Vec<String> = caller.extra.keys().cloned().collect();
    let domain = keys.iter().find_map(|key| domain_of_node_key(key)).unwrap_or_default();
    let name = format!("{domain}/associated-node-keys");
    User { extra: [(name, keys)].into(), ..caller.clone() }
}

/// Returns the reason why a constrained mode refuses an extra value, if any.
fn extra_fault(key: &str, values: &[String]) -> Option<String> {
    if key.is_empty() {
        return Some("impersonating the empty string key in extra is not allowed".to_owned());
    }
    let faults = domain_keys::domain_prefixed_path(key);
    if let Some(faults) = join_errors(faults.iter().map(extra_key_invalid)) {
        return Some(format!("impersonating an invalid key in extra is not allowed: {faults}"));
    }
    if key != key.to_lowercase() {
        let quoted = Quoted(key);
        return Some(format!("impersonating a non-lowercase key in extra is not allowed: {quoted}"));
    }
    let is_empty = values.iter().any(String::is_empty);
    is_empty.then(|| "impersonating the empty string value in extra is not allowed".to_owned())
}

fn extra_key_invalid(fault: &domain_keys::Fault<'_>) -> String {
    format!("extra.key: Invalid value: {}: {}", Quoted(fault.value), fault.why)
}

#[cfg(test)]
#[path = "impersonation_test.rs"]
mod tests;
