//! The metrics of the server (docs/api/operations.md#metrics).
//!
//! ```text
//! counting code ─ count, record ─► Metrics: families.rs, made of family.rs, and the series of requests (requests.rs)
//! scrape.rs ─ and the state of the other parts ─► Page ─► Prometheus text
//! ```
//!
//! Counting is a few relaxed additions. Label values come from the types that are served and from closed
//! lists, so that no client determines the number of series. This module declares the metrics; the code that
//! counts is in the modules that do the counted work.

pub mod allowed;
pub mod buckets;
pub mod definition;
pub mod families;
pub mod family;
pub mod histogram;
pub mod page;
pub mod policies;
pub mod reloads;
pub mod requests;

use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use self::allowed::Allowed;
use self::definition::{Definition, Stability};
use self::families::{
    Audited, Calls, Checked, Conditions, Families, Mutations, Signed, Validations, Webhooks,
};
use self::family::{Family, micros};
use self::page::Page;
use self::reloads::Reloads;
use self::requests::Requests;

/// The number of bookmarks sent to watchers, under the older name of the metric.
const BOOKMARKS: Definition = Definition {
    name: "etcd_bookmark_counts",
    stability: Stability::Alpha,
    help: "Bookmarks sent to watchers.",
    labels: &["group", "resource"],
};

/// Resource usage of the process.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Usage {
    /// CPU time that the process has used.
    pub cpu: Duration,
    /// Resident memory of the process.
    pub resident_bytes: u64,
    /// Size of the address space in use.
    pub virtual_bytes: u64,
    /// Number of open file descriptors.
    pub open_files: u64,
    /// Limit of open file descriptors.
    pub max_files: u64,
    /// Limit of the address space.
    pub max_virtual_bytes: u64,
    /// Number of threads of the process.
    pub threads: u64,
    /// Number of tasks of the async runtime that have not ended.
    pub tasks: u64,
    /// Bytes received over the network, without loopback.
    pub received_bytes: u64,
    /// Bytes sent over the network, without loopback.
    pub sent_bytes: u64,
}

/// Settings from the operator and the environment.
#[derive(Debug)]
pub struct Settings {
    /// Names of families that the operator has disabled.
    pub disabled: BTreeSet<String>,
    /// Whether deprecated families that are hidden by default are written.
    pub shows_hidden: bool,
    /// Labels whose values are restricted to a list.
    pub allowed: Arc<Allowed>,
    /// Reads the usage of the process; returns `None` where the usage is unknown.
    pub usage: fn() -> Option<Usage>,
    /// Metrics of calls to other servers. The egress of each network counts its calls in these metrics.
    pub outgoing: Arc<Calls>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            disabled: BTreeSet::new(),
            shows_hidden: false,
            allowed: Arc::default(),
            usage: || None,
            outgoing: Arc::default(),
        }
    }
}

/// All metrics of the server.
#[derive(Debug)]
pub struct Metrics {
    settings: Settings,
    began: SystemTime,
    families: Families,
    /// Metrics of requests for resources.
    pub requests: Requests,
    /// Reloads of the authentication files and of the authorization files.
    pub reloads: (Reloads, Reloads),
    /// Metrics of calls to admission webhooks.
    pub webhooks: Webhooks,
    /// Metrics of validating admission policies.
    pub validations: Validations,
    /// Metrics of mutating admission policies.
    pub mutations: Mutations,
    /// Metrics of match conditions of policies and webhooks.
    pub conditions: Conditions,
    /// Metrics of audit events.
    pub audit: Audited,
    /// Metrics of calls to other servers.
    pub outgoing: Arc<Calls>,
    /// Metrics of calls to the external signer of service account tokens.
    pub signer: Signed,
    /// Outcomes of health checks, by check.
    pub health: Checked,
}

impl Deref for Metrics {
    type Target = Families;

    fn deref(&self) -> &Families {
        &self.families
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Metrics::new(Settings::default())
    }
}

impl Metrics {
    /// Creates metrics with all counters at zero; the current time becomes the start time of the process.
    pub fn new(settings: Settings) -> Metrics {
        Metrics {
            outgoing: settings.outgoing.clone(),
            settings,
            began: SystemTime::now(),
            families: Families::default(),
            requests: Requests::default(),
            reloads: (Reloads::of_authentication(), Reloads::of_authorization()),
            webhooks: Webhooks::default(),
            validations: Validations::default(),
            mutations: Mutations::default(),
            conditions: Conditions::default(),
            audit: Audited::default(),
            signer: Signed::default(),
            health: Checked::default(),
        }
    }

    /// Returns an empty page that accepts only the families that the operator has not disabled.
    pub fn page(&self) -> Page<'_> {
        let Settings { disabled, shows_hidden, allowed, .. } = &self.settings;
        Page::new(disabled).with_hidden(*shows_hidden).with_allowed(allowed)
    }

    /// Returns how often a label value was replaced because it is not in the list of allowed values.
    pub fn unexpected_values(&self) -> u64 {
        self.settings.allowed.replaced()
    }

    /// Returns the start time of the process.
    pub fn began(&self) -> SystemTime {
        self.began
    }

    /// Returns the resource usage of the process; `None` if it is unknown.
    pub fn usage(&self) -> Option<Usage> {
        (self.settings.usage)()
    }

    /// Counts an operation of the store and its duration.
    pub fn accessed(&self, group: &str, operation: &str, resource: &str, took: Duration) {
        let labels = [group, operation, resource];
        self.store_requests.count(&labels);
        self.store_durations.record(&labels, micros(took));
    }

    /// Counts an operation of the store that failed.
    pub fn access_failed(&self, group: &str, operation: &str, resource: &str) {
        self.store_errors.count(&[group, operation, resource]);
    }

    /// Counts one authentication attempt and its duration.
    pub fn authenticated(&self, result: &str, took: Duration) {
        self.authentications.count(&[result]);
        self.authentication_durations.time(&[result], took);
    }

    /// Counts one authorization decision and its duration.
    pub fn authorized(&self, result: &str, took: Duration) {
        self.authorizations.count(&[result]);
        self.authorization_durations.time(&[result], took);
    }

    /// Writes all families except the families of health checks.
    pub fn write(&self, page: &mut Page<'_>) {
        self.requests.write(page);
        self.all().for_each(|family| family.write(page));
        self.families.bookmarks.write_as(&BOOKMARKS, page);
        self.reloads.0.write(page);
        self.reloads.1.write(page);
    }

    /// Writes the service level indicators.
    pub fn write_indicators(&self, page: &mut Page<'_>) {
        self.health.all().for_each(|family| family.write(page));
    }

    /// Resets all counters, but not the gauges of operations in progress.
    pub fn reset(&self) {
        self.requests.reset();
        self.all().for_each(Family::reset);
    }

    /// Returns the families, except the families of requests and health checks.
    fn all(&self) -> impl Iterator<Item = &dyn Family> {
        let policies = self.validations.all().chain(self.mutations.all()).chain(self.conditions.all());
        let calls = self.webhooks.all().chain(self.outgoing.all()).chain(self.signer.all());
        self.families.all().chain(calls).chain(policies).chain(self.audit.all())
    }
}
