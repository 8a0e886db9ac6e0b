//! The server's own CA and certificates, in `<data-dir>/pki/`.
//!
//! ```text
//! ca.key ─► ca.crt ─┬─► serving.crt  (serving.key)   presented to clients
//!                   └─► admin.crt    (admin.key)     in admin.kubeconfig
//! ```
//!
//! Certificates are stored and reused. A certificate is replaced when it is about to expire, when its names
//! or subject are not the wanted ones, or when it does not match its key or the CA. The CA's key never
//! changes, so that certificates it signed outlive a renewal of the CA's own certificate. Keys are ECDSA
//! P-256; a key is written before its certificate, so that a crash in between leaves a pair that does not
//! match and is detected.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, anyhow};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PKCS_RSA_SHA256, PublicKeyData, RsaKeySize, SanType,
};
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::X509Certificate;

use crate::host::files;

/// Name of the directory of certificates and keys in the data directory.
pub const PKI_DIR: &str = "pki";

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const CA_LIFETIME: Duration = DAY.saturating_mul(10 * 365);
const LEAF_LIFETIME: Duration = DAY.saturating_mul(365);
/// Remaining lifetime below which a certificate is renewed.
const RENEW_BEFORE: Duration = DAY.saturating_mul(30);
/// How far back the validity of new certificates begins, for clients whose clocks are slow.
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

/// A name of the server in certificates.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Name {
    /// A DNS name, whose first label may be `*`.
    Dns(String),
    /// An IPv4 or IPv6 address.
    Ip(IpAddr),
}

impl Name {
    /// Parses an address or a DNS name; `None` if the text is neither.
    pub fn read(text: &str) -> Option<Name> {
        match text.parse() {
            Ok(address) => Some(Name::Ip(address)),
            Err(_) => Name::is_dns(text).then(|| Name::Dns(text.to_ascii_lowercase())),
        }
    }

    /// Returns whether a text is a DNS name, whose first label may be `*` (RFC 6125, section 6.4.3).
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

/// The CA of a data directory, and the directory of its certificates.
pub struct Pki {
    dir: PathBuf,
    ca_pem: String,
    /// Key identifier of the CA, with which certificates name their issuer.
    ca_key_id: Vec<u8>,
    /// The CA's signer; `None` if the key file was removed, so that nothing can be signed.
    issuer: Option<Issuer<'static, KeyPair>>,
}

impl Pki {
    /// Opens the CA in `dir`, or creates one.
    pub fn open(dir: &Path, now: SystemTime) -> anyhow::Result<Self> {
        files::private_dir(dir)?;
        let (certificate_path, key_path) = (dir.join("ca.crt"), dir.join("ca.key"));
        let key = read_key(&key_path)?;
        let kept = match files::read_if_there(&certificate_path)? {
            None => None,
            Some(bytes) => {
                let der = der(&bytes)
                    .with_context(|| format!("{} is not a PEM certificate", certificate_path.display()))?;
                let ca = Parsed::new(&der)?;
                let usable = match &key {
                    None => true, // without the key the certificate cannot be replaced
                    Some(key) => ca.lasts(now) && ca.public_key == key.der_bytes(),
                };
                let text = || String::from_utf8(bytes.clone()).context("ca.crt is not text");
                if usable { Some((text()?, ca.key_id.clone())) } else { None }
            }
        };
        let (ca_pem, ca_key_id, key) = match (kept, key) {
            (Some((pem, id)), key) => (pem, id, key),
            (None, key) => {
                let key = match key {
                    Some(key) => key,
                    None => make_key(&key_path)?,
                };
                let certificate =
                    ca_params(now)?.self_signed(&key).context("cannot sign the CA certificate")?;
                files::write_private(&certificate_path, certificate.pem().as_bytes())?;
                (certificate.pem(), Parsed::new(certificate.der())?.key_id, Some(key))
            }
        };
        let issuer = match key {
            None => {
                let path = key_path.display();
                tracing::warn!(
                    %path,
                    "the key of the server's CA is missing: restore the file, or the server cannot renew its certificates"
                );
                None
            }
            Some(key) => {
                Some(Issuer::from_ca_cert_pem(&ca_pem, key).context("cannot use ca.crt as an issuer")?)
            }
        };
        Ok(Pki { dir: dir.to_owned(), ca_pem, ca_key_id, issuer })
    }

