//! The certificates of authorities that the system believes: for servers whose own are not named.

use std::path::Path;

/// Where systems keep them.
const SYSTEM_BUNDLES: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

/// The environment variable that names another file, as for programs that use OpenSSL or Go.
const NAMED: &str = "SSL_CERT_FILE";

/// Their PEM; empty if the system has none.
pub fn system_authorities() -> Vec<u8> {
    let named = std::env::var_os(NAMED).filter(|path| !path.is_empty());
    match &named {
        Some(path) => std::fs::read(Path::new(path)).unwrap_or_default(),
        None => SYSTEM_BUNDLES.iter().find_map(|path| std::fs::read(path).ok()).unwrap_or_default(),
    }
}
