//! Flags of the server's own service.

use anyhow::{anyhow, bail};
use api::writes::context::OwnService;
use clap::Args;

use super::forms;

/// The value of `--endpoint-reconciler-type` is unknown.
#[derive(Debug, thiserror::Error)]
#[error("Reconciler not implemented: {0}")]
pub struct NoReconciler(String);

// Not a documentation comment: clap would use it as the description of the whole command line.
#[derive(Clone, Debug, Args)]
pub struct OwnServiceFlags {
    /// Node port at which the server's own service can also be reached. 0 means that the service has no node
    /// port.
    #[arg(long, value_name = "PORT", default_value_t = 0, allow_negative_numbers = true,
          value_parser = forms::integer::<i64>)]
    pub kubernetes_service_node_port: i64,

    /// Whether the server maintains the endpoints of its own service. With lease and master-count it does;
    /// with none, another program must. Possible values: lease, master-count, none.
    #[arg(long, value_name = "TYPE", default_value = "lease")]
    pub endpoint_reconciler_type: String,
}

impl OwnServiceFlags {
    /// Returns the node port, or `None` if the flag is 0.
    ///
    /// # Errors
    /// The value is not a port.
    pub fn node_port(&self) -> anyhow::Result<Option<u16>> {
        let port = self.kubernetes_service_node_port;
        let node_port = u16::try_from(port).map_err(|_| {
            anyhow!(
                "--kubernetes-service-node-port {port} must be between 0 and 65535, inclusive. If 0, the Kubernetes master \
                 service will be of type ClusterIP"
            )
        })?;
        Ok((node_port != 0).then_some(node_port))
    }

    /// Returns the settings in the flags. The address of the server is added later.
    ///
    /// # Errors
    /// The value is not a port, or the type of reconciler is unknown.
    pub fn settings(&self) -> anyhow::Result<OwnService> {
        let node_port = self.node_port()?;
        let has_endpoints = match self.endpoint_reconciler_type.as_str() {
            "lease" | "master-count" => true,
            "none" => false,
            other => bail!(NoReconciler(other.to_owned())),
        };
        Ok(OwnService { node_port, has_endpoints, ..OwnService::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_is_a_port_and_the_type_is_known() {
        for (port, kind, wanted) in [
            (0, "lease", Ok((None, true))),
            (30_444, "master-count", Ok((Some(30_444), true))),
            (0, "none", Ok((None, false))),
            (0, "x", Err("Reconciler not implemented: x")),
            (0, "", Err("Reconciler not implemented: ")),
            (-1, "lease", Err("--kubernetes-service-node-port -1 must be between 0 and 65535, inclusive")),
            (
                65_536,
                "lease",
                Err("--kubernetes-service-node-port 65536 must be between 0 and 65535, inclusive"),
            ),
        ] {
            let flags = OwnServiceFlags {
                kubernetes_service_node_port: port,
                endpoint_reconciler_type: kind.to_owned(),
            };
            match (flags.settings(), wanted) {
                (Ok(got), Ok(wanted)) => assert_eq!((got.node_port, got.has_endpoints), wanted),
                (Err(got), Err(wanted)) => assert!(got.to_string().starts_with(wanted), "{got}"),
                (got, wanted) => panic!("{got:?}, not {wanted:?}"),
            }
        }
    }
}