    /// Returns the CA's certificate (PEM).
    pub fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    /// Returns the server's certificate for `names`, renewed if necessary.
    pub fn serving(&self, names: &[Name], now: SystemTime) -> anyhow::Result<PemPair> {
        self.ensure("serving", &Purpose::Serving(names), now)
    }

    /// Returns a client certificate for `user` in `group`, stored as `<file>.crt`; renewed if necessary.
    pub fn client(&self, file: &str, user: &str, group: &str, now: SystemTime) -> anyhow::Result<PemPair> {
        self.ensure(file, &Purpose::Client { user, group }, now)
    }

    fn ensure(&self, file: &str, purpose: &Purpose, now: SystemTime) -> anyhow::Result<PemPair> {
        let certificate_path = self.dir.join(file).with_extension("crt");
        let key_path = self.dir.join(file).with_extension("key");
        let key = read_key(&key_path)?;
        if let (Some(key), Some(bytes)) = (&key, files::read_if_there(&certificate_path)?)
            && let Some(der) = der(&bytes)
            && let Ok(parsed) = Parsed::new(&der)
            && parsed.lasts(now)
            && parsed.public_key == key.der_bytes()
            && parsed.issuer_key_id == self.ca_key_id
            && parsed.serves(purpose)
            && let Ok(chain) = String::from_utf8(bytes)
        {
            return Ok(PemPair { chain, key: key.serialize_pem() });
        }
        let issuer = self.issuer.as_ref().ok_or_else(|| {
            anyhow!("{} must be created, but ca.key does not exist", certificate_path.display())
        })?;
        // A new certificate gets a new key: the old key may have the same problem as the old certificate.
        let key = make_key(&key_path)?;
        let certificate = leaf_params(purpose, now)?
            .signed_by(&key, issuer)
            .with_context(|| format!("cannot sign {}", certificate_path.display()))?;
        files::write_private(&certificate_path, certificate.pem().as_bytes())?;
        Ok(PemPair { chain: certificate.pem(), key: key.serialize_pem() })
    }
}

/// Returns the private key stored as `<file>.key` in `dir`, as PEM. If it is missing, creates an RSA key,
/// which every consumer of tokens can verify with.
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
            params.distinguished_name.push(DnType::CommonName, "cluster-apiserver");
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

/// The properties of a certificate that decide whether it is kept.
struct Parsed {
    expires: u64,
    public_key: Vec<u8>,
    key_id: Vec<u8>,
    issuer_key_id: Vec<u8>,
    names: BTreeSet<Name>,
    user: String,
    groups: Vec<String>,
}

impl Parsed {
    fn new(der: &[u8]) -> anyhow::Result<Self> {
        let (_, certificate) = x509_parser::parse_x509_certificate(der).context("unreadable certificate")?;
        let texts = |attributes: Vec<&x509_parser::x509::AttributeTypeAndValue>| -> Vec<String> {
            attributes.iter().filter_map(|a| a.as_str().ok()).map(str::to_owned).collect()
        };
        let mut parsed = Parsed {
            expires: certificate.validity().not_after.timestamp().try_into().unwrap_or(0),
            public_key: certificate.public_key().subject_public_key.data.to_vec(),
            key_id: Vec::new(),
            issuer_key_id: Vec::new(),
            names: names_of(&certificate),
            user: texts(certificate.subject().iter_common_name().collect()).pop().unwrap_or_default(),
            groups: texts(certificate.subject().iter_organization().collect()),
        };
        for extension in certificate.extensions() {
            match extension.parsed_extension() {
                ParsedExtension::SubjectKeyIdentifier(id) => parsed.key_id = id.0.to_vec(),
                ParsedExtension::AuthorityKeyIdentifier(id) => {
                    parsed.issuer_key_id =
                        id.key_identifier.as_ref().map(|id| id.0.to_vec()).unwrap_or_default();
                }
                _ => {}
            }
        }
        Ok(parsed)
    }

