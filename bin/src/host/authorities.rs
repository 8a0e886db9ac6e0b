//! The certificate authorities that the system trusts, for connections to servers for which no authorities
//! are configured.

use std::ffi::OsString;
use std::path::Path;

use anyhow::{anyhow, bail};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

use crate::host::files::{self, opening};

/// Files in which operating systems keep the bundle.
const SYSTEM_BUNDLES: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

/// The environment variable that names another bundle, as for programs that use OpenSSL or Go.
const NAMED: &str = "SSL_CERT_FILE";

/// Returns the system's bundle as PEM; empty if the system has none.
pub fn system_authorities() -> Vec<u8> {
    match named() {
        Some(path) => files::read(Path::new(&path)).unwrap_or_default(),
        None => SYSTEM_BUNDLES.iter().find_map(|path| files::read(path).ok()).unwrap_or_default(),
    }
}

/// Checks the file that the environment variable names. A wrong file would fail connections one by one and
/// long after the start, and only to servers for which no authorities are configured. So the start reports
/// the problem and continues.
///
/// # Errors
/// The file cannot be read, or has no certificate.
pub fn check() -> anyhow::Result<()> {
    let Some(path) = named() else { return Ok(()) };
    let path = Path::new(&path);
    let bytes = files::read(path).map_err(|error| anyhow!("{NAMED}: {}", opening(path, &error)))?;
    if CertificateDer::pem_slice_iter(&bytes).any(|certificate| certificate.is_ok()) {
        Ok(())
    } else {
        bail!("{NAMED}: {} has no certificate", path.display())
    }
}

fn named() -> Option<OsString> {
    std::env::var_os(NAMED).filter(|path| !path.is_empty())
}
