//! Evaluates the match conditions of a webhook for a write.

use std::sync::{Arc, OnceLock};

use auth::Authorizer;

use super::review::{in_version, shown_name, shown_namespace};
use super::{Webhook, Write};
use crate::writes::admission::policy::condition::Judged;
use crate::writes::admission::policy::permission::Permissions;
use crate::writes::admission::policy::request::PolicyRequest;
use crate::writes::admission::policy::scope::{Inputs, Scope};
use crate::writes::plugin::kinds::{kind_of, matched_kind};
use objects::conversion::Converter;
use types::schema::registry::Resource;
use values::json::Object;
use values::naming::Naming;
use values::status::Status;

/// Returns the result of the conditions of a webhook. They see the objects in the version of `seen`, as which
/// the webhook matched the write.
///
/// # Errors
/// 500 if an object cannot be converted.
pub(super) async fn judge(
    webhook: &Webhook,
    write: &Write<'_>,
    seen: &Resource,
    (naming, authorizer): (&'static Naming, &Arc<Authorizer>),
    converter: &Converter,
) -> Result<Judged, Status> {
    let permissions = Permissions::of(authorizer, write.user);
    if std::ptr::eq(seen, write.resource) {
        return Ok(evaluate(webhook, write, (write.new, write.old), seen, naming, &permissions));
    }
    let new = in_version(write, seen, write.new, converter).await.map_err(Status::internal)?;
    let old = in_version(write, seen, write.old, converter).await.map_err(Status::internal)?;
    Ok(evaluate(webhook, write, (new.as_ref(), old.as_ref()), seen, naming, &permissions))
}

fn evaluate(
    webhook: &Webhook,
    write: &Write<'_>,
    (new, old): (Option<&Object>, Option<&Object>),
    seen: &Resource,
    naming: &Naming,
    permissions: &Arc<dyn cel::library::authorizer::Authorizer>,
) -> Judged {
    let requested = kind_of(write.new.or(write.old), write.resource);
    let resource = (&*write.resource.group, &*write.resource.version, &*write.resource.table.plural);
    let options = write.options.shown(write.operation, naming);
    let request = PolicyRequest {
        operation: write.operation,
        kind: matched_kind(requested, seen, write.subresource),
        resource,
        request_kind: requested,
        request_resource: resource,
        subresource: write.subresource,
        name: shown_name(write),
        namespace: shown_namespace(write),
        user: write.user,
        dry_run: write.dry_run,
        options: &options,
        made: OnceLock::new(),
    };
    let inputs =
        Inputs { object: new, old, namespace: None, request: &request, authorizer: Some(permissions) };
    let scope = Scope::new(&inputs, None, &[]);
    let open = scope.open();
    webhook.conditions.judge(&open, || scope.take_cost())
}
