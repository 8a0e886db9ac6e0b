//! The checked configuration: flags that were validated together and against the files they name, before
//! anything is changed.

pub mod authentication;
pub mod authorization;
pub mod checks;
pub mod egress;
pub mod encryption;
pub mod etcd;
pub mod extension;
pub mod issuers;
pub mod nodes;
pub mod peers;
pub mod signing;
pub mod traces;
pub mod webhooks;

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use api::state::allocation::Ranges;
use api::state::secrecy::Secrecy;
use api::system::controllers::Selection;
use api::writes::admission;
use api::writes::context::OwnService;
use auth::authn::webhook::Reviewer;
use types::enablement::Enablement;
use types::features::Features;
use types::schema::registry::Registry;
use types::version::ServerVersion;
use wire::metrics::allowed::Allowed;
use wire::metrics::families::Calls;
use wire::outgoing::{Egress, Identities, Networks};
use wire::server::{ServingCertificate, TlsSettings};

use crate::audit::AuditConfig;
use crate::config::authentication::AuthenticationConfig;
use crate::config::authorization::AuthorizationConfig;
use crate::config::encryption::EncryptionConfig;
use crate::config::etcd::EtcdConfig;
use crate::config::extension::ExtensionConfig;
use crate::config::issuers::opening;
use crate::config::nodes::NodeConfig;
use crate::config::peers::PeerConfig;
use crate::config::signing::SigningConfig;
use crate::config::traces::TracingConfig;
use crate::flags::{AdmissionFlags, Durability, Flags, LogFormat, NamedFiles, Port, Profile};
use crate::host::files;
use crate::host::pki::Name;

/// A valid configuration of a server.
#[derive(Clone, Debug)]
pub struct Config {
    /// Data directory of the store and the certificates.
    pub data_dir: PathBuf,
    /// Address to listen on; port 0 selects a free one.
    pub bind: SocketAddr,
    /// Whether other processes may listen on the same port.
    pub shares_port: bool,
    /// Maximum number of concurrent requests on an HTTP/2 connection, if configured.
    pub streams_max: Option<u32>,
    /// The naming profile of the store.
    pub naming: Profile,
    /// The serving certificate, if configured; otherwise the server creates one.
    pub tls_files: Option<TlsFiles>,
    /// Additional names in the server's own serving certificate.
    pub extra_names: Vec<Name>,
    /// The authority that signs certificate requests.
    pub signing: SigningConfig,
    /// The checked flags of authentication.
    pub authentication: AuthenticationConfig,
    /// The authorizers, in their order.
    pub authorization: AuthorizationConfig,
    /// Whether containers may be privileged.
    pub allow_privileged: bool,
    /// Address and port ranges of services.
    pub ranges: Ranges,
    /// Address at which pods reach the server, if configured.
    pub advertise_address: Option<IpAddr>,
    /// Settings of the server's own service, except the server's address.
    pub own_service: OwnService,
    /// Host name of this server in published documents, if it differs from the address.
    pub external_hostname: Option<String>,
    /// TLS versions and cipher suites that the server offers.
    pub tls: TlsSettings,
    /// The controllers that the server runs.
    pub controllers: Selection,
    /// Whether the garbage collector runs.
    pub collects_garbage: bool,
    /// The enabled admission plugins and their configuration.
    pub admission: admission::Settings,
    /// The audit policy and sinks; `None`: nothing is audited.
    pub audit: Option<AuditConfig>,
    /// Feature gates, with their values.
    pub features: Features,
    /// The version that the server reports, with the releases that it emulates.
    pub version: ServerVersion,
    /// The built-in types that are served.
    pub enablement: Enablement,
    /// The credentials that this server presents to extension servers.
    pub extensions: ExtensionConfig,
    /// Settings for connections to the other servers on the same etcd.
    pub peers: PeerConfig,
    /// Settings of the steps that see only the head of a request.
    pub edge: api::state::edge::Settings,
    /// Certificates for clients that request one of their names (SNI).
    pub named_certificates: Vec<NamedFiles>,
    /// How stored values are encrypted; `None`: not at all.
    pub encryption: Option<EncryptionConfig>,
    /// The encryption in force; set once the server runs.
    pub secrecy: Option<Arc<Secrecy>>,
    /// Whether log files of the machine are served.
    pub serves_log_files: bool,
    /// Path of the socket for debugging without a credential, if configured.
    pub debug_socket: Option<PathBuf>,
    /// How the server connects to nodes, pods and services.
    pub nodes: NodeConfig,
    /// Families of metrics that are not published.
    pub disabled_metrics: BTreeSet<String>,
    /// Whether deprecated metrics that are hidden are published anyway.
    pub shows_hidden_metrics: bool,
    /// Labels of metrics that are restricted to some values.
    pub allowed_labels: Arc<Allowed>,
    /// Metrics of calls to other servers.
    pub outgoing_calls: Arc<Calls>,
    /// Where traces are sent and how the collector is reached; `None`: requests are not traced.
    pub traces: Option<(TracingConfig, Egress)>,
    /// The flags as the operator gave them, for debugging endpoints.
    pub flags: Vec<(String, String)>,
    /// Limits on concurrent requests (flow control).
    pub fairness: api::state::fairness::Settings,
    /// The etcd that stores the objects; `None`: the server's own log stores them.
    pub etcd: Option<EtcdConfig>,
    /// The moment at which writes are acknowledged.
    pub durability: Durability,
    /// How long history stays readable.
    pub history_retention: Duration,
    /// How long an event lives after its last write; zero: until a client deletes it.
    pub event_ttl: Duration,
    /// How long requests are served after the signal, while the server is not ready.
    pub shutdown_delay: Duration,
    /// Maximum time of the shutdown after `shutdown_delay`, whatever hangs.
    pub shutdown_deadline: Duration,
    /// Maximum time that a watch continues after the server has stopped accepting requests. Each watch ends after a
    /// random part of it.
    pub watch_grace: Duration,
    /// Longest duration of a request that is not long-running.
    pub request_timeout: Duration,
    /// Shortest default duration of a watch.
    pub min_request_timeout: Duration,
    /// How long `/livez` ignores unfinished start-up checks.
    pub livez_grace_period: Duration,
    /// Level of detail of the log.
    pub verbosity: u8,
    /// Format of the lines of the log.
    pub log_format: LogFormat,
}

