//! A watch on a server with test features (docs/api/testing.md#open-watches). Such a watch reports its progress and
//! executes the commands of tests, and the schedule of the watch follows the clock of the server.

use std::time::Duration;

use http::header::USER_AGENT;
use tokio::time::Instant;

use super::{Occurrence, State};
use crate::requests::verbs::Call;
use crate::state::testing::{WatchEnd, WatchIdentity, WatchProbe};
use values::status::Status;
use wire::server::Aborted;

/// Delay before the server aborts the connection of a watch. During this delay, the connection can send the events that
/// it has already received from the watch.
const BREAK_DELAY: Duration = Duration::from_millis(20);

/// Registers a new watch with the test features. Returns `None` on a server without test features, and for a watch at
/// an earlier point, because such a watch has no events.
pub(super) fn probe(call: &Call<'_>) -> Option<Box<WatchProbe>> {
    let testing = call.server().operations.testing.as_ref().filter(|_| call.request.past.is_none())?;
    let notes = call.request.tested.as_ref()?;
    let user = call.request.impersonated.as_ref().or(call.request.user.as_ref());
    let agent = call.request.headers().get(USER_AGENT);
    let identity = WatchIdentity {
        group: call.info.group.clone(),
        resource: call.info.resource.clone(),
        namespace: call.info.namespace.clone(),
        name: call.info.name.clone(),
        path: call.info.path.clone(),
        user: user.map(|user| user.name.clone()).unwrap_or_default(),
        user_agent: agent
            .map(|agent| String::from_utf8_lossy(agent.as_bytes()).into_owned())
            .unwrap_or_default(),
    };
    Some(Box::new(testing.watches.open(identity, notes.watch)))
}

impl State {
    /// Executes the commands of the test features. Returns the end of the stream if the response must be
    /// aborted.
    pub(super) async fn next_command(&mut self) -> Option<Aborted> {
        let probe = self.probe.as_mut()?;
        let end = tokio::select! {
            end = probe.next_command() => end,
            () = &mut self.shutdown => Some(WatchEnd::Close),
        };
        match end? {
            WatchEnd::Close => self.ended = true,
            WatchEnd::Expire => {
                self.fail(&Status::expired(format!("too old resource version: {}", self.sent_revision)));
            }
            WatchEnd::Break => {
                // Wait, so that the client receives the changes that were sent before the command.
                tokio::time::sleep(BREAK_DELAY).await;
                self.ended = true;
                self.probe = None;
                return Some(Aborted);
            }
        }
        // The watch executes each command once.
        self.probe = None;
        None
    }

    /// Waits for the next event like [`State::next_occurrence`], or until the test features send a command.
    pub(super) async fn next_tested_occurrence(&mut self) -> Occurrence {
        let Some(mut probe) = self.probe.take() else {
            return self.next_occurrence(self.schedule.wake_at()).await;
        };
        if let Some(tail) = &self.tail {
            probe.waits_at(tail.progress());
        }
        let alarm_at = probe.alarm_at(self.schedule.wake_at());
        let occurrence = tokio::select! {
            occurrence = self.next_occurrence(alarm_at) => occurrence,
            () = probe.called() => Occurrence::Command,
        };
        self.probe = Some(probe);
        occurrence
    }

    /// Returns the time for the schedule of the watch.
    pub(super) fn now(&self) -> Instant {
        self.probe.as_ref().map_or_else(Instant::now, |probe| probe.now())
    }
}
