//! The kubeconfig that the server writes for its administrator.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::host::pki::PemPair;

/// Name of the administrator's kubeconfig in the data directory.
pub const KUBECONFIG_FILE: &str = "admin.kubeconfig";

/// The contents of a kubeconfig to write.
pub struct Connection<'a> {
    /// Naming profile of the server.
    pub profile: &'a str,
    /// Address of the server as `host:port`.
    pub address: &'a str,
    /// Name that the server's certificate must have, if it is not the host of the address.
    pub server_name: Option<&'a str>,
    /// CA certificates of the server (PEM).
    pub ca_pem: &'a [u8],
    /// The client's certificate chain and key.
    pub client: &'a PemPair,
}

impl Connection<'_> {
    /// Returns the name of the context, such as `cluster-6443`. The name does not change as long as the port
    /// is the same.
    fn name(&self) -> String {
        let port = self.address.rsplit(':').next().unwrap_or_default();
        format!("{}-{port}", self.profile)
    }

    /// Returns whether a kubeconfig file connects to the same server with the same credentials. The file may
    /// have other contents that the operator added.
    pub fn fits(&self, file: &str) -> bool {
        let encoded = [self.ca_pem, self.client.chain.as_bytes(), self.client.key.as_bytes()];
        let server = format!("https://{}", self.address);
        let has = |text: &str| file.split([' ', '\n', '"', '\'']).any(|word| word == text);
        encoded.iter().all(|bytes| has(&STANDARD.encode(bytes)))
            && has(&server)
            && self.server_name.is_none_or(has)
    }

    /// Returns the text of the file. Double quotes are sufficient, because every value is an address, a DNS
    /// name or base64.
    pub fn render(&self) -> String {
        let server_name =
            self.server_name.map(|name| format!("    tls-server-name: \"{name}\"\n")).unwrap_or_default();
        format!(
            "apiVersion: v1\nkind: Config\n\
             clusters:\n- name: {name}\n  cluster:\n    server: \"https://{address}\"\n{server_name}    \
             certificate-authority-data: {ca}\n\
             users:\n- name: {name}-admin\n  user:\n    client-certificate-data: {certificate}\n    \
             client-key-data: {key}\n\
             contexts:\n- name: {name}\n  context:\n    cluster: {name}\n    user: {name}-admin\n\
             current-context: {name}\n",
            name = self.name(),
            address = self.address,
            ca = STANDARD.encode(self.ca_pem),
            certificate = STANDARD.encode(&self.client.chain),
            key = STANDARD.encode(&self.client.key),
        )
    }
}

/// Replaces PEM texts in a kubeconfig. `replaced` has pairs of the old and the new text. The rest of the file does not
/// change, because an operator may have edited it.
pub fn with_replaced(file: &str, replaced: &[(&str, &str)]) -> String {
    let pairs = replaced.iter().filter(|(old, _)| !old.is_empty());
    pairs.fold(file.to_owned(), |file, (old, new)| file.replace(&STANDARD.encode(old), &STANDARD.encode(new)))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::host::files::scratch::Scratch;
    use crate::remote::kubeconfig::Settings;

    #[test]
    fn the_admin_kubeconfig_contains_everything_that_a_client_needs() {
        let client = PemPair { chain: "CERT".into(), key: "KEY".into() };
        let connection = Connection {
            profile: "cluster",
            address: "127.0.0.1:6443",
            server_name: Some("api.example"),
            ca_pem: b"CA",
            client: &client,
        };
        let want = "\
apiVersion: v1
kind: Config
clusters:
- name: cluster-6443
  cluster:
    server: \"https://127.0.0.1:6443\"
    tls-server-name: \"api.example\"
    certificate-authority-data: Q0E=
users:
- name: cluster-6443-admin
  user:
    client-certificate-data: Q0VSVA==
    client-key-data: S0VZ
contexts:
- name: cluster-6443
  context:
    cluster: cluster-6443
    user: cluster-6443-admin
current-context: cluster-6443
";
        assert_eq!(connection.render(), want);
        let dir = Scratch::new();
        fs::write(dir.join("config"), want).unwrap();
        let settings = Settings::read(&dir.join("config")).unwrap();
        assert_eq!(
            (&*settings.server, settings.server_name.as_deref()),
            ("https://127.0.0.1:6443", Some("api.example"))
        );
        let material = settings.material().unwrap();
        assert_eq!(material.authorities, Some(b"CA".to_vec()));
        assert_eq!(material.identity.certificate, Some((b"CERT".to_vec(), b"KEY".to_vec())));
        let edited = want.replace("6443-admin\ncurrent", "6443-admin\n    namespace: mine\ncurrent");
        for (file, fits) in [
            (want.to_owned(), true),
            (edited, true),
            (want.replace("Q0E=", "Q0Eb"), false),
            (want.replace(":6443\"", ":64431\""), false),
            (want.replace("api.example", "api.other"), false),
            (String::new(), false),
        ] {
            assert_eq!(connection.fits(&file), fits, "{file}");
        }
        let renewed = with_replaced(want, &[("CERT", "CERTIFICATE"), ("", "x"), ("other", "x")]);
        assert_eq!(renewed, want.replace("Q0VSVA==", "Q0VSVElGSUNBVEU="));
        assert!(!Connection { server_name: None, ..connection }.render().contains("tls-server-name"));
    }
}