/// A serving certificate from files.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// Path of the certificate chain (PEM).
    pub certificate: PathBuf,
    /// Path of the private key (PEM).
    pub key: PathBuf,
}

/// A file that is read at the start.
#[derive(Clone, Debug)]
pub struct NamedFile {
    /// Path of the file, for messages and for reading it again.
    pub path: PathBuf,
    /// Contents of the file at the start.
    pub bytes: Vec<u8>,
}

impl Config {
    /// Checks `flags` and reads the files they name.
    ///
    /// # Errors
    /// An error of one line.
    pub fn from_flags(flags: Flags) -> anyhow::Result<Self> {
        let shutdown_deadline = flags.longest_shutdown();
        if flags.data_dir.as_os_str().is_empty() {
            bail!("--data-dir must not be empty");
        }
        if flags.data_dir.exists() && !flags.data_dir.is_dir() {
            bail!("--data-dir: {} is not a directory", flags.data_dir.display());
        }
        crate::store::identity::check_early(&flags.data_dir, flags.naming)?;
        crate::config::checks::check(&flags)?;
        let secure_port = port(flags.secure_port)?;
        let networks_of_services = flags.networks().0;
        let outgoing_calls = Arc::<Calls>::default();
        let networks = flags.secrecy.networks(flags.naming)?.counted(&outgoing_calls);
        let admission = admission_of(&flags.admission, flags.naming, &networks)?;
        let tls_files = match (flags.tls_cert_file, flags.tls_private_key_file) {
            (None, None) => None,
            (Some(certificate), Some(key)) => Some(TlsFiles { certificate, key }),
            (Some(_), None) => bail!("missing filename for serving cert"),
            (None, Some(_)) => bail!("missing filename for serving cert"),
        };
        if let Some(files) = &tls_files {
            let open = |path: &Path| crate::host::files::read(path).map_err(|error| opening(path, &error));
            let (chain, key) = (open(&files.certificate)?, open(&files.key)?);
            ServingCertificate::from_pem(&chain, &key)?;
        }
        let extra_names = extra_names(&flags.certificates.tls_extra_names)?;
        let signing = SigningConfig::from_flags(&flags.certificates)?;
        let types = Registry::new(flags.naming);
        let enablement =
            Enablement::parse(&flags.runtime_config.join(","), &types).map_err(|why| anyhow!(why))?;
        enablement.check(flags.naming).map_err(|why| anyhow!(why))?;
        let encryption = flags.secrecy.encryption(flags.naming)?;
        let traces = flags.secrecy.tracing_config_file.as_deref();
        let traces = traces.map(|path| TracingConfig::read(path, flags.naming)).transpose()?;
        let traces = traces.map(|config| (config, networks.control_plane.clone()));
        let allowed_labels = Arc::new(flags.metrics.allowed()?);
        let asked = flags.compatibility.asked().map_err(|why| anyhow!(why))?;
        let releases = asked.releases().map_err(|why| anyhow!(why.join(", ")))?;
        let features =
            Features::parse(&flags.feature_gates.join(","), releases).map_err(|why| anyhow!(why))?;
        let enablement =
            enablement.gated(flags.naming, |gate| features.is_open(gate)).released(flags.naming, releases);
        let own_service = flags.own_service.settings()?;
        let fairness = flags.fairness.settings().map_err(|why| anyhow!(why))?;
        let named_certificates = flags.tls.tls_sni_cert_key.clone();
        for files in &named_certificates {
            files.read()?;
        }
        let tls = flags.tls.settings().map_err(|why| anyhow!(why))?;
        let edge = flags.edge.settings().map_err(|why| anyhow!(why))?;
        let audit = AuditConfig::from_flags(
            flags.naming,
            &flags.audit,
            &flags.audit_webhook,
            &networks.control_plane,
        )?;
        let authorization =
            AuthorizationConfig::from_flags(flags.authorization, flags.naming, &networks.control_plane)?;
        let allows_all = authorization.allows_all();
        let authentication = AuthenticationConfig::from_flags(
            flags.authentication,
            flags.naming,
            allows_all,
            &networks,
            &features,
        )?;
        let etcd =
            EtcdConfig::from_flags(&flags.etcd, flags.naming)?.map(|etcd| etcd.through(&networks.etcd));
        let missing = flags.extension.missing_for_peers();
        let extensions = ExtensionConfig::from_flags(flags.extension, &authentication, &networks)?;
        let peers = PeerConfig::from_flags(&flags.peers, &features, missing)?;
        let nodes = NodeConfig::from_flags(flags.nodes, &networks)?;
        if flags.request_timeout.is_zero() {
            bail!("--request-timeout must be positive");
        }
        // An unspecified address counts as unset.
        let advertise_address = flags.advertise_address.filter(|address| !address.is_unspecified());
        Ok(Config {
            // An absolute path keeps paths in the log and the kubeconfig valid in any working directory.
            data_dir: std::path::absolute(&flags.data_dir).context("--data-dir")?,
            bind: SocketAddr::new(flags.bind_address, secure_port),
            shares_port: flags.tls.permit_port_sharing,
            streams_max: flags.tls.streams_max(),
            naming: flags.naming,
            allow_privileged: flags.allow_privileged,
            tls_files,
            extra_names,
            signing,
            authentication,
            authorization,
            ranges: Ranges { networks: networks_of_services, ports: flags.service_node_port_range },
            advertise_address,
            own_service,
            external_hostname: flags.external_hostname.filter(|name| !name.is_empty()),
            tls,
            controllers: flags.controllers,
            collects_garbage: flags.enable_garbage_collector,
            admission,
            audit,
            features,
            version: ServerVersion { build: crate::BUILD, reported: flags.reported_version, releases },
            enablement,
            fairness,
            extensions,
            peers,
            edge,
            named_certificates,
            encryption,
            secrecy: None,
            serves_log_files: flags.edge.enable_logs_handler,
            debug_socket: Some(flags.edge.debug_socket_path)
                .filter(|path| !path.is_empty())
                .map(PathBuf::from),
            disabled_metrics: flags.metrics.disabled_metrics.into_iter().collect(),
            shows_hidden_metrics: flags
                .metrics
                .show_hidden_metrics_for_version
                .is_some_and(|version| !version.is_empty()),
            allowed_labels,
            outgoing_calls,
            traces,
            flags: Vec::new(),
            etcd,
            nodes,
            durability: flags.durability,
            history_retention: flags.history_retention,
            event_ttl: flags.event_ttl,
            shutdown_delay: flags.shutdown_delay_duration,
            shutdown_deadline,
            watch_grace: flags.shutdown_watch_termination_grace_period,
            request_timeout: flags.request_timeout,
            min_request_timeout: Duration::from_secs(flags.min_request_timeout.into()),
            livez_grace_period: flags.livez_grace_period,
            verbosity: flags.verbosity,
            log_format: flags.log_format,
        })
    }
}

