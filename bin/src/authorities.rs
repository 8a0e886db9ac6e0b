//! The certificates of authorities that the system believes: for servers whose own are not named.

/// Where systems keep them.
const SYSTEM_BUNDLES: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

/// Their PEM; empty if the system has none.
pub fn system_authorities() -> Vec<u8> {
    SYSTEM_BUNDLES.iter().find_map(|path| std::fs::read(path).ok()).unwrap_or_default()
}
