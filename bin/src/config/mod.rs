//! The flags of the server, and the settings that are built from them. If kube-apiserver has the same flag, the name is
//! the same.
//!
//! ```text
//! command line ─► Flags ─► Config: one value of settings for each group of flags, handed to its owner
//! ```
//!
//! Each group of flags has a file, which declares the flags and checks their values. All wrong flags are reported
//! together, before the server changes a file. To add a flag, add a field to the struct of its group, add a field to
//! the settings of the group, and use this setting.

pub mod admission;
pub mod audit;
pub mod audit_log;
pub mod audit_sink;
pub mod audit_webhook;
pub mod authentication;
pub mod authorization;
pub mod controllers;
pub mod edge;
pub mod egress;
pub mod encryption;
pub mod etcd;
pub mod extension;
pub mod fairness;
pub mod issuers;
pub mod listening;
pub mod logging;
pub mod metrics;
pub mod named_file;
pub mod nodes;
pub mod peers;
pub mod proxy;
pub mod release;
pub mod requests;
pub mod service;
pub mod signing;
pub mod store;
pub mod testing;
pub mod tls;
pub mod tokens;
pub mod traces;

use std::sync::Arc;

use clap::Args;
use types::enablement::Enablement;
use types::features::Features;
use types::version::ServerVersion;
use wire::metrics::families::Calls;
use wire::outgoing::Networks;

use crate::audit::AuditSettings;
use crate::config::admission::{AdmissionFlags, AdmissionSettings};
use crate::config::audit::AuditFlags;
use crate::config::authentication::{AuthenticationFlags, AuthenticationSettings, Surroundings};
use crate::config::authorization::{AuthorizationFlags, AuthorizationSettings};
use crate::config::controllers::{ControllerFlags, ControllerSettings};
use crate::config::edge::{EdgeFlags, EdgeSettings};
use crate::config::egress::EgressFlags;
use crate::config::encryption::{EncryptionFlags, EncryptionSettings};
use crate::config::etcd::EtcdFlags;
use crate::config::extension::{ExtensionFlags, ExtensionSettings};
use crate::config::fairness::FairnessFlags;
use crate::config::listening::{ListeningFlags, ListeningSettings};
use crate::config::logging::LoggingFlags;
use crate::config::metrics::{MetricsFlags, MetricsSettings};
use crate::config::nodes::{NodeFlags, NodeSettings};
use crate::config::peers::{PeerFlags, PeerSettings};
use crate::config::release::{ReleaseFlags, ReleaseSettings};
use crate::config::requests::{RequestFlags, RequestSettings};
use crate::config::service::{ServiceFlags, ServiceSettings};
use crate::config::signing::{SigningFlags, SigningSettings};
use crate::config::store::{StoreFlags, StoreSettings};
use crate::config::testing::TestingFlags;
use crate::config::tls::{TlsFlags, TlsSettings};
use crate::config::traces::{TracingFlags, TracingSettings};
use crate::flags::problems::{FlagErrors, Problems};
use crate::host::logging as log;
use crate::store::etcd::EtcdSettings;

// This struct has no documentation comment, because clap would use the comment as the description of the whole command
// line.
#[derive(Clone, Debug, Args)]
pub struct Flags {
    #[command(flatten, next_help_heading = "Store")]
    pub store: StoreFlags,

    #[command(flatten, next_help_heading = "Listening")]
    pub listening: ListeningFlags,

    #[command(flatten, next_help_heading = "TLS")]
    pub tls: TlsFlags,

    #[command(flatten, next_help_heading = "Requests and shutdown")]
    pub requests: RequestFlags,

    #[command(flatten, next_help_heading = "Logging")]
    pub logging: LoggingFlags,

    #[command(flatten, next_help_heading = "Metrics")]
    pub metrics: MetricsFlags,

    #[command(flatten, next_help_heading = "Traces")]
    pub traces: TracingFlags,

    #[command(flatten, next_help_heading = "Browsers, connections and debugging")]
    pub edge: EdgeFlags,

    #[command(flatten, next_help_heading = "Flow control")]
    pub fairness: FairnessFlags,

    #[command(flatten, next_help_heading = "Authentication")]
    pub authentication: AuthenticationFlags,

    #[command(flatten, next_help_heading = "Authorization")]
    pub authorization: AuthorizationFlags,

