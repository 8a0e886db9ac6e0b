//! Flags of TLS: the serving certificates, versions, cipher suites and protocols.

use std::path::{Path, PathBuf};

use clap::Args;
use wire::server::{self, NamedCertificate, ServingCertificate};

use crate::flags::problems::{FlagError, Problems};
use crate::flags::value_parsers;
use crate::host::files::{self, opening};
use crate::host::pki::Name;

/// Cipher suites that the flag accepts. These are the suites of Go's TLS library. The server never offers the weak
/// suites in this list.
const KNOWN_SUITES: &[&str] = &[
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_RSA_WITH_RC4_128_SHA",
];

// This struct has no documentation comment, because clap would use the comment as the description of the whole command
// line.
#[derive(Clone, Debug, Args)]
pub struct TlsFlags {
    /// Certificate chain (PEM) that the server presents to clients. Reloaded when the file changes. Default:
    /// a certificate created by the server.
    #[arg(long, value_name = "FILE")]
    pub tls_cert_file: Option<PathBuf>,

    /// Private key (PEM) of --tls-cert-file.
    #[arg(long, value_name = "FILE")]
    pub tls_private_key_file: Option<PathBuf>,

    /// Directory of the serving certificate (apiserver.crt) and its key (apiserver.key). If these files do not exist,
    /// the server creates a certificate and writes both files. --tls-cert-file and --tls-private-key-file have
    /// precedence.
    #[arg(long, value_name = "DIR")]
    pub cert_dir: Option<PathBuf>,

    /// Additional host names and IP addresses in the serving certificate that the server creates, separated
    /// by commas.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub tls_extra_names: Vec<String>,

    /// Serve HTTP/1.1 only, not HTTP/2.
    #[arg(long, value_name = "BOOL", default_value_t = false, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_parser = value_parsers::boolean, action = clap::ArgAction::Set)]
    pub disable_http2_serving: bool,

    /// Largest number of concurrent requests on an HTTP/2 connection. 0 means the server's own default.
    #[arg(long, value_name = "NUMBER", default_value_t = 0, allow_negative_numbers = true, value_parser = value_parsers::integer::<i64>)]
    pub http2_max_streams_per_connection: i64,

    /// TLS 1.2 cipher suites that the server offers, separated by commas. Default: the suites that are
    /// considered secure.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub tls_cipher_suites: Vec<String>,

    /// Oldest version of TLS that the server offers. Possible values: VersionTLS10, VersionTLS11,
    /// VersionTLS12, VersionTLS13. TLS 1.2 is the oldest supported version, so VersionTLS10 and VersionTLS11
    /// have the effect of VersionTLS12.
    #[arg(long, value_name = "VERSION", default_value = "")]
    pub tls_min_version: String,

    /// Key exchange groups that the server offers, as IANA numbers separated by commas.
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',', value_parser = value_parsers::integer::<u16>)]
    pub tls_curve_preferences: Vec<u16>,

    /// A certificate and its private key (PEM) for clients that request certain host names, as CERT,KEY or
    /// CERT,KEY:NAMES. Without NAMES, the server uses the names in the certificate. *.example.com matches any
    /// first label. Repeatable. Reloaded when the files change.
    #[arg(long, value_name = "FILES", value_parser = named_files)]
    pub tls_sni_cert_key: Vec<NamedFiles>,
}

/// Settings of TLS and of the serving certificates.
#[derive(Clone, Debug)]
pub struct TlsSettings {
    /// Versions, cipher suites and protocols that the server offers.
    pub offered: server::TlsSettings,
    /// Maximum number of concurrent requests on an HTTP/2 connection, if configured.
    pub streams_max: Option<u32>,
    /// The files of the serving certificate; `None` if the files are in the data directory.
    pub files: Option<ServingFiles>,
    /// Additional names in the server's own serving certificate.
    pub extra_names: Vec<Name>,
    /// Certificates for clients that request one of their names (SNI).
    pub named: Vec<NamedFiles>,
}

/// The configured files of the serving certificate.
#[derive(Clone, Debug)]
pub enum ServingFiles {
    /// Existing files that the operator provides.
    Named(TlsFiles),
    /// Files in `--cert-dir`. If the files do not exist, or if they have a certificate that the server created, the
    /// server writes its own certificate into them.
    InDirectory(TlsFiles),
}

impl ServingFiles {
    /// Returns the paths of the files.
    pub fn paths(&self) -> &TlsFiles {
        match self {
            ServingFiles::Named(files) | ServingFiles::InDirectory(files) => files,
        }
    }
}

/// The files of a serving certificate.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TlsFiles {
    /// Path of the certificate chain (PEM).
    pub certificate: PathBuf,
    /// Path of the private key (PEM).
    pub key: PathBuf,
}

/// The files of a certificate, and the host names that it is used for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NamedFiles {
    /// The file of the certificate chain (PEM).
    pub certificate: PathBuf,
    /// The file of the private key (PEM).
    pub key: PathBuf,
    /// The host names. If empty, the names in the certificate are used.
    pub names: Vec<String>,
}

