//! Tokens that another server knows: each is sent in a TokenReview (docs/api/authentication.md#webhook-tokens).
//!
//! Answers are kept for the time the operator sets, refusals too; errors are not.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use aws_lc_rs::digest;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Cause;
use super::chain::{Accepted, Answer, RemoteTokenAuthenticator};
use super::jwt::{FetchError, Fetched};
use crate::identity::User;

/// Most answers kept; each costs about 1 KiB.
const REMEMBERED_MAX: usize = 8192;

/// Sends reviews to the other server.
pub trait Reviewer: Send + Sync {
    /// The answer to a review, if its code is one of success. Must end within a bounded time, with a bounded body, also
    /// if it asks several times.
    fn review(&self, review: Vec<u8>) -> Fetched;
}

/// Why there is no answer about a token; for logs and token reviews.
#[derive(Clone, Debug, thiserror::Error)]
pub enum WebhookError {
    /// The other server said so.
    #[error("{0}")]
    Refused(String),
    /// The other server gave no answer.
    #[error(transparent)]
    Unanswered(#[from] FetchError),
    /// The answer is no review.
    #[error("the answer of the webhook cannot be read")]
    Unreadable,
}

/// An answer: the user and the audiences, or none.
type Verdict = Option<(Arc<User>, Vec<String>)>;

/// The authenticator that asks another server.
pub struct WebhookTokens {
    reviewer: Arc<dyn Reviewer>,
    /// Group and version of the reviews.
    api_version: String,
    lifetime: Duration,
    /// Audiences of tokens whose answer names none.
    own_audiences: Vec<String>,
    known: Mutex<HashMap<[u8; 32], (SystemTime, Verdict)>>,
}

/// The members of a review that are read.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Review {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    authenticated: bool,
    user: UserInfo,
    audiences: Vec<String>,
    error: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct UserInfo {
    username: String,
    uid: String,
    groups: Vec<String>,
    extra: std::collections::BTreeMap<String, Vec<String>>,
}

/// A review without members that are null: they are as good as absent.
pub(crate) fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(members) => {
            let present = members.into_iter().filter(|(_, value)| !value.is_null());
            Value::Object(present.map(|(name, value)| (name, without_nulls(value))).collect())
        }
        other => other,
    }
}

impl WebhookTokens {
    /// Asks `reviewer` with reviews of `api_version` and keeps answers for `lifetime`. A token whose answer names no
    /// audience is for `own_audiences`.
    pub fn new(
        reviewer: Arc<dyn Reviewer>,
        api_version: String,
        lifetime: Duration,
        own_audiences: Vec<String>,
    ) -> WebhookTokens {
        WebhookTokens { reviewer, api_version, lifetime, own_audiences, known: Mutex::default() }
    }

    async fn verdict(
        &self,
        token: &str,
        target: &[String],
        now: SystemTime,
    ) -> Result<Verdict, WebhookError> {
        let key = key(token, target);
        if let Some((end, verdict)) = self.known.lock().get(&key)
            && now < *end
        {
            return Ok(verdict.clone());
        }
        let review = json!({
            "kind": "TokenReview",
            "apiVersion": self.api_version,
            "metadata": {},
            "spec": {"token": token, "audiences": target},
            "status": {"user": {}},
        });
        let answer = self.reviewer.review(review.to_string().into_bytes()).await?;
        let verdict = self.read(&answer, target)?;
        let mut known = self.known.lock();
        if known.len() >= REMEMBERED_MAX {
            known.retain(|_, (end, _)| now < *end);
            if known.len() >= REMEMBERED_MAX {
                known.clear();
            }
        }
        if !self.lifetime.is_zero() {
            known.insert(key, (now + self.lifetime, verdict.clone()));
        }
        Ok(verdict)
    }

    fn read(&self, answer: &[u8], target: &[String]) -> Result<Verdict, WebhookError> {
        let answer: Value = serde_json::from_slice(answer).map_err(|_| WebhookError::Unreadable)?;
        let review: Review =
            serde_json::from_value(without_nulls(answer)).map_err(|_| WebhookError::Unreadable)?;
        let is_ours = (review.kind.is_empty() || review.kind == "TokenReview")
            && (review.api_version.is_empty() || review.api_version == self.api_version);
        if !is_ours {
            return Err(WebhookError::Unreadable);
        }
        let Status { authenticated, user: info, audiences, error } = review.status;
        let named = if audiences.is_empty() { &self.own_audiences } else { &audiences };
        let audiences: Vec<String> =
            target.iter().filter(|audience| named.contains(audience)).cloned().collect();
        if audiences.is_empty() && !target.is_empty() {
            return Ok(None);
        }
        if !authenticated {
            return if error.is_empty() { Ok(None) } else { Err(WebhookError::Refused(error)) };
        }
        let mut user = User::new(info.username, info.groups);
        (user.uid, user.extra) = (info.uid, info.extra);
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

/// Digest of token and audiences; each part is preceded by its length.
fn key(token: &str, target: &[String]) -> [u8; 32] {
    let mut context = digest::Context::new(&digest::SHA256);
    for part in std::iter::once(token).chain(target.iter().map(String::as_str)) {
        context.update(&(part.len() as u64).to_be_bytes());
        context.update(part.as_bytes());
    }
    let mut id = [0; 32];
    id.copy_from_slice(context.finish().as_ref());
    id
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::UNIX_EPOCH;

    struct Says(Mutex<Vec<String>>, &'static str);

    impl Reviewer for Says {
        fn review(&self, review: Vec<u8>) -> Fetched {
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
    fn an_answer_counts_for_the_audiences_it_names() {
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
            ("hello", &["api"], "the answer of the webhook cannot be read"),
            (r#"{"apiVersion":"v1","kind":"Pod"}"#, &["api"], "the answer of the webhook cannot be read"),
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
