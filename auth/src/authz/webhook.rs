//! The webhook authorizer, which sends SubjectAccessReviews to another server
//! (docs/api/authorization.md#webhook-authorizer).
//!
//! ```text
//! attributes ─► conditions ─ false ─► no opinion
//!                   └ true ─► cached decision? ─ no ─► review ─► decision, cached for a while
//! ```

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use aws_lc_rs::digest;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};

use super::condition::Conditions;
use super::verdict::Verdict;
use crate::answer::Review;
use crate::attributes::{Attributes, FieldRequirement, LabelRequirement, Selectors};
use crate::authn::webhook::Reviewer;
use crate::decision::Decision;
use crate::strict::{MemberType, Object, text_of};

/// Maximum number of cached decisions.
const KNOWN_MAX: usize = 8192;

/// Size limit for cached decisions. If the attributes of a request are longer, the decision is not cached.
const SIZE_MAX: usize = 10_000;

/// The consequence of a failed call.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum FailurePolicy {
    /// The next authorizer decides the request.
    NoOpinion,
    /// The request is denied.
    Deny,
}

/// The settings of a webhook authorizer.
pub struct Settings {
    /// Full API group of the reviews, without the version.
    pub group: String,
    /// Version of the reviews: `v1` or `v1beta1`.
    pub version: String,
    /// Cache lifetime of decisions that allow a request; zero disables this cache.
    pub authorized_ttl: Duration,
    /// Cache lifetime of decisions that refuse a request; zero disables this cache.
    pub unauthorized_ttl: Duration,
    /// Consequence of a failed call.
    pub failure_policy: FailurePolicy,
    /// Conditions that select the requests for the webhook.
    pub conditions: Conditions,
}

/// The webhook authorizer, with its cached decisions.
pub struct Webhook {
    reviewer: Arc<dyn Reviewer>,
    settings: Settings,
    known: Mutex<HashMap<[u8; 32], (Instant, ReviewStatus)>>,
}

/// A response of the webhook.
#[derive(Clone, Debug)]
struct ReviewStatus {
    allowed: bool,
    denied: bool,
    reason: String,
}

/// The members of a review that this module reads.
static REVIEW: Object =
    Object { name: "SubjectAccessReview", members: &[("status", MemberType::Object(&STATUS))] };
static STATUS: Object = Object {
    name: "SubjectAccessReviewStatus",
    members: &[
        ("allowed", MemberType::Flag),
        ("denied", MemberType::Flag),
        ("reason", MemberType::Text),
        ("evaluationError", MemberType::Text),
    ],
};

impl Webhook {
    /// Creates an authorizer that sends reviews through `reviewer`.
    pub fn new(reviewer: Arc<dyn Reviewer>, settings: Settings) -> Webhook {
        Webhook { reviewer, settings, known: Mutex::default() }
    }

    pub(super) async fn decide(&self, request: &Attributes<'_>) -> Verdict {
        let spec = spec(request);
        match self.settings.conditions.hold(&spec) {
            Ok(true) => {}
            Ok(false) => return Verdict::without_error(Decision::NoOpinion { reason: String::new().into() }),
            Err(error) => return self.failed(error),
        }
        match self.review(spec, request).await {
            Ok(status) => status.verdict(),
            Err(error) => self.failed(error),
        }
    }

    fn failed(&self, error: String) -> Verdict {
        let reason = String::new().into();
        let decision = match self.settings.failure_policy {
            FailurePolicy::NoOpinion => Decision::NoOpinion { reason },
            FailurePolicy::Deny => Decision::Deny { reason },
        };
        Verdict { decision, error: Some(error) }
    }

    async fn review(
        &self,
        mut spec: Map<String, Value>,
        request: &Attributes<'_>,
    ) -> Result<ReviewStatus, String> {
        let Settings { group, version, .. } = &self.settings;
        if version == "v1beta1"
            && let Some(groups) = spec.remove("groups")
        {
            spec.insert("group".to_owned(), groups);
        }
        let key = key(&spec);
        let now = Instant::now();
        if let Some((end, status)) = self.known.lock().get(&key)
            && now < *end
        {
            return Ok(status.clone());
        }
        let review = json!({
            "kind": "SubjectAccessReview",
            "apiVersion": format!("{group}/{version}"),
            "metadata": {},
            "spec": spec,
            "status": {"allowed": false},
        });
        let answer = self.reviewer.review(review.to_string().into_bytes()).await;
        let status = self.read(&answer.map_err(|error| error.to_string())?)?;
        let lifetime =
            if status.allowed { self.settings.authorized_ttl } else { self.settings.unauthorized_ttl };
        if !lifetime.is_zero() && size(request) < SIZE_MAX {
            let mut known = self.known.lock();
            if known.len() >= KNOWN_MAX {
                known.retain(|_, (end, _)| now < *end);
                if known.len() >= KNOWN_MAX {
                    known.clear();
                }
            }
            known.insert(key, (Instant::now() + lifetime, status.clone()));
        }
        Ok(status)
    }

