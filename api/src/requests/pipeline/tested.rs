//! The test features in the request chain (docs/api/testing.md): fault rules apply before a request is
//! served, and the request is recorded after the response. Without `--testing`, there are neither rules nor
//! a record.

use std::sync::Arc;
use std::time::SystemTime;

use auth::identity::MASTERS;
use auth::{Authenticated, Authenticator, Credentials, User};
use http::header::USER_AGENT;

use super::{Ended, Exchange};
use crate::state::testing::{
    AppliedFault, FaultEffect, InjectedError, RecordedRequest, RequestSubject, TestedRequest, Testing,
    is_own_path,
};
use crate::writes::server::Server;
use values::clock;
use values::json::Object;
use values::status::{Details, RemoteStatus, Status, StatusReason};
use wire::response::Response;
use wire::server::{Aborted, Body};

/// Returns the data about a new request for the test features; `None` if the server has no test features.
pub(super) fn notes(server: &Server) -> Option<Box<TestedRequest>> {
    server.operations.testing.is_some().then(Box::default)
}

/// Authenticates a request with the time of the machine instead of the time of the server, and returns the user if the
/// user is an administrator. A test may set the clock of the server past the expiry of the credentials of the test.
/// Because of the machine's time, requests of the test still succeed afterwards, and the test can set the clock back.
pub(super) async fn administrator(
    authenticator: &Authenticator,
    credentials: &Credentials<'_>,
) -> Option<Authenticated> {
    let found = authenticator.authenticate(credentials, SystemTime::now()).await.ok()?;
    let is_administrator = found.user().groups.iter().any(|group| group == MASTERS);
    is_administrator.then_some(found)
}

impl Exchange<'_> {
    /// Applies the fault rule that the request matches, if there is one. Rules do not apply to requests for the
    /// test features themselves.
    pub(super) async fn disturb(&mut self, user: &User) -> Result<(), Ended> {
        let Some(testing) = self.features() else { return Ok(()) };
        let user_agent = self.user_agent();
        let info = &self.request.info;
        if is_own_path(&info.path) {
            return Ok(());
        }
        let subject = RequestSubject {
            is_resource: info.is_resource,
            verb: info.verb_name(),
            group: &info.group,
            resource: &info.resource,
            subresource: &info.subresource,
            namespace: &info.namespace,
            name: &info.name,
            path: &info.path,
            user: &user.name,
            user_agent: &user_agent,
        };
        let is_write = matches!(subject.verb, "create" | "update" | "patch" | "delete" | "deletecollection");
        let applied = testing.faults.apply(&subject);
        if is_write && let Some(notes) = &mut self.request.tested {
            notes.write = Some(testing.writes.begin());
        }
        let Some(applied) = applied else { return Ok(()) };
        let AppliedFault { rule, delay, effect } = applied;
        if let Some(notes) = &mut self.request.tested {
            notes.rule = Some(rule);
        }
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        self.take_effect(effect)
    }

    /// Ends the request, or stores the effect for a later step.
    fn take_effect(&mut self, effect: FaultEffect) -> Result<(), Ended> {
        let effect = match effect {
            FaultEffect::Error(error) => return Err(self.answer(&status(error))),
            FaultEffect::CloseBefore => return Err(Box::new(broken())),
            effect => effect,
        };
        let Some(notes) = &mut self.request.tested else { return Ok(()) };
        match effect {
            FaultEffect::CloseAfter => notes.closes = true,
            FaultEffect::Stale(point) => notes.stale_at = Some(point),
            FaultEffect::Watch(fault) => notes.watch = Some(fault),
            FaultEffect::None | FaultEffect::Error(_) | FaultEffect::CloseBefore => {}
        }
        Ok(())
    }

    /// Returns the response of a served request, or a response whose connection is aborted if a fault rule requires the
    /// abort.
    pub(super) fn disturbed(&self, response: Response) -> Response {
        if self.request.tested.as_ref().is_some_and(|notes| notes.closes) { broken() } else { response }
    }

    /// Adds the answered request to the record.
    pub(super) fn record(&self, response: &Response) {
        let (Some(testing), Some(notes)) = (self.features(), &self.request.tested) else { return };
        let request = &self.request;
        let info = &request.info;
        if is_own_path(&info.path) {
            return;
        }
        let user = request.impersonated.as_ref().or(request.user.as_ref());
        let (body, body_bytes) = notes.body();
        testing.recording.add(RecordedRequest {
            sequence: 0,
            time: clock::now_micros(),
            verb: info.verb_name().to_owned(),
            group: info.group.clone(),
            version: info.version.clone(),
            resource: info.resource.clone(),
            subresource: info.subresource.clone(),
            namespace: info.namespace.clone(),
            name: info.name.clone(),
            uri: self.target().to_owned(),
            user: user.map(|user| user.name.clone()).unwrap_or_default(),
            user_agent: self.user_agent(),
            code: response.status().as_u16(),
            micros: u64::try_from(request.received.elapsed().as_micros()).unwrap_or(u64::MAX),
            rule: notes.rule,
            body,
            body_bytes,
        });
    }

    fn features(&self) -> Option<Arc<Testing>> {
        self.request.server().operations.testing.clone()
    }

    fn user_agent(&self) -> String {
        let agent = self.request.head.headers.get(USER_AGENT);
        agent.map(|agent| String::from_utf8_lossy(agent.as_bytes()).into_owned()).unwrap_or_default()
    }
}

/// Returns the status of an injected error.
fn status(error: InjectedError) -> Status {
    let InjectedError { code, reason, message, retry_after_s } = error;
    let details = Details { retry_after_seconds: retry_after_s, ..Details::default() };
    let mut status = Status::new(StatusReason::Unknown, message);
    status.code = code;
    status.details = (retry_after_s > 0).then(|| Box::new(details));
    status.remote = Some(Box::new(RemoteStatus { status: String::new(), reason, metadata: Object::new() }));
    status
}

/// Returns a response whose body fails at the first read, which aborts the connection.
fn broken() -> Response {
    http::Response::new(Body::stream(futures_util::stream::iter([Err(Aborted)])))
}