/// Returns the port to bind to; 0 lets the system choose a free one.
///
/// # Errors
/// The number is not a valid port.
pub fn port(port: Port) -> anyhow::Result<u16> {
    let Port::Number(number) = port else { return Ok(0) };
    u16::try_from(number).ok().filter(|port| *port != 0).ok_or_else(|| {
        anyhow!(
            "--secure-port {number} must be between 1 and 65535, inclusive. It cannot be turned off with 0"
        )
    })
}

/// Parses the names of the flag: addresses, and DNS names whose first label may be `*`.
fn extra_names(given: &[String]) -> anyhow::Result<Vec<Name>> {
    let name = |text: &String| {
        Name::read(text)
            .ok_or_else(|| anyhow!("--tls-extra-names: {text:?} is neither a DNS name nor an address"))
    };
    given.iter().filter(|text| !text.is_empty()).map(name).collect()
}

/// Files that the admission configuration names, relative to its own directory.
struct Beside<'d> {
    directory: &'d Path,
    naming: Profile,
    networks: Networks,
}

impl admission::Files for Beside<'_> {
    fn read(&self, path: &str) -> Result<Vec<u8>, String> {
        let path = self.directory.join(path);
        let path = std::path::absolute(&path).unwrap_or(path);
        crate::host::files::read(&path).map_err(|error| {
            let shown = path.to_string_lossy();
            if error.raw_os_error().is_none() {
                return format!("Couldn't open admission plugin configuration {shown}: {error}");
            }
            let step = if error.kind() == std::io::ErrorKind::IsADirectory { "read" } else { "open" };
            format!(
                "Couldn't open admission plugin configuration {shown}: &fs.PathError{{Op:\"{step}\", Path:{}, Err:{:#x}}}",
                go::quote(&shown),
                error.raw_os_error().unwrap_or_default()
            )
        })
    }

    fn networks(&self) -> Networks {
        self.networks.clone()
    }

    fn system_authorities(&self) -> Vec<u8> {
        crate::host::authorities::system_authorities()
    }

    fn identities(&self, path: &str) -> Result<Identities, String> {
        webhooks::identities(Path::new(path)).map_err(|error| format!("{error:#}"))
    }

    fn reviewer(&self, path: &str, pause: Duration) -> Result<Arc<dyn Reviewer>, String> {
        let path = if path.is_empty() { PathBuf::new() } else { self.directory.join(path) };
        let remote = webhooks::Remote::read(&path, None, self.naming);
        let remote = remote.map_err(|error| format!("{error:#}"))?;
        let remote = remote.through(&self.networks.direct());
        Ok(Arc::new(remote.of_agent("Go-http-client/1.1").pausing(pause)))
    }
}

