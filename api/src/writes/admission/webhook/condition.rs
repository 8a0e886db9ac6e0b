//! Evaluates the match conditions of a webhook for a write.

use std::sync::{Arc, OnceLock};

use auth::Authorizer;

use super::review::{in_version, request_name, request_namespace};
use super::{Webhook, Write};
use crate::writes::admission::policy::condition::ConditionEvaluation;
use crate::writes::admission::policy::permission::Permissions;
use crate::writes::admission::policy::request::PolicyRequest;
use crate::writes::admission::policy::scope::{ExpressionScope, Inputs};
use crate::writes::plugin::kinds::{kind_of, matched_kind};
use objects::conversion::Converter;
use types::schema::registry::Resource;
use values::json::Object;
use values::naming::Naming;
use values::status::Status;

/// Returns the result of the match conditions of a webhook. The conditions read the objects in the version of
/// `seen`, which is the version that the webhook matched.
///
/// # Errors
/// 500 if an object cannot be converted.
pub(super) async fn evaluate_conditions(
    webhook: &Webhook,
    write: &Write<'_>,
    seen: &Resource,
    naming: &'static Naming,
    authorizer: &Arc<Authorizer>,
    converter: &Converter,
) -> Result<ConditionEvaluation, Status> {
    let permissions = Permissions::for_user(authorizer, write.user);
    if std::ptr::eq(seen, write.resource) {
        return Ok(evaluate(webhook, write, write.new, write.old, seen, naming, &permissions));
    }
    let new = in_version(write, seen, write.new, converter).await.map_err(Status::internal)?;
    let old = in_version(write, seen, write.old, converter).await.map_err(Status::internal)?;
    Ok(evaluate(webhook, write, new.as_ref(), old.as_ref(), seen, naming, &permissions))
}

fn evaluate(
    webhook: &Webhook,
    write: &Write<'_>,
    new: Option<&Object>,
    old: Option<&Object>,
    seen: &Resource,
    naming: &Naming,
    permissions: &Arc<dyn cel::library::authorizer::Authorizer>,
) -> ConditionEvaluation {
    let requested = kind_of(write.new.or(write.old), write.resource);
    let resource = (&*write.resource.group, &*write.resource.version, &*write.resource.table.plural);
    let options = write.options.to_value(write.operation, naming);
    let request = PolicyRequest {
        operation: write.operation,
        kind: matched_kind(requested, seen, write.subresource),
        resource,
        request_kind: requested,
        request_resource: resource,
        subresource: write.subresource,
        name: request_name(write),
        namespace: request_namespace(write),
        user: write.user,
        dry_run: write.dry_run,
        options: &options,
        value: OnceLock::new(),
    };
    let inputs =
        Inputs { object: new, old, namespace: None, request: &request, authorizer: Some(permissions) };
    let scope = ExpressionScope::new(&inputs, None, &[]);
    let open = scope.open();
    webhook.conditions.evaluate(&open, || scope.take_cost())
}
