//! The open watches: the progress of each watch, and the disturbances of each watch.
//!
//! ```text
//! watch ─► WatchProbe ─► OpenWatches ◄─ quiescence: has each watch sent everything?
//!             ▲                  └──── commands: stall, resume, close, break, expire
//!             └ fault rule: the same, after a number of changes
//! ```
//!
//! A watch reports its progress and executes commands at each iteration of its loop, so a command cannot interrupt
//! the watch in the middle of an event.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use engine::Revision;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::pattern::{RequestPattern, RequestSubject};
use values::clock::Stopwatch;

/// A disturbance of a watch.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "lowercase")]
pub enum WatchDisturbance {
    /// The watch stays open and sends no further changes.
    Stall,
    /// A stalled watch continues with the changes that it has not sent.
    Resume,
    /// The watch ends in the same way as at its timeout.
    Close,
    /// The response is aborted.
    Break,
    /// The watch ends with an event about an expired revision (410).
    Expire,
}

/// A fault of one watch, set when the watch begins.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct WatchFault {
    /// The kind of the disturbance.
    pub disturbance: WatchDisturbance,
    /// Number of changes that the watch sends before the disturbance.
    pub after_changes: u64,
    /// Duration of a stall; `None` means that the stall lasts until a test resumes the watch.
    pub stalls_for: Option<Duration>,
}

/// The way in which a watch must end.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum WatchEnd {
    /// The body ends.
    Close,
    /// The body is aborted.
    Break,
    /// The body ends after an error event with code 410.
    Expire,
}

/// The identity of a watch, for patterns and display.
#[derive(Clone, Debug, Default)]
pub struct WatchIdentity {
    /// API group; empty for the core group.
    pub group: String,
    /// Plural name of the resource.
    pub resource: String,
    /// Namespace; empty for all namespaces.
    pub namespace: String,
    /// Name of the object, if the watch is for one object.
    pub name: String,
    /// Decoded path of the URL.
    pub path: String,
    /// Name of the user.
    pub user: String,
    /// The header `User-Agent`.
    pub user_agent: String,
}

impl WatchIdentity {
    fn subject(&self) -> RequestSubject<'_> {
        RequestSubject {
            is_resource: true,
            verb: "watch",
            group: &self.group,
            resource: &self.resource,
            subresource: "",
            namespace: &self.namespace,
            name: &self.name,
            path: &self.path,
            user: &self.user,
            user_agent: &self.user_agent,
        }
    }
}

/// The open watches of a server.
#[derive(Default)]
pub struct OpenWatches(Arc<Mutex<Watches>>);

#[derive(Default)]
struct Watches {
    last: u64,
    open: BTreeMap<u64, Arc<OpenWatch>>,
}

struct OpenWatch {
    identity: WatchIdentity,
    state: Mutex<Progress>,
    /// Wakes the watch after a command, and when a test asks for the progress of the watch.
    wake: Notify,
}

#[derive(Default)]
struct Progress {
    /// Revision up to which the watch has passed all changes to its connection; 0 before the first report.
    sent: Revision,
    /// Number of changes that were sent.
    changes: u64,
    stall: Option<Stall>,
    end: Option<WatchEnd>,
}

/// A stall, and the time of its end if this time is known.
#[derive(Clone, Copy)]
struct Stall {
    until: Option<Instant>,
}

impl OpenWatches {
    /// Registers a watch that begins, and returns its probe.
    pub fn open(&self, identity: WatchIdentity, fault: Option<WatchFault>) -> WatchProbe {
        let watch = Arc::new(OpenWatch { identity, state: Mutex::default(), wake: Notify::new() });
        let mut watches = self.0.lock();
        watches.last += 1;
        let id = watches.last;
        watches.open.insert(id, watch.clone());
        drop(watches);
        WatchProbe {
            id,
            watch,
            all: self.0.clone(),
            fault,
            stopwatch: Stopwatch::start(),
            began: Instant::now(),
        }
    }

