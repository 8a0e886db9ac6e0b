//! The file of `--egress-selector-config-file`, which selects the proxy for connections to other servers.
//!
//! Problems are reported with the messages of kube-apiserver. Certificates are read at the start.

use std::path::{Path, PathBuf};

use anyhow::{anyhow, bail};
use auth::strict::{MemberType, Object};
use clap::Args;
use values::json::Value;
use values::naming::Naming;
use wire::config_type::ConfigType;
use wire::outgoing::{Credentials, Egress, Identity, Networks, Protocol, Transport, Tunnel};

use crate::flags::problems::FlagError;
use crate::host::authorities::system_authorities;
use crate::host::files::{self, opening};

// This struct has no documentation comment, because clap would use the comment as the description of the whole command
// line.
#[derive(Clone, Debug, Args)]
pub struct EgressFlags {
    /// Configuration of the proxies through which the server connects to other servers
    /// (EgressSelectorConfiguration).
    #[arg(long, value_name = "FILE")]
    pub egress_selector_config_file: Option<PathBuf>,
}

impl EgressFlags {
    /// Returns the networks through which the server connects to other servers.
    ///
    /// # Errors
    /// The configuration file is missing or invalid, or a file that it refers to cannot be used.
    pub fn settings(&self, naming: &'static Naming) -> Result<Networks, FlagError> {
        let Some(path) = &self.egress_selector_config_file else { return Ok(Networks::default()) };
        let networks = read(path, naming);
        networks.map_err(|why| FlagError::worded("egress-selector-config-file", path.display(), why))
    }
}

/// Names of the destinations that the file may configure.
const NAMES: [&str; 3] = ["cluster", "controlplane", ETCD];
const ETCD: &str = "etcd";

/// Connection protocols that a file may configure.
const WAYS: [&str; 3] = [DIRECT, HTTP_CONNECT, GRPC];
const DIRECT: &str = "Direct";
const HTTP_CONNECT: &str = "HTTPConnect";
const GRPC: &str = "GRPC";

/// Type of the file. All versions of this type have the same members.
const FILE: ConfigType = ConfigType {
    names: &[("apiserver", &["v1alpha1", "v1beta1"], FORM.name)],
    scheme: "apiserver/pkg/server/egressselector/config.go:33",
    form: &FORM,
    is_implied: false,
};

/// The members of the file.
const FORM: Object = Object {
    name: "EgressSelectorConfiguration",
    members: &[
        ("apiVersion", MemberType::Text),
        ("kind", MemberType::Text),
        ("egressSelections", MemberType::List(&MemberType::Object(&SELECTION))),
    ],
};

const SELECTION: Object = Object {
    name: "EgressSelection",
    members: &[("name", MemberType::Text), ("connection", MemberType::Object(&CONNECTION))],
};

const CONNECTION: Object = Object {
    name: "Connection",
    members: &[("proxyProtocol", MemberType::Text), ("transport", MemberType::Object(&TRANSPORT))],
};

const TRANSPORT: Object = Object {
    name: "Transport",
    members: &[("tcp", MemberType::Object(&TCP)), ("uds", MemberType::Object(&SOCKET))],
};

const TCP: Object = Object {
    name: "TCPTransport",
    members: &[("url", MemberType::Text), ("tlsConfig", MemberType::Object(&TLS))],
};

const SOCKET: Object = Object { name: "UDSTransport", members: &[("udsName", MemberType::Text)] };

const TLS: Object = Object {
    name: "TLSConfig",
    members: &[
        ("caBundle", MemberType::Text),
        ("clientKey", MemberType::Text),
        ("clientCert", MemberType::Text),
    ],
};

/// Reads the file and the certificates that it refers to. The error lists all problems of the file.
fn read(path: &Path, naming: &'static Naming) -> anyhow::Result<Networks> {
    let bytes = files::read(path).map_err(|error| {
        anyhow!(
            "failed to read egress selector config: unable to read egress selector configuration from {} [{}]",
            go::quote(&path.to_string_lossy()),
            opening(path, &error)
        )
    })?;
    parse(&bytes, naming)
}