    #[command(flatten, next_help_heading = "Admission")]
    pub admission: AdmissionFlags,

    #[command(flatten, next_help_heading = "Audit")]
    pub audit: AuditFlags,

    #[command(flatten, next_help_heading = "Encryption of stored values")]
    pub encryption: EncryptionFlags,

    #[command(flatten, next_help_heading = "Signing of certificates")]
    pub signing: SigningFlags,

    #[command(flatten, next_help_heading = "Services")]
    pub service: ServiceFlags,

    #[command(flatten, next_help_heading = "Controllers")]
    pub controllers: ControllerFlags,

    #[command(flatten, next_help_heading = "Releases and features")]
    pub release: ReleaseFlags,

    #[command(flatten, next_help_heading = "Kubelets")]
    pub nodes: NodeFlags,

    #[command(flatten, next_help_heading = "Extension servers")]
    pub extension: ExtensionFlags,

    #[command(flatten, next_help_heading = "Peers")]
    pub peers: PeerFlags,

    #[command(flatten, next_help_heading = "Proxies to other servers")]
    pub egress: EgressFlags,

    #[command(flatten, next_help_heading = "etcd")]
    pub etcd: EtcdFlags,

    #[command(flatten, next_help_heading = "Test features")]
    pub testing: TestingFlags,

    /// The version that the server reports instead of its own (`--version=v1.36.0-vendor`).
    #[arg(skip)]
    pub reported_version: Option<String>,
}

/// A valid configuration of a server.
#[derive(Clone, Debug)]
pub struct Config {
    /// The data directory, the naming profile, and the durability of writes.
    pub store: StoreSettings,
    /// The port that the server listens on.
    pub listening: ListeningSettings,
    /// Serving certificates and protocols.
    pub tls: TlsSettings,
    /// Time limits of requests and of the shutdown.
    pub requests: RequestSettings,
    /// Level and format of the log.
    pub logging: log::Settings,
    /// The metrics that are published.
    pub metrics: MetricsSettings,
    /// Metrics of calls to other servers.
    pub outgoing_calls: Arc<Calls>,
    /// The destination of traces, or `None` if requests are not traced.
    pub traces: Option<TracingSettings>,
    /// Settings of the steps that need only the head of a request, and of debugging.
    pub edge: EdgeSettings,
    /// Limits on concurrent requests (flow control).
    pub fairness: api::state::fairness::Settings,
    /// The authenticators and their credentials.
    pub authentication: AuthenticationSettings,
    /// The authorizers, in their order.
    pub authorization: AuthorizationSettings,
    /// The admission plugins and their configuration.
    pub admission: AdmissionSettings,
    /// The audit policy and sinks, or `None` if nothing is audited.
    pub audit: Option<AuditSettings>,
    /// The encryption of stored values, or `None` if values are not encrypted.
    pub encryption: Option<EncryptionSettings>,
    /// The authority that signs certificate requests.
    pub signing: SigningSettings,
    /// Addresses and ports of services, and the server's own service.
    pub service: ServiceSettings,
    /// The controllers that the server runs.
    pub controllers: ControllerSettings,
    /// The version that the server reports, with the releases that it emulates.
    pub version: ServerVersion,
    /// Feature gates, with their values.
    pub features: Features,
    /// The built-in types that are served.
    pub enablement: Enablement,
    /// Settings of connections to nodes, pods and services.
    pub nodes: NodeSettings,
    /// The credentials that this server presents to extension servers.
    pub extensions: ExtensionSettings,
    /// Connections to the other servers on the same etcd.
    pub peers: PeerSettings,
    /// The etcd that stores the objects, or `None` if the server's own log stores them.
    pub etcd: Option<EtcdSettings>,
    /// Whether the server has the test features.
    pub testing: bool,
    /// Whether the process ends when its parent process ends.
    pub exits_with_parent: bool,
    /// The flags with the values that the operator gave, for debug endpoints. The caller of
    /// [`Config::from_flags`] sets this field.
    pub flags: Vec<(String, String)>,
    /// Whether the ready server prints a text for people instead of a log line. The caller of
    /// [`Config::from_flags`] sets this field.
    pub welcomes: bool,
}

