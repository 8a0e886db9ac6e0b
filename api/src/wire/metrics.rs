//! What the server counts (docs/api/operations.md#metrics).
//!
//! ```text
//! where it happens ─ count, record ─► Metrics: families (family.rs), series of requests (requests.rs)
//! scrape.rs ─ and the state of the other parts ─► Page ─► Prometheus text
//! ```
//!
//! Counting is a few relaxed additions. Labels come from the types that are served and from closed lists, so that no
//! client decides how many series there are. Knows what is counted, and nothing of those who count.

pub mod allowed;
pub mod buckets;
pub mod family;
pub mod page;
pub mod policies;
pub mod requests;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use self::allowed::Allowed;
use self::buckets::{
    ADMISSION_US, COMPARISONS_US, EVENTS_BYTES, IDENTITY_US, LIFETIMES_S, REQUESTS_US, STAGES_US, WEBHOOKS_US,
};
use self::family::{Counters, Definition, Gauges, Histograms, micros};
use self::page::{Kind, Page, Stability};
use self::policies::{Checks, Conditions};
use self::requests::Requests;

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Counts `more`.
    pub fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    /// How much was counted since the start of the process.
    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

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
    /// Labels that have some values alone.
    pub allowed: Arc<Allowed>,
    /// What the process uses; `None` where it is unknown.
    pub usage: fn() -> Option<Usage>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { disabled: BTreeSet::new(), allowed: Arc::default(), usage: || None }
    }
}

/// Everything that is counted.
#[derive(Debug)]
pub struct Metrics {
    settings: Settings,
    began: SystemTime,
    /// Requests for resources.
    pub requests: Requests,
    /// Watch events made from a stored change. Many watchers of one form share what is made once.
    pub watch_events_rendered: Counter,
    /// Watch events of changes handed to a connection, bookmarks and initial events not counted.
    pub watch_events_sent: Counter,
    /// Log lines that could not be written, because standard error did not take them in time or at all.
    pub log_lines_dropped: Counter,
    /// Spans that had no room on their way to the collector.
    pub spans_dropped: Counter,
    /// Watch events by type, initial ones included.
    pub watch_events: Counters,
    /// Their sizes.
    pub watch_event_sizes: Histograms,
    /// Durations of the stages before a request is served.
    pub stages: Histograms,
    /// Outcomes of authentication.
    pub authentication: Attempts,
    /// Authenticated requests by user.
    pub users: Counters,
    /// What is left to the client certificates of requests.
    pub client_certificates: Histograms,
    /// Outcomes of authorization.
    pub authorization: Attempts,
    /// Durations of admission plugins.
    pub plugins: Histograms,
    /// Durations of both points of admission.
    pub admission: Histograms,
    /// Calls of admission webhooks.
    pub webhooks: Webhooks,
    /// Validations of admission policies.
    pub validations: Checks,
    /// Mutations of admission policies.
    pub mutations: Checks,
    /// Match conditions of policies and webhooks.
    pub conditions: Conditions,
    /// Audit.
    pub audit: Audited,
    /// Accesses to the store.
    pub store_requests: Counters,
    /// Those that failed.
    pub store_errors: Counters,
    /// Their durations.
    pub store_durations: Histograms,
    /// Outcomes of health checks.
    pub health: Checked,
    /// Requests that were ended before they were done.
    pub terminations: Counters,
    /// Uses of deprecated types.
    pub deprecated: Gauges,
    /// Time that updates take to tell whether more than times has changed.
    pub comparisons: Histograms,
    /// Handshakes that failed.
    pub tls_errors: Counters,
    /// Whether an extension server cannot be reached, by APIService.
    pub unavailable: Gauges,
    /// How often each became so, by reason.
    pub became_unavailable: Counters,
    /// Ends of the certificates that the server shows, signs with or believes, in seconds since the epoch.
    pub certificates: Gauges,
}

/// Calls of admission webhooks: how long they take, and what comes of them.
#[derive(Debug)]
pub struct Webhooks {
    /// Durations by name, operation, whether the write was refused, and kind of webhook.
    pub durations: Histograms,
    /// Calls by code, name, operation, whether the write was refused, and kind of webhook.
    pub calls: Counters,
    /// Refusals by kind of error, name, operation, code, and kind of webhook.
    pub rejections: Counters,
    /// Failures that were ignored, by name and kind of webhook.
    pub failed_open: Counters,
}

/// Outcomes of a decision about requests, and how long it took.
#[derive(Debug)]
pub struct Attempts {
    counts: Counters,
    durations: Histograms,
}

impl Attempts {
    /// Counts an outcome.
    pub fn record(&self, result: &str, took: Duration) {
        self.counts.count(&[result]);
        self.durations.time(&[result], took);
    }
}

/// What audit counts.
#[derive(Debug)]
pub struct Audited {
    /// Events.
    pub events: Counters,
    /// Requests by the level at which they are recorded.
    pub levels: Counters,
    /// Requests refused because their first event was lost.
    pub rejected: Counters,
    /// Lost events by the part that lost them.
    pub errors: Counters,
}

