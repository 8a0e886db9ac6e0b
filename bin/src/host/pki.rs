//! The server's own CA and certificates, in `<data-dir>/pki/`.
//!
//! ```text
//! ca.key ─► ca.crt ─┬─► serving.crt  (serving.key)   presented to clients
//!                   └─► admin.crt    (admin.key)     in admin.kubeconfig
//! ```
//!
//! Certificates are stored and reused. The server replaces a certificate that expires soon, whose names or subject are
//! wrong, or that does not match its key or the CA. The key of the CA changes only in a rotation, so that signed
//! certificates stay valid when the certificate of the CA is renewed. Keys are ECDSA P-256. A key is written before its
//! certificate. After a crash between the two writes, the certificate does not match the key, and the next start
//! replaces it.
//!
//! A rotation of the CA has two steps (docs/guides/certificates.md#rotate-the-ca). Between the steps, there are two
//! CAs:
//!
//! ```text
//! ca-old.key ─► ca-old.crt ──► serving.crt           clients that know only this CA still verify the server
//! ca.key ─────► ca.crt ──────► admin.crt, new users  the server accepts clients of both CAs
//! ```
//!
//! The second step removes `ca-old.*`. Commands and a running server change files only while they have the
//! [`lock`].

use std::collections::BTreeSet;
use std::fs::File;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, anyhow, bail};
use auth::authn::certificate_authority;
use auth::authn::certificate_request::Request;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PKCS_RSA_SHA256, PublicKeyData, RsaKeySize, SanType,
};
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::X509Certificate;

use crate::host::files;

/// Name of the directory for certificates and keys in the data directory.
pub const PKI_DIR: &str = "pki";

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const CA_LIFETIME: Duration = DAY.saturating_mul(10 * 365);
const LEAF_LIFETIME: Duration = DAY.saturating_mul(365);
/// Remaining lifetime below which a certificate is renewed.
const RENEW_BEFORE: Duration = DAY.saturating_mul(30);
/// The validity of a new certificate begins this long before its creation, for clients whose clocks are slow.
const BACKDATE: Duration = Duration::from_secs(60 * 60);

/// A certificate chain and its key, as PEM text.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PemPair {
    /// The certificate chain (PEM).
    pub chain: String,
    /// The private key of the first certificate (PEM).
    pub key: String,
}

/// The intended use of a certificate.
enum Purpose<'a> {
    Serving(&'a [Name]),
    Client { user: &'a str, group: &'a str },
}

/// A name of the server in a certificate.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Name {
    /// A DNS name, whose first label may be `*`.
    Dns(String),
    /// An IPv4 or IPv6 address.
    Ip(IpAddr),
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Name::Dns(name) => f.write_str(name),
            Name::Ip(address) => address.fmt(f),
        }
    }
}

impl Name {
    /// Parses an IP address or a DNS name. Returns `None` if the text is neither.
    pub fn read(text: &str) -> Option<Name> {
        match text.parse() {
            Ok(address) => Some(Name::Ip(address)),
            Err(_) => Name::is_dns(text).then(|| Name::Dns(text.to_ascii_lowercase())),
        }
    }

    /// Returns whether a text is a DNS name. The first label may be `*` (RFC 6125, section 6.4.3).
    fn is_dns(text: &str) -> bool {
        let name = text.strip_prefix("*.").unwrap_or(text);
        let is_label = |label: &str| {
            (1..=63).contains(&label.len())
                && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
                && !label.starts_with('-')
                && !label.ends_with('-')
        };
        name.len() <= 253 && name.split('.').all(is_label)
    }
}

/// The CAs of a data directory, and the directory of its certificates.
pub struct Pki {
    dir: PathBuf,
    /// The CA that signs client certificates. If no rotation has begun, the CA also signs the serving
    /// certificate.
    ca: Authority,
    /// The CA that a rotation replaces.
    old: Option<Authority>,
}