    /// Disturbs the open watches that a pattern matches, and returns their number. `stalls_for` limits a stall.
    pub fn disturb(
        &self,
        pattern: &RequestPattern,
        disturbance: WatchDisturbance,
        stalls_for: Option<Duration>,
    ) -> usize {
        let mut matching = self.all();
        matching.retain(|watch| pattern.matches(&watch.identity.subject()));
        matching.iter().for_each(|watch| watch.order(disturbance, stalls_for));
        matching.len()
    }

    /// Returns descriptions of the open watches, oldest first.
    pub fn list(&self) -> Vec<Value> {
        let watches: Vec<_> = self.0.lock().open.iter().map(|(id, watch)| (*id, watch.clone())).collect();
        watches.into_iter().map(|(id, watch)| watch.to_value(id)).collect()
    }

    /// Returns the number of watches that have not yet sent all changes up to `revision`. Watches that stall are not
    /// counted.
    pub fn behind(&self, revision: Revision) -> usize {
        let is_behind = |watch: &Arc<OpenWatch>| {
            let state = watch.state.lock();
            state.stall.is_none() && state.end.is_none() && state.sent < revision
        };
        self.all().iter().filter(|watch| is_behind(watch)).count()
    }

    /// Asks all watches to report their progress.
    pub fn request_progress(&self) {
        self.all().iter().for_each(|watch| watch.wake.notify_one());
    }

    fn all(&self) -> Vec<Arc<OpenWatch>> {
        self.0.lock().open.values().cloned().collect()
    }
}

impl OpenWatch {
    fn order(&self, disturbance: WatchDisturbance, stalls_for: Option<Duration>) {
        let mut state = self.state.lock();
        match disturbance {
            WatchDisturbance::Stall => {
                let until = stalls_for.and_then(|lasts| Instant::now().checked_add(lasts));
                state.stall = Some(Stall { until });
            }
            WatchDisturbance::Resume => state.stall = None,
            WatchDisturbance::Close => state.end = Some(WatchEnd::Close),
            WatchDisturbance::Break => state.end = Some(WatchEnd::Break),
            WatchDisturbance::Expire => state.end = Some(WatchEnd::Expire),
        }
        drop(state);
        self.wake.notify_one();
    }

    fn to_value(&self, id: u64) -> Value {
        let WatchIdentity { group, resource, namespace, name, path, user, user_agent } = &self.identity;
        let state = self.state.lock();
        json!({
            "id": id, "group": group, "resource": resource, "namespace": namespace, "name": name, "path": path,
            "user": user, "userAgent": user_agent, "changes": state.changes,
            "sentRevision": state.sent.to_string(), "stalled": state.stall.is_some(),
        })
    }
}

/// The connection of a watch to the test features: it reports the progress of the watch and receives
/// commands. Dropping the probe unregisters the watch.
pub struct WatchProbe {
    id: u64,
    watch: Arc<OpenWatch>,
    all: Arc<Mutex<Watches>>,
    /// The disturbance of a fault rule, until the disturbance begins.
    fault: Option<WatchFault>,
    /// Measures the time since the watch began, on the clock of the server. A test may have moved this clock.
    stopwatch: Stopwatch,
    began: Instant,
}

