//! The command line: kube-apiserver's flags where it has them, each value checked for its form.
//!
//! `_` and `-` are the same inside a flag's name, the last value of a repeated flag counts, switches are `--flag` or
//! `--flag=false`. An error is one line. Checks that need files or several flags are in [`crate::config`].

mod audit;
mod audit_webhook;
mod authentication;
mod authorization;
mod certificates;
mod edge;
mod etcd;
mod extension;
mod fairness;
mod forms;
mod metrics;
mod nodes;
mod own_service;
mod peers;
mod secrecy;
mod suggestion;
mod tls;
mod upstream;

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;

use api::state::allocation::{Network, Ports, Ranges};
use api::system::controllers::Selection;
use api::values::naming::{self, Naming};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, CommandFactory, Parser, Subcommand};

pub use audit::AuditFlags;
pub use audit_webhook::AuditWebhookFlags;
pub use authentication::{AuthenticationFlags, OidcFlags};
pub use authorization::AuthorizationFlags;
pub use certificates::CertificateFlags;
pub use edge::EdgeFlags;
pub use etcd::{Direction, EtcdFlags};
pub use extension::ExtensionFlags;
pub use fairness::FairnessFlags;
pub use forms::Port;
pub use metrics::MetricsFlags;
pub use nodes::NodeFlags;
pub use own_service::{NoReconciler, OwnServiceFlags};
pub use peers::PeerFlags;
pub use secrecy::SecrecyFlags;
pub use tls::{NamedFiles, TlsFlags};

use self::forms::{boolean, ip};
use crate::cli::args::Command;
use crate::duration;

/// Serves a resource API from its own revision log.
///
/// Without flags it keeps its store in ./cluster-data, creates its certificates at the first start, listens on
/// https://127.0.0.1:6443, and writes a kubeconfig for its administrator into the data directory. With a command it
/// works on a store offline instead.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "cluster-apiserver",
    version,
    args_override_self = true,
    max_term_width = 110,
    after_help = upstream::help(),
    args_conflicts_with_subcommands = true
)]
struct CommandLine {
    #[command(flatten)]
    flags: Flags,
    #[command(subcommand)]
    command: Option<Command>,
}

/// The network of service IPs where none is given.
pub const NETWORK: &str = "10.0.0.0/24";

/// What the command line asks for.
#[derive(Clone, Debug)]
pub enum Invocation {
    /// Serve.
    Serve(Box<Flags>, Vec<(String, String)>),
    /// Run an offline command.
    Run(Command),
}

#[cfg(test)]
impl Invocation {
    /// The flags of a command line that asks to serve.
    pub fn flags(self) -> Flags {
        match self {
            Invocation::Serve(flags, _) => *flags,
            Invocation::Run(command) => panic!("a command: {command:?}"),
        }
    }
}

// Not a documentation comment: clap would use it as the description of the whole command line.
#[derive(Clone, Debug, Args)]
pub struct Flags {
    /// Directory of the store, and of the certificates created at the first start.
    #[arg(long, value_name = "DIR", default_value = "./cluster-data")]
    pub data_dir: PathBuf,

    /// Address to listen on; 0.0.0.0 or :: for all addresses.
    #[arg(long, value_name = "IP", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST), value_parser = ip)]
    pub bind_address: IpAddr,

