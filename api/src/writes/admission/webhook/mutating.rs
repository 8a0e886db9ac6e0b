//! The plugin MutatingAdmissionWebhook calls the webhooks that may change an object, one after the other.
//!
//! A webhook with reinvocation can be called twice. The second call happens in the second run of the mutating
//! point, if other webhooks or plugins changed the object after the first call.

use std::sync::Arc;

use super::report::{self, LoggedCall};
use super::review::Verdict;
use super::{Outcome, Webhook, WebhookConfiguration, Webhooks, Write, is_sent};
use crate::writes::admission::patched::{self, PatchedObjectError};
use crate::writes::plugin::kinds::{is_whole, message_of};
use crate::writes::plugin::{AdmissionRecord, Operation, Plugin, Review, Step, Target};
use crate::writes::server::Server;
use crate::writes::server::types::TypeCatalog;
use objects::patch::{Patch, PatchKind, apply_operations};
use types::schema::encode::encode;
use types::schema::registry::Resource;
use types::schema::{defaults, table::Message};
use values::field::go_quote;
use values::json::{self, Object, Value};
use values::status::{Status, StatusReason};
use wire::outgoing::Identities;

/// The admission plugin MutatingAdmissionWebhook.
pub struct MutatingWebhooks(Webhooks);

/// The data that the plugin keeps across the runs of one write.
#[derive(Default)]
struct Progress {
    /// Webhooks with reinvocation that have been called.
    invoked: Vec<String>,
    /// Webhooks with reinvocation that were called before the last change of the object.
    due: Vec<String>,
    /// The object at the end of the first run.
    output: Option<Object>,
    /// Whether a webhook has returned a patch for the object.
    is_patched: bool,
}

/// A webhook that has been called for a write.
struct CalledWebhook<'w> {
    owner: &'w WebhookConfiguration,
    webhook: &'w Webhook,
    /// Position of the webhook among the webhooks of all configurations.
    index: usize,
    /// The resource in whose version the webhook received the write.
    seen: &'w Resource,
}

impl Progress {
    fn changed(&mut self) {
        self.due.append(&mut self.invoked);
    }
}

impl MutatingWebhooks {
    /// Returns the plugin for this store. `identities` are the credentials of this server for webhooks.
    pub fn new(server: &Server, identities: Arc<Identities>) -> MutatingWebhooks {
        MutatingWebhooks(Webhooks::new(server, "mutatingwebhookconfigurations", identities))
    }

    async fn run(
        &self,
        record: &mut AdmissionRecord<'_, &mut Object>,
        review: &mut Review,
    ) -> Result<(), Status> {
        let configurations = self.0.all()?;
        if configurations.is_empty() {
            return Ok(());
        }
        let served = self.0.types.now();
        let again = review.is_reinvocation();
        if again {
            let progress = review.state::<Progress>();
            if progress.output.as_ref() != record.new.as_deref() {
                progress.changed();
            }
        }
        let mut webhooks: Vec<(&WebhookConfiguration, &Webhook)> = Vec::new();
        for owner in configurations.iter() {
            webhooks.extend(owner.webhooks.iter().map(|webhook| (&**owner, webhook)));
        }
        for (index, (owner, webhook)) in webhooks.into_iter().enumerate() {
            let id = format!("{}/{}", owner.name, webhook.name);
            if again && !review.state::<Progress>().due.contains(&id) {
                continue;
            }
            let write = Write::from_record(record, record.new.as_deref());
            let matched =
                self.0.matched_resource(webhook, &write, record.write.resource, served.registry()).await?;
            let Some(seen) = matched else { continue };
            review.asked_webhooks = true;
            let outcome = self.0.call_with_failure_policy(webhook, &write, seen, true).await;
            let changed =
                self.take(record, review, CalledWebhook { owner, webhook, index, seen }, outcome).await;
            review.webhook_refused = changed.is_err();
            let changed = changed?;
            let progress = review.state::<Progress>();
            if changed {
                progress.changed();
            }
            if webhook.is_reinvoked {
                progress.invoked.push(id);
            }
            if changed {
                review.reinvoke();
            }
        }
        review.state::<Progress>().output = record.new.as_deref().cloned();
        Ok(())
    }

    /// Applies the decision of a webhook and annotates the audit event. Returns whether the object changed.
    async fn take(
        &self,
        record: &mut AdmissionRecord<'_, &mut Object>,
        review: &mut Review,
        CalledWebhook { owner, webhook, index, seen }: CalledWebhook<'_>,
        outcome: Result<Outcome, Status>,
    ) -> Result<bool, Status> {
        let group = self.0.types.naming.group("admission", true);
        let place = format!("webhook.{group}/round_{}_index_{index}", usize::from(review.is_reinvocation()));
        let about = || {
            let mut annotation = Object::with_capacity(4);
            annotation.push("configuration", owner.name.as_str().into());
            annotation.push("webhook", webhook.name.as_str().into());
            annotation
        };
        let changed = match outcome {
            Err(status) => Err(status),
            Ok(Outcome::FailedOpen) => {
                let key = format!("failed-open.mutation.{place}");
                review.annotations.push((key, webhook.name.clone()));
                Ok(false)
            }
            Ok(Outcome::Answered(verdict, took)) => {
                webhook.annotate(&verdict, review);
                let is_written = record.new.is_some() && record.write.operation != Operation::Delete;
                let call = LoggedCall::new(&Write::from_record(record, record.new.as_deref()), took);
                match operations(&verdict, webhook, is_written, &call) {
                    Ok(Some(operations)) => {
                        let mut annotation = about();
                        annotation.push("patch", sorted(operations.clone()));
                        annotation.push("patchType", "JSONPatch".into());
                        review.request_annotations.push((format!("patch.{place}"), text(annotation)));
                        let changed = self.change(record, seen, operations).await;
                        if let Err(status) = &changed {
                            let call =
                                LoggedCall::new(&Write::from_record(record, record.new.as_deref()), took);
                            report::failed_closed(&webhook.name, &call, &status.message);
                        }
                        // kube-apiserver always counts the first patch as a change, because kube-apiserver drops the
                        // fractions of seconds in new managed fields at that point. A later patch counts only if the
                        // patch changes the object.
                        let progress = review.state::<Progress>();
                        let is_first = !std::mem::replace(&mut progress.is_patched, true);
                        changed.map(|is_other| is_other || is_first)
                    }
                    outcome => outcome.map(|_| false),
                }
            }
        };
        let mut annotation = about();
        annotation.push("mutated", matches!(changed, Ok(true)).into());
        review.annotations.push((format!("mutation.{place}"), text(annotation)));
        changed
    }

