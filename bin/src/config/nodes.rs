//! Flags and settings of connections to nodes. The server reloads the client certificate for kubelets when
//! its files change.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::anyhow;
use api::state::connect::{NodeConnections, Settings};
use auth::authn::key_pair;
use clap::Args;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use wire::metrics::Metrics;
use wire::outgoing::Networks;

use crate::flags::duration;
use crate::flags::problems::FlagError;
use crate::host::expiry;
use crate::host::files::{self, opening};
use crate::host::reload::{self, FileGroup};

// This struct has no documentation comment, because clap would use the comment as the description of the whole command
// line.
#[derive(Clone, Debug, Args)]
pub struct NodeFlags {
    /// CA bundle (PEM) that the certificates of kubelets are verified against. Default: the certificates of
    /// kubelets are not verified.
    #[arg(long, value_name = "FILE")]
    pub kubelet_certificate_authority: Option<PathBuf>,

    /// Client certificate (PEM) that this server presents to kubelets.
    #[arg(long, value_name = "FILE")]
    pub kubelet_client_certificate: Option<PathBuf>,

    /// Private key (PEM) of --kubelet-client-certificate.
    #[arg(long, value_name = "FILE")]
    pub kubelet_client_key: Option<PathBuf>,

    /// Types of node addresses, separated by commas. To connect to a kubelet, the server uses the first type
    /// in this list for which the node has an address.
    #[arg(
        long,
        value_name = "TYPES",
        value_delimiter = ',',
        default_value = "Hostname,InternalDNS,InternalIP,ExternalDNS,ExternalIP"
    )]
    pub kubelet_preferred_address_types: Vec<String>,

    /// Time limit for connecting to a kubelet.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = duration::parse_clamped)]
    pub kubelet_timeout: Duration,
}

/// Settings of connections to nodes, and the files that they were read from.
#[derive(Clone, Debug)]
pub struct NodeSettings {
    /// The settings that requests use.
    pub nodes: NodeConnections,
    /// Files of the client certificate and the key that this server presents to kubelets.
    certificate: Option<(PathBuf, PathBuf)>,
    /// The CA file that certificates of kubelets are verified against.
    authorities: Option<PathBuf>,
}

/// Prefix of kube-apiserver's messages about files that it cannot use.
const UNUSABLE: &str = "problem initializing API group \"\": ";

impl NodeFlags {
    /// Reads the files that the flags name, and returns the settings.
    ///
    /// # Errors
    /// A file cannot be used.
    pub fn settings(&self, networks: &Networks) -> Result<NodeSettings, FlagError> {
        let given = |path: &Option<PathBuf>| path.clone().filter(|path| !path.as_os_str().is_empty());
        // As in kube-apiserver, one file without the other has no effect.
        let (chain, key) = (given(&self.kubelet_client_certificate), given(&self.kubelet_client_key));
        let authorities = given(&self.kubelet_certificate_authority);
        let contents = |flag: &str, path: &Option<PathBuf>| {
            let read = |path: &PathBuf| open(path).map_err(|why| unusable(flag, path, &why));
            path.as_ref().map(read).transpose()
        };
        let bundle = contents("kubelet-certificate-authority", &authorities)?;
        let pair = contents("kubelet-client-certificate", &chain)?.zip(contents("kubelet-client-key", &key)?);
        let is_empty = |bundle: &Vec<u8>| CertificateDer::pem_slice_iter(bundle).all(|one| one.is_err());
        if let Some(path) = authorities.as_ref().filter(|_| bundle.as_ref().is_some_and(is_empty)) {
            let why = anyhow!("unable to load root certificates: unable to parse bytes as PEM block");
            return Err(unusable("kubelet-certificate-authority", path, &why));
        }
        if let (Some(path), Some((certificate, key))) = (&chain, &pair)
            && let Some(why) = key_pair::problem(certificate, key)
        {
            return Err(unusable("kubelet-client-certificate", path, &anyhow!("{why}")));
        }
        let settings = Settings {
            address_types: self.kubelet_preferred_address_types.clone(),
            certificate: pair,
            authorities: bundle,
            timeout: self.kubelet_timeout,
            egress: networks.cluster.clone(),
        };
        let nodes = NodeConnections::new(settings).map_err(|why| {
            FlagError::worded("kubelet-client-certificate", "", format_args!("--kubelet-*: {why}"))
        })?;
        Ok(NodeSettings { nodes, certificate: chain.zip(key), authorities })
    }
}

