//! The CA that signs certificate requests: the CA in two flags, or the server's own CA.
//!
//! The server reads the files of the CA for each batch of requests. So the server uses a renewed CA without a
//! restart, and the key of the CA stays in memory only for a short time.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use api::state::certificates::{AuthoritySource, Certificates};
use auth::authn::certificate_authority::Authority;
use clap::Args;

use crate::flags::duration;
use crate::flags::problems::{FlagError, Problems};
use crate::host::files;

/// Smallest value of the maximum validity.
const LIFETIME_MIN: Duration = Duration::from_secs(10 * 60);

// This struct has no documentation comment, because clap would use the comment as the description of the whole command
// line.
#[derive(Clone, Debug, Default, Args)]
pub struct SigningFlags {
    /// Certificate (PEM) of the CA that signs approved CertificateSigningRequests. Default: the server's own
    /// CA.
    #[arg(long, value_name = "FILE")]
    pub cluster_signing_cert_file: Option<PathBuf>,

    /// Private key (PEM) of --cluster-signing-cert-file.
    #[arg(long, value_name = "FILE")]
    pub cluster_signing_key_file: Option<PathBuf>,

    /// Longest validity of a certificate that is signed for a CertificateSigningRequest.
    #[arg(long, value_name = "DURATION", default_value = "8760h0m0s", value_parser = duration::parse)]
    pub cluster_signing_duration: Duration,
}

/// The checked flags of signing.
#[derive(Clone, Debug)]
pub struct SigningSettings {
    /// Files of the certificate and the key of the CA, or `None` for the server's own CA.
    files: Option<(PathBuf, PathBuf)>,
    lifetime: Duration,
}

impl SigningFlags {
    /// Returns the settings. Adds an error if the CA cannot be used, or if the validity is too short.
    pub fn settings(&self, problems: &mut Problems) -> Option<SigningSettings> {
        let files = problems.take(self.files());
        if self.cluster_signing_duration < LIFETIME_MIN {
            let text = "--cluster-signing-duration must be at least 10 minutes";
            let value = duration::duration_text(self.cluster_signing_duration);
            problems.add(FlagError::worded("cluster-signing-duration", value, text));
        }
        Some(SigningSettings { files: files?, lifetime: self.cluster_signing_duration })
    }

    /// Returns the files of the CA, if the flags name them.
    fn files(&self) -> Result<Option<(PathBuf, PathBuf)>, FlagError> {
        match (&self.cluster_signing_cert_file, &self.cluster_signing_key_file) {
            (None, None) => Ok(None),
            (Some(certificate), Some(key)) => {
                read(certificate, key).map_err(|why| {
                    let text = format!("--cluster-signing-cert-file {why}");
                    FlagError::worded("cluster-signing-cert-file", certificate.display(), text)
                })?;
                Ok(Some((certificate.clone(), key.clone())))
            }
            (Some(path), None) => {
                let text = "--cluster-signing-cert-file needs --cluster-signing-key-file";
                Err(FlagError::worded("cluster-signing-cert-file", path.display(), text))
            }
            (None, Some(path)) => {
                let text = "--cluster-signing-key-file needs --cluster-signing-cert-file";
                Err(FlagError::worded("cluster-signing-key-file", path.display(), text))
            }
        }
    }
}

impl SigningSettings {
    /// Returns the settings of the signers. `pki` is the directory of the server's own CA.
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