fn admission_of(
    flags: &AdmissionFlags,
    naming: Profile,
    networks: &Networks,
) -> anyhow::Result<admission::Settings> {
    let names = flags.names();
    let path = flags.admission_control_config_file.as_deref();
    let text = path.map(|path| {
        crate::host::files::read(path).map_err(|error| {
            anyhow!(
                "failed to apply admission: failed to read plugin config: unable to read admission control \
                 configuration from {} [{}]",
                go::quote(&path.display().to_string()),
                opening(path, &error)
            )
        })
    });
    let text = text.transpose()?;
    let wishes = admission::Wishes { config: text.as_deref(), ..names.wishes(naming) };
    let directory = path.and_then(Path::parent).unwrap_or(Path::new(""));
    let files = Beside { directory, naming, networks: networks.clone() };
    let settings = admission::Settings::parse(&wishes, &files)?;
    Ok(settings.reaching_endpoints(flags.enable_aggregator_routing).tolerating([
        flags.default_not_ready_toleration_seconds,
        flags.default_unreachable_toleration_seconds,
    ]))
}

/// Reads the file that a flag names.
pub fn read(flag: &str, path: &Path) -> anyhow::Result<Vec<u8>> {
    crate::host::files::read(path).with_context(|| format!("{flag} {}", path.display()))
}