fn parse(bytes: &[u8], naming: &'static Naming) -> anyhow::Result<Networks> {
    let unreadable = |why: String| anyhow!("failed to read egress selector config: {why}");
    let document = FILE.read(bytes, naming).map_err(unreadable)?;
    let selections = document.get("egressSelections").and_then(Value::as_array).unwrap_or_default();
    if let Some(wrong) = go::join_errors(problems(selections)) {
        bail!("failed to validate egress selector configuration: {wrong}");
    }
    let mut networks = Networks { is_configured: true, ..Networks::default() };
    for selection in selections {
        let name = selection.str_at(&["name"]).to_lowercase();
        let egress = egress(member(selection, "connection")).map_err(|why| {
            anyhow!(
                "failed to setup egress selector: failed to create dialer for egressSelection {name:?}: {why}"
            )
        })?;
        match name.as_str() {
            "cluster" => networks.cluster = egress,
            "controlplane" => networks.control_plane = egress,
            _ => networks.etcd = egress,
        }
    }
    Ok(networks)
}

/// Returns the problems of the selections.
fn problems(selections: &[Value]) -> Vec<String> {
    let mut wrong = Vec::new();
    for selection in selections {
        let connection = member(selection, "connection");
        let transport = connection.get("transport").filter(|value| !value.is_null());
        match (connection.str_at(&["proxyProtocol"]), transport) {
            (DIRECT, None) => {}
            (DIRECT, Some(_)) => wrong.push(
                "service.connection.transport: Invalid value: \"direct\": config must be absent for direct connect"
                    .to_owned(),
            ),
            (way @ (HTTP_CONNECT | GRPC), None) => wrong.push(format!(
                "service.connection.transport: Required value: transport must be set for {way}"
            )),
            (way @ (HTTP_CONNECT | GRPC), Some(transport)) => check_transport(way, transport, &mut wrong),
            (other, _) => wrong.push(format!(
                "service.connection.protocol: Unsupported value: {}: supported values: {}",
                go::quote(other),
                quoted(&WAYS)
            )),
        }
    }
    let mut seen = Vec::new();
    for (at, selection) in selections.iter().enumerate() {
        let name = selection.str_at(&["name"]).to_lowercase();
        let quoted_name = go::quote(&name);
        if seen.contains(&name) {
            wrong.push(format!("service.connection[{at}]: Duplicate value: {quoted_name}"));
        } else if !NAMES.contains(&name.as_str()) {
            let names = quoted(&NAMES);
            wrong.push(format!(
                "service.connection: Unsupported value: {quoted_name}: supported values: {names}"
            ));
        }
        seen.push(name);
    }
    wrong
}

fn check_transport(way: &str, transport: &Value, wrong: &mut Vec<String>) {
    let given = |name: &str| transport.get(name).filter(|value| !value.is_null());
    match (way, given("tcp"), given("uds")) {
        (GRPC, _, None) => {
            wrong.push("service.connection.uds: Required value: UDS must be set with GRPC".to_owned());
        }
        (HTTP_CONNECT, Some(tcp), Some(_)) => wrong.push(format!(
            "service.connection.tcp: Invalid value: {{\"URL\":{:?},\"TLSConfig\":null}}: TCP and UDS cannot both be set",
            tcp.str_at(&["url"])
        )),
        (HTTP_CONNECT, None, None) => {
            wrong.push("service.connection.tcp: Required value: One of TCP or UDS must be set".to_owned());
        }
        (HTTP_CONNECT, Some(tcp), None) => {
            let (url, tls) = (tcp.str_at(&["url"]), tcp.get("tlsConfig").filter(|tls| !tls.is_null()));
            match (url.split_once("://"), tls) {
                (Some(("http", _)), None) => {}
                (Some(("http", _)), Some(_)) => wrong.push(
                    "service.connection.tlsConfig: Invalid value: \"nil\": config must not be present when using HTTP"
                        .to_owned(),
                ),
                (Some(("https", _)), None) => wrong.push(
                    "service.connection.tlsConfig: Required value: TLSConfig must be present when using HTTPS"
                        .to_owned(),
                ),
                (Some(("https", _)), Some(tls)) => check_tls(tls, wrong),
                _ => wrong.push(format!(
                    "service.connection.url: Invalid value: {}: supported connection protocols are http:// and \
                     https://",
                    go::quote(url)
                )),
            }
        }
        (_, _, Some(uds)) if uds.str_at(&["udsName"]).is_empty() => wrong.push(
            "service.connection.udsName: Invalid value: \"nil\": must be present for UDS connections"
                .to_owned(),
        ),
        _ => {}
    }
}

