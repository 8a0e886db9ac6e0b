//! The flags of the server, named as in kube-apiserver where it has the same flag. The syntax of each value is checked.
//!
//! `_` and `-` are the same inside a flag's name, the last value of a repeated flag counts, switches are `--flag` or
//! `--flag=false` (`line.rs`). Checks that need files or several flags are in [`crate::config`].

mod admission;
mod audit;
mod audit_webhook;
mod authentication;
mod authorization;
mod certificates;
mod compatibility;
pub mod duration;
mod edge;
mod etcd;
mod extension;
mod fairness;
mod forms;
mod line;
mod metrics;
mod nodes;
mod own_service;
#[cfg(test)]
mod page_test;
mod peers;
mod secrecy;
mod suggestion;
mod tls;
mod upstream;
mod words;

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;

use api::state::allocation::{Network, Ports, Ranges};
use api::system::controllers::Selection;
use clap::Args;
use values::naming::{self, Naming};

pub use admission::AdmissionFlags;
pub use audit::AuditFlags;
pub use audit_webhook::AuditWebhookFlags;
pub use authentication::{AuthenticationFlags, OidcFlags};
pub use authorization::AuthorizationFlags;
pub use certificates::CertificateFlags;
pub use compatibility::CompatibilityFlags;
pub use edge::EdgeFlags;
pub use etcd::{Direction, EtcdFlags};
pub use extension::ExtensionFlags;
pub use fairness::FairnessFlags;
pub use forms::{List, Port};
#[cfg(test)]
pub use line::naming_files;
pub use line::{Invocation, Stop, is_command, parse};
pub use metrics::MetricsFlags;
pub use nodes::NodeFlags;
pub use own_service::{NoReconciler, OwnServiceFlags};
pub use peers::PeerFlags;
pub use secrecy::SecrecyFlags;
pub use tls::{NamedFiles, TlsFlags};

use self::forms::{boolean, ip};
use crate::config::checks::Flaws;
use crate::flags::duration;

// Not a documentation comment: clap would use it as the description of the whole command line.
#[derive(Clone, Debug, Args)]
pub struct Flags {
    /// Directory of the store and of the certificates that the server creates. Created at the first start.
    #[arg(long, value_name = "DIR", default_value = "./cluster-data")]
    pub data_dir: PathBuf,

    /// IP address to listen on. 0.0.0.0 or :: means all addresses.
    #[arg(long, value_name = "IP", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST), value_parser = ip)]
    pub bind_address: IpAddr,