impl NamedFiles {
    /// Reads the files.
    ///
    /// # Errors
    /// The files cannot be read, or the key does not belong to the certificate.
    pub fn read(&self) -> anyhow::Result<NamedCertificate> {
        let open = |path: &Path| files::read(path).map_err(|error| opening(path, &error));
        let read = || -> anyhow::Result<NamedCertificate> {
            let (chain, key) = (open(&self.certificate)?, open(&self.key)?);
            Ok(NamedCertificate::from_pem(&chain, &key, self.names.clone())?)
        };
        read().map_err(|error| anyhow::anyhow!("failed to load SNI cert and key: {error:#}"))
    }
}

fn named_files(text: &str) -> Result<NamedFiles, String> {
    let (files, names) = match text.split_once(':') {
        Some((_, names)) if names.trim().is_empty() => {
            return Err("empty names list is not allowed".to_owned());
        }
        Some((files, names)) => (files, names.split(',').map(|name| name.trim().to_owned()).collect()),
        None => (text, Vec::new()),
    };
    match files.split(',').map(str::trim).collect::<Vec<_>>()[..] {
        [certificate, key] => Ok(NamedFiles { certificate: certificate.into(), key: key.into(), names }),
        _ => Err("expected comma separated certificate and key file paths".to_owned()),
    }
}

impl TlsFlags {
    /// Reads the certificates, and returns the settings. Adds an error for each value and file that cannot be used.
    pub fn settings(&self, problems: &mut Problems) -> Option<TlsSettings> {
        let files = problems.take(self.files());
        let extra_names = self.tls_extra_names.iter().filter(|text| !text.is_empty());
        let extra_names = extra_names.filter_map(|text| problems.take(extra_name(text))).collect();
        for files in &self.tls_sni_cert_key {
            problems.take_for("tls-sni-cert-key", files.certificate.display(), files.read());
        }
        let offered = problems.take(self.offered());
        Some(TlsSettings {
            offered: offered?,
            streams_max: self.streams_max(),
            files: files?,
            extra_names,
            named: self.tls_sni_cert_key.clone(),
        })
    }

    /// Returns the files of the serving certificate. The certificate and the key must belong together.
    fn files(&self) -> Result<Option<ServingFiles>, FlagError> {
        let files = match (&self.tls_cert_file, &self.tls_private_key_file) {
            (None, None) => return self.cert_dir.as_deref().map(in_directory).transpose(),
            (Some(certificate), Some(key)) => TlsFiles { certificate: certificate.clone(), key: key.clone() },
            (Some(_), None) => return Err(missing("tls-private-key-file")),
            (None, Some(_)) => return Err(missing("tls-cert-file")),
        };
        match files.check() {
            Ok(()) => Ok(Some(ServingFiles::Named(files))),
            Err(error) => Err(FlagError::worded("tls-cert-file", files.certificate.display(), error)),
        }
    }

    /// Returns the largest number of concurrent requests on an HTTP/2 connection, if the operator sets one.
    fn streams_max(&self) -> Option<u32> {
        let given = u64::try_from(self.http2_max_streams_per_connection).ok().filter(|given| *given > 0)?;
        Some(u32::try_from(given).unwrap_or(u32::MAX))
    }

    /// Returns the versions, cipher suites and key exchange groups that the server offers to clients. At
    /// least one suite and one group must remain.
    fn offered(&self) -> Result<server::TlsSettings, FlagError> {
        let is_modern = match self.tls_min_version.as_str() {
            "" | "VersionTLS10" | "VersionTLS11" | "VersionTLS12" => false,
            "VersionTLS13" => true,
            other => {
                let text = format!("unknown tls version {}", go::quote(other));
                return Err(FlagError::worded("tls-min-version", other, text));
            }
        };
        let mut suites = Vec::new();
        for name in &self.tls_cipher_suites {
            if !KNOWN_SUITES.contains(&name.as_str()) {
                let text = format!("Cipher suite {name} not supported or doesn't exist");
                return Err(FlagError::worded("tls-cipher-suites", name, text));
            }
            // Accept the former names of these suites.
            suites.push(match name.strip_suffix("_POLY1305") {
                Some(_) => format!("{name}_SHA256"),
                None => name.clone(),
            });
        }
        let settings = server::TlsSettings {
            serves_http2: !self.disable_http2_serving,
            is_modern,
            suites,
            groups: self.tls_curve_preferences.clone(),
        };
        let groups = || self.tls_curve_preferences.iter().map(u16::to_string).collect::<Vec<_>>().join(",");
        settings.check().map_err(|why| FlagError::worded("tls-curve-preferences", groups(), why))?;
        Ok(settings)
    }
}

impl TlsFiles {
    /// Checks that the files can be read, and that the key belongs to the certificate.
    fn check(&self) -> anyhow::Result<()> {
        let open = |path: &Path| files::read(path).map_err(|error| opening(path, &error));
        ServingCertificate::from_pem(&open(&self.certificate)?, &open(&self.key)?)?;
        Ok(())
    }
}

