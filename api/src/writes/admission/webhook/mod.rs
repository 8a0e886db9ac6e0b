//! Admission webhooks: other servers that can change or refuse the objects of writes.
//!
//! ```text
//! configuration objects ─► Webhook: rules, selectors, conditions, location
//!                             │
//! write ─► matching ─► review ─► POST ─► verdict ─► denial · warnings · annotations · patch ─► changed object
//!                                   └─► failure ─► failure policy
//! ```
//!
//! Configurations are read at the newest revision, so a configuration applies to all writes that begin after
//! the response to its creation. Mutating webhooks are called one after the other. Validating webhooks are
//! called concurrently. If several webhooks refuse a write, the client gets the refusal of the webhook that comes first
//! in the order of the configurations. docs/api/webhooks.md describes the behaviour.

mod condition;
mod configuration;
mod credentials;
mod matching;
mod mutating;
mod report;
mod review;
mod validating;

use std::sync::Arc;
use std::time::{Duration, Instant};

use auth::User;

pub use mutating::MutatingWebhooks;
pub use validating::ValidatingWebhooks;

use self::configuration::{Webhook, WebhookConfiguration};
use self::report::LoggedCall;
use self::review::Verdict;
use super::policy::condition::{Match, Owner};
use super::{Listed, Parsed};
use crate::writes::admission::Files;
use crate::writes::server::{MakePlugin, Server};

use crate::writes::plugin::{AdmissionRecord, Operation, Options, Target};
use crate::writes::server::access::AccessControl;
use crate::writes::server::operations::Operations;
use crate::writes::server::outgoing::OutgoingCalls;
use crate::writes::server::store::ObjectStorage;
use crate::writes::server::types::TypeCatalog;
use types::schema::registry::{Registry, Resource};
use values::json::{Object, Value};
use values::request_scope;
use values::status::{Status, StatusReason, Subject};
use wire::outgoing::{self, Identities};

/// The properties of a write that a webhook receives.
#[derive(Clone, Copy)]
struct Write<'r> {
    user: &'r User,
    operation: Operation,
    dry_run: bool,
    options: Options<'r>,
    resource: &'r Resource,
    subresource: &'r str,
    namespace: &'r str,
    name: &'r str,
    old: Option<&'r Object>,
    new: Option<&'r Object>,
}

impl<'r> Write<'r> {
    fn from_record<N>(record: &'r AdmissionRecord<'_, N>, new: Option<&'r Object>) -> Write<'r> {
        Write {
            user: record.write.user,
            operation: record.write.operation,
            dry_run: record.write.dry_run(),
            options: record.write.options,
            resource: record.write.resource,
            subresource: record.subresource,
            namespace: record.write.namespace,
            name: record.write.name,
            old: record.old,
            new,
        }
    }
}

/// The result of a call to a webhook.
enum Outcome {
    /// The webhook responded. The duration is the time of the call.
    Answered(Verdict, Duration),
    /// The call failed, and the failure policy ignores the failure.
    FailedOpen,
}

/// The webhooks of one kind of configuration.
struct Webhooks {
    store: Arc<ObjectStorage>,
    types: Arc<TypeCatalog>,
    access: Arc<AccessControl>,
    outgoing: Arc<OutgoingCalls>,
    operations: Arc<Operations>,
    configurations: Parsed<WebhookConfiguration>,
    namespaces: Arc<Resource>,
    agent: String,
    /// Name of the point of admission in metrics.
    point: &'static str,
}

/// Reads the configuration of the plugin MutatingAdmissionWebhook.
///
/// # Errors
/// The configuration is invalid; the text describes the error.
pub fn configure_mutating(config: Option<&Value>, files: &dyn Files) -> Result<MakePlugin, String> {
    let identities = Arc::new(credentials::read(config, files)?);
    Ok(Arc::new(move |server| Arc::new(MutatingWebhooks::new(server, identities.clone()))))
}

/// Reads the configuration of the plugin ValidatingAdmissionWebhook.
///
/// # Errors
/// The configuration is invalid; the text describes the error.
pub fn configure_validating(config: Option<&Value>, files: &dyn Files) -> Result<MakePlugin, String> {
    let identities = Arc::new(credentials::read(config, files)?);
    Ok(Arc::new(move |server| Arc::new(ValidatingWebhooks::new(server, identities.clone()))))
}

impl Webhooks {
    fn new(server: &Server, plural: &str, identities: Arc<Identities>) -> Webhooks {
        let resource = server.types.resource("admissionregistration", "v1", plural);
        Webhooks {
            configurations: Parsed::new(&server.store, resource, move |object| {
                WebhookConfiguration::read(object, &identities)
            }),
            namespaces: server.types.resource("", "v1", "namespaces"),
            agent: format!("{}apiserver-admission", server.types.naming.system_prefix),
            store: server.store.clone(),
            types: server.types.clone(),
            access: server.access.clone(),
            outgoing: server.outgoing.clone(),
            operations: server.operations.clone(),
            point: if plural.starts_with("mutating") { "admit" } else { "validating" },
        }
    }