    /// Port to listen on; `free` selects a free one, of which the log tells.
    #[arg(long, value_name = "PORT", default_value = "6443", allow_negative_numbers = true,
          value_parser = forms::port)]
    pub secure_port: Port,

    #[arg(long, value_name = "PROFILE", default_value = naming::ALL[0].profile, value_parser = profile,
          help = format!("Naming profile of groups, labels and media types; fixed for the life of a store. One of: {}",
              profiles(", ")))]
    pub naming: Profile,

    /// Serving certificate chain (PEM); reloaded when it changes. Default: a certificate created by the server.
    #[arg(long, value_name = "FILE")]
    pub tls_cert_file: Option<PathBuf>,

    /// Private key (PEM) of --tls-cert-file.
    #[arg(long, value_name = "FILE")]
    pub tls_private_key_file: Option<PathBuf>,

    #[command(flatten)]
    pub authentication: AuthenticationFlags,

    #[command(flatten)]
    pub authorization: AuthorizationFlags,

    /// Networks of service IPs: one, or one of each address family.
    #[arg(long, value_name = "CIDRS", default_value = NETWORK, value_parser = networks)]
    pub service_cluster_ip_range: Networks,

    /// Range of node ports of services.
    #[arg(long, value_name = "FIRST-LAST", default_value_t = Ports::DEFAULT, value_parser = Ports::parse)]
    pub service_node_port_range: Ports,

    /// Address at which pods reach this server, published in its own service. Default: --bind-address, or an address
    /// of this machine if that is unspecified or a loopback address.
    #[arg(long, value_name = "IP", value_parser = ip)]
    pub advertise_address: Option<IpAddr>,

    #[command(flatten)]
    pub own_service: OwnServiceFlags,

    /// Host name under which the documents of the token issuer name this server. Default: its address.
    #[arg(long, value_name = "NAME")]
    pub external_hostname: Option<String>,

    #[command(flatten)]
    pub tls: TlsFlags,

    /// Controllers to run, separated by commas: * for all, name for one, -name to exclude one.
    #[arg(long, value_name = "NAMES", default_value_t, value_parser = Selection::parse)]
    pub controllers: Selection,

    /// Support foreground deletion and orphaning, and run the garbage collector.
    #[arg(long, value_name = "BOOL", default_value_t = true, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_parser = boolean, action = clap::ArgAction::Set)]
    pub enable_garbage_collector: bool,

    /// Accept privileged containers.
    #[arg(long, value_name = "BOOL", default_value_t = false, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_parser = boolean, action = clap::ArgAction::Set)]
    pub allow_privileged: bool,

    /// Admission plugins to run beside those that run by default, separated by commas.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub enable_admission_plugins: Vec<String>,
    /// Admission plugins not to run, separated by commas.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub disable_admission_plugins: Vec<String>,
    /// All admission plugins that run, separated by commas; instead of the two above. Deprecated.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub admission_control: Vec<String>,
    /// Configuration of admission plugins (AdmissionConfiguration, YAML or JSON).
    #[arg(long, value_name = "FILE")]
    pub admission_control_config_file: Option<PathBuf>,
    /// Reach services that webhooks are behind at their endpoints, not at their address in the cluster.
    #[arg(long, value_name = "BOOL", default_value_t = false, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_parser = boolean, action = clap::ArgAction::Set)]
    pub enable_aggregator_routing: bool,

    /// How long pods stay on a node that is not ready, where they do not say so, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 300, allow_negative_numbers = true,
          value_parser = forms::integer::<i64>)]
    pub default_not_ready_toleration_seconds: i64,
    /// How long pods stay on a node that is not reachable, where they do not say so, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 300, allow_negative_numbers = true,
          value_parser = forms::integer::<i64>)]
    pub default_unreachable_toleration_seconds: i64,

    /// Feature gates, as Name=true,Name=false; AllAlpha and AllBeta stand for all gates of a stage.
    #[arg(long, value_name = "GATES")]
    pub feature_gates: Vec<String>,

    /// Release whose gates and versions the server has, as 1.35; its own or one of the three before.
    #[arg(long, value_name = "RELEASE", value_delimiter = ',')]
    pub emulated_version: Vec<String>,

    /// Oldest release that may run beside it. Default: the one before --emulated-version.
    #[arg(long, value_name = "RELEASE", value_delimiter = ',')]
    pub min_compatibility_version: Vec<String>,

    /// Built-in APIs that are served or not, as group/version=true,group/version/resource=false; api/all, api/ga, api/beta
    /// and api/alpha stand for all versions of a stage.
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

    /// When a write is acknowledged: once it is on disk (sync), or before (relaxed). One of: sync, relaxed.
    #[arg(long, value_name = "WHEN", default_value = "sync", value_parser = durability)]
    pub durability: Durability,

    /// How long superseded revisions stay readable. 0: only the newest state is kept.
    #[arg(long, value_name = "DURATION", default_value = "5m0s", value_parser = duration::parse)]
    pub history_retention: Duration,

    /// How long an event lives after its last write. 0: until it is deleted.
    #[arg(long, value_name = "DURATION", default_value = "1h0m0s", value_parser = duration::parse)]
    pub event_ttl: Duration,

    /// How long requests are served after SIGTERM, while /readyz fails.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration::parse)]
    pub shutdown_delay_duration: Duration,

    /// The time after --shutdown-delay-duration over which the ends of watches are spread, so that their clients do not all
    /// come to another server at once.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration::parse)]
    pub shutdown_watch_termination_grace_period: Duration,

    /// Longest duration of a request that is not a watch or another stream.
    #[arg(long, value_name = "DURATION", default_value = "1m0s", value_parser = duration::parse)]
    pub request_timeout: Duration,

    /// Least duration of a watch, in seconds; each watch lasts a random time between once and twice this.
    #[arg(long, value_name = "SECONDS", default_value_t = 1800, value_parser = forms::integer::<u32>)]
    pub min_request_timeout: u32,

    /// How long after the start /livez ignores unfinished start-up checks.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration::parse)]
    pub livez_grace_period: Duration,

    /// Level of detail of the log: 0 (events), 4 (requests), 6 (everything). RUST_LOG takes precedence.
    #[arg(short = 'v', long = "v", value_name = "LEVEL", default_value_t = 0, allow_negative_numbers = true,
          value_parser = forms::level)]
    pub verbosity: u8,

    /// Format of the log on stderr. One of: text, json.
    #[arg(long, alias = "logging-format", value_name = "FORMAT", default_value = "text", value_parser = log_format)]
    pub log_format: LogFormat,
}

