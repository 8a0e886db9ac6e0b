//! The target of a request for a connection: a node agent, another port of a node, a pod, or a pod of a
//! service (docs/api/nodes.md#names-and-addresses).

use std::net::IpAddr;

use super::{AGENT_PORT, NodeConnections};
use values::json::{Object, Value};
use values::object::at;
use values::status::{Status, StatusReason, Subject};
use wire::outgoing::{Endpoint, Guard, is_global};

/// The feature with which a node declares that its agent supports WebSockets whose streams can be closed
/// individually, and port forwarding over WebSockets.
const DECLARES_WEBSOCKETS: &str = "ExtendWebSocketsToKubelet";

/// A name in a path: `name`, `name:port` or `scheme:name:port`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Name<'n> {
    /// Name of the object.
    pub name: &'n str,
    /// Number or name of a port; empty for the default port.
    pub port: &'n str,
    is_https: bool,
}

impl<'n> Name<'n> {
    /// Parses a name; returns `None` if the text has another form.
    pub fn parse(text: &'n str) -> Option<Name<'n>> {
        let parts: Vec<&str> = text.split(':').collect();
        let (scheme, name, port) = match parts[..] {
            [name] => ("", name, ""),
            [name, port] => ("", name, port),
            [scheme, name, port] => (scheme, name, port),
            _ => return None,
        };
        let is_valid = !name.is_empty() && matches!(scheme, "" | "http" | "https");
        is_valid.then_some(Name { name, port, is_https: scheme == "https" })
    }
}

/// The address of a node agent.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Agent {
    host: String,
    port: u16,
    /// Whether the agent itself supports the WebSocket protocols of newer clients.
    pub takes_websockets: bool,
}

impl NodeConnections {
    /// Returns the agent of a node.
    ///
    /// # Errors
    /// 500 if the node has no address of a preferred type.
    pub fn agent(&self, node: &Object) -> Result<Agent, Status> {
        let list = |path: &str| at(node, path).and_then(Value::as_array).unwrap_or_default();
        let addresses = list("status.addresses");
        let preferred = self.address_types.iter().find_map(|kind| {
            let of_kind = |address: &&Value| address.str_at(&["type"]) == kind;
            addresses.iter().find(of_kind).map(|found| found.str_at(&["address"]))
        });
        let Some(host) = preferred else {
            let known: Vec<String> = addresses
                .iter()
                .map(|found| format!("{{{} {}}}", found.str_at(&["type"]), found.str_at(&["address"])))
                .collect();
            let why = format!("no preferred addresses found; known addresses: [{}]", known.join(" "));
            return Err(Status::new(StatusReason::Unknown, why));
        };
        let port = at(node, "status.daemonEndpoints.kubeletEndpoint.Port").and_then(Value::as_i64);
        let port = port.filter(|port| *port > 0).and_then(|port| u16::try_from(port).ok());
        let declared = list("status.declaredFeatures");
        Ok(Agent {
            host: host.to_owned(),
            port: port.unwrap_or(AGENT_PORT),
            takes_websockets: declared.iter().any(|feature| feature.as_str() == Some(DECLARES_WEBSOCKETS)),
        })
    }

    /// Returns the endpoint for a path of an agent.
    ///
    /// # Errors
    /// 500 for an address that a URL cannot contain. 400 for the address of this server, because this server
    /// would accept its own client certificate as credentials.
    pub fn of_agent(&self, agent: &Agent, target: &str, is_verified: bool) -> Result<Endpoint, Status> {
        self.check_not_own(&agent.host, agent.port)?;
        let agents = self.agents.load();
        let tls = if is_verified { &agents.verified } else { &agents.unverified };
        let endpoint = Endpoint::at_port(&agent.host, agent.port, target, Some(tls));
        let endpoint = endpoint.map_err(|why| Status::new(StatusReason::Unknown, why))?;
        let guard = Guard::NotOwn(self.own.clone());
        Ok(endpoint.through(&self.egress).dialed_within(self.timeout).guarded(guard))
    }

