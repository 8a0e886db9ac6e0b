//! The plugin ImagePolicyWebhook: an external server decides on the images of pods.
//!
//! ```text
//! pod ─► ImageReview ─► cached? ─┬─ yes ─────────────────────────┬─► allowed, or 403
//!                                └─ no ─► server ─► cache it ────┘
//!                                           └─ no response: allowed, or 403, as configured
//! ```
//!
//! This module does not read kubeconfig files and opens no connections: the module calls the image policy server
//! through a `Reviewer`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use auth::authn::webhook::Reviewer;
use hashbrown::HashMap;
use parking_lot::Mutex;

use crate::writes::admission::Files;
use crate::writes::plugin::{AdmissionRecord, Operation, Plugin, Review, Step, Target};
use crate::writes::pod;
use crate::writes::server::{MakePlugin, Server};
use values::json::{self, Object, Value};
use values::naming::Naming;
use values::object::at;
use values::status::Status;
use wire::outgoing;

/// Maximum number of cached decisions. Each key contains the images of a pod.
const REMEMBERED_MAX: usize = 1024;

/// The API version of the reviews that the plugin sends.
const VERSION: &str = "v1alpha1";

/// The subresource that adds containers to a running pod.
const EPHEMERAL: &str = "ephemeralcontainers";

/// The configuration of the plugin.
struct Config {
    file: String,
    allow_ttl: Duration,
    deny_ttl: Duration,
    pause: Duration,
    default_allow: bool,
}

/// The admission plugin ImagePolicyWebhook.
pub struct ImagePolicyWebhook {
    reviewer: Arc<dyn Reviewer>,
    /// The time for which decisions that allow the images are cached, and the time for decisions that deny
    /// the images.
    lifetimes: [Duration; 2],
    default_allow: bool,
    naming: &'static Naming,
    remembered: Mutex<HashMap<Vec<u8>, (Instant, Decision)>>,
}

/// A decision of the external server.
#[derive(Clone, Debug, Default)]
struct Decision {
    allowed: bool,
    reason: String,
    annotations: Vec<(String, String)>,
}

/// Reads the configuration, which is required.
///
/// # Errors
/// Fails if the configuration is invalid; the text describes the error.
pub fn configure(config: Option<&Value>, files: &dyn Files) -> Result<MakePlugin, String> {
    let config = Config::read(config.ok_or("no config specified")?)?;
    let reviewer = files.reviewer(&config.file, config.pause)?;
    Ok(Arc::new(move |server: &Server| {
        Arc::new(ImagePolicyWebhook {
            reviewer: reviewer.clone(),
            lifetimes: [config.allow_ttl, config.deny_ttl],
            default_allow: config.default_allow,
            naming: server.types.naming,
            remembered: Mutex::default(),
        })
    }))
}

impl Config {
    fn read(config: &Value) -> Result<Config, String> {
        let absent = Value::Null;
        let policy = config.get("imagePolicy").unwrap_or(&absent);
        if !matches!(policy, Value::Object(_) | Value::Null) {
            return Err(go::json::unfit_member(
                policy.go_kind(),
                "AdmissionConfig.imagePolicy",
                "imagepolicy.imagePolicyWebhookConfig",
            ));
        }
        let time = |name: &str, unit: i64, least: i64, most: i64, default: i64| {
            let given = policy.get(name).filter(|given| !given.is_null());
            let given = given.map(|given| given.as_i64().ok_or_else(|| not_of(name, given, "time.Duration")));
            let nanos = match given.transpose()?.unwrap_or(0) {
                -1 => 0,
                0 => default,
                number => {
                    let nanos = number.wrapping_mul(unit);
                    if nanos < least || nanos > most {
                        let [least, most, got] = [least, most, nanos].map(go::duration::to_text);
                        return Err(format!("valid value is between {least} and {most}, got {got}"));
                    }
                    nanos
                }
            };
            Ok(Duration::from_nanos(nanos.unsigned_abs()))
        };
        let (second, minute) = (1_000_000_000, 60_000_000_000);
        let pause = time("retryBackoff", 1_000_000, 1, 5 * minute, second / 2)?;
        let allow_ttl = time("allowTTL", second, second, 30 * minute, 5 * minute)?;
        let deny_ttl = time("denyTTL", second, second, 30 * minute, 30 * second)?;
        let default_allow = match policy.get("defaultAllow") {
            None | Some(Value::Null) => false,
            Some(given) => given.as_bool().ok_or_else(|| not_of("defaultAllow", given, "bool"))?,
        };
        let file = match policy.get("kubeConfigFile") {
            None | Some(Value::Null) => "",
            Some(given) => given.as_str().ok_or_else(|| not_of("kubeConfigFile", given, "string"))?,
        };
        Ok(Config { file: file.to_owned(), allow_ttl, deny_ttl, pause, default_allow })
    }
}