    /// Patches the object. Returns whether the patch changed the object.
    async fn change(
        &self,
        record: &mut AdmissionRecord<'_, &mut Object>,
        seen: &Resource,
        operations: Value,
    ) -> Result<bool, Status> {
        let (types, converter) = (&self.0.types, &self.0.outgoing.converter);
        let Some(new) = record.new.as_deref() else { return Ok(false) };
        let resource = record.write.resource;
        let changed = if is_whole(record.subresource) && !std::ptr::eq(seen, resource) {
            let shown = converter.converted(new.clone(), resource, seen).await?;
            let patched = patched(operations, &seen.table.message, &shown, types)?;
            converter.converted(patched, seen, resource).await?
        } else {
            patched(operations, message_of(new, resource, record.subresource), new, types)?
        };
        let message = message_of(new, resource, record.subresource);
        let is_changed = text_of(message, new) != text_of(message, &changed);
        record.replace(changed);
        Ok(is_changed)
    }
}

/// Returns the stored form of an object, for comparison. The stored form is the same whether a patch sets or
/// leaves out members that have no effect.
fn text_of(message: &Message, object: &Object) -> Vec<u8> {
    let mut text = Vec::new();
    encode(message, object, &mut text);
    text
}

/// Returns the operations of the patch to apply, if any.
///
/// # Errors
/// Fails if the webhook denies the write, or if it patches an object that is not written (`is_written` is
/// false). Also fails if the patch is invalid and the failure policy does not ignore the failure.
pub(super) fn operations(
    verdict: &Verdict,
    webhook: &Webhook,
    is_written: bool,
    about: &LoggedCall<'_>,
) -> Result<Option<Value>, Status> {
    if let Some(denial) = &verdict.denial {
        return Err(denial.status(&webhook.name));
    }
    if verdict.patch.is_empty() {
        return Ok(None);
    }
    if let Err(why) = Patch::parse(PatchKind::Json, &verdict.patch, false) {
        let why = format!("received undecodable patch in webhook response: {}", why.message);
        return webhook.failed(&why, about).map(|()| None);
    }
    let operations = json::parse_exact(&verdict.patch).map_err(Status::internal)?;
    if operations.as_array().is_none_or(<[Value]>::is_empty) {
        return Ok(None);
    }
    if !is_written {
        let why = format!(
            "admission webhook \"{}\" attempted to modify the object, which is not supported for this operation",
            webhook.name
        );
        report::failed_closed(&webhook.name, about, &why);
        return Err(Status::internal(why));
    }
    if let Some(form) = &verdict.unknown_form {
        let why = format!("unsupported patch type {}", go_quote(form));
        return webhook.failed(&why, about).map(|()| None);
    }
    Ok(Some(operations))
}

/// Sorts the members of each operation, as in audit events.
fn sorted(mut operations: Value) -> Value {
    for operation in operations.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
        json::sort_members(operation.members_mut());
    }
    operations
}

fn text(object: Object) -> String {
    let mut text = Vec::new();
    json::write(&object.into(), &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

/// Returns the patched object with its defaults. If the patch cannot be applied, or if its result is invalid,
/// the error is an error of the webhook, not of the client.
fn patched(
    operations: Value,
    message: &Message,
    object: &Object,
    types: &TypeCatalog,
) -> Result<Object, Status> {
    let patched = apply_operations(operations, object.clone().into());
    let patched = patched.map_err(|why| Status::internal(why.to_string()))?;
    let read = patched::read(patched, message, object, types.now().registry());
    let mut object = read
        .map_err(|misread| match misread {
            PatchedObjectError::Undecodable(why) => Status::internal(why),
            PatchedObjectError::Unconvertible { why, .. } => Status::new(StatusReason::Unknown, why),
            PatchedObjectError::Invalid(status) => *status,
        })?
        .object;
    defaults::apply(message, &mut object, types.naming);
    Ok(object)
}

impl Plugin for MutatingWebhooks {
    fn handles(&self, target: &Target<'_>) -> bool {
        is_sent(target) && self.0.is_configured()
    }

    fn mutate<'p>(
        &'p self,
        record: &'p mut AdmissionRecord<'_, &mut Object>,
        review: &'p mut Review,
    ) -> Step<'p> {
        Step::wait(self.run(record, review))
    }
}
