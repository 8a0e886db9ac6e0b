//! Deletes old requests. A signed, denied or failed request is deleted after an hour, an undecided request
//! after a day, and a request with an expired certificate at once.

use std::sync::Arc;
use std::time::Duration;

use auth::authn::certificate_authority::end_of;
use http::StatusCode;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::super::{EVENTS_MAX, Ending, Pass};
use super::{CONTROLLER, all, conditions, resource, text};
use crate::writes::loopback::Loopback;
use crate::writes::server::Server;
use objects::store::ObjectName;
use types::options::DeleteOptions;
use values::base64_text;
use values::clock;
use values::json::{Object, Value};
use values::object::meta;

/// Times in seconds after which decided and undecided requests are deleted.
const DECIDED: i64 = 60 * 60;
const UNDECIDED: i64 = 24 * 60 * 60;

/// Maximum sleep before the clock is checked again, because the clock may have been changed.
const SLEEP_MAX: Duration = Duration::from_secs(60 * 60);

/// Runs the controller, which follows certificate signing requests.
pub(in super::super) async fn follow(server: Arc<Server>) -> Ending {
    let loopback = Loopback::controller(&server, CONTROLLER);
    let (resource, prefix) = resource(&loopback)?;
    let mut tail = server.store.engine().tail(server.store.engine().revision(), prefix.clone())?;
    loop {
        let now = clock::now_seconds();
        let mut next = now.saturating_add(SLEEP_MAX.as_secs() as i64);
        let mut pass = Pass::default();
        for object in all(&server, &prefix) {
            let Some(due) = due(&object) else { continue };
            if due > now {
                next = next.min(due);
                continue;
            }
            let options =
                DeleteOptions { uid: Some(meta(&object, "uid").to_owned()), ..DeleteOptions::default() };
            let name = meta(&object, "name");
            match loopback.delete_object(resource, ObjectName::cluster_scoped(name), &options).await {
                Err(error) if matches!(error.code, StatusCode::NOT_FOUND | StatusCode::CONFLICT) => {}
                outcome => pass.note(name, outcome),
            }
        }
        pass.end()?;
        let pause = Duration::from_secs(u64::try_from(next - now).unwrap_or(0).max(1));
        tokio::select! {
            events = tail.next(EVENTS_MAX) => drop(events?),
            () = clock::sleep(pause) => {}
        }
    }
}

/// Returns the time at which a request must be deleted, in seconds since the epoch.
fn due(object: &Object) -> Option<i64> {
    if !meta(object, "deletionTimestamp").is_empty() {
        return None;
    }
    let conditions = conditions(object);
    if conditions.is_empty() {
        return Some(clock::parse_seconds(meta(object, "creationTimestamp"))?.saturating_add(UNDECIDED));
    }
    let decided = |condition: &Value| {
        let is_decision = ["Approved", "Denied", "Failed"].contains(&condition.str_at(&["type"]));
        let time = clock::parse_seconds(condition.str_at(&["lastUpdateTime"]))?;
        is_decision.then_some(time.saturating_add(DECIDED))
    };
    let certificate = base64_text::decode(text(object, ["status", "certificate"])).unwrap_or_default();
    let der = CertificateDer::from_pem_slice(&certificate).ok();
    let end = der.and_then(|der| end_of(&der));
    conditions.iter().filter_map(decided).chain(end).min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use values::json::parse;

    #[test]
    fn a_certificate_request_is_deleted_an_hour_after_its_decision_or_a_day_after_its_creation() {
        let decided = |kind: &str| {
            format!(r#"{{"conditions":[{{"type":"{kind}","lastUpdateTime":"1970-01-01T00:01:00Z"}}]}}"#)
        };
        for (status, want) in [
            ("{}".to_owned(), Some(10 + UNDECIDED)),
            (decided("Approved"), Some(60 + DECIDED)),
            (decided("Denied"), Some(60 + DECIDED)),
            (decided("Failed"), Some(60 + DECIDED)),
            (decided("Other"), None),
        ] {
            let text =
                format!(r#"{{"metadata":{{"creationTimestamp":"1970-01-01T00:00:10Z"}},"status":{status}}}"#);
            assert_eq!(due(parse(text.as_bytes()).unwrap().as_object().unwrap()), want, "{status}");
        }
    }
}
