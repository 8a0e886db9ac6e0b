//! How nodes are reached, from the flags; certificates for agents are read again when their files change.

use std::path::PathBuf;

use anyhow::anyhow;
use api::state::connect::{Nodes, Settings};
use api::wire::metrics::Metrics;
use api::wire::outgoing::Networks;

use crate::config::read;
use crate::expiry;
use crate::flags::NodeFlags;
use crate::reload::{self, Watched};

/// How nodes are reached, and the files of which that is made.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// What requests use.
    pub nodes: Nodes,
    /// Files of the certificate and the key by which agents know this server.
    certificate: Option<(PathBuf, PathBuf)>,
    /// The file of the authorities that agents are verified against.
    authorities: Option<PathBuf>,
}

/// What the files hold: certificate and key, and authorities.
type Read = (Option<(Vec<u8>, Vec<u8>)>, Option<Vec<u8>>);

impl NodeConfig {
    /// Reads the files that the flags name.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn from_flags(flags: NodeFlags, networks: &Networks) -> anyhow::Result<NodeConfig> {
        let given = |path: Option<PathBuf>| path.filter(|path| !path.as_os_str().is_empty());
        // As kube-apiserver: one file alone is no certificate.
        let certificate = given(flags.kubelet_client_certificate).zip(given(flags.kubelet_client_key));
        let authorities = given(flags.kubelet_certificate_authority);
        let (pair, bundle) = read_files(certificate.as_ref(), authorities.as_ref())?;
        let settings = Settings {
            address_types: flags.kubelet_preferred_address_types,
            certificate: pair,
            authorities: bundle,
            timeout: flags.kubelet_timeout,
            egress: networks.cluster.clone(),
        };
        let nodes = Nodes::new(settings).map_err(|why| anyhow!("--kubelet-*: {why}"))?;
        Ok(NodeConfig { nodes, certificate, authorities })
    }

    /// Reads the files again when one of them changes. New connections to agents use what is in them then.
    pub async fn follow(&self, metrics: &Metrics) {
        let pair = self.certificate.iter().flat_map(|(chain, key)| [chain.clone(), key.clone()]);
        let mut watched = Watched::new(pair.chain(self.authorities.clone()).collect());
        if let Some(chain) = watched.contents().first().filter(|_| self.certificate.is_some()) {
            expiry::watch(metrics, "kubelet-client", chain);
        }
        while self.certificate.is_some() || self.authorities.is_some() {
            tokio::time::sleep(reload::BUNDLE_INTERVAL).await;
            if watched.changed().is_none() {
                continue;
            }
            match self.read_again(metrics) {
                Ok(()) => tracing::info!("credentials for agents of nodes reloaded"),
                Err(error) => {
                    let error = format!("{error:#}");
                    tracing::warn!(error, "still using the old credentials for agents of nodes");
                }
            }
        }
    }

    fn read_again(&self, metrics: &Metrics) -> anyhow::Result<()> {
        let (pair, bundle) = read_files(self.certificate.as_ref(), self.authorities.as_ref())?;
        let chain = pair.as_ref().map(|(chain, _)| chain.clone());
        self.nodes.replace(pair, bundle.as_deref()).map_err(|why| anyhow!("--kubelet-*: {why}"))?;
        if let Some(chain) = chain {
            expiry::watch(metrics, "kubelet-client", &chain);
        }
        Ok(())
    }
}

fn read_files(
    certificate: Option<&(PathBuf, PathBuf)>,
    authorities: Option<&PathBuf>,
) -> anyhow::Result<Read> {
    let pair = match certificate {
        None => None,
        Some((chain, key)) => {
            Some((read("--kubelet-client-certificate", chain)?, read("--kubelet-client-key", key)?))
        }
    };
    let bundle = authorities.map(|path| read("--kubelet-certificate-authority", path)).transpose()?;
    Ok((pair, bundle))
}