fn not_of(name: &str, given: &Value, kind: &str) -> String {
    let found = match given {
        Value::Float(number) if kind == "time.Duration" => format!("number {number}"),
        other => other.go_kind().to_owned(),
    };
    go::json::unfit_member(&found, &format!("imagePolicyWebhookConfig.imagePolicy.{name}"), kind)
}

impl ImagePolicyWebhook {
    fn version(&self) -> String {
        self.naming.api_version("imagepolicy", true, VERSION)
    }

    /// Returns the content of a review: the images, some annotations of the pod, and the namespace.
    fn spec(&self, record: &AdmissionRecord<'_, &Object>, pod: &Object) -> Object {
        let lists: &[&str] =
            if record.subresource.is_empty() { &[pod::MAIN, pod::INIT] } else { &[pod::EPHEMERAL] };
        let containers = lists.iter().flat_map(|list| pod::list(pod, list)).map(|container| {
            let mut shown = Object::new();
            push_text(&mut shown, "image", container.str_at(&["image"]));
            Value::Object(shown)
        });
        let mut spec = Object::new();
        let containers: Vec<Value> = containers.collect();
        if !containers.is_empty() {
            spec.push("containers", Value::Array(containers));
        }
        let part = format!(".{}/", self.naming.group("image-policy", true));
        let annotations = pod::pairs(at(pod, "metadata.annotations")).filter(|(key, _)| key.contains(&part));
        let annotations: Object =
            annotations.map(|(key, value)| (key.to_owned().into(), value.into())).collect();
        if !annotations.is_empty() {
            spec.push("annotations", annotations.into());
        }
        push_text(&mut spec, "namespace", record.write.namespace);
        spec
    }

    /// Returns the decision of the external server, from the cache or by a new call.
    async fn decide(&self, spec: Object) -> Result<Decision, String> {
        let key = text(spec.clone());
        let now = Instant::now();
        if let Some((until, decision)) = self.remembered.lock().get(&key)
            && *until > now
        {
            return Ok(decision.clone());
        }
        let mut review = Object::new();
        review.push("kind", "ImageReview".into());
        review.push("apiVersion", self.version().into());
        review.push("metadata", Object::new().into());
        review.push("spec", spec.into());
        let mut status = Object::new();
        status.push("allowed", false.into());
        review.push("status", status.into());
        let answer = self.reviewer.review(text(review)).await;
        let answer = answer.map_err(|why| why.to_string())?;
        let group = self.naming.group("imagepolicy", true);
        let expected = outgoing::Review { group: &group, version: VERSION, kind: "ImageReview" };
        let answer = expected.read(&answer)?;
        let status = answer.get("status");
        outgoing::ReviewResponse::Images.check(status, VERSION)?;
        let decision = Decision::read(status);
        self.remember(key, decision.clone(), now);
        Ok(decision)
    }

    fn remember(&self, key: Vec<u8>, decision: Decision, now: Instant) {
        let lifetime = self.lifetimes[usize::from(!decision.allowed)];
        if lifetime.is_zero() {
            return;
        }
        let mut remembered = self.remembered.lock();
        if remembered.len() >= REMEMBERED_MAX {
            remembered.retain(|_, (until, _)| *until > now);
        }
        // If the cache is full, drop the half of the entries that expires first.
        if remembered.len() >= REMEMBERED_MAX {
            let mut ends: Vec<Instant> = remembered.values().map(|(until, _)| *until).collect();
            let middle = ends.len() / 2;
            let (_, median, _) = ends.select_nth_unstable(middle);
            let median = *median;
            remembered.retain(|_, (until, _)| *until > median);
        }
        remembered.insert(key, (now + lifetime, decision));
    }