    /// Returns the endpoint for a path at the agent of a node, or at another port of the node.
    ///
    /// # Errors
    /// 400 for another port of a node whose address is not global.
    pub async fn of_node(&self, agent: &Agent, name: Name<'_>, target: &str) -> Result<Endpoint, Status> {
        if name.port.is_empty() || name.port.parse() == Ok(agent.port) {
            return self.of_agent(agent, target, true);
        }
        let addresses = tokio::time::timeout(self.timeout, tokio::net::lookup_host((agent.host.as_str(), 0)));
        let Ok(Ok(addresses)) = addresses.await else {
            return Err(Status::bad_request(format!("lookup {}: no such host", agent.host)));
        };
        if addresses.map(|address| address.ip()).any(|address| !is_global(address)) {
            return Err(not_allowed());
        }
        self.at(&agent.host, name, name.port, target)
    }

    /// Returns the endpoint for a path of a pod, at the named port or at the first port of a container.
    ///
    /// # Errors
    /// 400 for a pod without a global address.
    pub fn of_pod(&self, pod: &Object, name: Name<'_>, target: &str) -> Result<Endpoint, Status> {
        let containers = at(pod, "spec.containers").and_then(Value::as_array).unwrap_or_default();
        let first = containers
            .iter()
            .find_map(|container| container.get("ports")?.as_array()?.first()?.get("containerPort")?.as_i64())
            .map(|port| port.to_string());
        let port = if name.port.is_empty() { first.as_deref().unwrap_or_default() } else { name.port };
        let address = at(pod, "status.podIP").and_then(Value::as_str).unwrap_or_default();
        match address.parse::<IpAddr>() {
            Ok(ip) if is_global(ip) => self.at(address, name, port, target),
            _ => Err(not_allowed()),
        }
    }

    /// Returns the endpoint for a path at one of the pods of a service. `pod` looks up a pod by name.
    ///
    /// # Errors
    /// 404 for a service without endpoint slices; 503 if the service lacks the port or has no ready pod.
    pub fn of_service(
        &self,
        service: &Object,
        slices: &[Object],
        id: &str,
        name: Name<'_>,
        target: &str,
        mut pod: impl FnMut(&str) -> Option<Object>,
    ) -> Result<Endpoint, Status> {
        let mut port = name.port;
        if let Ok(number) = name.port.parse::<i64>() {
            let ports = at(service, "spec.ports").and_then(Value::as_array).unwrap_or_default();
            let of_number = |port: &&Value| port.get("port").and_then(Value::as_i64) == Some(number);
            let Some(found) = ports.iter().find(of_number) else {
                let why = format!("no service port {number} found for service \"{}\"", name.name);
                return Err(Status::new(StatusReason::ServiceUnavailable, why));
            };
            port = found.str_at(&["name"]);
        }
        if slices.is_empty() {
            return Err(Status::not_found(Subject { group: "", kind: "services", name: name.name }));
        }
        let mut candidates = Vec::new();
        for slice in slices {
            let list = |member: &str| slice.get(member).and_then(Value::as_array).unwrap_or_default();
            let of_name = |candidate: &&Value| candidate.str_at(&["name"]) == port;
            let Some(number) = list("ports").iter().find(of_name).and_then(|port| port.get("port")?.as_i64())
            else {
                continue;
            };
            candidates.extend(list("endpoints").iter().map(|endpoint| (endpoint, number)));
        }
        // Start at a random candidate, so that the pods of a service share the load.
        let first = if candidates.is_empty() { 0 } else { random() % candidates.len() };
        candidates.rotate_left(first);
        let namespace = at(service, "metadata.namespace").and_then(Value::as_str).unwrap_or_default();
        for (endpoint, number) in candidates {
            let is_ready = endpoint.get("conditions").and_then(|conditions| conditions.get("ready"))
                != Some(&false.into());
            let reference = |member: &str| endpoint.str_at(&["targetRef", member]);
            if !is_ready || reference("kind") != "Pod" || reference("namespace") != namespace {
                continue;
            }
            let Some(pod) = pod(reference("name")) else { continue };
            let own = at(&pod, "status.podIPs").and_then(Value::as_array).unwrap_or_default();
            let addresses = endpoint.get("addresses").and_then(Value::as_array).unwrap_or_default();
            let address = addresses.iter().filter_map(Value::as_str).find(|address| {
                own.iter().any(|own| own.str_at(&["ip"]) == *address) && address.parse().is_ok_and(is_global)
            });
            if let Some(address) = address {
                return self.at(address, name, &number.to_string(), target);
            }
        }
        let why = format!("no endpoints available for service \"{id}\"");
        Err(Status::new(StatusReason::ServiceUnavailable, why))
    }

