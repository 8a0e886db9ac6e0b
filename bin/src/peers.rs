//! How the other servers on the same etcd are known, and this one to them, from the flags (docs/api/peers.md).

use std::net::{IpAddr, SocketAddr};

use anyhow::bail;
use api::state::peers::Settings;
use api::types::features::{Feature, Features};
use api::values::naming::Naming;
use auth::authn::x509::CaBundle;

use crate::config::read;
use crate::flags::PeerFlags;
use crate::host;

/// What the flags say of peers.
#[derive(Clone, Debug)]
pub struct PeerConfig {
    is_open: bool,
    authorities: Option<Vec<u8>>,
    address: Option<SocketAddr>,
}

impl PeerConfig {
    /// Takes the flags. `certificate` is the one by which peers know this server.
    ///
    /// # Errors
    /// Flags that do not fit each other, or a file that cannot be used.
    pub fn from_flags(flags: &PeerFlags, features: &Features, has_certificate: bool) -> anyhow::Result<Self> {
        let is_open = features.has(Feature::PeerProxy);
        for (name, is_set) in [
            ("peer-ca-file", flags.peer_ca_file.is_some()),
            ("peer-advertise-ip", flags.peer_advertise_ip.is_some()),
            ("peer-advertise-port", flags.peer_advertise_port.is_some()),
        ] {
            if is_set && !is_open {
                bail!("--{name} requires UnknownVersionInteroperabilityProxy feature to be turned on");
            }
        }
        let authorities = match &flags.peer_ca_file {
            Some(_) if !has_certificate => {
                bail!("--peer-ca-file needs --proxy-client-cert-file and --proxy-client-key-file")
            }
            Some(path) => {
                let bundle = read("--peer-ca-file", path)?;
                if let Err(why) = CaBundle::from_pem(&bundle) {
                    bail!("--peer-ca-file {}: {why}", path.display());
                }
                Some(bundle)
            }
            None => None,
        };
        let address = flags.peer_advertise_ip.zip(flags.peer_advertise_port);
        let address = address.map(|(ip, port)| SocketAddr::new(ip, port));
        if address.is_some_and(|address| address.port() == 0 || address.ip().is_unspecified()) {
            bail!("--peer-advertise-ip and --peer-advertise-port must say where the server is reached");
        }
        Ok(PeerConfig { is_open, authorities, address })
    }

    /// The same for a server that listens on `bound`, and is reached by others at `advertised`, if that was said.
    pub fn settings(
        &self,
        bound: SocketAddr,
        advertised: Option<IpAddr>,
        certificate: Option<(Vec<u8>, Vec<u8>)>,
        naming: &Naming,
    ) -> Settings {
        let listening = || match bound.ip().is_unspecified() {
            true => host::advertised_address(bound, None),
            false => Some(bound),
        };
        let said = advertised.map(|ip| SocketAddr::new(ip, bound.port()));
        Settings {
            address: self.address.or(said).or_else(listening).filter(|_| self.is_open),
            authorities: self.authorities.clone(),
            certificate,
            server_name: format!("{}.default.svc", naming.word),
        }
    }
}
