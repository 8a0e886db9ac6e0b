//! The credentials with which this server authenticates itself to the servers that it calls. They are the
//! users of a kubeconfig file; the name of a user is the name of the called server
//! (docs/api/webhooks.md#credentials).

use std::collections::HashMap;

use super::{Egress, Identity, Networks};

/// Port that may be omitted in the name of a server.
const PORT_DEFAULT: u16 = 443;

/// Identities by server name: `host:port`, `host` for the port of HTTPS, `*.domain`, or `*` for all other
/// servers.
#[derive(Clone, Default)]
pub struct Identities {
    of_server: HashMap<String, Result<Identity, String>>,
    /// Name of the identity for servers that no other identity matches.
    current: String,
    /// PEM of the authorities that are trusted if the object that names a server names no authorities.
    system: Vec<u8>,
    networks: Networks,
}

impl Identities {
    /// Creates identities by server name. An identity that cannot be used is an error with the reason.
    /// `current` names the identity for all other servers.
    pub fn new(of_server: HashMap<String, Result<Identity, String>>, current: &str) -> Identities {
        Identities { of_server, current: current.to_owned(), ..Identities::default() }
    }

    /// Sets the PEM of the authorities that the system trusts.
    #[must_use]
    pub fn believing(self, system: Vec<u8>) -> Identities {
        Identities { system, ..self }
    }

    /// Sets the networks in which the servers are.
    #[must_use]
    pub fn reaching(self, networks: Networks) -> Identities {
        Identities { networks, ..self }
    }

    /// Returns the egress for a server: the egress of the cluster for a service, or the egress of the control
    /// plane for a URL.
    pub(super) fn egress(&self, is_service: bool) -> &Egress {
        if is_service { &self.networks.cluster } else { &self.networks.control_plane }
    }

    /// Returns the PEM of the authorities that are trusted if the operator configures no authorities.
    pub fn system_authorities(&self) -> &[u8] {
        &self.system
    }

    /// Returns the identity for a server; `None` if this server does not authenticate itself.
    ///
    /// # Errors
    /// The message says why the identity cannot be used.
    pub fn for_server(&self, host: &str, port: u16) -> Result<Option<&Identity>, String> {
        let url_host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        let whole = format!("{url_host}:{port}");
        let without_port = (port == PORT_DEFAULT).then_some(host);
        let found = self.named(&whole).or_else(|| without_port.and_then(|host| self.named(host)));
        let found = found.or_else(|| self.of_server.get("*")).or_else(|| self.of_server.get(&self.current));
        found.map(|identity| identity.as_ref().map_err(Clone::clone)).transpose()
    }

    /// Returns the identity with this name, or the identity of the smallest domain that contains the name.
    fn named(&self, name: &str) -> Option<&Result<Identity, String>> {
        let domains = name.match_indices('.').map(|(at, _)| format!("*{}", &name[at..]));
        std::iter::once(name.to_owned()).chain(domains).find_map(|name| self.of_server.get(&name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_specific_identity_of_a_server_is_used() {
        let of = |names: &str, current: &str| {
            let each = names.split_whitespace().map(|name| {
                let token = Some(name.to_owned());
                (name.to_owned(), Ok(Identity { token, ..Identity::default() }))
            });
            Identities::new(each.collect(), current)
        };
        let all = of("a.b.svc:443 a.b.svc *.b.svc:443 *.svc 127.0.0.1:8443 [::1]:443 * me", "me");
        for (identities, host, port, want) in [
            (&all, "a.b.svc", 443, "a.b.svc:443"),
            (&all, "c.b.svc", 443, "*.b.svc:443"),
            (&all, "c.d.svc", 443, "*.svc"),
            (&all, "a.b.svc", 8443, "*"),
            (&all, "127.0.0.1", 8443, "127.0.0.1:8443"),
            (&all, "::1", 443, "[::1]:443"),
            (&of("a.svc me", "me"), "a.svc", 443, "a.svc"),
            (&of("a.svc me", "me"), "b.svc", 443, "me"),
            (&of("a.svc me", ""), "b.svc", 443, ""),
        ] {
            let found = identities.for_server(host, port).unwrap();
            let name = found.and_then(|identity| identity.token.as_deref()).unwrap_or_default();
            assert_eq!(name, want, "{host}:{port}");
        }
        let broken = Identities::new([("*".to_owned(), Err("no file".to_owned()))].into(), "");
        assert_eq!(broken.for_server("a", 1).err().unwrap(), "no file");
    }
}
