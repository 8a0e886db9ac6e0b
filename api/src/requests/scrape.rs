//! `/metrics` and `/metrics/slis`: the counted metrics, and the current state of the store, the process and
//! flow control (docs/api/operations.md#metrics).

use std::time::UNIX_EPOCH;

use engine::{Engine, LossCounts, Stats};
use http::{Method, StatusCode};

use crate::state::fairness::Fairness;
use objects::store;
use objects::store::backends::Backends;
use types::features::{FeatureStage, Features};
use types::schema::registry::Registry;
use types::version::ServerVersion;
use values::memory::{self, Memory};
use wire::metrics::Metrics;
use wire::metrics::definition::{Definition, Kind, Stability};
use wire::metrics::family::labels_text;
use wire::metrics::page::Page;
use wire::response::{Response, respond, respond_text};

/// The sources of a metrics page.
pub struct Sources<'s> {
    /// The metrics that were counted.
    pub metrics: &'s Metrics,
    /// The main revision log.
    pub engine: &'s Engine,
    /// The stores that hold objects.
    pub backends: &'s Backends,
    /// The time at which the newest backup ended, in seconds since 1970.
    pub last_backup_s: u64,
    /// The types that are served.
    pub registry: &'s Registry,
    /// State of flow control.
    pub fairness: &'s Fairness,
    /// The server's feature gates.
    pub features: &'s Features,
    /// The version that the server reports.
    pub version: &'s ServerVersion,
    /// The memory budget for requests of clients.
    pub memory: &'s Memory,
}

/// Returns the response to a path; `None` for other paths. DELETE resets the counted metrics.
pub fn respond_to(sources: &Sources<'_>, method: &Method, path: &str) -> Option<Response> {
    let mut page = sources.metrics.page();
    match path {
        "/metrics" if method == Method::DELETE => {
            sources.metrics.reset();
            return Some(respond_text(StatusCode::OK, "metrics reset\n"));
        }
        "/metrics" => sources.write(&mut page),
        "/metrics/slis" => {
            sources.metrics.write_indicators(&mut page);
            start_time(&mut page, sources.metrics, Stability::Alpha);
        }
        _ => return None,
    }
    Some(respond(
        StatusCode::OK,
        "text/plain; version=0.0.4; charset=utf-8; escaping=underscores",
        page.into_text(),
    ))
}

const fn gauge(name: &'static str, stability: Stability, help: &'static str) -> Definition {
    Definition { name, stability, help, labels: &[] }
}

impl Sources<'_> {
    fn write(&self, page: &mut Page<'_>) {
        self.metrics.write(page);
        self.fairness.write(page);
        self.objects(page);
        for (name, kind, help, value) in numbers_of_store(
            &self.engine.stats(),
            self.backends.have_failed(),
            self.backends.unaccepted_losses(),
        ) {
            page.family(&gauge(name, Stability::Own, help), kind).number("", value);
        }
        let help = "End of the newest complete backup in seconds since 1970; 0: none.";
        let backup = gauge("apiserver_store_last_backup_timestamp_seconds", Stability::Own, help);
        page.family(&backup, Kind::Gauge).number("", self.last_backup_s);
        let help = "Memory that requests have been charged for, without the allotments of connections.";
        let charged = gauge("apiserver_request_memory_bytes", Stability::Own, help);
        page.family(&charged, Kind::Gauge)
            .number("", self.memory.charged_bytes() + memory::charged_reply_bytes());
        self.features(page);
        build(page, self.version);
        process(page, self.metrics);
        families(page, self.metrics);
    }

    /// Writes the number of objects of each type.
    fn objects(&self, page: &mut Page<'_>) {
        let snapshots = self.backends.snapshots();
        let mut counts: Vec<(&str, &str, u64)> = self
            .registry
            .stored()
            .into_iter()
            .map(|resource| {
                let prefix = store::collection(resource, "");
                let count = snapshots.holding(&prefix).count_prefix(&prefix);
                (&*resource.group, &*resource.table.plural, count)
            })
            .collect();
        counts.sort_unstable();
        let help = "Objects that are stored, by type.";
        let mut objects =
            page.family(&gauge("apiserver_resource_objects", Stability::Alpha, help), Kind::Gauge);
        for (group, resource, count) in &counts {
            let labels = labels_text([("group", *group), ("resource", *resource)].into_iter());
            objects.number(&labels, count);
        }
        let mut objects =
            page.family(&gauge("apiserver_storage_objects", Stability::Stable, help), Kind::Gauge);
        for (group, resource, count) in &counts {
            let dot = if group.is_empty() { "" } else { "." };
            let name = format!("{resource}{dot}{group}");
            objects.number(&labels_text([("resource", &*name)].into_iter()), count);
        }
        let size = gauge("apiserver_storage_size_bytes", Stability::Stable, "Bytes of the revision log.");
        let bytes = self.backends.record_bytes();
        let mut sizes = page.family(&size, Kind::Gauge);
        for (at, bytes) in bytes.iter().enumerate() {
            sizes.number(&format!("storage_cluster_id=\"log-{at}\""), bytes);
        }
        let name = "apiserver_storage_db_total_size_in_bytes";
        let size = gauge(name, Stability::Alpha, "The same under an older name.");
        let mut sizes = page.family(&size, Kind::Gauge);
        for (at, bytes) in bytes.iter().enumerate() {
            sizes.number(&format!("endpoint=\"log-{at}\""), bytes);
        }
    }

    fn features(&self, page: &mut Page<'_>) {
        let help = "Feature gates, 1 for those that are enabled.";
        let mut gates = page.family(&gauge("kubernetes_feature_enabled", Stability::Beta, help), Kind::Gauge);
        for (name, stage, open) in self.features.all() {
            let stage = match stage {
                FeatureStage::Alpha => "ALPHA",
                FeatureStage::Beta => "BETA",
                FeatureStage::Deprecated => "DEPRECATED",
                // Kubernetes has removed the gates of features that have been stable for a long time.
                FeatureStage::Stable if self.features.is_forgotten(name) => continue,
                FeatureStage::Stable => "",
            };
            gates.number(&labels_text([("name", name), ("stage", stage)].into_iter()), u8::from(open));
        }
    }
}