impl Flags {
    /// Checks the port of the server's own service at nodes.
    ///
    /// # Errors
    /// It is none, or not one of those of services.
    pub fn node_port_of_own_service(&self) -> anyhow::Result<()> {
        let ports = self.service_node_port_range;
        match self.own_service.node_port()? {
            Some(port) if !ports.contains(port.into()) => {
                anyhow::bail!("kubernetes service port range {ports} doesn't contain {port}")
            }
            _ => Ok(()),
        }
    }
}

/// Networks of service IPs, the default one first.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Networks(pub Vec<Network>);

/// The naming profile.
pub type Profile = &'static Naming;

/// When a write is acknowledged.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Durability {
    /// Once it is on disk.
    Sync,
    /// Before it is on disk: a crash may lose the last acknowledged writes.
    Relaxed,
}

impl Durability {
    /// The flag's value.
    pub fn as_str(self) -> &'static str {
        match self {
            Durability::Sync => "sync",
            Durability::Relaxed => "relaxed",
        }
    }
}

/// Format of log lines.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LogFormat {
    /// Text for people.
    Text,
    /// One JSON object per line.
    Json,
}

/// Why the command line has no flags to continue with.
#[derive(Debug, Eq, PartialEq)]
pub enum Stop {
    /// A text that was asked for, such as the help.
    Print(String),
    /// An error in one line.
    Refuse(String),
}