/// A CA that signs certificates.
struct Authority {
    pem: String,
    /// Key identifier of the CA. Signed certificates contain this value as the identifier of their issuer.
    key_id: Vec<u8>,
    /// The signer of the CA, or `None` if the key file was removed. Without the key, the CA cannot sign.
    issuer: Option<Issuer<'static, KeyPair>>,
}

/// User and group of the administrator's certificate. Members of the group may make every request.
pub const ADMINISTRATOR: (&str, &str) = ("cluster-admin", "system:masters");

/// Common name of the server's certificate.
const SERVER: &str = "cluster-apiserver";

/// Names of the files of the CA, and of the CA that a rotation replaces, without extension.
const CA: &str = "ca";
const OLD_CA: &str = "ca-old";

/// Name of the server's certificate, without extension.
pub const SERVING: &str = "serving";
/// Name of the administrator's certificate, without extension.
pub const ADMIN: &str = "admin";

/// Waits for the lock of a directory of certificates, and takes it. Dropping the returned file releases the
/// lock.
///
/// # Errors
/// The directory cannot be created or locked.
pub fn lock(dir: &Path) -> anyhow::Result<File> {
    files::private_dir(dir)?;
    let lock = || -> std::io::Result<File> {
        let file = File::open(dir)?;
        file.lock()?;
        Ok(file)
    };
    lock().with_context(|| format!("cannot lock {}", dir.display()))
}

/// Returns the certificates of all CAs in `dir` (PEM). Creates no CA, so the result is empty before the first
/// start.
///
/// # Errors
/// A file cannot be read.
pub fn bundle(dir: &Path) -> anyhow::Result<String> {
    let text = |file: &str| -> anyhow::Result<String> {
        let bytes = files::read_if_there(&dir.join(file).with_extension("crt"))?;
        Ok(bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default())
    };
    Ok(text(CA)? + &text(OLD_CA)?)
}

impl Authority {
    /// Opens the CA in `dir`, or creates a CA.
    fn open(dir: &Path, now: SystemTime) -> anyhow::Result<Self> {
        let (certificate_path, key_path) = (dir.join("ca.crt"), dir.join("ca.key"));
        let key = read_key(&key_path)?;
        let reusable = match read_certificate(&certificate_path)? {
            None => None,
            Some((pem, ca)) => {
                let usable = match &key {
                    None => true, // without its key, the certificate cannot be replaced
                    Some(key) => ca.is_valid_for_long(now) && ca.public_key == key.der_bytes(),
                };
                usable.then_some((pem, ca.key_id))
            }
        };
        let (pem, key_id, key) = match (reusable, key) {
            (Some((pem, id)), key) => (pem, id, key),
            (None, key) => {
                let key = match key {
                    Some(key) => key,
                    None => make_key(&key_path)?,
                };
                let certificate =
                    ca_params(now)?.self_signed(&key).context("cannot sign the CA certificate")?;
                files::write_private(&certificate_path, certificate.pem().as_bytes())?;
                (certificate.pem(), Described::new(certificate.der())?.key_id, Some(key))
            }
        };
        if key.is_none() {
            let path = key_path.display();
            tracing::warn!(
                %path,
                "the key of the server's CA is missing: restore the file, or the server cannot renew its certificates"
            );
        }
        Authority::new(pem, key_id, key)
    }

    /// Opens the CA that a rotation replaces. Returns `None` if no rotation has begun.
    fn open_old(dir: &Path) -> anyhow::Result<Option<Self>> {
        let path = dir.join(OLD_CA);
        let Some((pem, parsed)) = read_certificate(&path.with_extension("crt"))? else { return Ok(None) };
        let key = read_key(&path.with_extension("key"))?;
        Authority::new(pem, parsed.key_id, key).map(Some)
    }

    fn new(pem: String, key_id: Vec<u8>, key: Option<KeyPair>) -> anyhow::Result<Self> {
        let issuer = key.map(|key| Issuer::from_ca_cert_pem(&pem, key)).transpose();
        Ok(Authority { issuer: issuer.context("cannot use the CA's certificate as an issuer")?, pem, key_id })
    }
}