    fn read(&self, answer: &[u8]) -> Result<ReviewStatus, String> {
        let Settings { group, version, .. } = &self.settings;
        let review = Review { group, version, form: &REVIEW }.read(answer)?;
        let status = &review["status"];
        let flag = |name: &str| status[name].as_bool().unwrap_or_default();
        Ok(ReviewStatus {
            allowed: flag("allowed"),
            denied: flag("denied"),
            reason: text_of(status, "reason"),
        })
    }
}

impl ReviewStatus {
    fn verdict(self) -> Verdict {
        let reason = self.reason.into();
        match (self.allowed, self.denied) {
            (true, true) => Verdict {
                decision: Decision::Deny { reason },
                error: Some("webhook subject access review returned both allow and deny response".to_owned()),
            },
            (true, false) => Verdict::without_error(Decision::Allow { reason }),
            (false, true) => Verdict::without_error(Decision::Deny { reason }),
            (false, false) => Verdict::without_error(Decision::NoOpinion { reason }),
        }
    }
}

/// Builds the `spec` of a review in version v1.
pub(super) fn spec(request: &Attributes<'_>) -> Map<String, Value> {
    let texts = |members: &[(&str, &str)]| {
        let present = members.iter().filter(|(_, text)| !text.is_empty());
        Value::Object(present.map(|(name, text)| ((*name).to_owned(), Value::from(*text))).collect())
    };
    let mut spec = Map::new();
    if request.resource_request {
        let mut attributes = texts(&[
            ("namespace", request.namespace),
            ("verb", request.verb),
            ("group", request.group),
            ("version", request.version),
            ("resource", request.resource),
            ("subresource", request.subresource),
            ("name", request.name),
        ]);
        for (name, requirements) in selectors(request.selectors) {
            attributes[name] = json!({ "requirements": requirements });
        }
        spec.insert("resourceAttributes".to_owned(), attributes);
    } else {
        let attributes = texts(&[("path", request.path), ("verb", request.verb)]);
        spec.insert("nonResourceAttributes".to_owned(), attributes);
    }
    let user = request.user;
    if !user.name.is_empty() {
        spec.insert("user".to_owned(), user.name.as_str().into());
    }
    if !user.groups.is_empty() {
        spec.insert("groups".to_owned(), user.groups.clone().into());
    }
    if !user.extra.is_empty() {
        spec.insert("extra".to_owned(), json!(user.extra));
    }
    if !user.uid.is_empty() {
        spec.insert("uid".to_owned(), user.uid.as_str().into());
    }
    spec
}

/// Iterates over the selectors that have requirements, in the format of reviews.
fn selectors(selectors: Selectors<'_>) -> impl Iterator<Item = (&'static str, Vec<Value>)> {
    let fields = selectors.fields.iter().map(|FieldRequirement { field, is_equal, value }| {
        json!({"key": field, "operator": if *is_equal { "In" } else { "NotIn" }, "values": [value]})
    });
    let labels = selectors.labels.iter().map(|LabelRequirement { key, operator, values }| {
        let mut requirement = json!({"key": key, "operator": operator});
        if !values.is_empty() {
            requirement["values"] = values.clone().into();
        }
        requirement
    });
    let each = [("fieldSelector", fields.collect::<Vec<_>>()), ("labelSelector", labels.collect())];
    each.into_iter().filter(|(_, requirements)| !requirements.is_empty())
}

/// Returns the total length of all request attributes that the client chooses.
fn size(request: &Attributes<'_>) -> usize {
    let Attributes { namespace, verb, group, version, resource, subresource, name, path, .. } = request;
    [namespace, verb, group, version, resource, subresource, name, path]
        .into_iter()
        .map(|part| part.len())
        .sum()
}