/// Parses a command line, program name first.
///
/// # Errors
/// [`Stop`] when the process should end instead of serving.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Invocation, Stop> {
    let mut names_follow = true;
    let arguments = arguments.into_iter().enumerate().map(|(i, argument)| {
        names_follow &= argument != "--";
        if i > 0 && names_follow { normalised(argument) } else { argument }
    });
    let mut arguments: Vec<OsString> = arguments.collect();
    // The words after a command are its own.
    if arguments.get(1).is_some_and(|first| first.to_string_lossy().starts_with('-')) {
        arguments = upstream::settle(arguments).map_err(Stop::Refuse)?;
    }
    let arguments = without_empty_paths(arguments);
    let line = CommandLine::try_parse_from(&arguments).map_err(|error| match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Stop::Print(error.to_string()),
        _ => Stop::Refuse(one_line(&error, &arguments)),
    })?;
    Ok(match line.command {
        None => Invocation::Serve(Box::new(line.flags), shown(&arguments)),
        Some(command) => Invocation::Run(command),
    })
}

/// The arguments without flags that name the file "": that is what there is without them.
fn without_empty_paths(arguments: Vec<OsString>) -> Vec<OsString> {
    let command = CommandLine::command();
    let is_path = |name: &str| {
        let is_of = |argument: &&clap::Arg| {
            argument.get_long() == Some(name)
                || argument.get_all_aliases().is_some_and(|all| all.contains(&name))
        };
        let found = command.get_arguments().find(is_of);
        found.is_some_and(|argument| {
            argument.get_value_parser().type_id() == clap::builder::ValueParser::path_buf().type_id()
        })
    };
    let mut names_follow = true;
    let is_kept = |argument: &OsString| {
        names_follow &= argument != "--";
        let name = argument.to_str().and_then(|text| text.strip_prefix("--")?.strip_suffix('='));
        !names_follow || !name.is_some_and(is_path)
    };
    arguments.into_iter().filter(is_kept).collect()
}

/// All flags with their values, for people who ask the server; by name.
fn shown(arguments: &[OsString]) -> Vec<(String, String)> {
    let Ok(matches) = CommandLine::command().try_get_matches_from(arguments) else { return Vec::new() };
    let command = CommandLine::command();
    let flags = command.get_arguments().filter_map(|argument| {
        let name = argument.get_long()?;
        let values = matches.try_get_raw(argument.get_id().as_str()).ok().flatten();
        let values: Vec<_> = values.into_iter().flatten().map(|value| value.to_string_lossy()).collect();
        Some((name.to_owned(), values.join(",")))
    });
    let mut flags: Vec<_> = flags.filter(|(name, _)| !matches!(name.as_str(), "help" | "version")).collect();
    flags.sort();
    flags
}

/// `--a_b=c_d` → `--a-b=c_d`.
fn normalised(argument: OsString) -> OsString {
    let Some(flag) = argument.to_str().and_then(|text| text.strip_prefix("--")) else { return argument };
    let (name, value) = flag.find('=').map_or((flag, ""), |at| flag.split_at(at));
    if name.contains('_') { format!("--{}{value}", name.replace('_', "-")).into() } else { argument }
}

/// Clap's errors in the words of kube-apiserver's flag library where it has any.
fn one_line(error: &clap::Error, arguments: &[OsString]) -> String {
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let subject =
        context(ContextKind::InvalidArg).or(context(ContextKind::InvalidSubcommand)).unwrap_or_default();
    // Clap appends the names of values: `--secure-port <PORT>`.
    let flag = subject.split([' ', '=', '[']).next().unwrap_or_default();
    let value = context(ContextKind::InvalidValue).unwrap_or_default();
    let line = match error.kind() {
        ErrorKind::UnknownArgument if flag.starts_with('-') => unknown(flag, arguments),
        ErrorKind::ArgumentConflict if Command::has_subcommand(subject) => {
            format!("the command {subject} must come before its flags")
        }
        // Clap reports any word after flags as a conflicting command.
        ErrorKind::ArgumentConflict if subject.starts_with('-') => first_line(&error.to_string()),
        ErrorKind::UnknownArgument | ErrorKind::InvalidSubcommand | ErrorKind::ArgumentConflict => {
            unexpected(subject, arguments)
        }
        ErrorKind::MissingRequiredArgument => match error.get(ContextKind::InvalidArg) {
            Some(ContextValue::Strings(flags)) => format!("flag is required: {}", flags.join(", ")),
            _ => "a flag is missing".to_owned(),
        },
        ErrorKind::InvalidValue if value.is_empty() => format!("flag needs an argument: {flag}"),
        ErrorKind::ValueValidation => match std::error::Error::source(error) {
            Some(cause) => forms::invalid(flag, value, &cause.to_string()),
            None => format!("invalid argument {value:?} for {flag:?} flag"),
        },
        ErrorKind::InvalidUtf8 => "arguments must be valid UTF-8".to_owned(),
        _ => first_line(&error.to_string()),
    };
    // A value may contain line breaks.
    line.replace(['\n', '\r'], " ")
}

