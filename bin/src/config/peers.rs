//! Connections between the servers on the same etcd, from the flags (docs/api/peers.md).

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use api::state::peers::Settings;
use auth::authn::x509::CaBundle;
use clap::Args;
use types::features::{Feature, Features};
use values::naming::Naming;
use wire::outgoing::Networks;

use crate::flags::problems::FlagError;
use crate::host::{files, machine};

// This struct has no documentation comment, because clap would use the comment as the description of the whole command
// line.
#[derive(Clone, Debug, Args)]
pub struct PeerFlags {
    /// CA bundle (PEM) that the certificates of other servers on the same etcd are verified against. With
    /// this flag, the server forwards requests for types that only another server serves. Requires
    /// --proxy-client-cert-file and --proxy-client-key-file.
    #[arg(long, value_name = "FILE")]
    pub peer_ca_file: Option<PathBuf>,

    /// IP address at which other servers on the same etcd reach this server. Requires --peer-advertise-port.
    /// Default: --advertise-address, or the address that the server listens on.
    #[arg(long, value_name = "IP", default_value = "")]
    pub peer_advertise_ip: String,

    /// Port at which other servers on the same etcd reach this server. Requires --peer-advertise-ip.
    #[arg(long, value_name = "PORT", default_value = "")]
    pub peer_advertise_port: String,
}

/// The checked flags about peers.
#[derive(Clone, Debug)]
pub struct PeerSettings {
    is_open: bool,
    authorities: Option<Vec<u8>>,
    address: Option<SocketAddr>,
    /// The reason why the flags with the address for peers are ignored, or `None` if they are used.
    warning: Option<String>,
}

impl PeerFlags {
    /// Returns the settings. `missing` is the name of the missing flag if the client certificate for peers or its key
    /// is not given.
    ///
    /// # Errors
    /// The flags contradict each other, or the file cannot be used.
    pub fn settings(&self, features: &Features, missing: Option<&str>) -> Result<PeerSettings, FlagError> {
        let is_open = features.has(Feature::PeerProxy);
        for (flag, is_set) in [
            ("peer-ca-file", self.peer_ca_file.is_some()),
            ("peer-advertise-ip", !self.peer_advertise_ip.is_empty()),
            ("peer-advertise-port", !self.peer_advertise_port.is_empty()),
        ] {
            if is_set && !is_open {
                let text =
                    format!("--{flag} requires UnknownVersionInteroperabilityProxy feature to be turned on");
                return Err(FlagError::worded(flag, "", text));
            }
        }
        let authorities = self.authorities(missing)?;
        let (address, warning) = match advertised(&self.peer_advertise_ip, &self.peer_advertise_port) {
            Ok(address) => (address, None),
            Err(why) => {
                (None, Some(format!("{why}: neither --peer-advertise-ip nor --peer-advertise-port is used")))
            }
        };
        Ok(PeerSettings { is_open, authorities, address, warning })
    }

    /// Reads the CA bundle of peers, if one is configured.
    fn authorities(&self, missing: Option<&str>) -> Result<Option<Vec<u8>>, FlagError> {
        let Some(path) = &self.peer_ca_file else { return Ok(None) };
        let wrong = |text: String| FlagError::worded("peer-ca-file", path.display(), text);
        if let Some(missing) = missing {
            return Err(wrong(format!("error building peer proxy handler, {missing} not specified")));
        }
        let unusable = |why: String| wrong(format!("--peer-ca-file {}: {why}", path.display()));
        let bundle = files::read(path).map_err(|error| unusable(error.to_string()))?;
        CaBundle::from_pem(&bundle).map_err(|why| unusable(why.to_string()))?;
        Ok(Some(bundle))
    }
}

impl PeerSettings {
    /// Returns the settings of a server that listens on `bound`. `advertised` is the address at which other
    /// servers reach this server, if configured. Logs which flags are ignored.
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
        let listening = || {
            if bound.ip().is_unspecified() { machine::advertised_address(bound, None) } else { Some(bound) }
        };
        let public = advertised.map(|ip| SocketAddr::new(ip, bound.port()));
        Settings {
            address: self.address.or(public).or_else(listening).filter(|_| self.is_open),
            authorities: self.authorities.clone(),
            certificate,
            server_name: format!("{}.default.svc", naming.word),
            egress: networks.direct(),
        }
    }
}

/// Returns the address for peers from the two flags, or `None` if neither is given.
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
    let address = address.ok_or_else(|| format!("--peer-advertise-ip {ip} is not an address of a server"))?;
    let number = port.parse().ok().filter(|number| *number != 0);
    let number = number.ok_or_else(|| format!("--peer-advertise-port {port} is not a port of a server"))?;
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
    fn peer_proxying_needs_a_client_certificate() {
        for (file, missing, want) in [
            (None, Some("--proxy-client-cert-file"), None),
            (
                Some("/missing"),
                Some("--proxy-client-key-file"),
                Some("error building peer proxy handler, --proxy-client-key-file not specified"),
            ),
        ] {
            let config = flags(file, "", "").settings(&Features::default(), missing);
            let found = config.err().map(|error| error.to_string());
            assert_eq!(found.as_deref(), want, "{file:?} {missing:?}");
        }
    }

    #[test]
    fn the_advertised_peer_address_needs_both_flags() {
        for (ip, port, want) in [
            ("", "", Ok(None)),
            ("192.0.2.1", "6443", Ok(Some("192.0.2.1:6443"))),
            ("2001:db8::1", "6443", Ok(Some("[2001:db8::1]:6443"))),
            ("192.0.2.1", "", Err("--peer-advertise-ip is given without --peer-advertise-port")),
            ("", "6443", Err("--peer-advertise-port is given without --peer-advertise-ip")),
            ("192.0.2.1", "x", Err("--peer-advertise-port x is not a port of a server")),
            ("192.0.2.1", "65536", Err("--peer-advertise-port 65536 is not a port of a server")),
            ("192.0.2.1", "0", Err("--peer-advertise-port 0 is not a port of a server")),
            ("0.0.0.0", "6443", Err("--peer-advertise-ip 0.0.0.0 is not an address of a server")),
            ("a.example", "6443", Err("--peer-advertise-ip a.example is not an address of a server")),
        ] {
            let config = flags(None, ip, port).settings(&Features::default(), None).unwrap();
            let address = config.address.map(|address| address.to_string());
            assert_eq!(address.as_deref(), want.unwrap_or_default(), "{ip} {port}");
            let warning = want
                .err()
                .map(|why| format!("{why}: neither --peer-advertise-ip nor --peer-advertise-port is used"));
            assert_eq!(config.warning, warning, "{ip} {port}");
        }
    }
}