fn check_tls(tls: &Value, wrong: &mut Vec<String>) {
    let mut check = |name: &str, absent: &str, missing: &str| {
        let path = tls.str_at(&[name]);
        let why = match path {
            "" if absent.is_empty() => return,
            "" => absent,
            path if Path::new(path).exists() => return,
            _ => missing,
        };
        let printed = if path.is_empty() { "nil" } else { path };
        wrong.push(format!(
            "service.connection.tlsConfig.{name}: Invalid value: {}: {why}",
            go::quote(printed)
        ));
    };
    check("caBundle", "", "TLS config ca bundle does not exist");
    check("clientCert", "Using TLS requires clientCert", "TLS client cert does not exist");
    check("clientKey", "Using TLS requires requires clientKey", "TLS client key does not exist");
}

/// Returns the egress of a valid selection.
fn egress(connection: &Value) -> Result<Egress, String> {
    let protocol = match connection.str_at(&["proxyProtocol"]) {
        HTTP_CONNECT => Protocol::HttpConnect,
        GRPC => Protocol::Grpc,
        _ => return Ok(Egress::default()),
    };
    let transport = member(connection, "transport");
    let socket = transport.str_at(&["uds", "udsName"]);
    let transport = match socket {
        "" => {
            let tcp = member(transport, "tcp");
            let held = |name: &str| {
                let path = tcp.str_at(&["tlsConfig", name]);
                files::read(path).map_err(|error| {
                    format!("failed to read cert file {path}, got {}", opening(Path::new(path), &error))
                })
            };
            let mut identity = Identity::default();
            let mut authorities = Vec::new();
            if tcp.get("tlsConfig").is_some_and(|tls| !tls.is_null()) {
                identity.certificate = Some((held("clientCert")?, held("clientKey")?));
                authorities = match tcp.str_at(&["tlsConfig", "caBundle"]) {
                    "" => system_authorities(),
                    _ => held("caBundle")?,
                };
            }
            let credentials = Credentials {
                authorities: &authorities,
                identity: Some(&identity),
                ..Credentials::default()
            };
            Transport::of_url(tcp.str_at(&["url"]), &credentials)?
        }
        socket => Transport::Unix(PathBuf::from(socket)),
    };
    Ok(Egress::by_tunnel(Tunnel::new(transport, protocol)))
}

/// Returns a member of an object, or null if the member is missing.
fn member<'v>(value: &'v Value, name: &str) -> &'v Value {
    value.get(name).unwrap_or(&Value::Null)
}