fn key(spec: &Map<String, Value>) -> [u8; 32] {
    let text = Value::Object(spec.clone()).to_string();
    let mut key = [0; 32];
    key.copy_from_slice(digest::digest(&digest::SHA256, text.as_bytes()).as_ref());
    key
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authn::webhook::Reviewed;
    use crate::authz::{Authorizer, Module, Policy};
    use crate::identity::User;

    struct Says(Mutex<Vec<String>>, Result<&'static str, &'static str>);

    impl Reviewer for Says {
        fn review(&self, review: Vec<u8>) -> Reviewed {
            self.0.lock().push(String::from_utf8(review).unwrap());
            let answer = self.1.map(|text| text.as_bytes().to_vec()).map_err(str::to_owned);
            Box::pin(async move { answer })
        }
    }

    fn at_once<T>(future: impl Future<Output = T>) -> T {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        match std::pin::pin!(future).poll(&mut context) {
            std::task::Poll::Ready(result) => result,
            std::task::Poll::Pending => panic!("this reviewer answers at once"),
        }
    }

    fn webhook(
        answer: Result<&'static str, &'static str>,
        failure_policy: FailurePolicy,
    ) -> (Webhook, Arc<Says>) {
        let says = Arc::new(Says(Mutex::default(), answer));
        let settings = Settings {
            group: "authorization.k8s.io".to_owned(),
            version: "v1".to_owned(),
            authorized_ttl: Duration::from_secs(60),
            unauthorized_ttl: Duration::ZERO,
            failure_policy,
            conditions: Conditions::default(),
        };
        (Webhook::new(says.clone(), settings), says)
    }

    #[test]
    fn webhook_answers_decide_and_are_cached_for_the_configured_time() {
        const BOTH: &str = "webhook subject access review returned both allow and deny response";
        use FailurePolicy::{Deny, NoOpinion};
        for (answer, policy, want, error, calls) in [
            (Ok(r#"{"status":{"allowed":true,"reason":"r"}}"#), NoOpinion, "allow r", None, 1),
            (Ok(r#"{"status":{"allowed":false,"reason":"r"}}"#), NoOpinion, "none r", None, 2),
            (Ok(r#"{"status":{"denied":true,"reason":"r"}}"#), NoOpinion, "deny r", None, 2),
            (
                Ok(r#"{"status":{"allowed":true,"denied":true,"reason":"r"}}"#),
                NoOpinion,
                "deny r",
                Some(BOTH),
                1,
            ),
            (Ok("{}"), NoOpinion, "none ", None, 2),
            (Err("no answer"), NoOpinion, "none ", Some("no answer"), 2),
            (Err("no answer"), Deny, "deny ", Some("no answer"), 2),
        ] {
            let (webhook, says) = webhook(answer, policy);
            let user = User::new("jane", ["dev"]);
            for _ in 0..2 {
                let Verdict { decision, error: got } =
                    at_once(webhook.decide(&Attributes::path(&user, "get", "/x")));
                let word = match &decision {
                    Decision::Allow { .. } => "allow",
                    Decision::Deny { .. } => "deny",
                    Decision::NoOpinion { .. } => "none",
                };
                assert_eq!(format!("{word} {}", decision.reason()), want, "{answer:?}");
                assert_eq!(got.as_deref(), error, "{answer:?}");
            }
            assert_eq!(says.0.lock().len(), calls, "{answer:?}");
        }
    }

    #[test]
    fn equal_errors_of_several_authorizers_are_reported_once() {
        for (answers, want) in [(["a", "a"], "a"), (["a", "b"], "[a, b]")] {
            let modules = answers
                .map(|answer| Module::Webhook(Arc::new(webhook(Err(answer), FailurePolicy::NoOpinion).0)));
            let authorizer = Authorizer::new(modules.into(), Arc::new(Policy::default()), "rbac");
            let user = User::new("jane", ["dev"]);
            let verdict = at_once(authorizer.decide(&Attributes::path(&user, "get", "/x")));
            assert_eq!(verdict.error.as_deref(), Some(want), "{answers:?}");
        }
    }

    #[test]
    fn an_authorizer_error_is_included_in_an_impersonation_refusal() {
        let alone = "User \"jane\" cannot impersonate-on:user-info:get path \"/x\": no answer";
        let with_reason = format!("{alone}: Everything is forbidden.");
        for (others, want) in [(vec![], alone), (vec![Module::AlwaysDeny], &with_reason)] {
            let (webhook, _) = webhook(Err("no answer"), FailurePolicy::NoOpinion);
            let modules = [Module::Webhook(Arc::new(webhook))].into_iter().chain(others).collect();
            let authorizer = Authorizer::new(modules, Arc::new(Policy::default()), "rbac");
            let (user, impersonated) = (User::new("jane", ["dev"]), User::new("joe", [""; 0]));
            let refused =
                at_once(authorizer.impersonate(&Attributes::path(&user, "get", "/x"), &impersonated));
            assert_eq!(refused.unwrap_err().message, want);
        }
    }

    #[test]
    fn an_access_review_contains_the_request_attributes() {
        let (webhook, says) = webhook(Ok("{}"), FailurePolicy::NoOpinion);
        let user = User::new("jane", ["dev"]);
        let request = Attributes {
            resource_request: true,
            version: "v1",
            resource: "pods",
            subresource: "log",
            namespace: "ns",
            name: "p",
            ..Attributes::path(&user, "get", "/api")
        };
        at_once(webhook.decide(&request));
        let sent: Value = serde_json::from_str(&says.0.lock()[0]).unwrap();
        assert_eq!(
            sent["spec"],
            json!({
                "resourceAttributes": {"namespace": "ns", "verb": "get", "version": "v1", "resource": "pods",
                    "subresource": "log", "name": "p"},
                "user": "jane", "groups": ["dev"],
            })
        );
        assert_eq!(sent["apiVersion"], "authorization.k8s.io/v1");
    }

    #[test]
    fn an_answer_that_is_not_an_access_review_is_an_error() {
        for (answer, want) in [
            (
                "\"hello\"",
                "couldn't get version/kind; json parse error: json: cannot unmarshal string into Go value of type struct {",
            ),
            (
                r#"{"apiVersion":"v1","kind":"Pod"}"#,
                "converting (v1.Pod) to (v1.SubjectAccessReview): unknown conversion",
            ),
            (
                r#"{"apiVersion":"v1","kind":"Status"}"#,
                "converting (v1.Status) to (v1.SubjectAccessReview): unknown conversion",
            ),
            (
                r#"{"apiVersion":"authorization.k8s.io/v1beta1","kind":"SubjectAccessReview"}"#,
                "converting (v1beta1.SubjectAccessReview) to (v1.SubjectAccessReview): unknown conversion",
            ),
            (
                r#"{"apiVersion":"foo.example.com/v1","kind":"SubjectAccessReview"}"#,
                "no kind \"SubjectAccessReview\" is registered for version \"foo.example.com/v1\" in scheme \"",
            ),
            (
                r#"{"apiVersion":"authorization.k8s.io/v9","kind":"SubjectAccessReview"}"#,
                "no kind \"SubjectAccessReview\" is registered for version \"authorization.k8s.io/v9\" in scheme \"",
            ),
            (
                r#"{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReviewList"}"#,
                "no kind \"SubjectAccessReviewList\" is registered for version \"authorization.k8s.io/v1\" in scheme \"",
            ),
            // The names `apiVersion` and `kind` in a response are not case-sensitive.
            (
                r#"{"APIVersion":"v1","Kind":"Pod","status":{"allowed":true}}"#,
                "converting (v1.Pod) to (v1.SubjectAccessReview): unknown conversion",
            ),
            (
                r#"{"apiVersion":"authorization.k8s.io/","Kind":"SubjectAccessReviewList"}"#,
                "no kind \"SubjectAccessReviewList\" is registered for version \"authorization.k8s.io/v1\" in scheme \"",
            ),
            (r#"{"apiversion":"a/b/c"}"#, "unexpected GroupVersion string: a/b/c"),
            (
                r#"{"status":{"allowed":"yes"}}"#,
                "json: cannot unmarshal string into Go struct field SubjectAccessReviewStatus.status.allowed of type bool",
            ),
            (
                r#"{"status":5}"#,
                "json: cannot unmarshal number into Go struct field SubjectAccessReview.status of type \
                 v1.SubjectAccessReviewStatus",
            ),
        ] {
            let (webhook, _) = webhook(Ok(answer), FailurePolicy::NoOpinion);
            let error = webhook.read(answer.as_bytes()).unwrap_err();
            assert!(error.starts_with(want), "{answer}: {error}");
        }
    }
}
