//! Webhooks that review tokens and permissions: reads their kubeconfig files, and sends reviews to them.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use anyhow::bail;
use auth::authn::webhook::{Reviewed, Reviewer, WebhookTokens};
use bytes::Bytes;
use http::Uri;
use parking_lot::Mutex;
use tokio::sync::OnceCell;
use tokio::time::Instant;
use values::json::Value;
use wire::outgoing::{self, Egress, Failure, Identities, with_clean_path};
use wire::typed;

use crate::flags::profile::Profile;
use crate::remote::kubeconfig::{self, Settings, Source};

/// Maximum number of attempts to send a review.
const ATTEMPTS: u32 = 5;

/// During a pause between two attempts, the interval of the checks whether the request was given up.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Pause before the second attempt. Each further pause is 50% longer.
const FIRST_DELAY: Duration = Duration::from_millis(500);

/// Settings of the server that verifies bearer tokens.
#[derive(Clone, Debug)]
pub struct TokenWebhook {
    file: PathBuf,
    version: String,
    lifetime: Duration,
    egress: Egress,
}

impl TokenWebhook {
    /// Checks the version, and reads the kubeconfig file. Returns `None` if there is no file. Responses are cached for
    /// `lifetime`.
    ///
    /// # Errors
    /// The version is unknown, or the file is invalid.
    pub fn read(
        file: Option<PathBuf>,
        version: &str,
        lifetime: Duration,
        egress: &Egress,
    ) -> anyhow::Result<Option<Self>> {
        let Some(file) = file else { return Ok(None) };
        access(&file)?;
        if !matches!(version, "v1" | "v1beta1") {
            bail!(
                "unsupported authentication webhook version {}, supported versions are \"v1\", \"v1beta1\"",
                go::quote(version)
            );
        }
        Ok(Some(TokenWebhook { file, version: version.to_owned(), lifetime, egress: egress.clone() }))
    }

    /// Builds the authenticator. `own_audiences` has the audiences of this server.
    ///
    /// # Errors
    /// The kubeconfig file is invalid.
    pub fn build(&self, own_audiences: Vec<String>, naming: Profile) -> anyhow::Result<WebhookTokens> {
        let group = naming.group("authentication", true);
        let version = format!("{group}/{}", self.version);
        let remote = Remote::read(&self.file, None, naming)?.through(&self.egress);
        Ok(WebhookTokens::new(Arc::new(Once::new(remote)), version, self.lifetime, own_audiences))
    }
}

/// A server that a kubeconfig file describes, and to which documents such as reviews are sent.
#[derive(Clone)]
pub struct Remote {
    source: Arc<Source>,
    egress: Egress,
    agent: String,
    timeout: Duration,
    pause: Duration,
}

/// Default time limit of a review.
const TIMEOUT: Duration = Duration::from_secs(30);

impl Remote {
    /// Reads a kubeconfig file. `timeout` is the time limit of one attempt.
    ///
    /// # Errors
    /// The file is invalid. The message equals the message of kube-apiserver.
    pub fn read(path: &Path, timeout: Option<Duration>, naming: Profile) -> anyhow::Result<Remote> {
        let settings = access(path)?;
        let server = with_scheme(&settings.server)?;
        let timeout = timeout.unwrap_or(TIMEOUT);
        let url: Uri = format!("{}timeout={}", before_timeout(&server), go_seconds(timeout)).parse()?;
        let source = Source::new(settings, url)?;
        Ok(Remote {
            source: Arc::new(source),
            egress: Egress::default(),
            agent: naming.system("apiserver"),
            timeout,
            pause: FIRST_DELAY,
        })
    }

    /// Returns this server with another egress.
    pub fn through(self, egress: &Egress) -> Remote {
        Remote { egress: egress.clone(), ..self }
    }

    /// Returns this server with another user agent in requests.
    pub fn of_agent(self, agent: &str) -> Remote {
        Remote { agent: agent.to_owned(), ..self }
    }

    /// Returns this server with another pause before the second attempt.
    pub fn pausing(self, pause: Duration) -> Remote {
        Remote { pause, ..self }
    }
}

/// Adds a scheme to a server URL if it is missing. Only a URL without a path may have no scheme.
fn with_scheme(server: &str) -> anyhow::Result<String> {
    let is_whole = |uri: &Uri| {
        uri.scheme_str().is_some_and(|scheme| !scheme.is_empty())
            && uri.host().is_some_and(|host| !host.is_empty())
    };
    if server.parse().is_ok_and(|uri| is_whole(&uri)) {
        return Ok(server.to_owned());
    }
    let secure = format!("https://{server}");
    if secure.parse().is_ok_and(|uri: Uri| is_whole(&uri) && matches!(uri.path(), "" | "/")) {
        return Ok(secure);
    }
    bail!("host must be a URL or a host:port pair: {}", go::quote(server))
}