impl Pki {
    /// Opens the CA in `dir`, or creates a CA.
    pub fn open(dir: &Path, now: SystemTime) -> anyhow::Result<Self> {
        files::private_dir(dir)?;
        Ok(Pki { dir: dir.to_owned(), ca: Authority::open(dir, now)?, old: Authority::open_old(dir)? })
    }

    /// Returns the certificates of the CA and, during a rotation, of the old CA (PEM).
    pub fn ca_pem(&self) -> String {
        self.old.iter().fold(self.ca.pem.clone(), |bundle, old| bundle + &old.pem)
    }

    /// Returns whether a rotation of the CA has begun and has not ended.
    pub fn is_rotating(&self) -> bool {
        self.old.is_some()
    }

    /// Returns the server's certificate for `names`. Renews the certificate if necessary.
    pub fn serving(&self, names: &[Name], now: SystemTime) -> anyhow::Result<PemPair> {
        self.ensure(SERVING, &Purpose::Serving(names), now)
    }

    /// Returns whether a chain (PEM) is a certificate of the server that the CA or the old CA signed.
    pub fn is_own_serving(&self, chain: &[u8]) -> bool {
        let described = der(chain).and_then(|der| Described::new(&der).ok());
        described.is_some_and(|found| {
            let mut authorities = self.old.iter().chain([&self.ca]);
            found.user == SERVER && authorities.any(|authority| authority.key_id == found.issuer_key_id)
        })
    }

    /// Returns the client certificate for `user` in `group` that is stored as `<file>.crt`. Creates or renews
    /// the certificate if necessary.
    pub fn client(&self, file: &str, user: &str, group: &str, now: SystemTime) -> anyhow::Result<PemPair> {
        self.ensure(file, &Purpose::Client { user, group }, now)
    }

    /// Replaces the server's certificate by a new certificate with the same names.
    ///
    /// # Errors
    /// There is no certificate, or the CA cannot sign.
    pub fn renew_serving(&self, now: SystemTime) -> anyhow::Result<PemPair> {
        let path = self.dir.join(SERVING).with_extension("crt");
        let old = files::read_if_there(&path)?;
        let old =
            old.with_context(|| format!("{} does not exist: the first start creates it", path.display()))?;
        let names: Vec<Name> = names_in(&old).into_iter().collect();
        self.replace(SERVING, &Purpose::Serving(&names), now)
    }

    /// Replaces the server's certificate, if it exists and was not signed by the CA that now signs serving
    /// certificates.
    ///
    /// # Errors
    /// The certificate is unreadable, or the CA cannot sign.
    pub fn adopt_serving(&self, now: SystemTime) -> anyhow::Result<()> {
        let found = read_certificate(&self.dir.join(SERVING).with_extension("crt"))?;
        let signer = self.authority(&Purpose::Serving(&[]));
        if found.is_some_and(|(_, found)| found.issuer_key_id != signer.key_id) {
            self.renew_serving(now)?;
        }
        Ok(())
    }

    /// Replaces the client certificate `<file>.crt` by a new certificate for `user` in `group`.
    ///
    /// # Errors
    /// The CA cannot sign.
    pub fn renew_client(
        &self,
        file: &str,
        user: &str,
        group: &str,
        now: SystemTime,
    ) -> anyhow::Result<PemPair> {
        self.replace(file, &Purpose::Client { user, group }, now)
    }