fn build(page: &mut Page<'_>, version: &ServerVersion) {
    let document = version.document();
    let labels = [
        ("build_date", "buildDate"),
        ("compiler", "compiler"),
        ("git_commit", "gitCommit"),
        ("git_tree_state", "gitTreeState"),
        ("git_version", "gitVersion"),
        ("go_version", "goVersion"),
        ("major", "major"),
        ("minor", "minor"),
        ("platform", "platform"),
    ];
    let labels = labels_text(labels.into_iter().map(|(label, member)| (label, document.str_at(&[member]))));
    let info = gauge("kubernetes_build_info", Stability::Beta, "1; the labels say what is running.");
    page.family(&info, Kind::Gauge).number(&labels, 1);
    let at = |member: &str| document.str_at(&[member]).to_owned();
    let emulated = format!("{}.{}", at("emulationMajor"), at("emulationMinor"));
    let compatible = format!("{}.{}", at("minCompatibilityMajor"), at("minCompatibilityMinor"));
    let labels = labels_text(
        [
            ("binary", &*format!("{}.{}", at("major"), at("minor"))),
            ("component", "kube"),
            ("emulation", &*emulated),
            ("min_compat", &*compatible),
        ]
        .into_iter(),
    );
    let versions =
        gauge("version_info", Stability::Alpha, "1; the labels are the releases that this one is like.");
    page.family(&versions, Kind::Gauge).number(&labels, 1);
}

/// Writes the start time of the process.
fn start_time(page: &mut Page<'_>, metrics: &Metrics, stability: Stability) {
    let began = metrics.began().duration_since(UNIX_EPOCH).unwrap_or_default();
    let help = "Start of the process, in seconds since the epoch.";
    let definition = gauge("process_start_time_seconds", stability, help);
    page.family(&definition, Kind::Gauge).number("", began.as_secs_f64());
}

/// Writes the metrics of the kernel about the process, if the kernel provides these metrics.
fn process(page: &mut Page<'_>, metrics: &Metrics) {
    start_time(page, metrics, Stability::Own);
    let own = |name, help| gauge(name, Stability::Own, help);
    if let Some(usage) = metrics.usage() {
        let cpu = own("process_cpu_seconds_total", "Time on processors.");
        page.family(&cpu, Kind::Counter).number("", usage.cpu.as_secs_f64());
        for (name, help, value) in [
            ("process_resident_memory_bytes", "Memory in use.", usage.resident_bytes),
            ("process_virtual_memory_bytes", "Address space in use.", usage.virtual_bytes),
            ("process_open_fds", "Open files.", usage.open_files),
            ("process_max_fds", "Most open files.", usage.max_files),
            ("process_virtual_memory_max_bytes", "Largest address space.", usage.max_virtual_bytes),
            (
                "go_goroutines",
                "Tasks of the runtime that have not ended; there are no goroutines.",
                usage.tasks,
            ),
            ("go_threads", "Threads.", usage.threads),
        ] {
            page.family(&own(name, help), Kind::Gauge).number("", value);
        }
        for (name, help, value) in [
            ("process_network_receive_bytes_total", "Bytes received.", usage.received_bytes),
            ("process_network_transmit_bytes_total", "Bytes sent.", usage.sent_bytes),
        ] {
            page.family(&own(name, help), Kind::Counter).number("", value);
        }
    }
}