    /// Returns whether there is at least one configuration. Without a configuration, no objects need to be
    /// prepared for webhooks.
    fn is_configured(&self) -> bool {
        !self.configurations.is_empty(&self.store)
    }

    /// Returns all configurations, in the order of their names.
    fn all(&self) -> Result<Listed<WebhookConfiguration>, Status> {
        self.configurations.list(&self.store, "")
    }

    /// Returns the resource in whose version a webhook receives a write: `own`, the resource of the request,
    /// or the same resource in another version. `None` means that the webhook is not called.
    ///
    /// # Errors
    /// 403 if the match conditions fail and the failure policy does not ignore the failure, 404 if the
    /// namespace is missing, 500 if an object cannot be converted for the conditions.
    async fn matched_resource<'r>(
        &self,
        webhook: &Webhook,
        write: &Write<'_>,
        own: &'r Resource,
        registry: &'r Registry,
    ) -> Result<Option<&'r Resource>, Status> {
        let namespace = || {
            let found = self.store.get(&self.namespaces, "", write.namespace)?;
            found.ok_or_else(|| {
                Status::not_found(Subject { group: "", kind: "namespaces", name: write.namespace })
            })
        };
        let Some(seen) = webhook.matching.matches(write, own, registry, namespace)? else { return Ok(None) };
        if webhook.conditions.is_empty() {
            return Ok(Some(seen));
        }
        let (naming, converter) = (self.types.naming, &self.outgoing.converter);
        let evaluation =
            condition::evaluate_conditions(webhook, write, seen, naming, &self.access.authorizer, converter)
                .await?;
        let owner = Owner { kind: "webhook", name: &webhook.name, point: self.point };
        evaluation.count(&self.operations.metrics, owner, write.operation);
        match evaluation.outcome {
            Match::Yes => Ok(Some(seen)),
            Match::No(_) => Ok(None),
            Match::Failed(why) if webhook.ignores_failures => {
                report::failed_open(&webhook.name, &LoggedCall::new(write, Duration::ZERO), &why);
                Ok(None)
            }
            Match::Failed(why) => {
                report::failed_closed(&webhook.name, &LoggedCall::new(write, Duration::ZERO), &why);
                let (group, kind) = (&*write.resource.group, &*write.resource.table.plural);
                let name = review::request_name(write);
                Err(Status::forbidden(Subject { group, kind, name }, &why))
            }
        }
    }

    /// Calls one webhook.
    ///
    /// # Errors
    /// Fails if the call fails and the failure policy does not ignore the failure.
    async fn call_with_failure_policy(
        &self,
        webhook: &Webhook,
        write: &Write<'_>,
        kind: &Resource,
        mutating: bool,
    ) -> Result<Outcome, Status> {
        if write.dry_run && !webhook.knows_dry_runs {
            let name = &webhook.name;
            let why = format!("admission webhook \"{name}\" does not support dry run");
            report::failed_closed(name, &LoggedCall::new(write, Duration::ZERO), &why);
            return Err(Status::new(StatusReason::BadRequest, why));
        }
        let began = Instant::now();
        let called = self.call(webhook, write, kind, mutating).await;
        let took = began.elapsed();
        request_scope::called_webhook(&webhook.name, mutating, took);
        self.count(webhook, write.operation, mutating, took, called.as_ref());
        let about = LoggedCall::new(write, took);
        match called {
            Ok(verdict) => {
                if let Some(denial) = &verdict.denial {
                    report::denied(&webhook.name, &about, &denial.status(&webhook.name));
                }
                Ok(Outcome::Answered(verdict, took))
            }
            Err(why) => webhook.failed(&why, &about).map(|()| Outcome::FailedOpen),
        }
    }

    /// Adds a call, with its duration and outcome, to the metrics.
    fn count(
        &self,
        webhook: &Webhook,
        operation: Operation,
        mutating: bool,
        took: Duration,
        called: Result<&Verdict, &String>,
    ) {
        let metrics = &self.operations.metrics.webhooks;
        let (name, operation) = (webhook.name.as_str(), operation.as_str());
        let kind = if mutating { "admit" } else { "validating" };
        let denial = called.ok().and_then(|verdict| verdict.denial.as_ref());
        let (code, error) = match (called, denial) {
            (Ok(_), Some(denial)) => (denial.status(name).code.as_u16(), "no_error"),
            (Ok(_), None) => (200, ""),
            (Err(_), _) => (if webhook.ignores_failures { 200 } else { 500 }, "calling_webhook_error"),
        };
        let is_failure = called.is_err();
        let is_refused = denial.is_some() || is_failure && !webhook.ignores_failures;
        let (code, rejected) = (code.to_string(), if is_refused { "true" } else { "false" });
        metrics.durations.time(&[name, operation, rejected, kind], took);
        metrics.calls.count(&[&code, name, operation, rejected, kind]);
        if is_refused {
            let code = if is_failure { "0" } else { &code };
            metrics.rejections.count(&[error, name, operation, code, kind]);
        } else if is_failure {
            metrics.failed_open.count(&[name, kind]);
        }
    }

    async fn call(
        &self,
        webhook: &Webhook,
        write: &Write<'_>,
        kind: &Resource,
        mutating: bool,
    ) -> Result<Verdict, String> {
        let version =
            webhook.review_version.ok_or("webhook does not accept known AdmissionReview versions")?;
        let endpoint = self.endpoint(webhook).map_err(|why| format!("failed to call webhook: {why}"))?;
        let converter = &self.outgoing.converter;
        let request = review::request(write, kind, version, mutating, self.types.naming, converter).await?;
        let answer = outgoing::post(&endpoint, &self.agent, request.body, webhook.timeout).await;
        let answer = answer.map_err(|why| format!("failed to call webhook: {why}"))?;
        review::verdict(&answer.body, version, &request.uid, mutating, self.types.naming)
    }

    /// Returns the endpoint to which a call of a webhook connects now.
    fn endpoint(&self, webhook: &Webhook) -> Result<outgoing::Endpoint, String> {
        webhook.client.endpoint_at(|service| self.outgoing.services.address(service))
    }
}

/// Returns whether a write may be sent to webhooks. Writes of objects that configure admission are never
/// sent.
fn is_sent(target: &Target<'_>) -> bool {
    let exempt = [
        "mutatingwebhookconfigurations",
        "validatingwebhookconfigurations",
        "mutatingadmissionpolicies",
        "mutatingadmissionpolicybindings",
        "validatingadmissionpolicies",
        "validatingadmissionpolicybindings",
    ];
    !exempt.iter().any(|plural| target.resource.is_of("admissionregistration", plural))
}

#[cfg(test)]
#[path = "webhook_test.rs"]
mod tests;