    fn lasts(&self, now: SystemTime) -> bool {
        let needed = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default() + RENEW_BEFORE;
        self.expires > needed.as_secs()
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

/// Returns the names in the first certificate of a PEM chain; empty if there are no names.
pub fn names_in(chain: &[u8]) -> BTreeSet<Name> {
    let Some(der) = der(chain) else { return BTreeSet::new() };
    x509_parser::parse_x509_certificate(&der)
        .map(|(_, certificate)| names_of(&certificate))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::files::scratch::Scratch;
    use std::os::unix::fs::PermissionsExt;

    fn names(extra: &str) -> Vec<Name> {
        let mut names = vec![Name::Dns("localhost".into()), Name::Ip([127, 0, 0, 1].into())];
        names.push(Name::Ip("::1".parse().unwrap()));
        if !extra.is_empty() {
            names.push(Name::Dns(extra.into()));
        }
        names
    }

    #[test]
    fn certificates_are_created_once_with_the_right_contents() {
        let dir = Scratch::new();
        let now = SystemTime::now();
        let pki = Pki::open(&dir, now).unwrap();
        let serving = pki.serving(&names("a.example"), now).unwrap();
        let admin = pki.client("admin", "cluster-admin", "system:masters", now).unwrap();

        assert_eq!(names_in(serving.chain.as_bytes()), names("a.example").into_iter().collect());
        let parsed = Parsed::new(&der(admin.chain.as_bytes()).unwrap()).unwrap();
        assert_eq!(
            (parsed.user.as_str(), parsed.groups),
            ("cluster-admin", vec!["system:masters".to_owned()])
        );
        for file in ["ca.key", "serving.key", "admin.key"] {
            let mode = std::fs::metadata(dir.join(file)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{file}");
        }

        let again = Pki::open(&dir, now).unwrap();
        assert_eq!(again.ca_pem(), pki.ca_pem());
        assert_eq!(again.serving(&names("a.example"), now).unwrap(), serving);
        assert_eq!(again.client("admin", "cluster-admin", "system:masters", now).unwrap(), admin);
    }

    #[test]
    fn a_certificate_is_renewed_when_it_no_longer_serves() {
        let dir = Scratch::new();
        let now = SystemTime::now();
        let pki = Pki::open(&dir, now).unwrap();
        let mut serving = pki.serving(&names(""), now).unwrap();
        let mut changed = |what: &str, names: &[Name], now: SystemTime, want: bool| {
            let next = Pki::open(&dir, now).unwrap().serving(names, now).unwrap();
            assert_eq!(next != serving, want, "{what}");
            serving = next;
        };
        changed("nothing happened", &names(""), now, false);
        changed("another name", &names("b.example"), now, true);
        changed("most of its life is over", &names("b.example"), now + DAY * 330, false);
        changed("it is about to expire", &names("b.example"), now + DAY * 336, true);
        std::fs::copy(dir.join("ca.key"), dir.join("serving.key")).unwrap();
        changed("its key is another one", &names("b.example"), now + DAY * 336, true);
        std::fs::write(dir.join("serving.crt"), "damaged").unwrap();
        changed("it is damaged", &names("b.example"), now + DAY * 336, true);
        let ca = std::fs::read(dir.join("ca.crt")).unwrap();
        assert_eq!(ca, pki.ca_pem().as_bytes(), "the CA stayed through all of this");
        std::fs::remove_file(dir.join("ca.key")).unwrap();
        std::fs::remove_file(dir.join("ca.crt")).unwrap();
        changed("it is another CA's", &names("b.example"), now + DAY * 336, true);
    }

    #[test]
    fn an_expiring_ca_is_renewed_under_the_same_key() {
        let dir = Scratch::new();
        let now = SystemTime::now();
        let old = Pki::open(&dir, now).unwrap();
        let key = std::fs::read(dir.join("ca.key")).unwrap();
        let later = now + CA_LIFETIME - DAY;
        let new = Pki::open(&dir, later).unwrap();
        assert_ne!(new.ca_pem(), old.ca_pem());
        assert_eq!(std::fs::read(dir.join("ca.key")).unwrap(), key);
        assert_eq!(new.ca_key_id, old.ca_key_id);
    }

    #[test]
    fn a_ca_key_kept_elsewhere_is_missed_only_when_something_must_be_signed() {
        let dir = Scratch::new();
        let now = SystemTime::now();
        Pki::open(&dir, now).unwrap().serving(&names(""), now).unwrap();
        std::fs::remove_file(dir.join("ca.key")).unwrap();
        let pki = Pki::open(&dir, now).unwrap();
        pki.serving(&names(""), now).unwrap();
        let error = pki.serving(&names("b.example"), now).unwrap_err().to_string();
        assert!(error.ends_with("serving.crt must be created, but ca.key does not exist"), "{error}");
        std::fs::write(dir.join("ca.key"), "damaged").unwrap();
        let error = Pki::open(&dir, now).err().unwrap().to_string();
        assert!(error.ends_with("ca.key is not a PEM private key"), "{error}");
    }
}