/// Writes the number of metric families.
fn families(page: &mut Page<'_>, metrics: &Metrics) {
    let (written, (disabled_count, _)) = (page.counts(), page.left_out());
    let registered = gauge("registered_metrics_total", Stability::Beta, "Families by stability.");
    let mut numbers = page.family(&registered, Kind::Counter);
    for ((deprecated, stability), count) in written {
        let labels = [("deprecated_version", deprecated), ("stability_level", stability)];
        numbers.number(&labels_text(labels.into_iter()), count);
    }
    let disabled = gauge("disabled_metrics_total", Stability::Beta, "Families that the operator disabled.");
    page.family(&disabled, Kind::Counter).number("", disabled_count);
    let hidden =
        gauge("hidden_metrics_total", Stability::Beta, "Families that are deprecated and not shown.");
    let hidden_count = page.left_out().1;
    page.family(&hidden, Kind::Counter).number("", hidden_count);
    let unexpected = gauge(
        "cardinality_enforcement_unexpected_categorizations_total",
        Stability::Alpha,
        "How often a label had a value that the operator does not allow.",
    );
    page.family(&unexpected, Kind::Counter).number("", metrics.unexpected_values());
}

/// A metric: its name, kind, help text and value.
type Number = (&'static str, Kind, &'static str, u64);

/// Returns metrics of the store for graphs and alerts.
fn numbers_of_store(stats: &Stats, refuses: bool, unaccepted: LossCounts) -> [Number; 21] {
    let gauge = |name, help, value| (name, Kind::Gauge, help, value);
    let counter = |name, help, value| (name, Kind::Counter, help, value);
    let next_start = "Revision of the checkpoint that the next start begins with; 0: none.";
    let rewritten = stats.rewritten_bytes;
    let history = "Bytes of the records that can be read only as history, part of the live bytes.";
    let unaccepted_lost = "Lost revisions that no accept-loss accepted.";
    let unaccepted_damaged = "Unreadable records of known keys that no accept-loss accepted.";
    let controllers_off = "1 while controllers that delete because something is absent are off, as the store has losses, else 0.";
    [
        gauge("apiserver_store_refuses_writes", "1 while writes are refused, else 0.", refuses.into()),
        gauge("apiserver_store_revision", "Newest revision.", stats.revision.get()),
        gauge("apiserver_store_synced_revision", "Newest revision known to be on disk.", stats.synced.get()),
        gauge("apiserver_store_oldest_revision", "Oldest revision that can be read.", stats.oldest.get()),
        gauge("apiserver_store_checkpoint_revision", next_start, stats.checkpoint.get()),
        gauge("apiserver_store_keys", "Keys that exist.", stats.keys),
        gauge("apiserver_store_versions", "States of keys that can be read.", stats.versions),
        gauge("apiserver_store_segments", "Segment files.", stats.segments),
        gauge("apiserver_store_record_bytes", "Bytes of all records in the log.", stats.record_bytes),
        gauge("apiserver_store_live_bytes", "Bytes of the records that can be read.", stats.live_bytes),
        gauge("apiserver_store_retained_bytes", history, stats.retained_bytes),
        gauge("apiserver_store_dead_bytes", "Bytes of records that nothing can read.", stats.dead_bytes),
        gauge("apiserver_store_unreadable_pages", "Pages the disk could not read.", stats.unreadable_pages),
        gauge("apiserver_store_lost_revisions", "Revisions lost to damage at start.", stats.lost_revisions),
        gauge("apiserver_store_unaccepted_lost_revisions", unaccepted_lost, unaccepted.lost),
        gauge("apiserver_store_unaccepted_damaged_records", unaccepted_damaged, unaccepted.damaged),
        gauge("apiserver_store_removing_controllers_off", controllers_off, (!unaccepted.is_empty()).into()),
        counter("apiserver_store_commits_total", "Writes committed.", stats.commits),
        counter("apiserver_store_batches_total", "Batches that they were synced in.", stats.batches),
        counter("apiserver_store_expired_total", "Keys deleted as their time was over.", stats.expired),
        counter("apiserver_store_rewritten_bytes_total", "Bytes copied to give space back.", rewritten),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::metrics::{Settings, Usage};

    #[test]
    fn store_metrics_have_unique_names_and_counters_end_in_total() {
        let store = numbers_of_store(&Stats::default(), true, LossCounts { lost: 1, damaged: 0 });
        let mut names = std::collections::BTreeSet::new();
        for (name, kind, ..) in store {
            assert!(name.starts_with("apiserver_") && names.insert(name), "{name}");
            assert_eq!(name.ends_with("_total"), kind == Kind::Counter, "{name}");
        }
        assert_eq!(store[0].3, 1);
    }

    #[test]
    fn the_metrics_page_includes_the_process_and_its_families() {
        let nothing = Default::default();
        let mut page = Page::new(&nothing);
        build(&mut page, &ServerVersion::default());
        let usage = || Some(Usage { resident_bytes: 7, ..Usage::default() });
        let metrics = Metrics::new(Settings { usage, ..Settings::default() });
        process(&mut page, &metrics);
        families(&mut page, &metrics);
        let text = page.into_text();
        for begin in [
            "kubernetes_build_info{build_date=\"",
            "process_start_time_seconds 1",
            "process_resident_memory_bytes 7",
            "process_cpu_seconds_total ",
            "process_open_fds ",
            "registered_metrics_total{deprecated_version=\"\",stability_level=\"BETA\"} 1",
            "disabled_metrics_total 0",
        ] {
            assert!(text.lines().any(|line| line.starts_with(begin)), "{begin} is not in\n{text}");
        }
    }
}
