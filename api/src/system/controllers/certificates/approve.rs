//! Approves requests of nodes for their client certificates, if the requesting user has the verb `create` on
//! `certificatesigningrequests/nodeclient`, or on `selfnodeclient` for the user's own certificate.

use std::sync::Arc;
use std::time::Duration;

use auth::{Attributes, User};

use super::super::{EVENTS_MAX, Ending, Pass};
use super::signer::BuiltInSigner;
use super::{CONTROLLER, all, has, is_same, is_signed, request, resource, text, usages, with_condition};
use crate::writes::loopback::Loopback;
use crate::writes::server::Server;
use objects::store::ObjectName;
use objects::strategy::Endpoint;
use values::json::{Object, Value};
use values::object::meta;
use values::status::Status;

/// Interval of checks of requests whose users had no permission. An authorizer that does not report changes to
/// this controller may have granted the permission in the meantime.
const AGAIN: Duration = Duration::from_secs(30);

/// Subresource for which the user needs permission, and message of the approval.
const PERMISSIONS: [(&str, &str); 2] = [
    ("selfnodeclient", "Auto approving self kubelet client certificate after SubjectAccessReview."),
    ("nodeclient", "Auto approving kubelet client certificate after SubjectAccessReview."),
];

/// Runs the controller, which follows certificate signing requests.
pub(in super::super) async fn follow(server: Arc<Server>) -> Ending {
    let loopback = Loopback::controller(&server, CONTROLLER);
    let (resource, prefix) = resource(&loopback)?;
    let mut tail = server.store.engine().tail(server.store.engine().revision(), prefix.clone())?;
    loop {
        let (mut waiting, mut pass) = (false, Pass::default());
        for object in all(&server, &prefix).filter(is_undecided) {
            match permitted(&server, &object).await {
                Permitted::Not => {}
                Permitted::NotYet => waiting = true,
                Permitted::For(message) => {
                    let outcome = approve(&loopback, resource, &object, message).await;
                    pass.note(meta(&object, "name"), outcome);
                }
            }
        }
        pass.end()?;
        let again =
            async { if waiting { tokio::time::sleep(AGAIN).await } else { std::future::pending().await } };
        tokio::select! {
            events = tail.next(EVENTS_MAX) => drop(events?),
            () = again => {}
        }
    }
}

fn is_undecided(object: &Object) -> bool {
    !is_signed(object) && !has(object, "Approved") && !has(object, "Denied")
}

enum Permitted {
    /// This controller is not responsible for the request.
    Not,
    /// The user does not have the permission.
    NotYet,
    /// The request is approved, with this message.
    For(&'static str),
}

async fn permitted(server: &Server, object: &Object) -> Permitted {
    if BuiltInSigner::named(text(object, ["spec", "signerName"]), server.types.naming)
        != Some(BuiltInSigner::NodeClient)
    {
        return Permitted::Not;
    }
    let Ok(request) = request(object) else { return Permitted::Not };
    if BuiltInSigner::NodeClient.check(&request.subject, &request.names, &usages(object)).is_err() {
        return Permitted::Not;
    }
    let user = sender(object);
    for (subresource, message) in PERMISSIONS {
        if subresource == "selfnodeclient" && user.name != request.subject.common_name {
            continue;
        }
        let group = server.types.naming.group("certificates", true);
        let attributes = Attributes {
            verb: "create",
            resource_request: true,
            group: &group,
            version: "*",
            resource: "certificatesigningrequests",
            subresource,
            ..Attributes::path(&user, "", "")
        };
        if server.access.authorizer.authorize(&attributes).await.is_ok() {
            return Permitted::For(message);
        }
    }
    tracing::debug!(request = meta(object, "name"), user = user.name, "certificate request not approved");
    Permitted::NotYet
}

/// Returns the user who made the request.
fn sender(object: &Object) -> User {
    let spec = object.get("spec");
    let texts = |list: Option<&Value>| -> Vec<String> {
        let texts = list.and_then(Value::as_array).unwrap_or_default().iter();
        texts.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let member = |name: &str| spec.and_then(|spec| spec.at(&[name]));
    let mut user = User::new(text(object, ["spec", "username"]), texts(member("groups")));
    user.uid = text(object, ["spec", "uid"]).to_owned();
    for (key, values) in member("extra").and_then(Value::as_object).into_iter().flat_map(|extra| extra.iter())
    {
        user.extra.insert(key.to_owned(), texts(Some(values)));
    }
    user
}

async fn approve(
    loopback: &Loopback<'_>,
    resource: &types::schema::registry::Resource,
    seen: &Object,
    message: &str,
) -> Result<(), Status> {
    let change = |current: &Object| {
        (is_same(current, seen) && is_undecided(current))
            .then(|| with_condition(current, "Approved", "AutoApproved", message))
    };
    loopback
        .change(resource, ObjectName::cluster_scoped(meta(seen, "name")), Endpoint::Approval, change)
        .await
}