impl WatchProbe {
    /// Waits while the watch is stalled, and returns the command to end the watch, if there is one.
    pub async fn next_command(&mut self) -> Option<WatchEnd> {
        self.begin_fault();
        loop {
            let (end, stall) = {
                let state = self.watch.state.lock();
                (state.end, state.stall)
            };
            if end.is_some() {
                return end;
            }
            let until = stall?.until;
            let over = async {
                match until {
                    Some(until) => tokio::time::sleep_until(until).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = over => self.watch.state.lock().stall = None,
                () = self.watch.wake.notified() => {}
            }
        }
    }

    /// Begins the disturbance of the fault rule if the watch has sent enough changes.
    fn begin_fault(&mut self) {
        if self.is_due()
            && let Some(fault) = self.fault.take()
        {
            self.watch.order(fault.disturbance, fault.stalls_for);
        }
    }

    /// Returns whether the watch must not send another change before it calls [`WatchProbe::next_command`].
    pub fn is_due(&self) -> bool {
        self.fault.is_some_and(|fault| self.watch.state.lock().changes >= fault.after_changes)
    }

    /// Notes that a change was sent.
    pub fn sent_change(&self) {
        self.watch.state.lock().changes += 1;
    }

    /// Records that the watch has passed on all changes up to `revision` and waits for further changes.
    pub fn waits_at(&self, revision: Revision) {
        self.watch.state.lock().sent = revision;
    }

    /// Resolves when the watch must act: a test sent a command or asked for the progress, or the clock was
    /// moved.
    pub async fn called(&mut self) {
        tokio::select! {
            () = self.watch.wake.notified() => {}
            () = self.stopwatch.moved() => {}
        }
    }

    /// Returns the current time for the schedule of the watch.
    pub fn now(&self) -> Instant {
        self.began.checked_add(self.stopwatch.elapsed()).unwrap_or(self.began)
    }

    /// Returns the time of the next check of the schedule, whose next event is at `wake_at`. The check is never
    /// immediate, because the clock may be stopped.
    pub fn alarm_at(&self, wake_at: Instant) -> Instant {
        let left = wake_at.saturating_duration_since(self.now());
        Instant::now() + left.max(Duration::from_millis(10))
    }
}

impl Drop for WatchProbe {
    fn drop(&mut self) {
        self.all.lock().open.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn identity(resource: &str) -> WatchIdentity {
        WatchIdentity { resource: resource.to_owned(), ..WatchIdentity::default() }
    }

    fn fault(disturbance: WatchDisturbance, after_changes: u64) -> WatchFault {
        WatchFault { disturbance, after_changes, stalls_for: None }
    }

    #[tokio::test]
    async fn a_watch_fault_takes_effect_after_its_changes_and_a_disturbance_immediately() {
        let watches = OpenWatches::default();
        let mut pods = watches.open(identity("pods"), Some(fault(WatchDisturbance::Break, 2)));
        let mut nodes = watches.open(identity("nodes"), None);
        for _ in 0..2 {
            assert_eq!(pods.next_command().now_or_never(), Some(None));
            assert!(!pods.is_due());
            pods.sent_change();
        }
        assert!(pods.is_due());
        assert_eq!(pods.next_command().now_or_never(), Some(Some(WatchEnd::Break)));

        let only_nodes: RequestPattern = serde_json::from_str(r#"{"resources":["nodes"]}"#).unwrap();
        assert_eq!(watches.disturb(&only_nodes, WatchDisturbance::Stall, None), 1);
        assert_eq!(nodes.next_command().now_or_never(), None);
        assert_eq!(watches.disturb(&only_nodes, WatchDisturbance::Resume, None), 1);
        assert_eq!(nodes.next_command().now_or_never(), Some(None));
        assert_eq!(watches.disturb(&only_nodes, WatchDisturbance::Expire, None), 1);
        assert_eq!(nodes.next_command().now_or_never(), Some(Some(WatchEnd::Expire)));
        drop((pods, nodes));
        assert_eq!(watches.list(), Vec::<Value>::new());
    }

    #[tokio::test(start_paused = true)]
    async fn a_stall_with_a_duration_ends_by_itself() {
        let watches = OpenWatches::default();
        let mut probe = watches.open(identity("pods"), None);
        watches.disturb(&RequestPattern::default(), WatchDisturbance::Stall, Some(Duration::from_secs(5)));
        let began = Instant::now();
        assert_eq!(probe.next_command().await, None);
        assert!(began.elapsed() >= Duration::from_secs(5));
    }

    #[test]
    fn a_watch_lags_until_it_waits_at_the_revision() {
        let watches = OpenWatches::default();
        let probe = watches.open(identity("pods"), None);
        assert_eq!(watches.behind(Revision::new(5)), 1);
        probe.waits_at(Revision::new(4));
        assert_eq!(watches.behind(Revision::new(5)), 1);
        probe.waits_at(Revision::new(6));
        assert_eq!(watches.behind(Revision::new(5)), 0);
        watches.disturb(&RequestPattern::default(), WatchDisturbance::Stall, None);
        assert_eq!(watches.behind(Revision::new(9)), 0, "a stalled watch is not waited for");
    }
}