    async fn check(&self, record: &AdmissionRecord<'_, &Object>, review: &mut Review) -> Result<(), Status> {
        let Some(pod) = record.new else { return Ok(()) };
        let prefix = format!("imagepolicywebhook.{}/", self.naming.group("image-policy", true));
        let decision = match self.decide(self.spec(record, pod)).await {
            Ok(decision) => decision,
            Err(why) if self.default_allow => {
                tracing::warn!("image policy: no decision, allowed: {why}");
                review.annotations.push((format!("{prefix}failed-open"), "true".to_owned()));
                return Ok(());
            }
            Err(why) => return Err(record.forbidden(&why)),
        };
        let annotations = decision.annotations.into_iter();
        review.annotations.extend(annotations.map(|(key, value)| (format!("{prefix}{key}"), value)));
        match (decision.allowed, decision.reason.as_str()) {
            (true, _) => Ok(()),
            (false, "") => Err(record.forbidden("one or more images rejected by webhook backend")),
            (false, reason) => Err(record
                .forbidden(&format!("image policy webhook backend denied one or more images: {reason}"))),
        }
    }
}

impl Decision {
    fn read(status: Option<&Value>) -> Decision {
        let Some(status) = status else { return Decision::default() };
        Decision {
            allowed: status.get("allowed").and_then(Value::as_bool).unwrap_or(false),
            reason: status.str_at(&["reason"]).to_owned(),
            annotations: pod::pairs(status.get("auditAnnotations"))
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .collect(),
        }
    }
}

fn text(object: Object) -> Vec<u8> {
    let mut text = Vec::new();
    json::write(&object.into(), &mut text);
    text
}

fn push_text(object: &mut Object, name: &'static str, text: &str) {
    if !text.is_empty() {
        object.push(name, text.into());
    }
}

impl Plugin for ImagePolicyWebhook {
    fn handles(&self, target: &Target<'_>) -> bool {
        matches!(target.operation, Operation::Create | Operation::Update)
            && target.resource.is_of("", "pods")
            && matches!(target.subresource, "" | EPHEMERAL)
    }

    fn validate<'p>(&'p self, record: &'p AdmissionRecord<'_, &Object>, review: &'p mut Review) -> Step<'p> {
        Step::wait(self.check(record, review))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use values::yaml;

    fn read(text: &str) -> Result<Config, String> {
        Config::read(&yaml::parse(format!("imagePolicy: {{{text}}}").as_bytes()).unwrap().value)
    }

    #[test]
    fn image_policy_times_have_units_bounds_and_defaults() {
        let config = read("kubeConfigFile: /f, allowTTL: 60, denyTTL: -1, retryBackoff: 10").unwrap();
        assert_eq!(
            (config.file.as_str(), config.allow_ttl.as_secs(), config.deny_ttl.as_secs(), config.pause),
            ("/f", 60, 0, Duration::from_millis(10))
        );
        let number = Config::read(&yaml::parse(b"imagePolicy: 5").unwrap().value).err().unwrap_or_default();
        assert_eq!(
            number,
            "json: cannot unmarshal number into Go struct field AdmissionConfig.imagePolicy of type \
             imagepolicy.imagePolicyWebhookConfig"
        );
        let config = read("").unwrap();
        assert_eq!((config.allow_ttl.as_secs(), config.deny_ttl.as_secs()), (300, 30));
        assert_eq!((config.pause, config.default_allow), (Duration::from_millis(500), false));
        for (text, want) in [
            ("allowTTL: 999999999", "valid value is between 1s and 30m0s, got 277777h46m39s"),
            ("denyTTL: 1801", "valid value is between 1s and 30m0s, got 30m1s"),
            ("denyTTL: -2", "valid value is between 1s and 30m0s, got -2s"),
            ("retryBackoff: 999999999", "valid value is between 1ns and 5m0s, got 277h46m39.999s"),
            (
                "allowTTL: a",
                "json: cannot unmarshal string into Go struct field imagePolicyWebhookConfig.imagePolicy.allowTTL of \
                 type time.Duration",
            ),
            (
                "defaultAllow: 1",
                "json: cannot unmarshal number into Go struct field \
                 imagePolicyWebhookConfig.imagePolicy.defaultAllow of type bool",
            ),
        ] {
            assert_eq!(read(text).err().unwrap_or_default(), want, "{text}");
        }
    }
}