/// What is known of the health checks.
#[derive(Debug)]
pub struct Checked {
    /// 1 if a check passed when it was asked last.
    pub state: Gauges,
    /// How often each was asked.
    pub counts: Counters,
}

const fn alpha(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Definition {
    Definition { name, stability: Stability::Alpha, help, labels }
}

const fn stable(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Definition {
    Definition { name, stability: Stability::Stable, help, labels }
}

const TYPE: &[&str] = &["group", "resource", "version"];
const RESULT: &[&str] = &["result"];
const ACCESS: &[&str] = &["group", "operation", "resource"];

impl Default for Metrics {
    fn default() -> Self {
        Metrics::new(Settings::default())
    }
}

impl Metrics {
    /// Nothing was counted so far. The process began now.
    pub fn new(settings: Settings) -> Metrics {
        let plugin = &["name", "operation", "rejected", "type"];
        let step = &["operation", "rejected", "type"];
        let audit = |name, labels, help| Counters::new(alpha(name, labels, help));
        Metrics {
            settings,
            began: SystemTime::now(),
            requests: Requests::default(),
            watch_events_rendered: Counter::default(),
            watch_events_sent: Counter::default(),
            log_lines_dropped: Counter::default(),
            spans_dropped: Counter::default(),
            watch_events: Counters::new(alpha(
                "apiserver_watch_events_total",
                TYPE,
                "Events sent to watchers.",
            )),
            watch_event_sizes: Histograms::of_sizes(
                alpha("apiserver_watch_events_sizes", TYPE, "Bytes of the events sent to watchers."),
                EVENTS_BYTES,
            ),
            stages: Histograms::of_durations(
                alpha(
                    "apiserver_request_filter_duration_seconds",
                    &["filter"],
                    "Time that the stages take before a request is served.",
                ),
                STAGES_US,
            ),
            authentication: Attempts {
                counts: Counters::new(alpha(
                    "authentication_attempts",
                    RESULT,
                    "Requests by authentication.",
                )),
                durations: Histograms::of_durations(
                    alpha("authentication_duration_seconds", RESULT, "Time that authentication takes."),
                    IDENTITY_US,
                ),
            },
            users: Counters::new(alpha(
                "authenticated_user_requests",
                &["username"],
                "Authenticated requests by user; all but some users of the system are one.",
            )),
            client_certificates: Histograms::of_sizes(
                alpha(
                    "apiserver_client_certificate_expiration_seconds",
                    &[],
                    "Time left to the client certificate of a request.",
                ),
                LIFETIMES_S,
            ),
            authorization: Attempts {
                counts: Counters::new(alpha(
                    "authorization_attempts_total",
                    RESULT,
                    "Requests by authorization.",
                )),
                durations: Histograms::of_durations(
                    alpha("authorization_duration_seconds", RESULT, "Time that authorization takes."),
                    IDENTITY_US,
                ),
            },
            plugins: Histograms::of_durations(
                stable(
                    "apiserver_admission_controller_admission_duration_seconds",
                    plugin,
                    "Time that an admission plugin takes.",
                ),
                ADMISSION_US,
            ),
            admission: Histograms::of_durations(
                stable(
                    "apiserver_admission_step_admission_duration_seconds",
                    step,
                    "Time that all admission plugins take.",
                ),
                ADMISSION_US,
            ),
            webhooks: Webhooks {
                durations: Histograms::of_durations(
                    stable(
                        "apiserver_admission_webhook_admission_duration_seconds",
                        plugin,
                        "Time that an admission webhook takes.",
                    ),
                    WEBHOOKS_US,
                ),
                calls: Counters::new(alpha(
                    "apiserver_admission_webhook_request_total",
                    &["code", "name", "operation", "rejected", "type"],
                    "Calls of admission webhooks.",
                )),
                rejections: Counters::new(alpha(
                    "apiserver_admission_webhook_rejection_count",
                    &["error_type", "name", "operation", "rejection_code", "type"],
                    "Writes that an admission webhook refused, or that failed with it.",
                )),
                failed_open: Counters::new(alpha(
                    "apiserver_admission_webhook_fail_open_count",
                    &["name", "type"],
                    "Failures of admission webhooks that were ignored.",
                )),
            },
            validations: Checks::of_validations(),
            mutations: Checks::of_mutations(),
            conditions: Conditions::new(),
            audit: Audited {
                events: audit("apiserver_audit_event_total", &[], "Audit events."),
                levels: audit("apiserver_audit_level_total", &["level"], "Requests by audit level."),
                rejected: audit(
                    "apiserver_audit_requests_rejected_total",
                    &[],
                    "Requests refused because an audit event was lost.",
                ),
                errors: audit("apiserver_audit_error_total", &["plugin"], "Audit events that were lost."),
            },
            store_requests: Counters::new(alpha("etcd_requests_total", ACCESS, "Accesses to the store.")),
            store_errors: Counters::new(alpha(
                "etcd_request_errors_total",
                ACCESS,
                "Accesses to the store that failed.",
            )),
            store_durations: Histograms::of_durations(
                alpha("etcd_request_duration_seconds", ACCESS, "Time that accesses to the store take."),
                REQUESTS_US,
            ),
            health: Checked {
                state: Gauges::new(stable(
                    "kubernetes_healthcheck",
                    &["name", "type"],
                    "Whether a health check passed when it was asked last.",
                )),
                counts: Counters::new(stable(
                    "kubernetes_healthchecks_total",
                    &["name", "status", "type"],
                    "Answers of health checks.",
                )),
            },
            terminations: Counters::new(alpha(
                "apiserver_request_terminations_total",
                &["code", "component", "group", "resource", "scope", "subresource", "verb", "version"],
                "Requests that were refused for lack of room, or took too long.",
            )),
            certificates: Gauges::new(Definition {
                name: "apiserver_certificate_expiration_timestamp_seconds",
                stability: Stability::Own,
                help: "End of a certificate of the server, in seconds since the epoch.",
                labels: &["certificate"],
            }),
            deprecated: Gauges::new(stable(
                "apiserver_requested_deprecated_apis",
                &["group", "removed_release", "resource", "subresource", "version"],
                "Deprecated types that were asked for.",
            )),
            comparisons: Histograms::of_durations(
                alpha(
                    "apiserver_request_timestamp_comparison_time",
                    &["code_path"],
                    "Time that updates take to tell whether more than times has changed.",
                ),
                COMPARISONS_US,
            ),
            tls_errors: Counters::new(alpha(
                "apiserver_tls_handshake_errors_total",
                &[],
                "Connections that ended in the TLS handshake.",
            )),
            unavailable: Gauges::new(alpha(
                "aggregator_unavailable_apiservice",
                &["name"],
                "1 for APIServices that are not available.",
            )),
            became_unavailable: Counters::new(alpha(
                "aggregator_unavailable_apiservice_total",
                &["name", "reason"],
                "How often an APIService became unavailable, by reason.",
            )),
        }
    }

    /// An empty page for what the operator wants to see.
    pub fn page(&self) -> Page<'_> {
        Page::new(&self.settings.disabled).with_allowed(&self.settings.allowed)
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

    /// Writes all families.
    pub fn write(&self, page: &mut Page<'_>) {
        for (name, help, counter) in [
            (
                "apiserver_watch_events_rendered_total",
                "Changes made into a watch event, once for all watchers of the same form.",
                &self.watch_events_rendered,
            ),
            (
                "apiserver_watch_events_sent_total",
                "Changes sent to watchers, counted once for each of them.",
                &self.watch_events_sent,
            ),
            (
                "apiserver_log_lines_dropped_total",
                "Log lines that standard error did not take.",
                &self.log_lines_dropped,
            ),
            (
                "apiserver_spans_dropped_total",
                "Spans of traces that had no room on their way to the collector.",
                &self.spans_dropped,
            ),
        ] {
            let definition = Definition { name, stability: Stability::Own, help, labels: &[] };
            page.family(&definition, Kind::Counter).number("", counter.value());
        }
        self.requests.write(page);
        for counters in self.counters() {
            counters.write(page);
        }
        for histograms in self.histograms() {
            histograms.write(page);
        }
        self.certificates.write(page);
        self.deprecated.write(page);
        self.unavailable.write(page);
    }

    /// Writes what service level indicators are made of.
    pub fn write_indicators(&self, page: &mut Page<'_>) {
        self.health.state.write(page);
        self.health.counts.write(page);
    }

    /// Forgets what was counted, except what is going on.
    pub fn reset(&self) {
        self.requests.reset();
        for counters in self.counters() {
            counters.reset();
        }
        for histograms in self.histograms() {
            histograms.reset();
        }
    }

    /// The counters of this part, requests and health checks apart.
    fn counters(&self) -> [&Counters; 20] {
        [
            &self.authentication.counts,
            &self.authorization.counts,
            &self.watch_events,
            &self.users,
            &self.audit.events,
            &self.audit.levels,
            &self.audit.rejected,
            &self.audit.errors,
            &self.store_requests,
            &self.store_errors,
            &self.terminations,
            &self.tls_errors,
            &self.became_unavailable,
            &self.webhooks.calls,
            &self.webhooks.rejections,
            &self.webhooks.failed_open,
            self.validations.families().0,
            self.mutations.families().0,
            &self.conditions.errors,
            &self.conditions.exclusions,
        ]
    }

    /// The histograms of this part, requests apart.
    fn histograms(&self) -> [&Histograms; 13] {
        [
            &self.authentication.durations,
            &self.authorization.durations,
            &self.watch_event_sizes,
            &self.stages,
            &self.client_certificates,
            &self.plugins,
            &self.admission,
            &self.webhooks.durations,
            self.validations.families().1,
            self.mutations.families().1,
            &self.conditions.durations,
            &self.store_durations,
            &self.comparisons,
        ]
    }
}
