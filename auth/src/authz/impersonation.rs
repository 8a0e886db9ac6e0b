//! Impersonation: decides whether a user may act as another user, and which user the request then has
//! (docs/api/authentication.md#impersonation).
//!
//! The modes are tried in order, starting with the one that last succeeded for the caller. The first success
//! decides; if all fail, the first refusal is returned. The constrained modes require the verb
//! `impersonate:<mode>` on each property of the wanted identity, and `impersonate-on:<mode>:<verb>` on the
//! requested object. Their permissions are cached for a short time. The legacy mode requires only
//! `impersonate`, and is checked for every request. This module does not read headers; that is the caller's
//! task.

use go::{Quoted, join_errors};

use super::chain::Authorizer;
use super::impersonation_mode::{ImpersonationMode, domain_of_node_key, node, service_account};
use super::permitted::PermissionKey;
use crate::attributes::Attributes;
use crate::decision::{Denied, Reason};
use crate::forms;
use crate::identity::{
    ANONYMOUS, AUTHENTICATED, MASTERS, NODE_PREFIX, NODES, UNAUTHENTICATED, User, service_account_groups,
};

/// API group of the resources in the checks of constrained modes.
const AUTHENTICATION: &str = "authentication.k8s.io";
/// From this number of groups or extra values on, a constrained mode first checks a permission for all of
/// them.
const MANY: usize = 4;
/// The refusal of an impersonation, about one resource.
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

/// A permission to act as another user.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Acting {
    /// User to act as, including the groups that its name implies.
    pub user: User,
    /// Verb of the constrained mode that allowed it, for the audit record; `None` for the legacy mode.
    pub constraint: Option<&'static str>,
}

impl Refused {
    fn new(asked: &Attributes<'_>, denied: Denied) -> Refused {
        Refused {
            group: asked.group.to_owned(),
            resource: asked.resource.to_owned(),
            name: asked.name.to_owned(),
            message: denied.message,
        }
    }
}

impl Authorizer {
    /// Decides whether the user of `request` may make it as `wanted`. Returns the user that the request then
    /// has: `wanted` with the groups that its name implies.
    ///
    /// # Errors
    /// No mode allows it. The error is the first refusal.
    pub async fn impersonate(&self, request: &Attributes<'_>, wanted: &User) -> Result<Acting, Refused> {
        let mut first = None;
        for mode in self.last_modes.order(request.user, wanted) {
            match self.try_mode(mode, request, wanted).await {
                Ok(()) => {
                    self.last_modes.remember(request.user, mode);
                    let (verb, on) = mode.verbs();
                    return Ok(Acting { user: completed(mode, wanted), constraint: on.map(|_| verb) });
                }
                Err(refused) => first = first.or(Some(refused)),
            }
        }
        // The legacy mode is always tried, so there is always a refusal here.
        Err(first.unwrap_or_else(|| Refused::new(request, Denied::new(request, Reason::None))))
    }