fn quoted(names: &[&str]) -> String {
    names.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::files::scratch::Scratch;

    #[test]
    fn each_egress_network_is_reached_directly_or_through_a_complete_proxy_description() {
        let head =
            "apiVersion: apiserver.k8s.io/v1beta1\nkind: EgressSelectorConfiguration\negressSelections: ";
        let dir = Scratch::new();
        let there = dir.join("there");
        std::fs::write(&there, "no certificate").unwrap();
        let there = there.display();
        let flaw = |why: &str| format!("failed to validate egress selector configuration: {why}");
        let tcp = |name: &str, tcp: &str| {
            format!(
                "[{{name: {name}, connection: {{proxyProtocol: HTTPConnect, transport: {{tcp: {tcp}}}}}}}]"
            )
        };
        for (text, want) in [
            ("[]".to_owned(), String::new()),
            ("[{name: cluster, connection: {proxyProtocol: Direct}}]".to_owned(), String::new()),
            (tcp("Cluster", "{url: 'http://a:1'}"), String::new()),
            (
                "[{name: etcd, connection: {proxyProtocol: GRPC, transport: {uds: {udsName: /a}}}}]".to_owned(),
                String::new(),
            ),
            (
                "[{name: cluster, connection: {proxyProtocol: Direct, transport: {}}}]".to_owned(),
                flaw(
                    "service.connection.transport: Invalid value: \"direct\": config must be absent for direct connect",
                ),
            ),
            (
                "[{name: other, connection: {proxyProtocol: Direct}}]".to_owned(),
                flaw(
                    "service.connection: Unsupported value: \"other\": supported values: \"cluster\", \"controlplane\", \
                     \"etcd\"",
                ),
            ),
            (
                "[{name: etcd, connection: {proxyProtocol: Direct}}, {name: ETCD, connection: {proxyProtocol: Direct}}]"
                    .to_owned(),
                flaw("service.connection[1]: Duplicate value: \"etcd\""),
            ),
            (
                "[{name: cluster, connection: {proxyProtocol: GRPC, transport: {tcp: {url: 'http://a'}}}}]".to_owned(),
                flaw("service.connection.uds: Required value: UDS must be set with GRPC"),
            ),
            (
                "[{name: cluster, connection: {proxyProtocol: GRPC}}]".to_owned(),
                flaw("service.connection.transport: Required value: transport must be set for GRPC"),
            ),
            (
                "[{name: cluster, connection: {proxyProtocol: HTTPConnect, transport: {}}}]".to_owned(),
                flaw("service.connection.tcp: Required value: One of TCP or UDS must be set"),
            ),
            (
                "[{name: cluster, connection: {proxyProtocol: HTTPConnect, transport: {uds: {}}}}]".to_owned(),
                flaw(
                    "service.connection.udsName: Invalid value: \"nil\": must be present for UDS connections",
                ),
            ),
            (
                tcp("cluster", "{url: 'ftp://a'}"),
                flaw(
                    "service.connection.url: Invalid value: \"ftp://a\": supported connection protocols are http:// and \
                     https://",
                ),
            ),
            (
                tcp("cluster", "{url: 'https://a'}"),
                flaw("service.connection.tlsConfig: Required value: TLSConfig must be present when using HTTPS"),
            ),
            (
                tcp("cluster", "{url: 'http://a', tlsConfig: {caBundle: /a}}"),
                flaw(
                    "service.connection.tlsConfig: Invalid value: \"nil\": config must not be present when using HTTP",
                ),
            ),
            (
                tcp("cluster", &format!("{{url: 'https://a', tlsConfig: {{caBundle: /missing/a, clientCert: '{there}'}}}}")),
                flaw(
                    "[service.connection.tlsConfig.caBundle: Invalid value: \"/missing/a\": TLS config ca bundle does not \
                     exist, service.connection.tlsConfig.clientKey: Invalid value: \"nil\": Using TLS requires requires \
                     clientKey]",
                ),
            ),
            (
                tcp("cluster", &format!("{{url: 'https://a', tlsConfig: {{clientCert: '{there}', clientKey: '{there}'}}}}")),
                "failed to setup egress selector: failed to create dialer for egressSelection \"cluster\": the client key \
                 is not a PEM private key"
                    .to_owned(),
            ),
        ] {
            let parsed = parse(format!("{head}{text}").as_bytes(), &values::naming::KUBERNETES);
            assert_eq!(parsed.err().map(|error| error.to_string()).unwrap_or_default(), want, "{text}");
        }
    }

    #[test]
    fn an_egress_configuration_must_name_its_type_and_has_no_unknown_members() {
        let head = "apiVersion: apiserver.k8s.io/v1beta1\nkind: EgressSelectorConfiguration\n";
        for (text, want) in [
            ("a: b", "Object 'Kind' is missing in 'a: b'"),
            (
                "kind: A\napiVersion: v1",
                "no kind \"A\" is registered for version \"v1\" in scheme \
                 \"k8s.io/apiserver/pkg/server/egressselector/config.go:33\"",
            ),
            (
                &format!("{head}egressSelections: [{{name: etcd, protocol: a}}]"),
                "strict decoding error: unknown field \"egressSelections[0].protocol\"",
            ),
            (
                &format!("{head}egressSelections: a"),
                "json: cannot unmarshal string into Go struct field EgressSelectorConfiguration.egressSelections of type \
                 []v1beta1.EgressSelection",
            ),
        ] {
            let wrong = parse(text.as_bytes(), &values::naming::KUBERNETES).unwrap_err();
            assert_eq!(wrong.to_string(), format!("failed to read egress selector config: {want}"), "{text}");
        }
    }
}