/// Reads the file that a flag names, if it is given. If the file cannot be opened, the message is that of
/// kube-apiserver.
pub fn named(path: Option<PathBuf>) -> anyhow::Result<Option<NamedFile>> {
    let read = |path: PathBuf| {
        let bytes = crate::host::files::read(&path)
            .map_err(|error| crate::config::issuers::opening(&path, &error))?;
        Ok(NamedFile { bytes, path })
    };
    path.map(read).transpose()
}

/// Name of the file that repeats the naming profile of the store. With a log of its own, the log is
/// authoritative; with etcd, only this file has the profile.
pub const PROFILE_FILE: &str = "profile";

/// Checks that the types that configure flow control are served.
///
/// # Errors
/// `--runtime-config` turns them off.
pub fn check_flow_control(is_shared: bool, wishes: &[String], naming: Profile) -> anyhow::Result<()> {
    if !is_shared {
        return Ok(());
    }
    let wishes: Vec<&str> = wishes.iter().flat_map(|text| text.split(',')).map(str::trim).collect();
    let own = naming.api_version("flowcontrol.apiserver", true, "v1");
    for key in [&*own, "api/ga", "api/all"] {
        let is = |value: &str| wishes.iter().any(|wish| *wish == format!("{key}={value}"));
        if is("false") {
            bail!("--runtime-config={key}=false conflicts with --enable-priority-and-fairness=true");
        }
        if is("true") {
            break;
        }
    }
    Ok(())
}

/// Checks the version whose hidden metrics are to be published. Metrics stay hidden for one release before
/// they are removed, so only the previous release is accepted.
///
/// # Errors
/// The version is another one.
pub fn check_hidden_metrics(version: Option<&str>) -> anyhow::Result<()> {
    let minor: u32 = values::release::MINOR.parse()?;
    let previous = format!("{}.{}", values::release::MAJOR, minor - 1);
    match version {
        Some(version) if !version.is_empty() && version != previous => bail!(
            "metrics.showHiddenMetricsForVersion: Invalid value: {}: must be omitted or have the value '{previous}'; only \
             the previous minor version is allowed",
            go::quote(version)
        ),
        _ => Ok(()),
    }
}

