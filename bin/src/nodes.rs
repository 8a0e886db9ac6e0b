//! How nodes are reached, from the flags.

use anyhow::anyhow;
use api::state::connect::{Nodes, Settings};

use crate::config::read;
use crate::flags::NodeFlags;

/// Reads the files that the flags name.
///
/// # Errors
/// A file cannot be read.
pub fn of_flags(flags: NodeFlags) -> anyhow::Result<Nodes> {
    let given = |path: Option<std::path::PathBuf>| path.filter(|path| !path.as_os_str().is_empty());
    let certificate = match (given(flags.kubelet_client_certificate), given(flags.kubelet_client_key)) {
        (None, None) => None,
        (Some(chain), Some(key)) => {
            Some((read("--kubelet-client-certificate", &chain)?, read("--kubelet-client-key", &key)?))
        }
        // As kube-apiserver: one file alone is no certificate.
        (Some(_), None) | (None, Some(_)) => None,
    };
    let authorities = given(flags.kubelet_certificate_authority);
    let authorities = authorities.map(|path| read("--kubelet-certificate-authority", &path)).transpose()?;
    let settings = Settings {
        address_types: flags.kubelet_preferred_address_types,
        certificate,
        authorities,
        timeout: flags.kubelet_timeout,
    };
    Nodes::new(settings).map_err(|why| anyhow!("--kubelet-*: {why}"))
}