fn unusable(flag: &str, path: &Path, why: &anyhow::Error) -> FlagError {
    FlagError::worded(flag, path.display(), format_args!("{UNUSABLE}{why:#}"))
}

impl NodeSettings {
    /// Reloads the files when one of them changes. The new contents apply to new connections to kubelets.
    pub async fn follow(&self, metrics: &Metrics) {
        let pair = self.certificate.iter().flat_map(|(chain, key)| [chain.clone(), key.clone()]);
        let mut watched = FileGroup::new(pair.chain(self.authorities.clone()).collect());
        if let Some(chain) = watched.contents().first().filter(|_| self.certificate.is_some()) {
            expiry::watch(metrics, "kubelet-client", chain);
        }
        while self.certificate.is_some() || self.authorities.is_some() {
            tokio::time::sleep(reload::BUNDLE_INTERVAL).await;
            if watched.changed().is_none() {
                continue;
            }
            match self.read_again(metrics) {
                Ok(()) => tracing::info!("credentials for kubelets reloaded"),
                Err(error) => {
                    let error = format!("{error:#}");
                    tracing::warn!(
                        error,
                        "credentials for kubelets not reloaded, the old ones stay in use: correct the files"
                    );
                }
            }
        }
    }

    fn read_again(&self, metrics: &Metrics) -> anyhow::Result<()> {
        let pair = match &self.certificate {
            None => None,
            Some((chain, key)) => Some((open(chain)?, open(key)?)),
        };
        let bundle = self.authorities.as_ref().map(open).transpose()?;
        let chain = pair.as_ref().map(|(chain, _)| chain.clone());
        self.nodes.replace(pair, bundle.as_deref()).map_err(|why| anyhow!("--kubelet-*: {why}"))?;
        if let Some(chain) = chain {
            expiry::watch(metrics, "kubelet-client", &chain);
        }
        Ok(())
    }
}

fn open(path: &PathBuf) -> anyhow::Result<Vec<u8>> {
    files::read(path).map_err(|error| opening(path, &error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::files::scratch::Scratch;

    #[test]
    fn each_file_for_node_connections_must_exist_and_be_valid() {
        let dir = Scratch::new();
        let text = dir.join("text");
        std::fs::write(&text, "no certificate").unwrap();
        let missing = Some(PathBuf::from("/missing/a"));
        let none = "problem initializing API group \"\": open /missing/a: no such file or directory";
        let unusable = "problem initializing API group \"\": unable to load root certificates: unable to parse bytes as PEM \
                        block";
        let no_pair =
            "problem initializing API group \"\": tls: failed to find any PEM data in certificate input";
        for (authorities, chain, key, want) in [
            (None, None, None, ""),
            (None, Some(text.clone()), None, ""),
            (None, missing.clone(), None, none),
            (None, None, missing.clone(), none),
            (missing, None, None, none),
            (Some(text.clone()), None, None, unusable),
            (None, Some(text.clone()), Some(text), no_pair),
        ] {
            let flags = NodeFlags {
                kubelet_certificate_authority: authorities,
                kubelet_client_certificate: chain,
                kubelet_client_key: key,
                kubelet_preferred_address_types: Vec::new(),
                kubelet_timeout: std::time::Duration::ZERO,
            };
            let made = flags.settings(&Networks::default());
            assert_eq!(made.err().map(|error| error.to_string()).unwrap_or_default(), want);
        }
    }
}
