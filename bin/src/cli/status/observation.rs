//! An observation of a running server: the responses of its endpoints, and the numbers in the responses.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use jiff::Timestamp;
use serde_json::Value;

use super::page::MetricsPage;
use super::{CertificateStatus, DamageStatus, MemoryStatus, ObjectCount, RequestStatus, Status, StoreStatus};
use crate::remote::client::Client;

const DAY_S: i64 = 24 * 60 * 60;

/// Requests of this command that the server counts between two observations: version, readiness and metrics.
const OWN_REQUESTS: f64 = 3.0;

/// The responses of a server at one moment.
#[derive(Clone, Debug)]
pub struct Observation {
    pub version: Value,
    /// Whether `/readyz` succeeded, and its list of checks.
    pub is_ready: bool,
    pub checks: String,
    pub page: MetricsPage,
    /// Time at which the metrics were received, in seconds since 1970 (`now_s`) and on the monotonic clock
    /// (`at`).
    pub now_s: i64,
    pub at: Instant,
}

/// Asks the server for its version, readiness and metrics.
///
/// # Errors
/// The server cannot be reached, or does not permit the user to read its version or metrics.
pub async fn observe(client: &Client) -> anyhow::Result<Observation> {
    let version = client.get("/version").await?;
    let version = serde_json::from_slice(&version).context("the version of the server is not JSON")?;
    let (code, checks) = client.probe("/readyz?verbose").await?;
    let page = client.get("/metrics").await?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(Observation {
        version,
        is_ready: code.is_success(),
        checks: String::from_utf8_lossy(&checks).into_owned(),
        page: MetricsPage::read(&String::from_utf8_lossy(&page)),
        now_s: i64::try_from(now.as_secs()).unwrap_or(i64::MAX),
        at: Instant::now(),
    })
}

impl Observation {
    /// Returns the state of the server without the numbers of requests. `last` is an earlier observation.
    pub fn status(&self, server: &str, last: &Observation) -> Status {
        let text = |name: &str| self.version[name].as_str().unwrap_or_default().to_owned();
        let started = self.page.number("process_start_time_seconds").map(|start| start as i64);
        Status {
            server: server.to_owned(),
            version: text("gitVersion"),
            commit: text("gitCommit"),
            ready: self.is_ready,
            failing_checks: if self.is_ready { Vec::new() } else { failing(&self.checks) },
            started: started.and_then(time_text),
            uptime_seconds: started.and_then(|start| u64::try_from(self.now_s - start).ok()),
            store: self.store(),
            requests: RequestStatus::default(),
            memory: self.memory(last),
            objects: self.objects(),
            certificates: self.certificates(),
        }
    }

    /// Returns the numbers of requests, with the rates since an earlier observation.
    pub fn requests_since(&self, last: &Observation) -> RequestStatus {
        let total = |observation: &Observation| observation.page.sum("apiserver_request_total", None);
        let commits = |observation: &Observation| observation.count("apiserver_store_commits_total") as f64;
        RequestStatus {
            per_second: self.rate(total(self) - total(last) - OWN_REQUESTS, last),
            writes_per_second: self.rate(commits(self) - commits(last), last),
            total: total(self) as u64,
            // Subtract the request for the metrics, which is in flight when the server counts.
            in_flight: (self.page.sum("apiserver_current_inflight_requests", None) as u64).saturating_sub(1),
            watches: self.page.sum("apiserver_longrunning_requests", Some(("verb", "WATCH"))) as u64,
        }
    }

    /// Divides `count` by the seconds since an earlier observation, and rounds to one decimal. If the server
    /// was restarted after that observation, `count` is negative, and the rate is 0.
    fn rate(&self, count: f64, last: &Observation) -> f64 {
        let seconds = self.at.duration_since(last.at).as_secs_f64();
        if seconds > 0.0 { (count.max(0.0) / seconds * 10.0).round() / 10.0 } else { 0.0 }
    }

    fn count(&self, name: &str) -> u64 {
        self.page.number(name).unwrap_or_default() as u64
    }

    fn store(&self) -> StoreStatus {
        let count = |name: &str| self.count(&format!("apiserver_store_{name}"));
        let backup = i64::try_from(count("last_backup_timestamp_seconds")).ok().filter(|end| *end > 0);
        StoreStatus {
            revision: count("revision"),
            synced_revision: count("synced_revision"),
            compacted_revision: count("oldest_revision"),
            checkpoint_revision: count("checkpoint_revision"),
            keys: count("keys"),
            versions: count("versions"),
            segments: count("segments"),
            record_bytes: count("record_bytes"),
            live_bytes: count("live_bytes").saturating_sub(count("retained_bytes")),
            retained_bytes: count("retained_bytes"),
            dead_bytes: count("dead_bytes"),
            refuses_writes: count("refuses_writes") > 0,
            last_backup: backup.and_then(time_text),
            seconds_since_backup: backup.map(|end| u64::try_from(self.now_s - end).unwrap_or(0)),
            damage: DamageStatus {
                unreadable_pages: count("unreadable_pages"),
                lost_revisions: count("lost_revisions"),
                unaccepted_lost_revisions: count("unaccepted_lost_revisions"),
                unaccepted_damaged_records: count("unaccepted_damaged_records"),
                removing_controllers_off: count("removing_controllers_off") > 0,
            },
        }
    }

    fn memory(&self, last: &Observation) -> MemoryStatus {
        let processor_s = |observation: &Observation| observation.page.number("process_cpu_seconds_total");
        let used = processor_s(self).zip(processor_s(last)).map(|(now, last)| now - last);
        let seconds = self.at.duration_since(last.at).as_secs_f64();
        MemoryStatus {
            resident_bytes: self.page.number("process_resident_memory_bytes").map(|bytes| bytes as u64),
            charged_bytes: self.count("apiserver_request_memory_bytes"),
            processors: used
                .filter(|_| seconds > 0.0)
                .map(|used| (used.max(0.0) / seconds * 100.0).round() / 100.0),
        }
    }

    fn objects(&self) -> Vec<ObjectCount> {
        let counts = self.page.by_label("apiserver_storage_objects", "resource").into_iter();
        let mut objects: Vec<_> = counts
            .filter(|(_, count)| *count > 0.0)
            .map(|(resource, count)| ObjectCount { resource, count: count as u64 })
            .collect();
        objects.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.resource.cmp(&b.resource)));
        objects
    }

    fn certificates(&self) -> Vec<CertificateStatus> {
        let mut ends =
            self.page.by_label("apiserver_certificate_expiration_timestamp_seconds", "certificate");
        ends.sort_by(|a, b| a.1.total_cmp(&b.1));
        let status = |(name, end): (String, f64)| CertificateStatus {
            name,
            expires: time_text(end as i64).unwrap_or_default(),
            days_left: (end as i64 - self.now_s).div_euclid(DAY_S),
        };
        ends.into_iter().map(status).collect()
    }
}

fn time_text(seconds: i64) -> Option<String> {
    Timestamp::from_second(seconds).ok().map(|time| time.to_string())
}

/// Returns the names of the failed checks in the response of `/readyz?verbose`. A failed check is a line such as
/// `[-]etcd failed: reason withheld`.
fn failing(checks: &str) -> Vec<String> {
    let failed = checks.lines().filter_map(|line| line.trim().strip_prefix("[-]"));
    failed.filter_map(|check| check.split(' ').next()).map(str::to_owned).collect()
}
