//! The metric families that are counted where events happen. Each family is declared once, with its field,
//! name, labels and help text (docs/api/operations.md#metrics).
//!
//! Flow control has its own families (`state/fairness/meter.rs`), and `scrape.rs` adds values that are read
//! from other modules.

use super::buckets::{
    ADMISSION_US, CALLS_US, COMPARISONS_US, CONDITIONS_US, EVENTS_BYTES, IDENTITY_US, LIFETIMES_S,
    POLICIES_US, REQUESTS_US, SIGNER_US, STAGES_US, TUNNELS_US, VALIDATIONS_US, WATCH_LISTS_US, WEBHOOKS_US,
};
use super::definition::{Definition, Stability};
use super::family::{Counter, Counters, Family, Gauges, Histograms};

const NONE: &[&str] = &[];
const TYPE: &[&str] = &["group", "resource", "version"];
const STORED: &[&str] = &["group", "resource"];
const RESULT: &[&str] = &["result"];
const ACCESS: &[&str] = &["group", "operation", "resource"];
const DECIDED: &[&str] = &["decision", "mode"];
const PLUGIN: &[&str] = &["name", "operation", "rejected", "type"];
const STEP: &[&str] = &["operation", "rejected", "type"];
const VALIDATED: &[&str] = &["enforcement_action", "error_type", "policy", "policy_binding"];
const MUTATED: &[&str] = &["error_type", "policy", "policy_binding"];
const CONDITION: &[&str] = &["kind", "name", "operation", "type"];
const CALL: &[&str] = &["host", "verb"];
const TUNNEL: &[&str] = &["protocol", "transport"];

/// Declares a struct of families with a constructor and an iterator over all of them. A line has the form
/// `field: Type = constructor(stability, name, labels, bounds if any), help;`.
macro_rules! families {
    ($(#[$doc:meta])* $of:ident {
        $($field:ident: $family:ident = $make:ident($stability:ident, $name:literal, $labels:expr $(, $bounds:expr)?),
            $help:literal;)*
    }) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $of {
            $(#[doc = $help] pub $field: $family,)*
        }

        impl Default for $of {
            fn default() -> Self {
                $of {
                    $($field: $family::$make(
                        Definition {
                            name: $name,
                            stability: Stability::$stability,
                            help: $help,
                            labels: $labels,
                        }
                        $(, $bounds)?
                    ),)*
                }
            }
        }

        impl $of {
            /// Returns every family of the struct.
            pub fn all(&self) -> impl Iterator<Item = &dyn Family> {
                [$(&self.$field as &dyn Family),*].into_iter()
            }
        }
    };
}

