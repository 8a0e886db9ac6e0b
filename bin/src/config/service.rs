//! Flags of services: the addresses and ports that services get, and the server's own service.

use std::net::{IpAddr, SocketAddr};

use api::state::allocation::{Network, Ports, Ranges};
use api::writes::server::operations::OwnService;
use clap::Args;

use crate::flags::problems::{FlagError, Problems};
use crate::flags::value_parsers;
use crate::host::machine;

// This struct has no documentation comment, because clap would use the comment as the description of the whole command
// line.
#[derive(Clone, Debug, Args)]
pub struct ServiceFlags {
    /// Networks (CIDR) from which services get cluster IPs: one network, or an IPv4 network and an IPv6
    /// network separated by a comma. Default: 10.0.0.0/24.
    #[arg(long, value_name = "CIDRS", value_parser = networks)]
    pub service_cluster_ip_range: Option<ServiceNetworks>,

    /// Range of ports from which services get node ports.
    #[arg(long, value_name = "FIRST-LAST", default_value_t = Ports::DEFAULT, value_parser = Ports::parse)]
    pub service_node_port_range: Ports,

    /// IP address at which pods reach this server. The address is published as the endpoint of the server's
    /// own service. Default: --bind-address, or an address of this machine if --bind-address is unspecified
    /// or a loopback address.
    #[arg(long, value_name = "IP", value_parser = value_parsers::ip)]
    pub advertise_address: Option<IpAddr>,

    /// Node port at which the server's own service can also be reached. 0 means that the service has no node
    /// port.
    #[arg(long, value_name = "PORT", default_value_t = 0, allow_negative_numbers = true,
          value_parser = value_parsers::integer::<i64>)]
    pub kubernetes_service_node_port: i64,

    /// Whether the server maintains the endpoints of its own service. With lease or master-count, the server
    /// maintains the endpoints. With none, another program must maintain them. Possible values: lease,
    /// master-count, none.
    #[arg(long, value_name = "TYPE", default_value = "lease")]
    pub endpoint_reconciler_type: String,

    /// Host name of this server in the discovery documents of the token issuer. Default: the server's
    /// address.
    #[arg(long, value_name = "NAME")]
    pub external_hostname: Option<String>,
}

/// The networks from which services get cluster IPs. The first network is the default.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ServiceNetworks(pub Vec<Network>);

/// Settings of services and of the server's own service.
#[derive(Clone, Debug)]
pub struct ServiceSettings {
    /// Address and port ranges of services.
    pub ranges: Ranges,
    /// Address at which pods reach the server, if configured.
    pub advertise_address: Option<IpAddr>,
    /// Settings of the server's own service, except the server's address.
    pub own_service: OwnService,
    /// Host name of this server in published documents, if the operator sets one.
    pub external_hostname: Option<String>,
}

impl ServiceFlags {
    /// Returns the networks from which services get cluster IPs.
    pub fn networks(&self) -> ServiceNetworks {
        self.service_cluster_ip_range.clone().unwrap_or_else(|| ServiceNetworks(Ranges::default().networks))
    }

    /// Returns the settings of a server that listens on `bound`. Adds an error for each range, address and port that
    /// cannot be used.
    pub fn settings(&self, bound: IpAddr, problems: &mut Problems) -> Option<ServiceSettings> {
        let ServiceNetworks(networks) = self.networks();
        let networks_text = networks.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        problems.take_for("service-cluster-ip-range", &networks_text, Ranges::check_networks(&networks));
        let node_port = problems.take(self.node_port());
        let (port, ports) = (self.kubernetes_service_node_port, self.service_node_port_range);
        if port > 0 && !ports.contains(port) {
            let text = format!("kubernetes service node port range {ports} doesn't contain {port}");
            problems.add(FlagError::worded("kubernetes-service-node-port", port, text));
        }
        let has_endpoints = problems.take(self.has_endpoints());
        // An unspecified address counts as unset.
        let advertise_address = self.advertise_address.filter(|address| !address.is_unspecified());
        // Check only a range that the operator gave, because a machine with IPv6 addresses only may still use
        // the default range.
        if let Some(first) = networks.first().filter(|_| self.service_cluster_ip_range.is_some())
            && has_endpoints == Some(true)
            && let Some(public) = machine::advertised_address(SocketAddr::new(bound, 0), advertise_address)
            && !first.is_of_family(public.ip())
        {
            let public = public.ip();
            let text = format!("service IP family \"{first}\" must match public address family \"{public}\"");
            problems.add(FlagError::worded("service-cluster-ip-range", networks_text, text));
        }
        Some(ServiceSettings {
            ranges: Ranges { networks, ports },
            advertise_address,
            own_service: OwnService {
                node_port: node_port?,
                has_endpoints: has_endpoints?,
                ..OwnService::default()
            },
            external_hostname: self.external_hostname.clone().filter(|name| !name.is_empty()),
        })
    }

    /// Returns the node port, or `None` if the flag is 0.
    fn node_port(&self) -> Result<Option<u16>, FlagError> {
        let port = self.kubernetes_service_node_port;
        let node_port = u16::try_from(port).map_err(|_| {
            let text = format!(
                "--kubernetes-service-node-port {port} must be between 0 and 65535, inclusive. If 0, the Kubernetes master \
                 service will be of type ClusterIP"
            );
            FlagError::worded("kubernetes-service-node-port", port, text)
        })?;
        Ok((node_port != 0).then_some(node_port))
    }

    /// Returns whether the server maintains the endpoints of its own service.
    fn has_endpoints(&self) -> Result<bool, FlagError> {
        match self.endpoint_reconciler_type.as_str() {
            "lease" | "master-count" => Ok(true),
            "none" => Ok(false),
            other => {
                let text = format!("Reconciler not implemented: {other}");
                Err(FlagError::worded("endpoint-reconciler-type", other, text).fatal())
            }
        }
    }
}

fn networks(text: &str) -> Result<ServiceNetworks, String> {
    if text.is_empty() {
        return Ok(ServiceNetworks(Ranges::default().networks));
    }
    Ranges::parse_networks(text).map(ServiceNetworks).map_err(|why| {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_service_node_port_and_the_reconciler_type_are_validated() {
        for (port, kind, expected) in [
            (0, "lease", Ok((None, true))),
            (30_444, "master-count", Ok((Some(30_444), true))),
            (0, "none", Ok((None, false))),
            (0, "x", Err("Reconciler not implemented: x")),
            (0, "", Err("Reconciler not implemented: ")),
            (-1, "lease", Err("--kubernetes-service-node-port -1 must be between 0 and 65535, inclusive")),
            (
                65_536,
                "lease",
                Err("[--kubernetes-service-node-port 65536 must be between 0 and 65535, inclusive"),
            ),
        ] {
            let flags = ServiceFlags {
                service_cluster_ip_range: None,
                service_node_port_range: Ports::DEFAULT,
                advertise_address: None,
                kubernetes_service_node_port: port,
                endpoint_reconciler_type: kind.to_owned(),
                external_hostname: None,
            };
            let mut problems = Problems::default();
            let settings = flags.settings(IpAddr::from([127, 0, 0, 1]), &mut problems);
            match (problems.finish(settings), expected) {
                (Ok(got), Ok(expected)) => {
                    assert_eq!((got.own_service.node_port, got.own_service.has_endpoints), expected);
                }
                (Err(got), Err(expected)) => {
                    assert!(got.to_string().starts_with(expected), "{got}");
                    assert_eq!(got.are_fatal(), expected.starts_with("Reconciler"), "{got}");
                }
                (got, expected) => panic!("{got:?}, not {expected:?}"),
            }
        }
    }
}