    /// Creates a client certificate and its key, and does not store them. The certificate expires no later than the CA.
    ///
    /// # Errors
    /// The CA cannot sign.
    pub fn issue(
        &self,
        user: &str,
        groups: &[String],
        lifetime: Duration,
        now: SystemTime,
    ) -> anyhow::Result<PemPair> {
        let path = self.dir.join(CA).with_extension("key");
        let ca_key = files::read_if_there(&path)?;
        let ca_key =
            ca_key.with_context(|| format!("{} does not exist: restore the file", path.display()))?;
        let authority = certificate_authority::Authority::from_pem(self.ca.pem.as_bytes(), &ca_key)?;
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).context("cannot create a key")?;
        let request = Request::of_client(user, groups, key.subject_public_key_info());
        let chain = authority.issue(&request, &["digital signature", "client auth"], lifetime, now)?;
        Ok(PemPair { chain, key: key.serialize_pem() })
    }

    /// Begins a rotation: the CA becomes the old CA, and a new CA is created. Continues an earlier call that
    /// was interrupted.
    ///
    /// # Errors
    /// A rotation has begun already, or a file cannot be written.
    pub fn begin_rotation(dir: &Path, now: SystemTime) -> anyhow::Result<Self> {
        let pki = Pki::open(dir, now)?;
        if pki.old.as_ref().is_some_and(|old| old.key_id != pki.ca.key_id) {
            bail!("a rotation of the CA has begun already: end it with `certs rotate-ca --finish`");
        }
        let (ca, old) = (dir.join(CA), dir.join(OLD_CA));
        // Make the copies of the files durable before the new CA replaces the files. Copy the key first,
        // because a key is always written before its certificate.
        for extension in ["key", "crt"] {
            let from = ca.with_extension(extension);
            let bytes = files::read_if_there(&from)?.with_context(|| {
                format!("{} does not exist, so that the CA cannot be rotated", from.display())
            })?;
            files::write_private(&old.with_extension(extension), &bytes)?;
        }
        files::sync_dir(dir)?;
        make_key(&ca.with_extension("key"))?;
        // The certificate of the CA does not match the new key, so this call replaces it.
        let pki = Pki::open(dir, now)?;
        files::sync_dir(dir)?;
        Ok(pki)
    }

    /// Ends a rotation by removing the old CA, which is then no longer trusted.
    ///
    /// # Errors
    /// No rotation has begun, or a file cannot be removed.
    pub fn finish_rotation(dir: &Path, now: SystemTime) -> anyhow::Result<Self> {
        let pki = Pki::open(dir, now)?;
        if !pki.is_rotating() {
            bail!("no rotation of the CA has begun: begin one with `certs rotate-ca`");
        }
        // Remove the certificate first, because a key without a certificate has no effect.
        for extension in ["crt", "key"] {
            let path = dir.join(OLD_CA).with_extension(extension);
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(error).with_context(|| format!("cannot remove {}", path.display()));
                }
                _ => {}
            }
        }
        files::sync_dir(dir)?;
        Pki::open(dir, now)
    }

    /// Returns the CA that signs certificates for this purpose.
    fn authority(&self, purpose: &Purpose) -> &Authority {
        match purpose {
            Purpose::Serving(_) => self.old.as_ref().unwrap_or(&self.ca),
            Purpose::Client { .. } => &self.ca,
        }
    }

    fn ensure(&self, file: &str, purpose: &Purpose, now: SystemTime) -> anyhow::Result<PemPair> {
        let key = read_key(&self.dir.join(file).with_extension("key"))?;
        if let (Some(key), Some(bytes)) =
            (&key, files::read_if_there(&self.dir.join(file).with_extension("crt"))?)
            && let Some(der) = der(&bytes)
            && let Ok(parsed) = Described::new(&der)
            && parsed.is_valid_for_long(now)
            && parsed.public_key == key.der_bytes()
            && parsed.issuer_key_id == self.authority(purpose).key_id
            && parsed.serves(purpose)
            && let Ok(chain) = String::from_utf8(bytes)
        {
            return Ok(PemPair { chain, key: key.serialize_pem() });
        }
        self.replace(file, purpose, now)
    }

    /// Replaces a certificate by a new certificate with a new key. The key is replaced because the old key may be the
    /// reason for the replacement.
    fn replace(&self, file: &str, purpose: &Purpose, now: SystemTime) -> anyhow::Result<PemPair> {
        let certificate_path = self.dir.join(file).with_extension("crt");
        let issuer = self.authority(purpose).issuer.as_ref().ok_or_else(|| {
            anyhow!("{} must be created, but ca.key does not exist", certificate_path.display())
        })?;
        let key = make_key(&self.dir.join(file).with_extension("key"))?;
        let certificate = leaf_params(purpose, now)?
            .signed_by(&key, issuer)
            .with_context(|| format!("cannot sign {}", certificate_path.display()))?;
        files::write_private(&certificate_path, certificate.pem().as_bytes())?;
        Ok(PemPair { chain: certificate.pem(), key: key.serialize_pem() })
    }
}

