//! The authority that signs certificate requests: the one that two flags name, or the server's own.
//!
//! Its files are read for each batch of requests, so that a renewed authority is used without a restart, and
//! the key stays in memory no longer than that.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use api::state::certificates::{AuthoritySource, Certificates};
use auth::authn::certificate_authority::Authority;

use crate::flags::CertificateFlags;
use crate::host::files;

/// Smallest value of the maximum validity.
const LIFETIME_MIN: Duration = Duration::from_secs(10 * 60);

/// The checked flags of signing.
#[derive(Clone, Debug)]
pub struct SigningConfig {
    /// Files of the authority's certificate and key; `None`: the server's own authority.
    files: Option<(PathBuf, PathBuf)>,
    lifetime: Duration,
}

impl SigningConfig {
    /// Checks the flags of certificate signing.
    ///
    /// # Errors
    /// An error of one line.
    pub fn from_flags(flags: &CertificateFlags) -> anyhow::Result<SigningConfig> {
        let files = match (&flags.cluster_signing_cert_file, &flags.cluster_signing_key_file) {
            (None, None) => None,
            (Some(certificate), Some(key)) => {
                read(certificate, key).map_err(|why| anyhow::anyhow!("--cluster-signing-cert-file {why}"))?;
                Some((certificate.clone(), key.clone()))
            }
            (Some(_), None) => bail!("--cluster-signing-cert-file needs --cluster-signing-key-file"),
            (None, Some(_)) => bail!("--cluster-signing-key-file needs --cluster-signing-cert-file"),
        };
        if flags.cluster_signing_duration < LIFETIME_MIN {
            bail!("--cluster-signing-duration must be at least 10 minutes");
        }
        Ok(SigningConfig { files, lifetime: flags.cluster_signing_duration })
    }

    /// Returns the settings of the signers; `pki` is the directory of the server's own authority.
    pub fn settings(&self, pki: &Path) -> Certificates {
        let own = || (pki.join("ca.crt"), pki.join("ca.key"));
        let (certificate, key) = self.files.clone().unwrap_or_else(own);
        Certificates { authorities: Arc::new(Files { certificate, key }), lifetime: self.lifetime }
    }
}

struct Files {
    certificate: PathBuf,
    key: PathBuf,
}

impl AuthoritySource for Files {
    fn authority(&self) -> Result<Authority, String> {
        read(&self.certificate, &self.key)
    }
}

fn read(certificate: &Path, key: &Path) -> Result<Authority, String> {
    let text = |path: &Path| {
        let text = files::read_if_there(path)?;
        text.with_context(|| format!("{} does not exist", path.display()))
    };
    let read = |path| text(path).map_err(|error| format!("{error:#}"));
    Authority::from_pem(&read(certificate)?, &read(key)?)
        .map_err(|why| format!("{}: {why}", certificate.display()))
}