/// Cleans the path of a server URL as client-go does, and appends `?` or `&`, so that a query parameter can follow.
fn before_timeout(server: &str) -> String {
    match server.split_once('?') {
        Some((base, query)) => format!("{}?{query}&", with_clean_path(base)),
        None => format!("{}?", with_clean_path(server)),
    }
}

/// Formats a duration as Go does, with millisecond precision.
fn go_seconds(time: Duration) -> String {
    match (time.as_secs(), time.subsec_millis()) {
        (0, millis) => format!("{millis}ms"),
        (seconds, 0) => format!("{seconds}s"),
        (seconds, millis) => format!("{seconds}.{}s", format!("{millis:03}").trim_end_matches('0')),
    }
}

/// Returns the credentials for other servers from a kubeconfig file. The name of a user is the name of a
/// server.
///
/// # Errors
/// The file is invalid. The message equals the message of kube-apiserver.
pub fn identities(path: &Path) -> anyhow::Result<Identities> {
    Ok(kubeconfig::identities(path, &kubeconfig::load(path)?))
}

/// Reads the settings of the server in a kubeconfig file. Errors have the messages of kube-apiserver. An
/// empty path counts as an empty file.
fn access(path: &Path) -> anyhow::Result<Settings> {
    let config = if path.as_os_str().is_empty() { Value::Null } else { kubeconfig::load(path)? };
    kubeconfig::confirm(path, &config)?;
    Settings::read(path)
}

impl Remote {
    /// Posts a document. Retries after a failure if `retries` returns true for it and `is_given_up` returns
    /// false. The second attempt starts after `delay`, and each further pause is 50% longer.
    ///
    /// # Errors
    /// All attempts failed. The error is the failure of the last attempt.
    pub async fn send(
        &self,
        body: Bytes,
        mut delay: Duration,
        retries: impl Fn(&Failure) -> bool,
        is_given_up: impl Fn() -> bool,
    ) -> Result<outgoing::Answer, Failure> {
        let Remote { source, egress, agent, timeout, .. } = self;
        let mut attempt = 1;
        loop {
            let endpoint = source.endpoint().await;
            let endpoint =
                endpoint.map_err(|error| Failure::Other(format!("getting credentials: {error:#}")))?;
            let endpoint = endpoint.through(egress);
            let body = body.clone();
            let answer = outgoing::post_at_most(&endpoint, agent, body, *timeout, outgoing::REVIEW_BYTES_MAX);
            let failure = match answer.await {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            if matches!(&failure, Failure::Code { code: 401, .. })
                && attempt < ATTEMPTS
                && source.refused().await
            {
                attempt += 1;
                continue;
            }
            if attempt == ATTEMPTS || !retries(&failure) {
                return Err(failure);
            }
            attempt += 1;
            let next = Instant::now() + delay;
            while Instant::now() < next {
                if is_given_up() {
                    return Err(failure);
                }
                tokio::time::sleep_until(next.min(Instant::now() + LOOK_INTERVAL)).await;
            }
            delay = delay.mul_f32(1.5);
        }
    }
}

impl Reviewer for Remote {
    fn review(&self, review: Vec<u8>) -> Reviewed {
        let remote = self.clone();
        Box::pin(async move {
            let answer = remote.send(review.into(), remote.pause, Failure::is_passing, || false).await;
            typed::to_json(&answer.map_err(|failure| failure.to_string())?.body)
        })
    }
}

/// A webhook client that does not send equal reviews concurrently. Callers with the same review wait for one
/// response. If the first caller stops waiting, the next caller sends the review.
#[derive(Clone)]
struct Once {
    remote: Remote,
    open_reviews: Arc<Mutex<HashMap<Vec<u8>, Weak<SharedAnswer>>>>,
}

type SharedAnswer = OnceCell<Result<Vec<u8>, String>>;

impl Once {
    fn new(remote: Remote) -> Once {
        Once { remote, open_reviews: Arc::default() }
    }

    /// Returns the entry of a review. Another caller may already have sent this review. Removes entries for
    /// which no caller waits.
    fn open(&self, review: &[u8]) -> Arc<SharedAnswer> {
        let mut open_reviews = self.open_reviews.lock();
        if let Some(open) = open_reviews.get(review).and_then(Weak::upgrade) {
            return open;
        }
        open_reviews.retain(|_, open| open.strong_count() > 0);
        let open = Arc::new(SharedAnswer::new());
        open_reviews.insert(review.to_vec(), Arc::downgrade(&open));
        open
    }
}

impl Reviewer for Once {
    fn review(&self, review: Vec<u8>) -> Reviewed {
        let once = self.clone();
        Box::pin(async move {
            let open = once.open(&review);
            open.get_or_init(|| once.remote.review(review)).await.clone()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_path_of_a_webhook_is_cleaned_as_by_client_go() {
        for (server, want) in [
            ("https://h", "https://h/?"),
            ("https://h:1//authn/", "https://h:1/authn?"),
            ("https://h/a/../b?c=d", "https://h/b?c=d&"),
        ] {
            assert_eq!(before_timeout(server), want);
        }
    }
}
