//! The CAs that the system trusts. The server uses them for connections to servers for which no CA bundle is
//! configured.

use std::ffi::OsString;
use std::path::Path;

use anyhow::{anyhow, bail};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

use crate::host::files::{self, opening};

/// Files in which operating systems store the CA bundle.
const SYSTEM_BUNDLES: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

/// The environment variable with the path of another bundle. Programs that use OpenSSL or Go also read this
/// variable.
const NAMED: &str = "SSL_CERT_FILE";

/// Returns the CA bundle of the system (PEM). The result is empty if the system has no bundle.
pub fn system_authorities() -> Vec<u8> {
    match bundle_path() {
        Some(path) => files::read(Path::new(&path)).unwrap_or_default(),
        None => SYSTEM_BUNDLES.iter().find_map(|path| files::read(path).ok()).unwrap_or_default(),
    }
}

/// Checks the file in the environment variable. With a wrong file, connections would fail long after the
/// start, and only connections to servers for which no CA bundle is configured. So the start reports the
/// problem, but continues.
///
/// # Errors
/// The file cannot be read, or has no certificate.
pub fn check() -> anyhow::Result<()> {
    let Some(path) = bundle_path() else { return Ok(()) };
    let path = Path::new(&path);
    let bytes = files::read(path).map_err(|error| anyhow!("{NAMED}: {}", opening(path, &error)))?;
    if CertificateDer::pem_slice_iter(&bytes).any(|certificate| certificate.is_ok()) {
        Ok(())
    } else {
        bail!("{NAMED}: {} has no certificate", path.display())
    }
}

fn bundle_path() -> Option<OsString> {
    std::env::var_os(NAMED).filter(|path| !path.is_empty())
}