/// What to say of a flag that is not known. Clap names the letter alone where several were written together.
fn unknown(flag: &str, arguments: &[OsString]) -> String {
    let written = |is_it: &dyn Fn(&str) -> bool| {
        let texts = arguments.iter().skip(1).map(|argument| argument.to_string_lossy());
        texts.into_iter().find(|text| is_it(text)).map_or_else(|| flag.to_owned(), |text| text.into_owned())
    };
    match flag.strip_prefix("--") {
        Some(name) if name.is_empty() || name.starts_with('-') => {
            format!(
                "bad flag syntax: {}",
                written(&|text| text.starts_with("---") || text.starts_with("--="))
            )
        }
        Some(_) => format!("unknown flag: {flag}"),
        None => {
            let letter = flag.trim_start_matches('-');
            let has_letter =
                |text: &str| !text.starts_with("--") && text.starts_with('-') && text.contains(letter);
            format!("unknown shorthand flag: '{letter}' in {}", written(&has_letter))
        }
    }
}

/// What to say of a word that is no flag.
fn unexpected(word: &str, arguments: &[OsString]) -> String {
    if matches!(word, "true" | "false") {
        return format!(
            "unexpected argument {word:?}: write the value of a flag after its name, --flag={word}"
        );
    }
    let commands = CommandLine::command();
    let names = commands.get_subcommands().map(clap::Command::get_name);
    match suggestion::nearest(word, names) {
        Some(command) => format!("unknown command {word:?}: did you mean {command:?}? See --help"),
        None => {
            let is_of = |naming: &&Naming| {
                arguments.iter().any(|argument| *argument == *format!("--naming={}", naming.profile))
            };
            let naming = naming::ALL.into_iter().find(is_of).unwrap_or(naming::ALL[0]);
            format!("{:?} does not take any arguments, got [{word:?}]", naming.system("apiserver"))
        }
    }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned()
}

fn networks(text: &str) -> Result<Networks, String> {
    let text = if text.is_empty() { NETWORK } else { text };
    Ranges::parse_networks(text).map(Networks).map_err(|why| {
        // What kube-apiserver says does not name the text.
        match why.strip_prefix("invalid CIDR address: ") {
            Some(wrong) if text.split(',').next() == Some(wrong) => {
                "service-cluster-ip-range[0] is not a valid cidr".to_owned()
            }
            Some(_) => "service-cluster-ip-range[1] is not an ip net".to_owned(),
            None => format!("error determining service IP ranges for primary service cidr: {why}"),
        }
    })
}

