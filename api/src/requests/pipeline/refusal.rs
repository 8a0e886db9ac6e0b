//! Log lines that explain a 401 or 403, at the default level and rate-limited. The lines contain the audit
//! ID that was sent to the client. The lines contain neither credentials nor the query of the URL.

use auth::Attributes;
use auth::decision::Denied;
use http::StatusCode;

use super::Exchange;
use objects::representation::answer::Reported;
use values::log_limit::{LogLimit, shortened};
use wire::response::Response;

/// Limits of log lines about refusals. All servers in a process share these limits, because the process has one
/// log.
static UNAUTHENTICATED: LogLimit = LogLimit::new();
static FORBIDDEN: LogLimit = LogLimit::new();

/// Returns the reason why the authorizers do not allow a request.
pub(super) fn reason(attributes: &Attributes<'_>, denied: &Denied) -> String {
    let why = match &denied.error {
        Some(error) => error.clone(),
        None if denied.reason.is_empty() => "no authorizer allows it".to_owned(),
        None => denied.reason.to_string(),
    };
    format!("{attributes}: {why}")
}

impl Exchange<'_> {
    /// Logs the reason of a 401 or 403.
    pub(super) fn explain(&self, response: &Response) {
        let limit = match response.status() {
            StatusCode::UNAUTHORIZED => &UNAUTHENTICATED,
            StatusCode::FORBIDDEN => &FORBIDDEN,
            _ => return,
        };
        let reported = response.extensions().get::<Reported>();
        let message =
            reported.and_then(|Reported(status)| status.get("message")?.as_str().map(str::to_owned));
        // A refusal by admission has the reason in the response. A response of an extension server or of a
        // node agent may have a reason too, but its body is not read here.
        let reason =
            self.refusal.clone().or(message).unwrap_or_else(|| "not known to this server".to_owned());
        let Some(omitted) = limit.admit() else { return };
        let verb = self.request.info.verb_name();
        let path = self.request.head.uri.path();
        let user = self.request.user.as_ref().map_or("", |user| user.name.as_str());
        let impersonated = self.request.impersonated.as_ref().map_or("", |user| user.name.as_str());
        let peer = self.request.connection.remote.to_string();
        let audit_id = String::from_utf8_lossy(self.request.audit_id.as_bytes());
        let (audit_id, reason) = (&*audit_id, shortened(&reason));
        if response.status() == StatusCode::UNAUTHORIZED {
            tracing::info!(reason, verb, path, peer, audit_id, omitted, "request unauthenticated");
        } else {
            tracing::info!(
                reason,
                verb,
                path,
                user,
                impersonated,
                peer,
                audit_id,
                omitted,
                "request forbidden"
            );
        }
    }
}
