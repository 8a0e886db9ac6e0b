//! The plugin MutatingAdmissionWebhook: webhooks that may change an object, one after the other.
//!
//! A webhook that is to be invoked again sees the object once more, in the second round of the mutating point, if
//! others changed it after its turn.

use super::review::{converted, is_whole, operation_name};
use super::{Configuration, Lookup, Outcome, Webhook, Webhooks, Write, is_sent};
use crate::admission::{Operation, Plugin, Record, Review, Step, Target};
use crate::json::{Object, Value};
use crate::patch::{Patch, PatchKind};
use crate::schema::conform::conform;
use crate::schema::registry::Resource;
use crate::schema::{defaults, table::Message};
use crate::status::Status;

/// The plugin.
pub struct MutatingWebhooks(Webhooks);

/// What is known of a write from round to round.
#[derive(Default)]
struct Progress {
    /// Webhooks that are to be invoked again, and had their turn.
    invoked: Vec<String>,
    /// Those of them after whose turn the object changed.
    due: Vec<String>,
    /// The object as the first round left it.
    output: Option<Object>,
}

impl Progress {
    fn changed(&mut self) {
        self.due.append(&mut self.invoked);
    }
}

impl MutatingWebhooks {
    /// The plugin over this store.
    pub fn new(lookup: &Lookup) -> MutatingWebhooks {
        MutatingWebhooks(Webhooks::new(lookup, "mutatingwebhookconfigurations"))
    }

    async fn run(&self, record: &mut Record<'_, &mut Object>, review: &mut Review) -> Result<(), Status> {
        let configurations = self.0.all()?;
        if configurations.is_empty() {
            return Ok(());
        }
        let served = self.0.lookup.served();
        let again = review.is_reinvocation();
        if again {
            let progress = review.state::<Progress>();
            if progress.output.as_ref() != record.new.as_deref() {
                progress.changed();
            }
        }
        let mut webhooks: Vec<(&Configuration, &Webhook)> = Vec::new();
        for owner in &configurations {
            webhooks.extend(owner.webhooks.iter().map(|webhook| (&**owner, webhook)));
        }
        for (index, (owner, webhook)) in webhooks.into_iter().enumerate() {
            let id = format!("{}/{}", owner.name, webhook.name);
            if again && !review.state::<Progress>().due.contains(&id) {
                continue;
            }
            let write = Write::of(record, record.new.as_deref());
            let Some(seen) = self.0.wanted(webhook, &write, record.resource, served.registry())? else {
                continue;
            };
            let outcome = self.0.ask(webhook, &write, seen, true).await?;
            let changed = self.take(record, review, (owner, webhook, index), seen, outcome).await?;
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

    /// Does what a webhook decided. Whether it gave a patch.
    async fn take(
        &self,
        record: &mut Record<'_, &mut Object>,
        review: &mut Review,
        (owner, webhook, index): (&Configuration, &Webhook, usize),
        seen: &Resource,
        outcome: Outcome,
    ) -> Result<bool, Status> {
        let naming = self.0.lookup.naming;
        let group = naming.group("admission", true);
        let place = format!("round_{}_index_{index}", usize::from(review.is_reinvocation()));
        let Outcome::Answered(verdict) = outcome else {
            let key = format!("failed-open.mutation.webhook.{group}/{place}");
            review.annotations.push((key, webhook.name.clone()));
            return Ok(false);
        };
        webhook.annotate(&verdict, review);
        let patch = match verdict.patch.is_empty() || verdict.denial.is_some() {
            true => None,
            false => match Patch::parse(PatchKind::Json, &verdict.patch, false) {
                Ok(patch) => Some(patch),
                Err(why) => {
                    let why = format!("received undecodable patch in webhook response: {}", why.message);
                    return webhook.failed(&why).map(|()| false);
                }
            },
        };
        let changes = patch.is_some() && verdict.patch != b"[]";
        let mut told = Object::with_capacity(3);
        told.push("configuration", owner.name.as_str().into());
        told.push("webhook", webhook.name.as_str().into());
        told.push("mutated", changes.into());
        let mut text = Vec::new();
        crate::json::write(&told.into(), &mut text);
        let text = String::from_utf8_lossy(&text).into_owned();
        review.annotations.push((format!("mutation.webhook.{group}/{place}"), text));
        if let Some(denial) = &verdict.denial {
            return Err(denial.status(&webhook.name));
        }
        let Some(patch) = patch.filter(|_| changes) else { return Ok(false) };
        let Some(new) = record.new.as_deref_mut().filter(|_| record.operation != Operation::Delete) else {
            let (name, operation) = (&webhook.name, operation_name(record.operation));
            tracing::debug!(name, operation, "a patch where nothing is written");
            return Err(Status::internal(format!(
                "admission webhook \"{name}\" attempted to modify the object, which is not supported for this \
                 operation"
            )));
        };
        let resource = record.resource;
        *new = if is_whole(record.subresource) && !std::ptr::eq(seen, resource) {
            let lookup = &self.0.lookup;
            let shown = converted(new.clone(), (resource, seen), lookup).await?;
            let patched = patched(patch, &seen.table.message, shown, naming)?;
            converted(patched, (seen, resource), lookup).await?
        } else {
            patched(patch, message(resource, record.subresource, new), new.clone(), naming)?
        };
        Ok(true)
    }
}

/// The type of an object of a write.
fn message<'r>(resource: &'r Resource, subresource: &str, object: &Object) -> &'r Message {
    let is_own = object.get("kind").and_then(Value::as_str) == Some(&*resource.table.kind);
    match resource.subresource(subresource) {
        Some(subresource) if !is_own => &subresource.table.message,
        _ => &resource.table.message,
    }
}

/// The patched object with its defaults.
fn patched(
    patch: Patch,
    message: &Message,
    object: Object,
    naming: &'static crate::naming::Naming,
) -> Result<Object, Status> {
    // What does not apply is a mistake of the webhook, not of the client.
    let patched = patch.apply(None, object.into()).map_err(|why| Status::internal(why.message))?;
    let mut object = conform(message, patched.value).map_err(Status::internal)?.object;
    defaults::apply(message, &mut object, naming);
    Ok(object)
}

impl Plugin for MutatingWebhooks {
    fn handles(&self, target: &Target<'_>) -> bool {
        is_sent(target) && self.0.is_configured()
    }

    fn mutate<'p>(&'p self, record: &'p mut Record<'_, &mut Object>, review: &'p mut Review) -> Step<'p> {
        Step::wait(self.run(record, review))
    }
}