/// Returns the files of the serving certificate in a directory. Both files must exist and belong together, or both must
/// be missing.
fn in_directory(dir: &Path) -> Result<ServingFiles, FlagError> {
    let wrong = |text: String| FlagError::worded("cert-dir", dir.display(), text);
    // The path must be absolute, so that it is valid in any working directory.
    let dir = std::path::absolute(dir).map_err(|error| wrong(format!("--cert-dir: {error}")))?;
    let files = TlsFiles { certificate: dir.join("apiserver.crt"), key: dir.join("apiserver.key") };
    let half = |path: &Path| {
        let path = path.display();
        wrong(format!("error reading {path}, certificate and key must be supplied as a pair"))
    };
    match (files.certificate.exists(), files.key.exists()) {
        (false, false) => {}
        (true, true) => files.check().map_err(|error| wrong(format!("--cert-dir: {error:#}")))?,
        (false, true) => return Err(half(&files.certificate)),
        (true, false) => return Err(half(&files.key)),
    }
    Ok(ServingFiles::InDirectory(files))
}

/// Returns the error for a certificate without its key, or the reverse.
fn missing(flag: &str) -> FlagError {
    FlagError::worded(flag, "", "missing filename for serving cert")
}

/// Parses a name of the server. A name is an IP address, or a DNS name whose first label may be `*`.
fn extra_name(text: &str) -> Result<Name, FlagError> {
    Name::read(text).ok_or_else(|| {
        let why = format!("--tls-extra-names: {text:?} is neither a DNS name nor an address");
        FlagError::worded("tls-extra-names", text, why)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::files::scratch::Scratch;

    #[test]
    fn cipher_suites_versions_and_groups_must_leave_something_to_offer() {
        for (suites, version, groups, want) in [
            (&[][..], "", &[][..], ""),
            (&["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"], "VersionTLS12", &[29, 23], ""),
            (&["TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305"], "", &[], ""),
            (&["TLS_NOPE"], "", &[], "Cipher suite TLS_NOPE not supported or doesn't exist"),
            (&["TLS_RSA_WITH_RC4_128_SHA"], "", &[], ""),
            (&["TLS_AES_128_GCM_SHA256"], "", &[], ""),
            (&["TLS_RSA_WITH_RC4_128_SHA"], "VersionTLS13", &[], ""),
            (&[], "VersionTLS14", &[], "unknown tls version \"VersionTLS14\""),
            (&[], "", &[1], "--tls-curve-preferences: the server has none of these"),
        ] {
            let flags = TlsFlags {
                tls_cert_file: None,
                tls_private_key_file: None,
                cert_dir: None,
                tls_extra_names: Vec::new(),
                disable_http2_serving: false,
                http2_max_streams_per_connection: 0,
                tls_cipher_suites: suites.iter().map(|name| (*name).to_owned()).collect(),
                tls_min_version: version.to_owned(),
                tls_curve_preferences: groups.to_vec(),
                tls_sni_cert_key: Vec::new(),
            };
            let mut problems = Problems::default();
            let settings = flags.settings(&mut problems);
            let got = problems.finish(settings).map_or_else(|errors| errors.to_string(), |_| String::new());
            assert_eq!(got, want, "{suites:?} {version} {groups:?}");
        }
    }

    #[test]
    fn a_certificate_directory_has_a_certificate_and_its_key_or_neither() {
        let made = rcgen::generate_simple_self_signed(vec!["a.example".to_owned()]).unwrap();
        let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        for (crt, pem, want) in [
            (None, None, ""),
            (Some(&certificate), Some(&key), ""),
            (Some(&certificate), None, "apiserver.key, certificate and key must be supplied as a pair"),
            (None, Some(&key), "apiserver.crt, certificate and key must be supplied as a pair"),
            (Some(&key), Some(&key), "--cert-dir: "),
        ] {
            let dir = Scratch::new();
            for (name, text) in [("apiserver.crt", crt), ("apiserver.key", pem)] {
                text.into_iter().for_each(|text| std::fs::write(dir.join(name), text).unwrap());
            }
            let got = in_directory(&dir).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(got.contains(want) && got.is_empty() == want.is_empty(), "{want}: {got}");
        }
    }

    #[test]
    fn an_sni_certificate_is_two_files_with_optional_names() {
        let files = |names: &[&str]| NamedFiles {
            certificate: "a.crt".into(),
            key: "a.key".into(),
            names: names.iter().map(|name| (*name).to_owned()).collect(),
        };
        for (text, want) in [
            ("a.crt,a.key", Some(files(&[]))),
            ("a.crt, a.key:*.example.com,b", Some(files(&["*.example.com", "b"]))),
            ("a.crt", None),
            ("a,b,c", None),
            ("a.crt,a.key:", None),
        ] {
            assert_eq!(named_files(text).ok(), want, "{text}");
        }
        assert_eq!(named_files("a,b: ").unwrap_err(), "empty names list is not allowed");
    }
}