/// Returns the private key (PEM) that is stored as `<file>.key` in `dir`. Creates an RSA key if the file is
/// missing, because every program that verifies tokens supports RSA.
pub fn private_key(dir: &Path, file: &str) -> anyhow::Result<String> {
    files::private_dir(dir)?;
    let path = dir.join(file).with_extension("key");
    let key = match read_key(&path)? {
        Some(key) => key,
        None => {
            let key = KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048);
            let key = key.context("cannot create a key")?;
            files::write_private(&path, key.serialize_pem().as_bytes())?;
            files::sync_dir(dir)?;
            key
        }
    };
    Ok(key.serialize_pem())
}

fn read_key(path: &Path) -> anyhow::Result<Option<KeyPair>> {
    let Some(bytes) = files::read_if_there(path)? else { return Ok(None) };
    let unreadable = || format!("{} is not a PEM private key", path.display());
    let text = String::from_utf8(bytes).with_context(unreadable)?;
    KeyPair::from_pem(&text).map(Some).with_context(unreadable)
}

/// Reads a certificate. Returns `None` if the file does not exist.
fn read_certificate(path: &Path) -> anyhow::Result<Option<(String, Described)>> {
    let Some(bytes) = files::read_if_there(path)? else { return Ok(None) };
    let der = der(&bytes).with_context(|| format!("{} is not a PEM certificate", path.display()))?;
    let parsed = Described::new(&der)?;
    let text = String::from_utf8(bytes).with_context(|| format!("{} is not text", path.display()))?;
    Ok(Some((text, parsed)))
}

fn make_key(path: &Path) -> anyhow::Result<KeyPair> {
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).context("cannot create a key")?;
    files::write_private(path, key.serialize_pem().as_bytes())?;
    Ok(key)
}

fn der(pem: &[u8]) -> Option<Vec<u8>> {
    let (_, pem) = x509_parser::pem::parse_x509_pem(pem).ok()?;
    Some(pem.contents)
}

fn params(now: SystemTime, lifetime: Duration) -> anyhow::Result<CertificateParams> {
    let since_epoch = now.duration_since(SystemTime::UNIX_EPOCH).context("the clock is before 1970")?;
    let now = rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(since_epoch.as_secs());
    let mut params = CertificateParams::default();
    params.not_before = now - BACKDATE;
    params.not_after = now + lifetime;
    params.distinguished_name = DistinguishedName::new();
    Ok(params)
}

fn ca_params(now: SystemTime) -> anyhow::Result<CertificateParams> {
    let mut params = params(now, CA_LIFETIME)?;
    params.distinguished_name.push(DnType::CommonName, "cluster-ca");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages =
        vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(params)
}

fn leaf_params(purpose: &Purpose, now: SystemTime) -> anyhow::Result<CertificateParams> {
    let mut params = params(now, LEAF_LIFETIME)?;
    params.use_authority_key_identifier_extension = true;
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    match purpose {
        Purpose::Serving(names) => {
            params.distinguished_name.push(DnType::CommonName, SERVER);
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
            for name in *names {
                params.subject_alt_names.push(match name {
                    Name::Dns(name) => {
                        SanType::DnsName(name.as_str().try_into().context("unusable DNS name")?)
                    }
                    Name::Ip(address) => SanType::IpAddress(*address),
                });
            }
        }
        Purpose::Client { user, group } => {
            params.distinguished_name.push(DnType::OrganizationName, *group);
            params.distinguished_name.push(DnType::CommonName, *user);
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        }
    }
    Ok(params)
}

