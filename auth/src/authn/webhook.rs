//! Authentication of tokens by another server, which receives a TokenReview for each token
//! (docs/api/authentication.md#webhook-tokens).
//!
//! Responses, including refusals, are cached for the time that the operator sets. Errors are not cached.

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use super::authenticator::{Accepted, Answer, Cause, RemoteTokenAuthenticator};
use super::token_response_cache::TokenResponseCache;
pub use super::webhook_error::WebhookError;
use crate::answer::Review;
use crate::identity::User;
use crate::strict::{MemberType, Object, items, text_of};

/// The future that a [`Reviewer`] returns.
pub type Reviewed = Pin<Box<dyn Future<Output = Result<Vec<u8>, String>> + Send>>;

/// A client that sends reviews to the other server.
pub trait Reviewer: Send + Sync {
    /// Returns the JSON response to a review, or an error if the status code is not a success. The future
    /// must complete within a bounded time and with a bounded response body, even if it retries.
    fn review(&self, review: Vec<u8>) -> Reviewed;
}

/// The user and the audiences of an accepted token; `None` for a token that is not accepted.
type Verdict = Option<(Arc<User>, Vec<String>)>;

/// The authenticator that sends token reviews to another server.
pub struct WebhookTokens {
    reviewer: Arc<dyn Reviewer>,
    /// API group and version of the reviews.
    api_version: String,
    /// Audiences of a token if the response names no audiences.
    own_audiences: Vec<String>,
    remembered: TokenResponseCache<Verdict>,
}

/// The members of a review that this module reads.
static REVIEW: Object = Object { name: "TokenReview", members: &[("status", MemberType::Object(&STATUS))] };
static STATUS: Object = Object {
    name: "TokenReviewStatus",
    members: &[
        ("authenticated", MemberType::Flag),
        ("user", MemberType::Object(&USER)),
        ("audiences", MemberType::List(&MemberType::Text)),
        ("error", MemberType::Text),
    ],
};
static USER: Object = Object {
    name: "UserInfo",
    members: &[
        ("username", MemberType::Text),
        ("uid", MemberType::Text),
        ("groups", MemberType::List(&MemberType::Text)),
        ("extra", MemberType::Extra),
    ],
};

/// Returns the strings of a list.
fn texts(list: &Value) -> Vec<String> {
    items(Some(list)).map(|text| text.as_str().unwrap_or_default().to_owned()).collect()
}

impl WebhookTokens {
    /// Creates an authenticator that sends reviews of `api_version` through `reviewer`, and caches responses
    /// for `lifetime`. If a response names no audiences, the token is valid for `own_audiences`.
    pub fn new(
        reviewer: Arc<dyn Reviewer>,
        api_version: String,
        lifetime: Duration,
        own_audiences: Vec<String>,
    ) -> WebhookTokens {
        WebhookTokens { reviewer, api_version, own_audiences, remembered: TokenResponseCache::new(lifetime) }
    }

    async fn verdict(
        &self,
        token: &str,
        target: &[String],
        now: SystemTime,
    ) -> Result<Verdict, WebhookError> {
        if let Some(verdict) = self.remembered.find(token, target, 0, now) {
            return Ok(verdict);
        }
        let review = json!({
            "kind": "TokenReview",
            "apiVersion": self.api_version,
            "metadata": {},
            "spec": {"token": token, "audiences": target},
            "status": {"user": {}},
        });
        let answer =
            self.reviewer.review(review.to_string().into_bytes()).await.map_err(WebhookError::Unanswered)?;
        let verdict = self.read(&answer, target)?;
        self.remembered.keep(token, target, 0, now, verdict.clone());
        Ok(verdict)
    }