    /// Port to listen on (HTTPS). `free` selects a free port, which the log line `serving` reports.
    #[arg(long, value_name = "PORT", default_value = "6443", allow_negative_numbers = true,
          value_parser = forms::port)]
    pub secure_port: Port,

    #[arg(long, value_name = "PROFILE", default_value = naming::ALL[0].profile, value_parser = profile,
          help = format!("Naming profile of API groups, labels and media types; `kubernetes` uses the names of Kubernetes. \
              Cannot be changed once the store exists. Possible values: {}", profiles(", ")))]
    pub naming: Profile,

    /// Certificate chain (PEM) that the server presents to clients. Reloaded when the file changes. Default:
    /// a certificate created by the server.
    #[arg(long, value_name = "FILE")]
    pub tls_cert_file: Option<PathBuf>,

    /// Private key (PEM) of --tls-cert-file.
    #[arg(long, value_name = "FILE")]
    pub tls_private_key_file: Option<PathBuf>,

    #[command(flatten)]
    pub authentication: AuthenticationFlags,

    #[command(flatten)]
    pub authorization: AuthorizationFlags,

    /// Networks (CIDR) from which services get cluster IPs: one network, or one of each address family
    /// separated by a comma. Default: 10.0.0.0/24.
    #[arg(long, value_name = "CIDRS", value_parser = networks)]
    pub service_cluster_ip_range: Option<Networks>,

    /// Range of ports from which services get node ports.
    #[arg(long, value_name = "FIRST-LAST", default_value_t = Ports::DEFAULT, value_parser = Ports::parse)]
    pub service_node_port_range: Ports,

    /// IP address at which pods reach this server. It is published as the endpoint of the server's own
    /// service. Default: --bind-address, or an address of this machine if --bind-address is unspecified or a
    /// loopback address.
    #[arg(long, value_name = "IP", value_parser = ip)]
    pub advertise_address: Option<IpAddr>,

    #[command(flatten)]
    pub own_service: OwnServiceFlags,

    /// Host name of this server in the discovery documents of the token issuer. Default: the server's
    /// address.
    #[arg(long, value_name = "NAME")]
    pub external_hostname: Option<String>,

    #[command(flatten)]
    pub tls: TlsFlags,

    /// Controllers to run, separated by commas: * runs all, name runs one, -name excludes one.
    #[arg(long, value_name = "NAMES", default_value_t, value_parser = Selection::parse)]
    pub controllers: Selection,

    /// Run the garbage collector, which deletes dependents of deleted owners, and support foreground deletion
    /// and orphaning.
    #[arg(long, value_name = "BOOL", default_value_t = true, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_parser = boolean, action = clap::ArgAction::Set)]
    pub enable_garbage_collector: bool,

    /// Accept pods with privileged containers.
    #[arg(long, value_name = "BOOL", default_value_t = false, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_parser = boolean, action = clap::ArgAction::Set)]
    pub allow_privileged: bool,

    #[command(flatten)]
    pub admission: AdmissionFlags,

    /// Feature gates to turn on or off, as Name=true,Name=false. AllAlpha and AllBeta stand for all gates of
    /// that stability level.
    #[arg(long, value_name = "GATES")]
    pub feature_gates: Vec<String>,

    #[command(flatten)]
    pub compatibility: CompatibilityFlags,

    /// Built-in API versions and resources to serve or not, as
    /// group/version=true,group/version/resource=false. api/all, api/ga, api/beta and api/alpha stand for all
    /// versions of that stability level.
    #[arg(long, value_name = "PAIRS")]
    pub runtime_config: Vec<String>,

    #[command(flatten)]
    pub fairness: FairnessFlags,

    #[command(flatten)]
    pub etcd: EtcdFlags,

    #[command(flatten)]
    pub extension: ExtensionFlags,

    #[command(flatten)]
    pub peers: PeerFlags,

    #[command(flatten)]
    pub nodes: NodeFlags,

    #[command(flatten)]
    pub edge: EdgeFlags,

    #[command(flatten)]
    pub certificates: CertificateFlags,

    #[command(flatten)]
    pub metrics: MetricsFlags,

    #[command(flatten)]
    pub secrecy: SecrecyFlags,

    #[command(flatten)]
    pub audit: AuditFlags,

    #[command(flatten)]
    pub audit_webhook: AuditWebhookFlags,

    /// When a write is acknowledged. With sync, after it is on disk. With relaxed, before that, so that a
    /// crash can lose the last acknowledged writes. Possible values: sync, relaxed.
    #[arg(long, value_name = "WHEN", default_value = "sync", value_parser = durability)]
    pub durability: Durability,

    /// How long old revisions stay readable after a newer write replaced them. Lists in chunks and watches
    /// that resume read old revisions. 0 keeps only the newest state.
    #[arg(long, value_name = "DURATION", default_value = "5m0s", value_parser = duration::parse)]
    pub history_retention: Duration,

    /// How long an event is kept after its last write. 0 keeps events until they are deleted.
    #[arg(long, value_name = "DURATION", default_value = "1h0m0s", value_parser = duration::kept)]
    pub event_ttl: Duration,

    /// How long the server still serves requests after SIGTERM, while /readyz fails. Load balancers need this
    /// time to stop sending requests.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration::parse)]
    pub shutdown_delay_duration: Duration,

    /// Period after --shutdown-delay-duration over which the ends of watches are spread, so that their
    /// clients do not all connect to another server at once.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration::parse)]
    pub shutdown_watch_termination_grace_period: Duration,

    /// Longest time from the end of --shutdown-delay-duration to the end of the process. Requests, audit
    /// events and trace spans that are unfinished by then are lost. 0 means 10s more than --request-timeout
    /// or --shutdown-watch-termination-grace-period, whichever is longer.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration::parse)]
    pub shutdown_deadline: Duration,

    /// Longest duration of a request. Watches and other streams have no such limit.
    #[arg(long, value_name = "DURATION", default_value = "1m0s", value_parser = duration::parse)]
    pub request_timeout: Duration,

    /// Shortest duration of a watch, in seconds. The server ends each watch after a random time between this
    /// value and twice this value.
    #[arg(long, value_name = "SECONDS", default_value_t = 1800, value_parser = forms::integer::<u32>)]
    pub min_request_timeout: u32,

    /// How long after the start /livez ignores unfinished start-up checks.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration::parse)]
    pub livez_grace_period: Duration,

    /// Level of detail of the log, 0 to 6. 0: events, refusals and slow requests; 1: also failed requests; 2:
    /// also writes; 3: also all other requests; 4: also details of the server; 5: also of its connections; 6:
    /// everything. The environment variable RUST_LOG takes precedence.
    #[arg(short = 'v', long = "v", value_name = "LEVEL", default_value_t = 0, allow_negative_numbers = true,
          value_parser = forms::level)]
    pub verbosity: u8,

    /// Format of the log on stderr. Possible values: text, json (one object per line).
    #[arg(long, alias = "logging-format", value_name = "FORMAT", default_value = "text", value_parser = log_format)]
    pub log_format: LogFormat,

    /// The version that the server reports instead of its own (`--version=v1.36.0-vendor`).
    #[arg(skip)]
    pub reported_version: Option<String>,
}

