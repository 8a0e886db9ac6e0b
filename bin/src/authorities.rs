//! The certificates of authorities that the system believes: for servers whose own are not named.

use std::ffi::OsString;
use std::path::Path;

use anyhow::{anyhow, bail};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

use crate::issuers::opening;

/// Where systems keep them.
const SYSTEM_BUNDLES: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

/// The environment variable that names another file, as for programs that use OpenSSL or Go.
const NAMED: &str = "SSL_CERT_FILE";

/// Their PEM; empty if the system has none.
pub fn system_authorities() -> Vec<u8> {
    match named() {
        Some(path) => crate::files::read(Path::new(&path)).unwrap_or_default(),
        None => SYSTEM_BUNDLES.iter().find_map(|path| crate::files::read(path).ok()).unwrap_or_default(),
    }
}

/// Looks at the file that the environment names. Without its authorities every server is refused for which none are named, one
/// by one and long after the start; others are served, so that the start says it and goes on.
///
/// # Errors
/// The file cannot be read, or has no certificate.
pub fn check() -> anyhow::Result<()> {
    let Some(path) = named() else { return Ok(()) };
    let path = Path::new(&path);
    let bytes = crate::files::read(path).map_err(|error| anyhow!("{NAMED}: {}", opening(path, &error)))?;
    match CertificateDer::pem_slice_iter(&bytes).any(|certificate| certificate.is_ok()) {
        true => Ok(()),
        false => bail!("{NAMED}: {} has no certificate", path.display()),
    }
}

fn named() -> Option<OsString> {
    std::env::var_os(NAMED).filter(|path| !path.is_empty())
}