    /// Returns the endpoint for a path at the port number `port`. If `port` is empty, the number is 80, or 443
    /// with TLS.
    fn at(&self, host: &str, name: Name<'_>, port: &str, target: &str) -> Result<Endpoint, Status> {
        let unreachable = |why: String| {
            Status::new(StatusReason::ServiceUnavailable, format!("error trying to reach service: {why}"))
        };
        let number = match port {
            "" if name.is_https => 443,
            "" => 80,
            port => {
                port.parse().map_err(|_| unreachable(format!("dial tcp: lookup tcp/{port}: unknown port")))?
            }
        };
        self.check_not_own(host, number)?;
        let tls = name.is_https.then_some(&self.service);
        let endpoint = Endpoint::at_port(host, number, target, tls).map_err(unreachable)?;
        Ok(endpoint.through(&self.egress).guarded(Guard::Global(self.own.clone())))
    }

    /// Refuses the address of this server. Host names are checked after they are resolved.
    fn check_not_own(&self, host: &str, port: u16) -> Result<(), Status> {
        match host.parse::<IpAddr>() {
            Ok(ip) if self.own.has((ip, port).into()) => Err(not_allowed()),
            _ => Ok(()),
        }
    }
}

fn not_allowed() -> Status {
    Status::bad_request("address not allowed")
}