families! {
    /// Metric families of the steps of a request, of watches and of the store.
    Families {
        watch_events_rendered: Counter = new(Own, "apiserver_watch_events_rendered_total", NONE),
            "Changes rendered as a watch event, once for all watchers that request the same encoding.";
        watch_events_sent: Counter = new(Own, "apiserver_watch_events_sent_total", NONE),
            "Changes sent to watchers, counted once for each watcher.";
        log_lines_dropped: Counter = new(Own, "apiserver_log_lines_dropped_total", NONE),
            "Log lines dropped because standard error did not accept them in time.";
        spans_dropped: Counter = new(Own, "apiserver_spans_dropped_total", NONE),
            "Trace spans dropped because the queue to the collector was full.";
        authentications: Counters = new(Alpha, "authentication_attempts", RESULT),
            "Authenticated requests and refused credentials, by result.";
        authentication_durations: Histograms =
            of_durations(Alpha, "authentication_duration_seconds", RESULT, IDENTITY_US),
            "Duration of the authentication of a request, by result.";
        authorizations: Counters = new(Alpha, "authorization_attempts_total", RESULT),
            "Authorization decisions, by result.";
        authorization_durations: Histograms =
            of_durations(Alpha, "authorization_duration_seconds", RESULT, IDENTITY_US),
            "Duration of the authorization of a request, by result.";
        users: Counters = new(Alpha, "authenticated_user_requests", &["username"]),
            "Authenticated requests by user. All users except some users of the system are counted as `other`.";
        client_certificates: Histograms =
            of_sizes(Alpha, "apiserver_client_certificate_expiration_seconds", NONE, LIFETIMES_S),
            "Remaining lifetime of the client certificate of a request.";
        certificates: Gauges =
            new(Own, "apiserver_certificate_expiration_timestamp_seconds", &["certificate"]),
            "End of a certificate of the server, in seconds since the epoch.";
        impersonations: Counters = new(Alpha, "apiserver_impersonation_attempts_total", DECIDED),
            "Requests to impersonate a user, by decision.";
        impersonation_durations: Histograms =
            of_durations(Alpha, "apiserver_impersonation_attempts_duration_seconds", DECIDED, IDENTITY_US),
            "Duration of the decision about an impersonation.";
        stages: Histograms =
            of_durations(Alpha, "apiserver_request_filter_duration_seconds", &["filter"], STAGES_US),
            "Duration of each stage of a request before the request is served.";
        terminations: Counters = new(Alpha, "apiserver_request_terminations_total",
            &["code", "component", "group", "resource", "scope", "subresource", "verb", "version"]),
            "Requests that the server ended because of a timeout or an unavailable extension server.";
        tls_errors: Counters = new(Alpha, "apiserver_tls_handshake_errors_total", NONE),
            "Connections that failed in the TLS handshake.";
        field_validations: Histograms = of_durations(Alpha, "field_validation_request_duration_seconds",
            &["field_validation"], VALIDATIONS_US),
            "Duration of writes, by the treatment of unknown fields.";
        plugins: Histograms = of_durations(Stable,
            "apiserver_admission_controller_admission_duration_seconds", PLUGIN, ADMISSION_US),
            "Duration of one admission plugin.";
        admission: Histograms = of_durations(Stable,
            "apiserver_admission_step_admission_duration_seconds", STEP, ADMISSION_US),
            "Duration of all admission plugins of a request.";
        comparisons: Histograms = of_durations(Alpha, "apiserver_request_timestamp_comparison_time",
            &["code_path"], COMPARISONS_US),
            "Duration of the check whether an update changes more than timestamps of managed fields.";
        watch_events: Counters = new(Alpha, "apiserver_watch_events_total", TYPE),
            "Events sent to watchers.";
        watch_event_sizes: Histograms =
            of_sizes(Alpha, "apiserver_watch_events_sizes", TYPE, EVENTS_BYTES),
            "Bytes of the events sent to watchers.";
        initial_events: Counters = new(Alpha, "apiserver_init_events_total", STORED),
            "Initial events sent to watchers.";
        watch_lists: Histograms = of_durations(Beta, "apiserver_watch_list_duration_seconds",
            &["group", "resource", "scope", "version"], WATCH_LISTS_US),
            "Time until a watch has sent its initial list.";
        bookmarks: Counters = new(Alpha, "etcd_bookmark_total", STORED),
            "Bookmarks sent to watchers.";
        store_requests: Counters = new(Alpha, "etcd_requests_total", ACCESS),
            "Accesses to the store, by operation and type.";
        store_errors: Counters = new(Alpha, "etcd_request_errors_total", ACCESS),
            "Failed accesses to the store, by operation and type.";
        store_durations: Histograms =
            of_durations(Alpha, "etcd_request_duration_seconds", ACCESS, REQUESTS_US),
            "Duration of accesses to the store.";
        lists: Counters = new(Alpha, "apiserver_storage_list_total", STORED),
            "Lists that read the store.";
        store_events: Counters = new(Beta, "apiserver_storage_events_received_total", STORED),
            "Changes that the store has announced to watchers.";
        deprecated: Gauges = new(Stable, "apiserver_requested_deprecated_apis",
            &["group", "removed_release", "resource", "subresource", "version"]),
            "Deprecated API versions that clients have requested.";
        unavailable: Gauges = new(Alpha, "aggregator_unavailable_apiservice", &["name"]),
            "1 for APIServices that are not available.";
        became_unavailable: Counters =
            new(Alpha, "aggregator_unavailable_apiservice_total", &["name", "reason"]),
            "Number of times an APIService became unavailable, by reason.";
        rerouted: Counters = new(Alpha, "apiserver_rerouted_request_total",
            &["code", "group", "resource", "version"]),
            "Requests forwarded to another server on the same store.";
        pod_security: Counters = new(Alpha, "pod_security_evaluations_total",
            &["decision", "mode", "ocp_namespace", "policy_level", "policy_version", "request_operation",
                "resource", "subresource"]),
            "Evaluations of a pod against the pod security level of its namespace.";
        pod_security_exemptions: Counters = new(Alpha, "pod_security_exemptions_total",
            &["request_operation", "resource", "subresource"]),
            "Requests that are exempt from the pod security level of their namespace.";
    }
}

families! {
    /// Metric families of calls to admission webhooks: durations and outcomes.
    Webhooks {
        durations: Histograms = of_durations(Stable,
            "apiserver_admission_webhook_admission_duration_seconds", PLUGIN, WEBHOOKS_US),
            "Duration of a call to an admission webhook.";
        calls: Counters = new(Alpha, "apiserver_admission_webhook_request_total",
            &["code", "name", "operation", "rejected", "type"]),
            "Calls to admission webhooks.";
        rejections: Counters = new(Alpha, "apiserver_admission_webhook_rejection_count",
            &["error_type", "name", "operation", "rejection_code", "type"]),
            "Writes refused by an admission webhook or by its failure.";
        failed_open: Counters = new(Alpha, "apiserver_admission_webhook_fail_open_count", &["name", "type"]),
            "Failures of admission webhooks that were ignored.";
    }
}