    fn read(&self, answer: &[u8], target: &[String]) -> Result<Verdict, WebhookError> {
        let (group, version) = self.api_version.rsplit_once('/').unwrap_or_default();
        let review = Review { group, version, form: &REVIEW };
        let review = review.read(answer).map_err(WebhookError::Unreadable)?;
        let status = &review["status"];
        let (info, audiences) = (&status["user"], texts(&status["audiences"]));
        let named = if audiences.is_empty() { &self.own_audiences } else { &audiences };
        let audiences: Vec<String> =
            target.iter().filter(|audience| named.contains(audience)).cloned().collect();
        if audiences.is_empty() && !target.is_empty() {
            return Ok(None);
        }
        if status["authenticated"] != true {
            let error = text_of(status, "error");
            return if error.is_empty() { Ok(None) } else { Err(WebhookError::Refused(error)) };
        }
        let mut user = User::new(text_of(info, "username"), texts(&info["groups"]));
        user.uid = text_of(info, "uid");
        let extra = info["extra"].as_object().into_iter().flatten();
        user.extra = extra.map(|(name, values)| (name.clone(), texts(values))).collect();
        user.mark_authenticated();
        Ok(Some((Arc::new(user), audiences)))
    }
}

impl RemoteTokenAuthenticator for WebhookTokens {
    fn authenticate<'t>(&'t self, token: &'t str, target: &'t [String], now: SystemTime) -> Answer<'t> {
        Box::pin(async move {
            let verdict = self.verdict(token, target, now).await.map_err(Cause::Webhook)?;
            Ok(verdict.map(|(user, audiences)| Accepted { user, audiences }))
        })
    }

    fn knows_audiences(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;
    use std::time::UNIX_EPOCH;

    struct Says(Mutex<Vec<String>>, &'static str);

    impl Reviewer for Says {
        fn review(&self, review: Vec<u8>) -> Reviewed {
            self.0.lock().push(String::from_utf8(review).unwrap());
            let answer = Ok(self.1.as_bytes().to_vec());
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

    #[test]
    fn a_token_review_response_is_valid_for_the_audiences_that_it_names() {
        const CAROL: &str = r#"{"status":{"authenticated":true,"user":{"username":"carol","groups":["g"]}}}"#;
        const FOR_Z: &str =
            r#"{"status":{"authenticated":true,"user":{"username":"carol"},"audiences":["z"]}}"#;
        for (answer, target, want) in [
            (CAROL, &["api"][..], "carol g+system:authenticated [\"api\"]"),
            (CAROL, &["a", "api"], "carol g+system:authenticated [\"api\"]"),
            (CAROL, &["a"], "none"),
            (FOR_Z, &["z", "a"], "carol system:authenticated [\"z\"]"),
            (FOR_Z, &["api"], "none"),
            (r#"{"status":{"authenticated":false,"error":"because"}}"#, &["api"], "because"),
            (r#"{"status":{"authenticated":false}}"#, &["api"], "none"),
            ("{}", &["api"], "none"),
            (
                r#"{"apiVersion":"v1","kind":"Pod"}"#,
                &["api"],
                "converting (v1.Pod) to (v1.TokenReview): unknown conversion",
            ),
            (
                r#"{"status":{"authenticated":"yes"}}"#,
                &["api"],
                "json: cannot unmarshal string into Go struct field TokenReviewStatus.status.authenticated of type bool",
            ),
            (
                r#"{"status":{"user":{"extra":{"a":"b"}}}}"#,
                &["api"],
                "json: cannot unmarshal string into Go struct field UserInfo.status.user.extra of type v1.ExtraValue",
            ),
        ] {
            let reviewer = Arc::new(Says(Mutex::default(), answer));
            let own = vec!["api".to_owned()];
            let lifetime = Duration::from_secs(2);
            let tokens = WebhookTokens::new(reviewer.clone(), "g/v1".to_owned(), lifetime, own);
            let target: Vec<String> = target.iter().map(|text| (*text).to_owned()).collect();
            let ask = |after: u64| {
                let now = UNIX_EPOCH + Duration::from_secs(100 + after);
                match at_once(tokens.authenticate("t", &target, now)) {
                    Ok(Some(Accepted { user, audiences })) => {
                        format!("{} {} {audiences:?}", user.name, user.groups.join("+"))
                    }
                    Ok(None) => "none".to_owned(),
                    Err(cause) => cause.to_string(),
                }
            };
            assert_eq!([ask(0), ask(1), ask(2)], [want, want, want], "{answer}");
            let is_error = !matches!(want, "none") && !want.starts_with("carol");
            assert_eq!(reviewer.0.lock().len(), if is_error { 3 } else { 2 }, "{answer}");
        }
    }
}