impl Config {
    /// Checks the flags, and reads the files that the flags name.
    ///
    /// # Errors
    /// A flag is wrong. The error has all wrong flags.
    pub fn from_flags(flags: &Flags) -> Result<Config, FlagErrors> {
        // Most other checks depend on the naming profile, the releases and the feature gates. So an error in
        // one of these three is reported without the errors of other checks.
        let mut problems = Problems::default();
        let store = flags.store.settings(&mut problems);
        let release = flags.release.settings(&mut problems);
        let (store, release) = problems.finish(store.zip(release))?;
        let mut problems = Problems::default();
        // Check in this order, because kube-apiserver reports errors in this order.
        let fairness = flags.fairness.settings(&mut problems);
        let edge = flags.edge.settings(&mut problems);
        flags.release.check_releases(&mut problems);
        let encryption = problems.take(flags.encryption.settings(store.naming));
        let egress = problems.take(flags.egress.settings(store.naming));
        // If the file of networks could not be read, later checks must not report missing networks as well.
        let networks = egress.unwrap_or(Networks { is_configured: true, ..Networks::default() });
        let outgoing_calls = Arc::<Calls>::default();
        let networks = networks.counted(&outgoing_calls);
        let etcd = problems.take(flags.etcd.settings(store.naming, &networks.etcd));
        if flags.fairness.enable_priority_and_fairness {
            problems.take(flags.release.check_flow_control(store.naming));
        }
        let listening = flags.listening.settings(&mut problems);
        let access = Access::from_flags(flags, &store, &release, &networks, &mut problems);
        let enablement = problems.take(flags.release.enablement(store.naming, &release));
        let metrics = flags.metrics.settings(&mut problems);
        let service = flags.service.settings(flags.listening.bind_address, &mut problems);
        let tls = flags.tls.settings(&mut problems);
        let signing = flags.signing.settings(&mut problems);
        let traces = problems.take(flags.traces.settings(store.naming, &networks.control_plane));
        let missing = flags.extension.missing_for_peers();
        let peers = problems.take(flags.peers.settings(&release.features, missing));
        let nodes = problems.take(flags.nodes.settings(&networks));
        let requests = flags.requests.settings(&mut problems);
        let (logging, controllers) = (flags.logging.settings(), flags.controllers.settings());
        let made = || {
            let Access { authentication, authorization, admission, audit, extensions } = access?;
            Some(Config {
                store,
                listening: listening?,
                tls: tls?,
                requests,
                logging,
                metrics: metrics?,
                outgoing_calls,
                traces: traces?,
                edge: edge?,
                fairness: fairness?,
                authentication,
                authorization,
                admission,
                audit,
                encryption: encryption?,
                signing: signing?,
                service: service?,
                controllers,
                version: ServerVersion {
                    build: crate::BUILD,
                    reported: flags.reported_version.clone(),
                    releases: release.releases,
                },
                features: release.features,
                enablement: enablement?,
                nodes: nodes?,
                extensions,
                peers: peers?,
                etcd: etcd?,
                testing: flags.testing.testing,
                exits_with_parent: flags.testing.exit_with_parent,
                flags: Vec::new(),
                welcomes: false,
            })
        };
        problems.finish(made())
    }
}

/// The settings that decide which requests are allowed.
struct Access {
    authentication: AuthenticationSettings,
    authorization: AuthorizationSettings,
    admission: AdmissionSettings,
    audit: Option<AuditSettings>,
    extensions: ExtensionSettings,
}

impl Access {
    fn from_flags(
        flags: &Flags,
        store: &StoreSettings,
        release: &ReleaseSettings,
        networks: &Networks,
        problems: &mut Problems,
    ) -> Option<Access> {
        let naming = store.naming;
        let authorization = flags.authorization.settings(naming, &networks.control_plane, problems);
        let audit = flags.audit.settings(naming, &networks.control_plane, problems);
        let admission = flags.admission.settings(naming, networks, problems);
        let surroundings = Surroundings {
            naming,
            allows_all: authorization.as_ref().is_some_and(AuthorizationSettings::allows_all),
            networks,
            features: &release.features,
        };
        let authentication = flags.authentication.settings(surroundings, problems)?;
        let extensions = problems.take(flags.extension.settings(&authentication, networks));
        Some(Access {
            authentication,
            authorization: authorization?,
            admission: admission?,
            audit: audit?,
            extensions: extensions?,
        })
    }
}

#[cfg(test)]
#[path = "flags_test.rs"]
mod tests;
