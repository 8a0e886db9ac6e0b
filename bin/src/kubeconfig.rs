//! The file that lets the administrator's client connect: address, CA and client certificate in one.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::pki::PemPair;

/// What a kubeconfig says.
pub struct Connection<'a> {
    /// `host:port`.
    pub address: &'a str,
    /// Name to expect in the server's certificate, when it is not the host of the address.
    pub server_name: Option<&'a str>,
    /// Certificates that vouch for the server.
    pub ca_pem: &'a [u8],
    /// The client's own.
    pub client: &'a PemPair,
}

impl Connection<'_> {
    /// The file's text. Every value is an address, a DNS name or base64, so nothing needs quoting beyond the quotes.
    pub fn render(&self) -> String {
        let server_name =
            self.server_name.map(|name| format!("    tls-server-name: \"{name}\"\n")).unwrap_or_default();
        format!(
            "apiVersion: v1\nkind: Config\n\
             clusters:\n- name: local\n  cluster:\n    server: \"https://{address}\"\n{server_name}    \
             certificate-authority-data: {ca}\n\
             users:\n- name: admin\n  user:\n    client-certificate-data: {certificate}\n    \
             client-key-data: {key}\n\
             contexts:\n- name: local\n  context:\n    cluster: local\n    user: admin\n\
             current-context: local\n",
            address = self.address,
            ca = STANDARD.encode(self.ca_pem),
            certificate = STANDARD.encode(&self.client.chain),
            key = STANDARD.encode(&self.client.key),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kubeconfig_holds_all_a_client_needs() {
        let client = PemPair { chain: "CERT".into(), key: "KEY".into() };
        let connection = Connection {
            address: "127.0.0.1:6443",
            server_name: Some("api.example"),
            ca_pem: b"CA",
            client: &client,
        };
        let want = "\
apiVersion: v1
kind: Config
clusters:
- name: local
  cluster:
    server: \"https://127.0.0.1:6443\"
    tls-server-name: \"api.example\"
    certificate-authority-data: Q0E=
users:
- name: admin
  user:
    client-certificate-data: Q0VSVA==
    client-key-data: S0VZ
contexts:
- name: local
  context:
    cluster: local
    user: admin
current-context: local
";
        assert_eq!(connection.render(), want);
        assert!(!Connection { server_name: None, ..connection }.render().contains("tls-server-name"));
    }
}
