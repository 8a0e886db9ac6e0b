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
    /// Takes the flags. `missing` is the flag that is not given of those that name the certificate by which peers know
    /// this server, and its key.
    ///
    /// # Errors
    /// Flags that do not fit each other, or a file that cannot be used.
    pub fn from_flags(flags: &PeerFlags, features: &Features, missing: Option<&str>) -> anyhow::Result<Self> {
        let is_open = features.has(Feature::PeerProxy);
        for (name, is_set) in [
            ("peer-ca-file", flags.peer_ca_file.is_some()),
            ("peer-advertise-ip", !flags.peer_advertise_ip.is_empty()),
            ("peer-advertise-port", !flags.peer_advertise_port.is_empty()),
        ] {
            if is_set && !is_open {
                bail!("--{name} requires UnknownVersionInteroperabilityProxy feature to be turned on");
            }
        }
        let authorities = match (&flags.peer_ca_file, missing) {
            (Some(_), Some(file)) => bail!("error building peer proxy handler, {file} not specified"),
            (Some(path), None) => {
                let bundle = read("--peer-ca-file", path)?;
                if let Err(why) = CaBundle::from_pem(&bundle) {
                    bail!("--peer-ca-file {}: {why}", path.display());
                }
                Some(bundle)
            }
            (None, _) => None,
        };
        let ip = flags.peer_advertise_ip.parse().ok();
        let address = ip.zip(flags.peer_advertise_port.parse().ok());
        let address = address.map(|(ip, port)| SocketAddr::new(ip, port));
        // What says nowhere is as good as nothing.
        let address = address.filter(|address| address.port() != 0 && !address.ip().is_unspecified());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_need_a_certificate_to_know_this_server_by() {
        let flags = |file: Option<&str>, ip: &str, port: &str| PeerFlags {
            peer_ca_file: file.map(Into::into),
            peer_advertise_ip: ip.to_owned(),
            peer_advertise_port: port.to_owned(),
        };
        let open = Features::default();
        for (flags, missing, want) in [
            (flags(None, "", ""), Some("proxy-cert-file"), Ok(None)),
            (flags(None, "192.0.2.1", "6443"), None, Ok(Some("192.0.2.1:6443"))),
            (flags(None, "192.0.2.1", "x"), None, Ok(None)),
            (flags(None, "0.0.0.0", "6443"), None, Ok(None)),
            (
                flags(Some("/missing"), "", ""),
                Some("proxy-key-file"),
                Err("error building peer proxy handler, proxy-key-file not specified"),
            ),
        ] {
            let config = PeerConfig::from_flags(&flags, &open, missing);
            let found = config.map(|config| config.address.map(|address| address.to_string()));
            let found = found.map_err(|error| error.to_string());
            assert_eq!(found, want.map(|it| it.map(str::to_owned)).map_err(str::to_owned), "{flags:?}");
        }
    }
}
