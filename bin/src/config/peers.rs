//! Connections between the servers on the same etcd, from the flags (docs/api/peers.md).

use std::net::{IpAddr, SocketAddr};

use anyhow::bail;
use api::state::peers::Settings;
use auth::authn::x509::CaBundle;
use types::features::{Feature, Features};
use values::naming::Naming;
use wire::outgoing::Networks;

use crate::config::read;
use crate::flags::PeerFlags;
use crate::host::machine;

/// The checked flags about peers.
#[derive(Clone, Debug)]
pub struct PeerConfig {
    is_open: bool,
    authorities: Option<Vec<u8>>,
    address: Option<SocketAddr>,
    /// Reason why the flags with the address for peers are ignored, if they are.
    warning: Option<String>,
}

impl PeerConfig {
    /// Checks the flags. `missing` is the missing flag of the two that name the client certificate for peers
    /// and its key.
    ///
    /// # Errors
    /// The flags contradict each other, or a file is invalid.
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
        let (address, warning) = match advertised(&flags.peer_advertise_ip, &flags.peer_advertise_port) {
            Ok(address) => (address, None),
            Err(why) => {
                (None, Some(format!("{why}: neither --peer-advertise-ip nor --peer-advertise-port is used")))
            }
        };
        Ok(PeerConfig { is_open, authorities, address, warning })
    }

    /// Returns the settings of a server that listens on `bound`, and that others reach at `advertised`, if
    /// configured. Logs which flags are ignored.
    pub fn settings(
        &self,
        bound: SocketAddr,
        advertised: Option<IpAddr>,
        certificate: Option<(Vec<u8>, Vec<u8>)>,
        naming: &Naming,
        networks: &Networks,
    ) -> Settings {
        if let Some(warning) = &self.warning {
            tracing::warn!("{warning}");
        }
        let listening = || match bound.ip().is_unspecified() {
            true => machine::advertised_address(bound, None),
            false => Some(bound),
        };
        let said = advertised.map(|ip| SocketAddr::new(ip, bound.port()));
        Settings {
            address: self.address.or(said).or_else(listening).filter(|_| self.is_open),
            authorities: self.authorities.clone(),
            certificate,
            server_name: format!("{}.default.svc", naming.word),
            egress: networks.direct(),
        }
    }
}

/// Returns the address for peers from the two flags; `None` if neither is given.
///
/// # Errors
/// The reason why the flags are ignored.
fn advertised(ip: &str, port: &str) -> Result<Option<SocketAddr>, String> {
    match (ip, port) {
        ("", "") => return Ok(None),
        ("", _) => return Err("--peer-advertise-port is given without --peer-advertise-ip".to_owned()),
        (_, "") => return Err("--peer-advertise-ip is given without --peer-advertise-port".to_owned()),
        _ => {}
    }
    let address = ip.parse().ok().filter(|ip: &IpAddr| !ip.is_unspecified());
    let address = address.ok_or_else(|| format!("--peer-advertise-ip {ip} is no address of a server"))?;
    let number = port.parse().ok().filter(|number| *number != 0);
    let number = number.ok_or_else(|| format!("--peer-advertise-port {port} is no port of a server"))?;
    Ok(Some(SocketAddr::new(address, number)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(file: Option<&str>, ip: &str, port: &str) -> PeerFlags {
        PeerFlags {
            peer_ca_file: file.map(Into::into),
            peer_advertise_ip: ip.to_owned(),
            peer_advertise_port: port.to_owned(),
        }
    }

    #[test]
    fn peers_need_a_certificate_to_know_this_server_by() {
        for (file, missing, want) in [
            (None, Some("--proxy-client-cert-file"), None),
            (
                Some("/missing"),
                Some("--proxy-client-key-file"),
                Some("error building peer proxy handler, --proxy-client-key-file not specified"),
            ),
        ] {
            let config = PeerConfig::from_flags(&flags(file, "", ""), &Features::default(), missing);
            let found = config.err().map(|error| error.to_string());
            assert_eq!(found.as_deref(), want, "{file:?} {missing:?}");
        }
    }

    #[test]
    fn peers_are_told_the_address_of_the_flags_where_both_can_be_used() {
        for (ip, port, want) in [
            ("", "", Ok(None)),
            ("192.0.2.1", "6443", Ok(Some("192.0.2.1:6443"))),
            ("2001:db8::1", "6443", Ok(Some("[2001:db8::1]:6443"))),
            ("192.0.2.1", "", Err("--peer-advertise-ip is given without --peer-advertise-port")),
            ("", "6443", Err("--peer-advertise-port is given without --peer-advertise-ip")),
            ("192.0.2.1", "x", Err("--peer-advertise-port x is no port of a server")),
            ("192.0.2.1", "65536", Err("--peer-advertise-port 65536 is no port of a server")),
            ("192.0.2.1", "0", Err("--peer-advertise-port 0 is no port of a server")),
            ("0.0.0.0", "6443", Err("--peer-advertise-ip 0.0.0.0 is no address of a server")),
            ("a.example", "6443", Err("--peer-advertise-ip a.example is no address of a server")),
        ] {
            let config = PeerConfig::from_flags(&flags(None, ip, port), &Features::default(), None).unwrap();
            let address = config.address.map(|address| address.to_string());
            assert_eq!(address.as_deref(), want.unwrap_or_default(), "{ip} {port}");
            let warning = want
                .err()
                .map(|why| format!("{why}: neither --peer-advertise-ip nor --peer-advertise-port is used"));
            assert_eq!(config.warning, warning, "{ip} {port}");
        }
    }
}
