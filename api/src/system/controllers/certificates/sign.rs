//! Signs approved requests with the server's authority, or writes a condition with the reason why the signer
//! refuses a request.
//!
//! If the server cannot sign (the key is missing, or the authority has expired), approved requests wait; the
//! log states the reason.

use std::sync::Arc;
use std::time::Duration;

use auth::authn::certificate_authority::{Authority, CertificateIssueError};

use super::super::{EVENTS_MAX, Ending, Pass};
use super::signer::BuiltInSigner;
use super::{CONTROLLER, all, has, is_same, is_signed, request, resource, text, usages, with_condition};
use crate::writes::loopback::Loopback;
use crate::writes::server::Server;
use objects::store::ObjectName;
use objects::strategy::Endpoint;
use values::base64_text;
use values::json::{Object, Value};
use values::object::meta;

/// Minimum lifetime of a certificate, even if the request asks for a shorter lifetime.
const LIFETIME_MIN: Duration = Duration::from_secs(10 * 60);

/// Interval of retries while there is no authority. The files of the authority may be restored in the meantime.
const AGAIN: Duration = Duration::from_secs(60);

/// Runs the controller, which follows certificate signing requests.
pub(in super::super) async fn follow(server: Arc<Server>) -> Ending {
    let loopback = Loopback::controller(&server, CONTROLLER);
    let (resource, prefix) = resource(&loopback)?;
    let mut tail = server.store.engine().tail(server.store.engine().revision(), prefix.clone())?;
    loop {
        let (mut unsigned, mut pass) = (0, Pass::default());
        let waiting: Vec<Object> = all(&server, &prefix).filter(is_waiting).collect();
        let authority =
            if waiting.is_empty() { None } else { Some(server.access.certificates.authorities.authority()) };
        for object in &waiting {
            let Some(signer) =
                BuiltInSigner::named(text(object, ["spec", "signerName"]), server.types.naming)
            else {
                continue;
            };
            let outcome = decide(&server, signer, object, authority.as_ref());
            let Some(outcome) = outcome else {
                unsigned += 1;
                continue;
            };
            let change = |current: &Object| {
                (is_same(current, object) && is_waiting(current)).then(|| outcome.written(current))
            };
            let name = meta(object, "name");
            pass.note(
                name,
                loopback.change(resource, ObjectName::cluster_scoped(name), Endpoint::Status, change).await,
            );
        }
        pass.end()?;
        if let (true, Some(Err(why))) = (unsigned > 0, &authority) {
            tracing::warn!(requests = unsigned, why, "approved certificate requests cannot be signed");
        }
        let again = async {
            match unsigned {
                0 => std::future::pending().await,
                _ => tokio::time::sleep(AGAIN).await,
            }
        };
        tokio::select! {
            events = tail.next(EVENTS_MAX) => drop(events?),
            () = again => {}
        }
    }
}

/// Returns whether a request is approved, and neither signed nor failed.
fn is_waiting(object: &Object) -> bool {
    !is_signed(object) && has(object, "Approved") && !has(object, "Failed")
}

/// The result for a request.
enum Outcome {
    Certificate(String),
    Failure(String),
}

impl Outcome {
    fn written(&self, object: &Object) -> Object {
        match self {
            Outcome::Failure(why) => with_condition(object, "Failed", "SignerValidationFailure", why),
            Outcome::Certificate(pem) => {
                let mut new = object.clone();
                new.object_entry("status").insert("certificate", base64_text::encode(pem.as_bytes()).into());
                new
            }
        }
    }
}

/// Signs a request, or returns the reason why the signer refuses the request. Returns `None` if the server
/// cannot decide now.
fn decide(
    server: &Server,
    signer: BuiltInSigner,
    object: &Object,
    authority: Option<&Result<Authority, String>>,
) -> Option<Outcome> {
    let usages = usages(object);
    let request = match request(object) {
        Ok(request) => request,
        Err(why) => return Some(Outcome::Failure(format!("unable to parse csr: {why}"))),
    };
    if let Err(why) = signer.check(&request.subject, &request.names, &usages) {
        return Some(Outcome::Failure(why));
    }
    let authority = authority?.as_ref().ok()?;
    let lifetime = lifetime(object, server.access.certificates.lifetime);
    match authority.issue(&request, &usages, lifetime, values::clock::system_time()) {
        Ok(pem) => Some(Outcome::Certificate(pem)),
        Err(CertificateIssueError::Usage(usage)) => {
            Some(Outcome::Failure(format!("unrecognized usage: {usage}")))
        }
        Err(why @ (CertificateIssueError::Expired | CertificateIssueError::Unsigned)) => {
            tracing::warn!(request = meta(object, "name"), %why, "a certificate request cannot be signed");
            None
        }
    }
}

/// Returns the lifetime of a certificate: the requested lifetime, within limits.
fn lifetime(object: &Object, longest: Duration) -> Duration {
    let requested =
        object.get("spec").and_then(|spec| spec.at(&["expirationSeconds"])).and_then(Value::as_i64);
    let requested = requested.and_then(|seconds| u64::try_from(seconds).ok()).map(Duration::from_secs);
    requested.map_or(longest, |requested| requested.max(LIFETIME_MIN).min(longest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use values::json::parse;

    #[test]
    fn the_lifetime_of_a_certificate_is_the_requested_one_within_bounds() {
        for (spec, want) in [
            ("{}", 5000),
            (r#"{"expirationSeconds":4000}"#, 4000),
            (r#"{"expirationSeconds":6000}"#, 5000),
            (r#"{"expirationSeconds":60}"#, 600),
            (r#"{"expirationSeconds":-60}"#, 5000),
        ] {
            let object = parse(format!(r#"{{"spec":{spec}}}"#).as_bytes()).unwrap();
            let got = lifetime(object.as_object().unwrap(), Duration::from_secs(5000));
            assert_eq!(got.as_secs(), want, "{spec}");
        }
    }
}