    async fn try_mode(
        &self,
        mode: ImpersonationMode,
        request: &Attributes<'_>,
        wanted: &User,
    ) -> Result<(), Refused> {
        let (verb, on) = mode.verbs();
        let Some(on) = on else { return self.require_identity(mode, request.user, wanted).await };
        let is_own_node = mode == ImpersonationMode::AssociatedNode;
        let on_node = is_own_node.then(|| on_its_node(request.user));
        let request = &Attributes { user: on_node.as_ref().unwrap_or(request.user), ..*request };
        let any_node = is_own_node.then(|| User::new(format!("{NODE_PREFIX}*"), [""; 0]));
        let target = any_node.as_ref().unwrap_or(wanted);
        let whole = PermissionKey::request(verb, request, target);
        if self.permitted.has(whole) {
            return Ok(());
        }
        let on_what = format!("{on}{}", request.verb);
        self.require(&Attributes { verb: &on_what, ..*request }).await?;
        let identity = PermissionKey::identity(verb, request.user, target);
        if !self.permitted.has(identity) {
            self.require_identity(mode, request.user, wanted).await?;
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
        wanted: &User,
    ) -> Result<(), Refused> {
        let (verb, on) = mode.verbs();
        let authentication = Attributes {
            resource_request: true,
            group: AUTHENTICATION,
            version: "v1",
            ..Attributes::path(caller, verb, "")
        };
        let identity = Attributes { group: on.map_or("", |_| AUTHENTICATION), ..authentication };
        let name = match service_account(&wanted.name) {
            // The permission is for the caller's own node, regardless of its name.
            None if mode == ImpersonationMode::AssociatedNode => {
                Attributes { resource: "nodes", name: "*", ..identity }
            }
            None if mode == ImpersonationMode::ArbitraryNode => {
                Attributes { resource: "nodes", name: node(&wanted.name).unwrap_or_default(), ..identity }
            }
            Some((namespace, name)) => {
                Attributes { resource: "serviceaccounts", namespace, name, ..identity }
            }
            None => Attributes { resource: "users", name: &wanted.name, ..identity },
        };
        self.require(&name).await?;
        if !wanted.uid.is_empty() {
            self.require(&Attributes { resource: "uids", name: &wanted.uid, ..authentication }).await?;
        }
        let groups = Attributes { resource: "groups", ..identity };
        self.require_groups(mode, &groups, &wanted.groups).await?;
        let extra = Attributes { resource: "userextras", ..authentication };
        self.require_extra(mode, &extra, wanted).await
    }

    /// Checks that the caller may act in these groups. If there are many, the constrained mode first checks a
    /// permission for all groups.
    async fn require_groups(
        &self,
        mode: ImpersonationMode,
        asked: &Attributes<'_>,
        groups: &[String],
    ) -> Result<(), Refused> {
        if mode == ImpersonationMode::UserInfo {
            if groups.iter().any(String::is_empty) {
                let why = "impersonating the empty string group is not allowed";
                return Err(refuse(asked, why.to_owned()));
            }
            if groups.iter().any(|group| group == MASTERS) {
                let why = format!("impersonating the {MASTERS} group is not allowed");
                return Err(refuse(&Attributes { name: MASTERS, ..*asked }, why));
            }
            let all = Attributes { name: "*", ..*asked };
            if groups.len() >= MANY && self.require(&all).await.is_ok() {
                return Ok(());
            }
        }
        for group in groups {
            self.require(&Attributes { name: group, ..*asked }).await?;
        }
        Ok(())
    }

    /// Checks that the caller may use these extra values, in the same way.
    async fn require_extra(
        &self,
        mode: ImpersonationMode,
        asked: &Attributes<'_>,
        wanted: &User,
    ) -> Result<(), Refused> {
        if mode == ImpersonationMode::UserInfo {
            if let Some(why) = wanted.extra.iter().find_map(|(key, values)| extra_fault(key, values)) {
                return Err(refuse(asked, why));
            }
            let is_large = wanted.extra.values().map(Vec::len).sum::<usize>() >= MANY;
            let all = Attributes { subresource: "*", name: "*", ..*asked };
            if is_large && self.require(&all).await.is_ok() {
                return Ok(());
            }
        }
        for (key, values) in &wanted.extra {
            for value in values {
                self.require(&Attributes { subresource: key, name: value, ..*asked }).await?;
            }
        }
        Ok(())
    }

    /// Checks one permission. An authorizer that fails refuses it; its error precedes the reasons in the
    /// message.
    async fn require(&self, asked: &Attributes<'_>) -> Result<(), Refused> {
        let denied = match self.authorize(asked).await {
            Ok(_) => return Ok(()),
            Err(denied) => denied,
        };
        Err(match (&denied.error, denied.reason.is_empty()) {
            (None, _) => Refused::new(asked, denied),
            (Some(error), true) => refuse(asked, error.clone()),
            (Some(error), false) => refuse(asked, format!("{error}: {}", denied.reason)),
        })
    }
}

fn refuse(asked: &Attributes<'_>, why: String) -> Refused {
    Refused::new(asked, Denied::new(asked, Reason::from(why)))
}

/// Adds the groups that the name of the wanted user implies.
fn completed(mode: ImpersonationMode, wanted: &User) -> User {
    let mut user = wanted.clone();
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

/// Returns the caller as the authorizers see it when it impersonates its own node: the extra value contains
/// only the keys of the caller's extra values, so that one decision applies to all nodes.
fn on_its_node(caller: &User) -> User {
    let keys: Vec<String> = caller.extra.keys().cloned().collect();
    let domain = keys.iter().find_map(|key| domain_of_node_key(key)).unwrap_or_default();
    let name = format!("{domain}/associated-node-keys");
    User { extra: [(name, keys)].into(), ..caller.clone() }
}

/// Returns the error of an extra value in a constrained mode.
fn extra_fault(key: &str, values: &[String]) -> Option<String> {
    if key.is_empty() {
        return Some("impersonating the empty string key in extra is not allowed".to_owned());
    }
    let faults = forms::domain_prefixed_path(key);
    if let Some(faults) = join_errors(faults.iter().map(extra_key_invalid)) {
        return Some(format!("impersonating an invalid key in extra is not allowed: {faults}"));
    }
    if key != key.to_lowercase() {
        let shown = Quoted(key);
        return Some(format!("impersonating a non-lowercase key in extra is not allowed: {shown}"));
    }
    let is_empty = values.iter().any(String::is_empty);
    is_empty.then(|| "impersonating the empty string value in extra is not allowed".to_owned())
}

fn extra_key_invalid(fault: &forms::Fault<'_>) -> String {
    format!("extra.key: Invalid value: {}: {}", Quoted(fault.value), fault.why)
}

#[cfg(test)]
#[path = "impersonation_test.rs"]
mod tests;