/// The naming profile of that name.
///
/// # Errors
/// There is none.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn line(arguments: &str) -> Result<Flags, Stop> {
        let words = std::iter::once("cluster-apiserver").chain(arguments.split_whitespace());
        parse(words.map(OsString::from)).map(Invocation::flags)
    }

    #[test]
    fn no_flags_mean_the_documented_defaults() {
        let flags = line("").unwrap();
        assert_eq!(flags.data_dir, PathBuf::from("./cluster-data"));
        assert_eq!(
            (flags.bind_address.to_string().as_str(), flags.secure_port),
            ("127.0.0.1", Port::Number(6443))
        );
        assert_eq!(flags.naming.profile, "cluster");
        assert_eq!((flags.durability, flags.authentication.anonymous_auth), (Durability::Sync, None));
        assert_eq!(flags.request_timeout, Duration::from_secs(60));
        assert_eq!((flags.history_retention.as_secs(), flags.event_ttl.as_secs()), (300, 3_600));
        assert_eq!((flags.min_request_timeout, flags.verbosity), (1800, 0));
        assert_eq!(flags.shutdown_delay_duration, Duration::ZERO);
    }

    #[test]
    fn flags_are_read_as_upstream_reads_them() {
        type Check = fn(&Flags) -> bool;
        let table: &[(&str, Check)] = &[
            ("--secure_port=7000", |f| f.secure_port == Port::Number(7000)),
            ("--secure-port 7000", |f| f.secure_port == Port::Number(7000)),
            ("--secure-port=free", |f| f.secure_port == Port::Free),
            ("--secure-port=1 --secure_port=2", |f| f.secure_port == Port::Number(2)), // the last one wins
            ("--data_dir=some_dir", |f| f.data_dir == *"some_dir"),
            ("--anonymous-auth", |f| f.authentication.anonymous_auth == Some(true)),
            ("--anonymous-auth=false", |f| f.authentication.anonymous_auth == Some(false)),
            ("--anonymous-auth=0 --anonymous-auth=T", |f| f.authentication.anonymous_auth == Some(true)),
            ("--bind-address=::", |f| f.bind_address.is_unspecified()),
            ("--naming=kubernetes", |f| f.naming.system_prefix == "kube-"),
            ("--durability=relaxed", |f| f.durability == Durability::Relaxed),
            ("--history-retention=0", |f| f.history_retention.is_zero()),
            ("--history-retention=168h --event-ttl=2h", |f| {
                (f.history_retention.as_secs(), f.event_ttl.as_secs()) == (7 * 24 * 3_600, 7_200)
            }),
            ("--shutdown-delay-duration=1m30s", |f| f.shutdown_delay_duration.as_secs() == 90),
            ("--service-cluster-ip-range=10.1.0.0/16,fd00::/112", |f| {
                f.service_cluster_ip_range.0.len() == 2
            }),
            ("--service-node-port-range=8000+9", |f| f.service_node_port_range.count() == 10),
            ("--controllers=*,-garbagecollector", |f| !f.controllers.has("garbage-collector-controller")),
            ("--enable-garbage-collector=false", |f| !f.enable_garbage_collector),
            ("--feature-gates=A=true --feature-gates=B=false", |f| f.feature_gates == ["A=true", "B=false"]),
            ("--service-account-issuer=https://a --service-account-issuer=https://b", |f| {
                f.authentication.service_account_issuer == ["https://a", "https://b"]
            }),
            ("--enable-admission-plugins=A,B --disable-admission-plugins=C", |f| {
                f.enable_admission_plugins == ["A", "B"] && f.disable_admission_plugins == ["C"]
            }),
            ("--api-audiences=a,b --api-audiences=c", |f| f.authentication.api_audiences == ["a", "b", "c"]),
            ("--service-account-max-token-expiration=2h", |f| {
                f.authentication.service_account_max_token_expiration.as_secs() == 7200
            }),
            ("-v=4", |f| f.verbosity == 4),
            ("-v 4", |f| f.verbosity == 4),
            ("--v=4", |f| f.verbosity == 4),
            ("--logging-format=json", |f| f.log_format == LogFormat::Json),
        ];
        for (arguments, check) in table {
            let flags = line(arguments).unwrap_or_else(|stop| panic!("{arguments}: {stop:?}"));
            assert!(check(&flags), "{arguments}: {flags:?}");
        }
    }

    #[test]
    fn a_wrong_command_line_is_one_line() {
        for (arguments, want) in [
            ("--no-such-flag", "unknown flag: --no-such-flag"),
            ("--no_such_flag=1", "unknown flag: --no-such-flag"),
            ("-x", "unknown shorthand flag: 'x' in -x"),
            ("-secure-port=1", "unknown shorthand flag: 's' in -secure-port=1"),
            ("--secure-port=1 -xyz", "unknown shorthand flag: 'x' in -xyz"),
            ("--=1", "bad flag syntax: --=1"),
            ("---a", "bad flag syntax: ---a"),
            ("serve", "\"cluster-apiserver\" does not take any arguments, got [\"serve\"]"),
            ("--naming=kubernetes serve", "\"kube-apiserver\" does not take any arguments, got [\"serve\"]"),
            ("verfy", "unknown command \"verfy\": did you mean \"verify\"? See --help"),
            ("--data-dir=x verify", "the command verify must come before its flags"),
            ("verify -x", "unknown shorthand flag: 'x' in -x"),
            ("verify sure", "\"cluster-apiserver\" does not take any arguments, got [\"sure\"]"),
            ("verify --output=xml", "invalid argument \"xml\" for \"--output\" flag: must be text or json"),
            ("inspect --from=x", "invalid argument \"x\" for \"--from\" flag: not a revision"),
            ("inspect --key=a --prefix=b", "the argument '--key <KEY>' cannot be used with '--prefix <KEY>'"),
            (
                "--anonymous-auth false",
                "unexpected argument \"false\": write the value of a flag after its name, --flag=false",
            ),
            ("--secure-port", "flag needs an argument: --secure-port"),
            (
                "--secure-port=x",
                "invalid argument \"x\" for \"--secure-port\" flag: strconv.ParseInt: parsing \"x\": invalid syntax",
            ),
            (
                "--bind-address=localhost",
                "invalid argument \"localhost\" for \"--bind-address\" flag: failed to parse IP: \"localhost\"",
            ),
            (
                "--anonymous-auth=yes",
                "invalid argument \"yes\" for \"--anonymous-auth\" flag: strconv.ParseBool: parsing \"yes\": invalid syntax",
            ),
            (
                "-v=x",
                "invalid argument \"x\" for \"-v, --v\" flag: strconv.ParseUint: parsing \"x\": invalid syntax",
            ),
            (
                "--naming=other",
                "invalid argument \"other\" for \"--naming\" flag: must be cluster or kubernetes",
            ),
            (
                "--durability=maybe",
                "invalid argument \"maybe\" for \"--durability\" flag: must be sync or relaxed",
            ),
            ("--log-format=xml", "format: Invalid value: \"xml\": Unsupported log format"),
            ("--service-cluster-ip-range=10.0.0.0", "service-cluster-ip-range[0] is not a valid cidr"),
            (
                "--service-cluster-ip-range=10.0.0.0/30",
                "error determining service IP ranges for primary service cidr: the service cluster IP range must be at \
                 least 8 IP addresses",
            ),
            (
                "--service-node-port-range=9-1",
                "invalid argument \"9-1\" for \"--service-node-port-range\" flag: end port cannot be less than start port: 9-1",
            ),
            (
                "--controllers=*,unknown",
                "invalid argument \"*,unknown\" for \"--controllers\" flag: \"unknown\" is not in the list of known controllers",
            ),
            (
                "--request-timeout=60",
                "invalid argument \"60\" for \"--request-timeout\" flag: time: missing unit in duration \"60\"",
            ),
        ] {
            assert_eq!(line(arguments).unwrap_err(), Stop::Refuse(want.to_owned()), "{arguments}");
        }
    }

    #[test]
    fn questions_are_answered_on_stdout() {
        assert_eq!(
            line("--version").unwrap_err(),
            Stop::Print(format!("cluster-apiserver {}\n", env!("CARGO_PKG_VERSION")))
        );
        let Stop::Print(help) = line("--help").unwrap_err() else { panic!("help is no error") };
        for flag in ["--data-dir", "--secure-port", "--tls-cert-file", "--shutdown-delay-duration"] {
            assert!(help.contains(flag), "{flag} is missing from\n{help}");
        }
    }
}