families! {
    /// Metric families of validating admission policies: validations that were denied, warned about or
    /// audited, or that failed.
    Validations {
        counts: Counters = new(Beta, "apiserver_validating_admission_policy_check_total", VALIDATED),
            "Policy validations that refused, warned about or recorded a request, or failed.";
        durations: Histograms = of_durations(Beta,
            "apiserver_validating_admission_policy_check_duration_seconds", VALIDATED, POLICIES_US),
            "Duration of one validation of a policy.";
    }
}

families! {
    /// Metric families of mutating admission policies.
    Mutations {
        counts: Counters = new(Alpha, "apiserver_mutating_admission_policy_check_total", MUTATED),
            "Mutations made by policies, by result.";
        durations: Histograms = of_durations(Alpha,
            "apiserver_mutating_admission_policy_check_duration_seconds", MUTATED, POLICIES_US),
            "Duration of one mutation of a policy.";
    }
}

families! {
    /// Metric families of match conditions, of policies and of webhooks.
    Conditions {
        errors: Counters = new(Alpha, "apiserver_admission_match_condition_evaluation_errors_total", CONDITION),
            "Match conditions whose evaluation failed.";
        exclusions: Counters = new(Alpha, "apiserver_admission_match_condition_exclusions_total", CONDITION),
            "Writes that a match condition excluded from a policy or webhook.";
        durations: Histograms = of_durations(Alpha,
            "apiserver_admission_match_condition_evaluation_seconds", CONDITION, CONDITIONS_US),
            "Duration of the evaluation of the match conditions of one policy or webhook.";
    }
}

families! {
    /// Metric families of audit events.
    Audited {
        events: Counters = new(Alpha, "apiserver_audit_event_total", NONE), "Audit events.";
        levels: Counters = new(Alpha, "apiserver_audit_level_total", &["level"]),
            "Requests, by audit level.";
        rejected: Counters = new(Alpha, "apiserver_audit_requests_rejected_total", NONE),
            "Requests refused because an audit event was lost.";
        errors: Counters = new(Alpha, "apiserver_audit_error_total", &["plugin"]),
            "Audit events that were lost.";
    }
}

families! {
    /// Metric families of calls to other servers: webhooks, extension servers, token issuers.
    Calls {
        requests: Counters = new(Alpha, "rest_client_requests_total", &["code", "host", "method"]),
            "Outgoing requests to other servers, by response.";
        durations: Histograms =
            of_durations(Alpha, "rest_client_request_duration_seconds", CALL, CALLS_US),
            "Duration of outgoing requests to other servers.";
        tunnels_begun: Counters = new(Alpha, "apiserver_egress_dialer_dial_start_total", TUNNEL),
            "Connections started through the egress proxy of a network.";
        tunnel_durations: Histograms =
            of_durations(Alpha, "apiserver_egress_dialer_dial_duration_seconds", TUNNEL, TUNNELS_US),
            "Time to establish a connection through the egress proxy of a network.";
        tunnel_failures: Counters = new(Alpha, "apiserver_egress_dialer_dial_failure_count",
            &["protocol", "transport", "stage"]),
            "Connections through the egress proxy of a network that failed, by step.";
    }
}

families! {
    /// Metric families of calls to the external signer of service account tokens.
    Signed {
        fetched: Gauges = new(Alpha, "apiserver_externaljwt_fetch_keys_success_timestamp", NONE),
            "Time at which the server last fetched the keys of the signer, in seconds since the epoch.";
        told: Gauges = new(Alpha, "apiserver_externaljwt_fetch_keys_data_timestamp", NONE),
            "Timestamp in the last answer of the signer with its keys, in seconds since the epoch.";
        fetches: Counters = new(Alpha, "apiserver_externaljwt_fetch_keys_request_total", &["code"]),
            "Requests to the signer for its keys, by result code.";
        tokens: Counters = new(Alpha, "apiserver_externaljwt_sign_request_total", &["code"]),
            "Requests to the signer to sign a token, by result code.";
        durations: Histograms = of_durations(Alpha, "apiserver_externaljwt_request_duration_seconds",
            &["code", "method"], SIGNER_US),
            "Duration of requests to the signer.";
    }
}

families! {
    /// Metric families of health checks.
    Checked {
        state: Gauges = new(Stable, "kubernetes_healthcheck", &["name", "type"]),
            "Result of the last run of a health check: 1 if the check passed, otherwise 0.";
        counts: Counters = new(Stable, "kubernetes_healthchecks_total", &["name", "status", "type"]),
            "Results of health checks, by status.";
    }
}