/// Records the naming profile of a directory that has no log of its own. Must be called before anything is
/// stored.
///
/// # Errors
/// The file names another profile, or cannot be written.
pub fn remember_profile(data_dir: &Path, naming: Profile) -> anyhow::Result<()> {
    crate::store::identity::check_file(data_dir, naming)?;
    files::write_private(&data_dir.join(PROFILE_FILE), format!("{}\n", naming.profile).as_bytes())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::flags;
    use crate::host::files::scratch::Scratch;
    use std::ffi::OsString;

    fn config(dir: &Path, arguments: &str) -> Result<Config, String> {
        let arguments = arguments.replace("DIR", &dir.display().to_string());
        let words = std::iter::once("cluster-apiserver").chain(arguments.split_whitespace());
        let flags = flags::parse(words.map(OsString::from)).unwrap().flags();
        Config::from_flags(flags)
            .map_err(|error| format!("{error:#}").replace(&dir.display().to_string(), "DIR"))
    }

    /// Returns the flags that the server requires before it reads the file of `flag`.
    fn companions(flag: &str) -> &'static str {
        match flag {
            "tls-cert-file" => "--tls-private-key-file=DIR/key",
            "tls-private-key-file" => "--tls-cert-file=DIR/crt",
            "proxy-client-cert-file" => "--proxy-client-key-file=DIR/key",
            "proxy-client-key-file" => "--proxy-client-cert-file=DIR/crt",
            "kubelet-client-certificate" => "--kubelet-client-key=DIR/key",
            "kubelet-client-key" => "--kubelet-client-certificate=DIR/crt",
            "cluster-signing-cert-file" => "--cluster-signing-key-file=DIR/key",
            "cluster-signing-key-file" => "--cluster-signing-cert-file=DIR/crt",
            "etcd-cafile" => "--etcd-servers=https://127.0.0.1:1",
            "etcd-certfile" => "--etcd-servers=https://127.0.0.1:1 --etcd-keyfile=DIR/key",
            "etcd-keyfile" => "--etcd-servers=https://127.0.0.1:1 --etcd-certfile=DIR/crt",
            "audit-webhook-config-file" => "--naming=kubernetes --audit-policy-file=DIR/policy",
            "peer-ca-file" => "--proxy-client-cert-file=DIR/crt --proxy-client-key-file=DIR/key",
            "authorization-policy-file" => "--authorization-mode=ABAC",
            "authorization-webhook-config-file" => "--authorization-mode=Webhook",
            "oidc-ca-file" => "--oidc-issuer-url=https://127.0.0.1:1 --oidc-client-id=c",
            "service-account-signing-key-file" => {
                "--service-account-key-file=DIR/key --service-account-issuer=https://i"
            }
            _ => "",
        }
    }

    #[test]
    fn no_flag_reads_a_file_without_end() {
        let dir = Scratch::new();
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        fs::write(dir.join("crt"), made.cert.pem()).unwrap();
        fs::write(dir.join("key"), made.signing_key.serialize_pem()).unwrap();
        let policy = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]";
        fs::write(dir.join("policy"), policy).unwrap();
        let flags = flags::naming_files();
        assert!(flags.len() > 25 && flags.contains(&"token-auth-file".to_owned()), "{flags:?}");
        let mut wrong = Vec::new();
        // This file is written, not read.
        for flag in flags.iter().filter(|flag| !["audit-log-path"].contains(&flag.as_str())) {
            let arguments = format!("--{flag}=/dev/zero {}", companions(flag));
            let arguments = arguments.replace("DIR", &dir.display().to_string());
            let words = std::iter::once("cluster-apiserver").chain(arguments.split_whitespace());
            let parsed = match flags::parse(words.map(OsString::from)) {
                Ok(invocation) => Config::from_flags(invocation.flags()).map(drop),
                Err(flags::Stop::Refuse(line) | flags::Stop::Print(line)) => Err(anyhow!(line)),
            };
            let why = parsed.map_or_else(|error| format!("{error:#}"), |()| "it starts".to_owned());
            let is_named = why.contains("/dev/zero") || why.contains(flag);
            if !is_named || !why.contains("more than 16777216 bytes") {
                wrong.push(format!("{arguments}: {why}"));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn combinations_of_flags_and_their_files_are_checked_before_anything_changes() {
        let dir = Scratch::new();
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let other = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        fs::write(dir.join("crt"), made.cert.pem()).unwrap();
        fs::write(dir.join("ca"), made.cert.pem()).unwrap();
        fs::write(dir.join("key"), made.signing_key.serialize_pem()).unwrap();
        fs::write(dir.join("other"), other.signing_key.serialize_pem()).unwrap();
        fs::write(dir.join("text"), "no PEM").unwrap();
        fs::write(dir.join("tokens"), "t,joe,1\n").unwrap();
        fs::write(dir.join("no-tokens"), "t,joe,1\nu,jane\n").unwrap();
        let admission = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins: [{name: Priority, path: PATH}]";
        fs::write(dir.join("admission"), admission.replace("PATH", "text")).unwrap();
        fs::write(dir.join("no-file"), admission.replace("PATH", "none")).unwrap();
        fs::create_dir(dir.join("store")).unwrap();
        remember_profile(&dir.join("store"), &values::naming::CLUSTER).unwrap();
        for (arguments, want) in [
            ("--data-dir=DIR/new", Ok(())),
            ("--data-dir=DIR/store", Ok(())),
            ("--data-dir=DIR/text", Err("--data-dir: DIR/text is not a directory".to_owned())),
            (
                "--data-dir=DIR/store --naming=kubernetes",
                Err("DIR/store was made with --naming=cluster, not kubernetes".to_owned()),
            ),
            ("--data-dir=DIR/new --tls-cert-file=DIR/crt --tls-private-key-file=DIR/key", Ok(())),
            ("--enable-admission-plugins=NamespaceExists --disable-admission-plugins=LimitRanger", Ok(())),
            (
                "--enable-admission-plugins=Nothing",
                Err("enable-admission-plugins plugin \"Nothing\" is unknown".to_owned()),
            ),
            ("--admission-control=NamespaceExists", Ok(())),
            (
                "--disable-admission-plugins=Nothing",
                Err("disable-admission-plugins plugin \"Nothing\" is unknown".to_owned()),
            ),
            (
                "--enable-admission-plugins=Priority,AlwaysAdmit --disable-admission-plugins=AlwaysAdmit,Priority",
                Err("[AlwaysAdmit Priority] in enable-admission-plugins and disable-admission-plugins overlapped"
                    .to_owned()),
            ),
            ("--admission-control-config-file=DIR/admission", Ok(())),
            (
                "--admission-control-config-file=DIR/text",
                Err("failed to apply admission: failed to read plugin config: couldn't get version/kind; json parse \
                     error: json: cannot unmarshal string into Go value of type struct { APIVersion string \
                     \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }"
                    .to_owned()),
            ),
            (
                "--admission-control-config-file=DIR/no-file",
                Err("Couldn't open admission plugin configuration DIR/none: &fs.PathError{Op:\"open\", \
                     Path:\"DIR/none\", Err:0x2}"
                    .to_owned()),
            ),
            ("--tls-cert-file=DIR/crt", Err("missing filename for serving cert".to_owned())),
            (
                "--tls-private-key-file=DIR/key",
                Err("missing filename for serving cert".to_owned()),
            ),
            (
                "--tls-cert-file=DIR/none --tls-private-key-file=DIR/key",
                Err("open DIR/none: no such file or directory".to_owned()),
            ),
            (
                "--tls-cert-file=DIR/text --tls-private-key-file=DIR/key",
                Err("tls: failed to find any PEM data in certificate input".to_owned()),
            ),
            (
                "--tls-cert-file=DIR/crt --tls-private-key-file=DIR/text",
                Err("tls: failed to find any PEM data in key input".to_owned()),
            ),
            (
                "--tls-cert-file=DIR/crt --tls-private-key-file=DIR/other",
                Err("tls: private key does not match public key".to_owned()),
            ),
            (
                "--tls-cert-file=DIR/key --tls-private-key-file=DIR/crt",
                Err("tls: failed to find certificate PEM data in certificate input, but did find a private key; PEM inputs \
                     may have been switched"
                    .to_owned()),
            ),
            (
                "--proxy-client-cert-file=DIR/crt --proxy-client-key-file=DIR/other",
                Err("tls: private key does not match public key".to_owned()),
            ),
            (
                "--tls-sni-cert-key=DIR/crt,DIR/other",
                Err("failed to load SNI cert and key: tls: private key does not match public key".to_owned()),
            ),
            (
                "--tls-sni-cert-key=DIR/crt,",
                Err("failed to load SNI cert and key: open : no such file or directory".to_owned()),
            ),
            ("--client-ca-file=DIR/crt", Ok(())),
            ("--client-ca-file=DIR/text", Err("error loading CA bundle for \"client-ca-bundle::DIR/text\": data does not contain any valid RSA or ECDSA \
                     certificates"
                    .to_owned())),
            ("--client-ca-file=DIR/none", Err("open DIR/none: no such file or directory".to_owned())),
            ("--token-auth-file=DIR/tokens", Ok(())),
            (
                "--token-auth-file=DIR/no-tokens",
                Err("token file 'DIR/no-tokens' must have at least 3 columns (token, user name, user uid), found 2"
                    .to_owned()),
            ),
            ("--token-auth-file=DIR/none", Err("open DIR/none: no such file or directory".to_owned())),
            ("--service-account-signing-key-file=DIR/key --service-account-key-file=DIR/crt", Ok(())),
            (
                "--service-account-signing-key-file=DIR/crt",
                Err("failed to parse service-account-issuer-key-file: error reading private key file DIR/crt: data does not \
                     contain a valid RSA or ECDSA private key"
                    .to_owned()),
            ),
            ("--service-account-key-file=", Err("open : no such file or directory".to_owned())),
            (
                "--service-account-key-file=DIR/text",
                Err("error reading public key file DIR/text: data does not contain any valid RSA or ECDSA public keys"
                    .to_owned()),
            ),
            (
                "--service-account-issuer=1:b",
                Err("service-account-issuer \"1:b\" contained a ':' but was not a valid URL: parse \"1:b\": first path segment \
                     in URL cannot contain colon"
                    .to_owned()),
            ),
            (
                "--service-account-issuer=https://a --service-account-key-file=DIR/crt --service-account-jwks-uri=::: \
                 --requestheader-uid-headers=X",
                Err("[service-account-jwks-uri must be a valid URL: parse \":::\": missing protocol scheme, \
                     --service-account-signing-key-file, --service-account-issuer, and --api-audiences should be specified \
                     together, --requestheader-uid-headers is set without specifying the standard X-Remote-Uid header - API \
                     aggregation will not work]"
                    .to_owned()),
            ),
            (
                "--service-account-max-token-expiration=5m",
                Err("the service-account-max-token-expiration must be between 1 hour and 2^32 seconds".to_owned()),
            ),
            (
                "--service-cluster-ip-range=10.0.0.0/24,10.1.0.0/24",
                Err("--service-cluster-ip-range[0] and --service-cluster-ip-range[1] must be of different IP family"
                    .to_owned()),
            ),
            (
                "--service-cluster-ip-range=10.0.0.0/24,fd00::/112,10.1.0.0/24",
                Err("--service-cluster-ip-range must not contain more than two entries".to_owned()),
            ),
            ("--client-ca-file=DIR/ca --requestheader-client-ca-file=DIR/ca --requestheader-username-headers=X --requestheader-allowed-names=proxy", Ok(())),
            (
                "--client-ca-file=DIR/ca --requestheader-client-ca-file=DIR/ca --requestheader-username-headers=X",
                Err("--requestheader-client-ca-file and --client-ca-file contain overlapping certificates; \
                     --requestheader-allowed-names must be specified to ensure regular client certificates cannot set \
                     authenticating proxy headers for arbitrary users"
                    .to_owned()),
            ),
            ("--tls-extra-names=api.example,*.example,10.1.2.3,fd00::1", Ok(())),
            (
                "--tls-extra-names=a_b",
                Err("--tls-extra-names: \"a_b\" is neither a DNS name nor an address".to_owned()),
            ),
            (
                "--cluster-signing-cert-file=DIR/crt",
                Err("--cluster-signing-cert-file needs --cluster-signing-key-file".to_owned()),
            ),
            (
                "--cluster-signing-cert-file=DIR/crt --cluster-signing-key-file=DIR/key",
                Err("--cluster-signing-cert-file DIR/crt: the certificate is not that of an authority".to_owned()),
            ),
            (
                "--cluster-signing-duration=5m",
                Err("--cluster-signing-duration must be at least 10 minutes".to_owned()),
            ),
            ("--request-timeout=0", Err("--request-timeout must be positive".to_owned())),
        ] {
            assert_eq!(config(&dir, arguments).map(drop), want, "{arguments}");
        }
        assert!(!dir.join("new").exists());
    }
}
