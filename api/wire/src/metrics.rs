//! What the server counts (docs/api/operations.md#metrics).
//!
//! ```text
//! where it happens ─ count, record ─► Metrics: families.rs, made of family.rs, and the series of requests (requests.rs)
//! scrape.rs ─ and the state of the other parts ─► Page ─► Prometheus text
//! ```
//!
//! Counting is a few relaxed additions. Labels come from the types that are served and from closed lists, so that no
//! client decides how many series there are. Knows what is counted, and nothing of those who count.

pub mod allowed;
pub mod buckets;
pub mod families;
pub mod family;
pub mod page;
pub mod policies;
pub mod reloads;
pub mod requests;

use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use self::allowed::Allowed;
use self::families::{
    Audited, Calls, Checked, Conditions, Families, Mutations, Signed, Validations, Webhooks,
};
use self::family::{Definition, Family, micros};
use self::page::{Page, Stability};
use self::reloads::Reloads;
use self::requests::Requests;

/// The bookmarks sent to watchers under their older name.
const BOOKMARKS: Definition = Definition {
    name: "etcd_bookmark_counts",
    stability: Stability::Alpha,
    help: "Bookmarks sent to watchers.",
    labels: &["group", "resource"],
};

/// What the process uses.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Usage {
    /// Time on processors.
    pub cpu: Duration,
    /// Memory in use.
    pub resident_bytes: u64,
    /// Address space in use.
    pub virtual_bytes: u64,
    /// Open files.
    pub open_files: u64,
    /// Most open files.
    pub max_files: u64,
    /// Largest address space.
    pub max_virtual_bytes: u64,
    /// Threads.
    pub threads: u64,
    /// Tasks of the runtime that have not ended.
    pub tasks: u64,
    /// Bytes received over the network, loopback left out.
    pub received_bytes: u64,
    /// Bytes sent over the network, loopback left out.
    pub sent_bytes: u64,
}

/// What an operator and the surroundings decide.
#[derive(Debug)]
pub struct Settings {
    /// Families that the operator does not want.
    pub disabled: BTreeSet<String>,
    /// Whether families are shown that are hidden as they are deprecated.
    pub shows_hidden: bool,
    /// Labels that have some values alone.
    pub allowed: Arc<Allowed>,
    /// What the process uses; `None` where it is unknown.
    pub usage: fn() -> Option<Usage>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { disabled: BTreeSet::new(), shows_hidden: false, allowed: Arc::default(), usage: || None }
    }
}

/// Everything that is counted.
#[derive(Debug)]
pub struct Metrics {
    settings: Settings,
    began: SystemTime,
    families: Families,
    /// Requests for resources.
    pub requests: Requests,
    /// Reloads of the files of authentication and of authorization.
    pub reloads: (Reloads, Reloads),
    /// Calls of admission webhooks.
    pub webhooks: Webhooks,
    /// Validations of admission policies.
    pub validations: Validations,
    /// Mutations of admission policies.
    pub mutations: Mutations,
    /// Match conditions of policies and webhooks.
    pub conditions: Conditions,
    /// Audit.
    pub audit: Audited,
    /// Calls of other servers.
    pub outgoing: Calls,
    /// Calls of the process that signs service account tokens.
    pub signer: Signed,
    /// Outcomes of health checks.
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
    /// Nothing was counted so far. The process began now.
    pub fn new(settings: Settings) -> Metrics {
        Metrics {
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
            outgoing: Calls::default(),
            signer: Signed::default(),
            health: Checked::default(),
        }
    }

    /// An empty page for what the operator wants to see.
    pub fn page(&self) -> Page<'_> {
        let Settings { disabled, shows_hidden, allowed, .. } = &self.settings;
        Page::new(disabled).with_hidden(*shows_hidden).with_allowed(allowed)
    }

    /// How often a label had a value that it may not have.
    pub fn unexpected_values(&self) -> u64 {
        self.settings.allowed.replaced()
    }

    /// When the process began.
    pub fn began(&self) -> SystemTime {
        self.began
    }

    /// What the process uses, if that is known.
    pub fn usage(&self) -> Option<Usage> {
        (self.settings.usage)()
    }

    /// Counts an access to the store.
    pub fn accessed(&self, group: &str, operation: &str, resource: &str, took: Duration) {
        let labels = [group, operation, resource];
        self.store_requests.count(&labels);
        self.store_durations.record(&labels, micros(took));
    }

    /// Counts an access to the store that failed.
    pub fn access_failed(&self, group: &str, operation: &str, resource: &str) {
        self.store_errors.count(&[group, operation, resource]);
    }

    /// Counts an authentication.
    pub fn authenticated(&self, result: &str, took: Duration) {
        self.authentications.count(&[result]);
        self.authentication_durations.time(&[result], took);
    }

    /// Counts an authorization.
    pub fn authorized(&self, result: &str, took: Duration) {
        self.authorizations.count(&[result]);
        self.authorization_durations.time(&[result], took);
    }

    /// Writes all families but those of health checks.
    pub fn write(&self, page: &mut Page<'_>) {
        self.requests.write(page);
        self.all().for_each(|family| family.write(page));
        self.families.bookmarks.write_as(&BOOKMARKS, page);
        self.reloads.0.write(page);
        self.reloads.1.write(page);
    }

    /// Writes what service level indicators are made of.
    pub fn write_indicators(&self, page: &mut Page<'_>) {
        self.health.all().for_each(|family| family.write(page));
    }

    /// Forgets what was counted, except what is going on.
    pub fn reset(&self) {
        self.requests.reset();
        self.all().for_each(Family::reset);
    }

    /// The families, requests and health checks apart.
    fn all(&self) -> impl Iterator<Item = &dyn Family> {
        let policies = self.validations.all().chain(self.mutations.all()).chain(self.conditions.all());
        let calls = self.webhooks.all().chain(self.outgoing.all()).chain(self.signer.all());
        self.families.all().chain(calls).chain(policies).chain(self.audit.all())
    }
}