fn random() -> usize {
    // If no random bytes are available, use 0. The choice only spreads load, so any number is correct.
    getrandom::u64().map_or(0, |number| number as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::connect::Settings;
    use values::json::parse;

    fn object(text: &str) -> Object {
        parse(text.as_bytes()).unwrap().as_object().unwrap().clone()
    }

    fn nodes() -> NodeConnections {
        NodeConnections::new(Settings::default()).unwrap()
    }

    fn endpoint_text(endpoint: Result<Endpoint, Status>) -> String {
        endpoint.map_or_else(
            |status| format!("{} {}", status.code.as_u16(), status.message),
            |it| it.url().to_string(),
        )
    }

    #[test]
    fn the_name_of_a_proxy_target_may_include_a_scheme_and_a_port() {
        let name = |name, port, is_https| Some(Name { name, port, is_https });
        for (text, want) in [
            ("a", name("a", "", false)),
            ("a:http", name("a", "http", false)),
            ("https:a:8443", name("a", "8443", true)),
            ("http:a:", name("a", "", false)),
            (":a:80", name("a", "80", false)),
            ("ftp:a:80", None),
            (":80", None),
            ("http::80", None),
            ("", None),
            ("a:b:c:d", None),
        ] {
            assert_eq!(Name::parse(text), want, "{text}");
        }
    }

    #[test]
    fn the_address_of_an_agent_comes_from_the_status_of_its_node() {
        let nodes = nodes();
        for (status, want) in [
            (r#""addresses":[{"type":"InternalIP","address":"10.0.0.1"}]"#, "https://10.0.0.1:10250/x"),
            (
                r#""addresses":[{"type":"InternalIP","address":"10.0.0.1"},{"type":"Hostname","address":"h"}],"daemonEndpoints":{"kubeletEndpoint":{"Port":99}}"#,
                "https://h:99/x",
            ),
            (r#""addresses":[{"type":"InternalIP","address":"fd00::1"}]"#, "https://[fd00::1]:10250/x"),
            (
                r#""addresses":[{"type":"Other","address":"a"},{"type":"X","address":"b"}]"#,
                "500 no preferred addresses found; known addresses: [{Other a} {X b}]",
            ),
            ("", "500 no preferred addresses found; known addresses: []"),
        ] {
            let node = object(&format!(r#"{{"status":{{{status}}}}}"#));
            let agent = nodes.agent(&node);
            assert_eq!(endpoint_text(agent.and_then(|agent| nodes.of_agent(&agent, "/x", true))), want);
        }
        let declares = object(
            r#"{"status":{"addresses":[{"type":"Hostname","address":"h"}],"declaredFeatures":["ExtendWebSocketsToKubelet"]}}"#,
        );
        assert!(nodes.agent(&declares).unwrap().takes_websockets);
    }

    #[tokio::test]
    async fn another_port_of_a_node_is_reachable_only_at_a_global_address() {
        let nodes = nodes();
        for (host, name, want) in [
            ("127.0.0.1", "n", "https://127.0.0.1:10250/x"),
            ("127.0.0.1", "n:10250", "https://127.0.0.1:10250/x"),
            ("127.0.0.1", "n:80", "400 address not allowed"),
            ("10.0.0.1", "n:80", "http://10.0.0.1:80/x"),
            ("10.0.0.1", "https:n:80", "https://10.0.0.1:80/x"),
        ] {
            let agent = Agent { host: host.to_owned(), port: AGENT_PORT, takes_websockets: false };
            let endpoint = nodes.of_node(&agent, Name::parse(name).unwrap(), "/x").await;
            assert_eq!(endpoint_text(endpoint), want, "{host} {name}");
        }
    }

    #[tokio::test]
    async fn addresses_of_this_host_are_refused_in_every_spelling() {
        let nodes = nodes();
        nodes.own_addresses().set("10.9.8.7:6443".parse().unwrap(), Vec::new());
        // Forms of addresses that operating systems accept: a single number, octal and hexadecimal parts,
        // omitted parts.
        for host in ["0x7f000001", "2130706433", "0177.0.0.1", "127.1", "::127.0.0.1", "64:ff9b::7f00:1"] {
            let agent = Agent { host: host.to_owned(), port: AGENT_PORT, takes_websockets: false };
            let endpoint = nodes.of_node(&agent, Name::parse("n:80").unwrap(), "/x").await;
            assert_eq!(endpoint_text(endpoint), "400 address not allowed", "{host}");
        }
        for (host, port, name, want) in [
            ("10.9.8.7", 6443, "n", "400 address not allowed"),
            ("::ffff:10.9.8.7", 6443, "n", "400 address not allowed"),
            ("10.9.8.7", AGENT_PORT, "n:6443", "400 address not allowed"),
            ("10.9.8.7", AGENT_PORT, "https:n:6443", "400 address not allowed"),
            ("10.9.8.7", AGENT_PORT, "n", "https://10.9.8.7:10250/x"),
            ("10.9.8.7", AGENT_PORT, "n:80", "http://10.9.8.7:80/x"),
            ("10.9.8.8", 6443, "n", "https://10.9.8.8:6443/x"),
        ] {
            let agent = Agent { host: host.to_owned(), port, takes_websockets: false };
            let endpoint = nodes.of_node(&agent, Name::parse(name).unwrap(), "/x").await;
            assert_eq!(endpoint_text(endpoint), want, "{host} {port} {name}");
        }
        // Pods in the host network share the addresses of the host, and are reached at other ports.
        for (port, want) in [("6443", "400 address not allowed"), ("10257", "http://10.9.8.7:10257/x")] {
            let pod = object(r#"{"status":{"podIP":"10.9.8.7"}}"#);
            let name = Name { name: "p", port, is_https: false };
            assert_eq!(endpoint_text(nodes.of_pod(&pod, name, "/x")), want, "{port}");
        }
    }

    #[test]
    fn pods_are_reached_at_their_first_port() {
        let nodes = nodes();
        let ports =
            r#""spec":{"containers":[{"name":"a"},{"ports":[{"containerPort":8080},{"containerPort":1}]}]},"#;
        for (address, ports, name, want) in [
            ("10.0.0.1", ports, "p", "http://10.0.0.1:8080/x"),
            ("10.0.0.1", "", "p", "http://10.0.0.1:80/x"),
            ("10.0.0.1", "", "https:p:", "https://10.0.0.1:443/x"),
            ("10.0.0.1", ports, "p:90", "http://10.0.0.1:90/x"),
            ("fd00::1", ports, "p:90", "http://[fd00::1]:90/x"),
            (
                "10.0.0.1",
                ports,
                "p:web",
                "503 error trying to reach service: dial tcp: lookup tcp/web: unknown port",
            ),
            ("127.0.0.1", ports, "p", "400 address not allowed"),
            ("169.254.1.1", ports, "p", "400 address not allowed"),
            ("::ffff:127.0.0.1", ports, "p", "400 address not allowed"),
            ("fe80::1", ports, "p", "400 address not allowed"),
            ("64:ff9b::7f00:1", ports, "p", "400 address not allowed"),
            ("2002:7f00:1::", ports, "p", "400 address not allowed"),
            ("::127.0.0.1", ports, "p", "400 address not allowed"),
            ("0x7f000001", ports, "p", "400 address not allowed"),
            ("0177.0.0.1", ports, "p", "400 address not allowed"),
            ("", ports, "p", "400 address not allowed"),
        ] {
            let pod = object(&format!(r#"{{{ports}"status":{{"podIP":"{address}"}}}}"#));
            assert_eq!(
                endpoint_text(nodes.of_pod(&pod, Name::parse(name).unwrap(), "/x")),
                want,
                "{address} {name}"
            );
        }
    }

    #[test]
    fn a_proxied_service_without_endpoints_is_not_found() {
        let service = object(r#"{"metadata":{"namespace":"n"},"spec":{"ports":[{"name":"web","port":80}]}}"#);
        for (id, want) in [
            ("s", "404 services \"s\" not found"),
            ("s:web", "404 services \"s\" not found"),
            ("s:80", "404 services \"s\" not found"),
            ("s:81", "503 no service port 81 found for service \"s\""),
        ] {
            let found = nodes().of_service(&service, &[], id, Name::parse(id).unwrap(), "/x", |_| None);
            assert_eq!(endpoint_text(found), want, "{id}");
        }
    }

    #[test]
    fn a_proxied_service_is_reached_at_one_of_its_pods() {
        let nodes = nodes();
        let service = object(
            r#"{"metadata":{"namespace":"n"},"spec":{"ports":[{"name":"web","port":80},{"name":"other","port":81}]}}"#,
        );
        let endpoint = |address: &str, extra: &str| {
            format!(
                r#"{{"addresses":["{address}"],"targetRef":{{"kind":"Pod","namespace":"n","name":"p"}}{extra}}}"#
            )
        };
        let slice = |endpoints: &str| {
            object(&format!(r#"{{"ports":[{{"name":"web","port":8080}}],"endpoints":[{endpoints}]}}"#))
        };
        let none = "503 no endpoints available for service";
        let foreign = r#"{"addresses":["10.0.0.1"],"targetRef":{"kind":"Pod","namespace":"m","name":"p"}}"#;
        for (id, endpoints, want) in [
            ("s:80", endpoint("10.0.0.1", ""), "http://10.0.0.1:8080/x".to_owned()),
            ("https:s:web", endpoint("10.0.0.1", ""), "https://10.0.0.1:8080/x".to_owned()),
            ("s", endpoint("10.0.0.1", ""), format!("{none} \"s\"")),
            ("s:82", endpoint("10.0.0.1", ""), "503 no service port 82 found for service \"s\"".to_owned()),
            ("s:81", endpoint("10.0.0.1", ""), format!("{none} \"s:81\"")),
            ("s:web", endpoint("10.0.0.9", ""), format!("{none} \"s:web\"")),
            ("s:web", endpoint("10.0.0.1", r#","conditions":{"ready":false}"#), format!("{none} \"s:web\"")),
            ("s:web", foreign.to_owned(), format!("{none} \"s:web\"")),
            ("s:web", r#"{"addresses":["10.0.0.1"]}"#.to_owned(), format!("{none} \"s:web\"")),
            (
                "s:web",
                [endpoint("10.0.0.9", ""), endpoint("10.0.0.1", "")].join(","),
                "http://10.0.0.1:8080/x".to_owned(),
            ),
        ] {
            let pod =
                |name: &str| (name == "p").then(|| object(r#"{"status":{"podIPs":[{"ip":"10.0.0.1"}]}}"#));
            let name = Name::parse(id).unwrap();
            let found = nodes.of_service(&service, &[slice(&endpoints)], id, name, "/x", pod);
            assert_eq!(endpoint_text(found), want, "{id} {endpoints}");
        }
        for id in ["s", "s:80", "s:web", "s:none"] {
            let found = nodes.of_service(&service, &[], id, Name::parse(id).unwrap(), "/x", |_| None);
            assert_eq!(endpoint_text(found), "404 services \"s\" not found", "{id}");
        }
    }
}