/// The properties of a certificate.
pub struct Described {
    /// Beginning of the validity, in seconds since 1970.
    pub begins: i64,
    /// End of the validity, in seconds since 1970.
    pub expires: i64,
    /// Whether the certificate is a CA certificate.
    pub is_ca: bool,
    /// Identifier of the key of the certificate; empty if the certificate does not contain it.
    pub key_id: Vec<u8>,
    /// Identifier of the key that signed the certificate; empty if the certificate does not contain it.
    pub issuer_key_id: Vec<u8>,
    /// Alternative names of the server, if the certificate is a serving certificate.
    pub names: BTreeSet<Name>,
    /// Common name: the user of a client certificate.
    pub user: String,
    /// Organizations: the groups of a client certificate.
    pub groups: Vec<String>,
    public_key: Vec<u8>,
}

impl Described {
    /// Reads the first certificate of a PEM file.
    ///
    /// # Errors
    /// The file does not exist or has no readable certificate.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let read = read_certificate(path)?;
        read.map(|(_, found)| found).with_context(|| format!("{} does not exist", path.display()))
    }

    fn new(der: &[u8]) -> anyhow::Result<Self> {
        let (_, certificate) = x509_parser::parse_x509_certificate(der).context("unreadable certificate")?;
        let texts = |attributes: Vec<&x509_parser::x509::AttributeTypeAndValue>| -> Vec<String> {
            attributes.iter().filter_map(|a| a.as_str().ok()).map(str::to_owned).collect()
        };
        let mut found = Described {
            begins: certificate.validity().not_before.timestamp(),
            expires: certificate.validity().not_after.timestamp(),
            is_ca: certificate.is_ca(),
            public_key: certificate.public_key().subject_public_key.data.to_vec(),
            key_id: Vec::new(),
            issuer_key_id: Vec::new(),
            names: names_of(&certificate),
            user: texts(certificate.subject().iter_common_name().collect()).pop().unwrap_or_default(),
            groups: texts(certificate.subject().iter_organization().collect()),
        };
        for extension in certificate.extensions() {
            match extension.parsed_extension() {
                ParsedExtension::SubjectKeyIdentifier(id) => found.key_id = id.0.to_vec(),
                ParsedExtension::AuthorityKeyIdentifier(id) => {
                    found.issuer_key_id =
                        id.key_identifier.as_ref().map(|id| id.0.to_vec()).unwrap_or_default();
                }
                _ => {}
            }
        }
        Ok(found)
    }

    fn is_valid_for_long(&self, now: SystemTime) -> bool {
        let needed = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default() + RENEW_BEFORE;
        self.expires > i64::try_from(needed.as_secs()).unwrap_or(i64::MAX)
    }

    fn serves(&self, purpose: &Purpose) -> bool {
        match purpose {
            Purpose::Serving(names) => names.iter().cloned().collect::<BTreeSet<_>>() == self.names,
            Purpose::Client { user, group } => self.user == *user && self.groups == [*group],
        }
    }
}

fn names_of(certificate: &X509Certificate) -> BTreeSet<Name> {
    let Ok(Some(extension)) = certificate.subject_alternative_name() else { return BTreeSet::new() };
    let name = |name: &GeneralName| match name {
        GeneralName::DNSName(name) => Some(Name::Dns((*name).to_owned())),
        GeneralName::IPAddress(bytes) => match bytes.len() {
            4 => <[u8; 4]>::try_from(*bytes).ok().map(|bytes| Name::Ip(bytes.into())),
            _ => <[u8; 16]>::try_from(*bytes).ok().map(|bytes| Name::Ip(bytes.into())),
        },
        _ => None,
    };
    extension.value.general_names.iter().filter_map(name).collect()
}

/// Returns the names in the first certificate of a PEM chain.
pub fn names_in(chain: &[u8]) -> BTreeSet<Name> {
    let Some(der) = der(chain) else { return BTreeSet::new() };
    x509_parser::parse_x509_certificate(&der)
        .map(|(_, certificate)| names_of(&certificate))
        .unwrap_or_default()
}

#[cfg(test)]
#[path = "pki_test.rs"]
mod tests;