impl Flags {
    /// Adds an error if the node port of the server's own service is invalid or out of range.
    pub fn check_node_port(&self, flaws: &mut Flaws) {
        flaws.take(self.own_service.node_port());
        let (port, ports) = (self.own_service.kubernetes_service_node_port, self.service_node_port_range);
        if port > 0 && !ports.contains(port) {
            flaws.push(format!("kubernetes service node port range {ports} doesn't contain {port}"));
        }
    }

    /// Returns the longest duration of the shutdown, without its delay.
    pub fn longest_shutdown(&self) -> Duration {
        match self.shutdown_deadline {
            Duration::ZERO => {
                let drain = self.request_timeout.max(self.shutdown_watch_termination_grace_period);
                drain.saturating_add(CLOSING)
            }
            deadline => deadline,
        }
    }

    /// Returns the networks from which services get cluster IPs.
    pub fn networks(&self) -> Networks {
        self.service_cluster_ip_range.clone().unwrap_or_else(|| Networks(Ranges::default().networks))
    }
}

/// The networks from which services get cluster IPs, the default network first.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Networks(pub Vec<Network>);

/// Time for the parts of a shutdown other than draining requests, unless the operator sets the deadline.
const CLOSING: Duration = Duration::from_secs(10);

/// A naming profile, chosen by `--naming`.
pub type Profile = &'static Naming;

/// The time at which a write is acknowledged, set by `--durability`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Durability {
    /// After the write is on disk.
    Sync,
    /// Before the write is on disk: a crash can lose the last acknowledged writes.
    Relaxed,
}

impl Durability {
    /// Returns the value that `--durability` has for this setting.
    pub fn as_str(self) -> &'static str {
        match self {
            Durability::Sync => "sync",
            Durability::Relaxed => "relaxed",
        }
    }
}

/// The format of log lines, set by `--log-format`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LogFormat {
    /// Text for people.
    Text,
    /// A JSON object per line, for programs.
    Json,
}

fn networks(text: &str) -> Result<Networks, String> {
    if text.is_empty() {
        return Ok(Networks(Ranges::default().networks));
    }
    Ranges::parse_networks(text).map(Networks).map_err(|why| {
        // The message of kube-apiserver does not contain the value.
        match why.strip_prefix("invalid CIDR address: ") {
            Some(wrong) if text.split(',').next() == Some(wrong) => {
                "service-cluster-ip-range[0] is not a valid cidr".to_owned()
            }
            Some(_) => "service-cluster-ip-range[1] is not an ip net".to_owned(),
            None => format!("error determining service IP ranges for primary service cidr: {why}"),
        }
    })
}

/// Returns the naming profile with the name `text`.
///
/// # Errors
/// No naming profile has this name.
pub fn profile(text: &str) -> Result<Profile, String> {
    Naming::by_profile(text).ok_or_else(|| format!("must be {}", profiles(" or ")))
}

fn profiles(between: &str) -> String {
    naming::ALL.map(|naming| naming.profile).join(between)
}

fn durability(text: &str) -> Result<Durability, String> {
    [Durability::Sync, Durability::Relaxed]
        .into_iter()
        .find(|durability| durability.as_str() == text)
        .ok_or_else(|| "must be sync or relaxed".to_owned())
}

fn log_format(text: &str) -> Result<LogFormat, String> {
    match text {
        "text" => Ok(LogFormat::Text),
        "json" => Ok(LogFormat::Json),
        _ => Err("must be text or json".to_owned()),
    }
}
