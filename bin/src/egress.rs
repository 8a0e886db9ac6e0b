//! The file of `--egress-selector-config-file`: through which proxy connections to other servers go.
//!
//! Connections are made directly here. A file that says so, for all its destinations, is taken; one that wants a proxy is
//! refused by name. Whatever else is wrong is said in the words of kube-apiserver.

use std::path::Path;

use anyhow::{anyhow, bail};
use api::values::json::Value;
use api::values::naming::Naming;
use api::wire::codec::yaml;

use crate::issuers::opening;

/// Destinations that a file may name.
const NAMES: [&str; 3] = ["cluster", "controlplane", "etcd"];

/// Ways that a file may name.
const WAYS: [&str; 3] = [DIRECT, "HTTPConnect", "GRPC"];
const DIRECT: &str = "Direct";

/// Reads and checks the file.
///
/// # Errors
/// What is wrong with it, or that it wants a proxy.
pub fn check(path: &Path, naming: &Naming) -> anyhow::Result<()> {
    let bytes = std::fs::read(path).map_err(|error| {
        anyhow!(
            "failed to read egress selector config: unable to read egress selector configuration from {} [{}]",
            auth::go::quote(&path.to_string_lossy()),
            opening(path, &error)
        )
    })?;
    parse(&bytes, naming)
}

fn parse(bytes: &[u8], naming: &Naming) -> anyhow::Result<()> {
    let unreadable = |why: String| anyhow!("failed to read egress selector config: {why}");
    let document = yaml::parse(bytes).map_err(|error| unreadable(error.to_string()))?.value;
    let (kind, version) = (document.str_at(&["kind"]), document.str_at(&["apiVersion"]));
    let group = naming.group("apiserver", true);
    if kind != "EgressSelectorConfiguration" || version != format!("{group}/v1beta1") {
        return Err(unreadable(format!(
            "no kind {} is registered for version {} in scheme {:?}",
            auth::go::quote(kind),
            auth::go::quote(version),
            naming.own("apiserver/pkg/server/egressselector/config.go:33"),
        )));
    }
    let selections = document.get("egressSelections").and_then(Value::as_array).unwrap_or_default();
    let (mut wrong, mut seen) = (Vec::new(), Vec::new());
    for selection in selections {
        let way = selection.str_at(&["connection", "proxyProtocol"]);
        let transport = selection.at(&["connection", "transport"]).filter(|value| !value.is_null());
        if !WAYS.contains(&way) {
            wrong.push(format!(
                "service.connection.protocol: Unsupported value: {}: supported values: {}",
                auth::go::quote(way),
                quoted(&WAYS)
            ));
        } else if way == DIRECT && transport.is_some() {
            wrong.push(
                "service.connection.transport: Invalid value: \"direct\": config must be absent for direct connect"
                    .to_owned(),
            );
        } else if way != DIRECT && transport.is_none() {
            wrong.push(format!(
                "service.connection.transport: Required value: transport must be set for {way}"
            ));
        }
    }
    for (at, selection) in selections.iter().enumerate() {
        let name = selection.str_at(&["name"]).to_lowercase();
        let shown = auth::go::quote(&name);
        if seen.contains(&name) {
            wrong.push(format!("service.connection[{at}]: Duplicate value: {shown}"));
        } else if !NAMES.contains(&name.as_str()) {
            let names = quoted(&NAMES);
            wrong.push(format!("service.connection: Unsupported value: {shown}: supported values: {names}"));
        }
        seen.push(name);
    }
    if !wrong.is_empty() {
        let all = if wrong.len() == 1 { wrong.concat() } else { format!("[{}]", wrong.join(", ")) };
        bail!("failed to validate egress selector configuration: {all}");
    }
    if let Some(other) =
        selections.iter().find(|selection| selection.str_at(&["connection", "proxyProtocol"]) != DIRECT)
    {
        bail!(
            "--egress-selector-config-file: connections to {} are made directly, not by {}",
            other.str_at(&["name"]),
            other.str_at(&["connection", "proxyProtocol"])
        );
    }
    Ok(())
}

fn quoted(names: &[&str]) -> String {
    names.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn direct_connections_are_taken_and_proxies_refused() {
        let head =
            "apiVersion: apiserver.k8s.io/v1beta1\nkind: EgressSelectorConfiguration\negressSelections: ";
        for (text, want) in [
            ("[]", ""),
            ("[{name: cluster, connection: {proxyProtocol: Direct}}]", ""),
            (
                "[{name: cluster, connection: {proxyProtocol: Direct, transport: {}}}]",
                "failed to validate egress selector configuration: service.connection.transport: Invalid value: \"direct\": \
                 config must be absent for direct connect",
            ),
            (
                "[{name: other, connection: {proxyProtocol: Direct}}]",
                "failed to validate egress selector configuration: service.connection: Unsupported value: \"other\": \
                 supported values: \"cluster\", \"controlplane\", \"etcd\"",
            ),
            (
                "[{name: etcd, connection: {proxyProtocol: Direct}}, {name: ETCD, connection: {proxyProtocol: Direct}}]",
                "failed to validate egress selector configuration: service.connection[1]: Duplicate value: \"etcd\"",
            ),
            (
                "[{name: etcd, connection: {proxyProtocol: HTTPConnect, transport: {uds: {udsName: /a}}}}]",
                "--egress-selector-config-file: connections to etcd are made directly, not by HTTPConnect",
            ),
        ] {
            let checked = parse(format!("{head}{text}").as_bytes(), &api::values::naming::KUBERNETES);
            assert_eq!(checked.err().map(|error| error.to_string()).unwrap_or_default(), want, "{text}");
        }
    }
}
