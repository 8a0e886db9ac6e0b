//! The webhooks that configuration objects define.

use std::time::Duration;

use cel::environment::Origin;

use super::matching::WebhookRules;
use super::report::{self, LoggedCall};
use super::review::Verdict;
use crate::writes::admission::policy::condition::Conditions;
use crate::writes::plugin::Review;
use objects::expression::policy::environment::{Declarations, KnownTypes, OptionalVariables};
use objects::validation::names;
use values::json::{Object, Value};
use values::object::meta;
use values::status::Status;
use wire::outgoing::{Client, Identities};

/// Timeout of a call if the configuration sets no timeout.
const TIMEOUT_DEFAULT_SECONDS: i64 = 10;
/// Longest timeout that a configuration may set.
const TIMEOUT_MAX_SECONDS: i64 = 30;

/// The webhooks of one configuration object.
pub(super) struct WebhookConfiguration {
    pub(super) name: String,
    pub(super) webhooks: Vec<Webhook>,
}

/// A webhook of a configuration.
pub(super) struct Webhook {
    pub(super) name: String,
    pub(super) matching: WebhookRules,
    pub(super) conditions: Conditions,
    /// Whether writes continue if the call fails.
    pub(super) ignores_failures: bool,
    /// Whether the webhook is called again after later plugins or webhooks changed the object.
    pub(super) is_reinvoked: bool,
    /// Whether the webhook may be called in dry runs, because the webhook has no side effects in a dry run.
    pub(super) knows_dry_runs: bool,
    pub(super) timeout: Duration,
    /// The first version in the webhook's list that this server supports.
    pub(super) review_version: Option<&'static str>,
    pub(super) client: Client,
}

impl WebhookConfiguration {
    /// Reads a configuration object. Values that validation would refuse are left out.
    pub(super) fn read(object: &Object, identities: &Identities) -> WebhookConfiguration {
        let webhooks = object.get("webhooks").and_then(Value::as_array).unwrap_or_default();
        WebhookConfiguration {
            name: meta(object, "name").to_owned(),
            webhooks: webhooks.iter().map(|webhook| Webhook::read(webhook, identities)).collect(),
        }
    }
}

impl Webhook {
    fn read(webhook: &Value, identities: &Identities) -> Webhook {
        let client = webhook.get("clientConfig").unwrap_or(&Value::Null);
        let seconds =
            webhook.get("timeoutSeconds").and_then(Value::as_i64).unwrap_or(TIMEOUT_DEFAULT_SECONDS);
        let seconds = seconds.clamp(1, TIMEOUT_MAX_SECONDS);
        let versions = webhook.get("admissionReviewVersions").and_then(Value::as_array).unwrap_or_default();
        let known =
            |version: &Value| ["v1", "v1beta1"].into_iter().find(|known| version.as_str() == Some(known));
        let conditions = webhook.get("matchConditions").and_then(Value::as_array).unwrap_or_default();
        let conditions: Vec<_> = conditions
            .iter()
            .map(|condition| (condition.str_at(&["name"]), condition.str_at(&["expression"])))
            .collect();
        let extent = OptionalVariables { params: false, authorizer: true };
        let conditions = if conditions.is_empty() {
            Conditions::default()
        } else {
            Conditions::compile(conditions, &Declarations::new(Origin::Stored, KnownTypes::default()), extent)
        };
        Webhook {
            name: webhook.str_at(&["name"]).to_owned(),
            matching: WebhookRules::read(webhook),
            conditions,
            ignores_failures: webhook.str_at(&["failurePolicy"]) == "Ignore",
            is_reinvoked: webhook.str_at(&["reinvocationPolicy"]) == "IfNeeded",
            knows_dry_runs: matches!(webhook.str_at(&["sideEffects"]), "None" | "NoneOnDryRun"),
            timeout: Duration::from_secs(seconds.unsigned_abs()),
            review_version: versions.iter().find_map(known),
            client: Client::read_authenticated(client, seconds, identities),
        }
    }

    /// Copies the warnings and annotations of a response to the review.
    pub(super) fn annotate(&self, verdict: &Verdict, review: &mut Review) {
        review.warnings.extend(verdict.warnings.iter().filter(|text| !text.is_empty()).cloned());
        let name = &self.name;
        // The key of an annotation contains exactly one slash, which follows the name of the webhook.
        let is_key = |key: &str| !key.contains('/') && names::qualified(key).is_empty();
        let keys = verdict.annotations.iter().filter(|(key, _)| is_key(key));
        review.annotations.extend(keys.map(|(key, value)| (format!("{name}/{key}"), value.clone())));
    }

    /// Applies the failure policy to a failed call, and logs the failure. `why` is the reason of the failure.
    ///
    /// # Errors
    /// 500 if the policy is `Fail`.
    pub(super) fn failed(&self, why: &str, about: &LoggedCall<'_>) -> Result<(), Status> {
        let name = &self.name;
        if self.ignores_failures {
            report::failed_open(name, about, why);
            return Ok(());
        }
        report::failed_closed(name, about, why);
        Err(Status::internal(format!("failed calling webhook \"{name}\": {why}")))
    }
}
