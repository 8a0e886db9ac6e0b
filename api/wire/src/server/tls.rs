//! TLS configuration: the server's certificate, and the client certificates that it accepts.
//!
//! A client certificate is requested but optional. The handshake only proves possession of its key;
//! authentication checks its issuer. Therefore a client with an unknown certificate can still authenticate
//! with a token, and a changed CA bundle needs no new listener. The handshake names the accepted authorities,
//! so that a client with several certificates can choose ([`ServerTls::name_authorities`]). The crypto
//! provider is named explicitly.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::client::verify_server_name;
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, ParsedCertificate, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::time_provider::TimeProvider;
use rustls::version::{TLS12, TLS13};
use rustls::{
    DigitallySignedStruct, DistinguishedName, ProtocolVersion, RootCertStore, ServerConfig, SignatureScheme,
    SupportedCipherSuite,
};

use values::clock;

/// Clock of handshakes. The clock of rustls panics while the system clock is before 1970.
#[derive(Debug)]
struct Clock;

impl TimeProvider for Clock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(not_before_epoch(clock::now_seconds()))
    }
}

fn not_before_epoch(seconds: i64) -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
}

/// ALPN name of HTTP/2.
pub(super) const HTTP2: &[u8] = b"h2";
const HTTP1: &[u8] = b"http/1.1";

/// Reason why a certificate cannot be served, with the wording of Go's library.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// The text of the certificate contains no PEM block.
    #[error("tls: failed to find any PEM data in certificate input")]
    NoChain,
    /// The text of the certificate contains only a private key.
    #[error(
        "tls: failed to find certificate PEM data in certificate input, but did find a private key; PEM inputs may have \
         been switched"
    )]
    KeyForChain,
    /// The text of the certificate contains only PEM blocks of these other types.
    #[error(
        "tls: failed to find \"CERTIFICATE\" PEM block in certificate input after skipping PEM blocks of the following \
         types: [{}]", .0.join(" ")
    )]
    OtherForChain(Vec<String>),
    /// The text of the certificate contains a broken block.
    #[error("tls: failed to parse certificate")]
    BrokenChain,
    /// The text of the key contains no PEM block.
    #[error("tls: failed to find any PEM data in key input")]
    NoKey,
    /// The text of the key contains only a certificate.
    #[error("tls: found a certificate rather than a key in the PEM for the private key")]
    ChainForKey,
    /// The text of the key contains only PEM blocks of these other types.
    #[error(
        "tls: failed to find PEM block with type ending in \"PRIVATE KEY\" in key input after skipping PEM blocks of the \
         following types: [{}]", .0.join(" ")
    )]
    OtherForKey(Vec<String>),
    /// The text of the key contains a broken block.
    #[error("tls: failed to parse private key")]
    BrokenKey,
    /// The key does not belong to the certificate.
    #[error("tls: private key does not match public key")]
    Mismatch,
    /// The key is of an unknown kind, or the certificate cannot be parsed.
    #[error("certificate and key cannot be used")]
    Unusable(#[source] rustls::Error),
}

/// The server's certificates; a replacement takes effect with the next handshake.
pub struct ServingCertificate {
    usual: ArcSwap<CertifiedKey>,
    /// Certificates for clients that request a name, in order of preference.
    named: ArcSwap<Vec<NamedCertificate>>,
}

/// A certificate for clients that request one of its names.
pub struct NamedCertificate {
    /// Names such as `a.example.com`, or `*.example.com` for any first label. If empty, the names in the
    /// certificate apply.
    names: Vec<String>,
    key: Arc<CertifiedKey>,
}

impl NamedCertificate {
    /// Parses PEM text. If `names` is empty, the names in the certificate apply.
    ///
    /// # Errors
    /// See [`CertificateError`].
    pub fn from_pem(chain: &[u8], key: &[u8], names: Vec<String>) -> Result<Self, CertificateError> {
        Ok(NamedCertificate { names, key: Arc::new(certified_key(chain, key)?) })
    }

    fn is_for(&self, name: &str) -> bool {
        if !self.names.is_empty() {
            let below = name.split_once('.').map(|(_, rest)| rest);
            return self.names.iter().any(|known| match known.strip_prefix("*.") {
                Some(rest) => below.is_some_and(|below| below.eq_ignore_ascii_case(rest)),
                None => known.eq_ignore_ascii_case(name),
            });
        }
        let parsed = self.key.end_entity_cert().ok().and_then(|cert| ParsedCertificate::try_from(cert).ok());
        let expected = ServerName::try_from(name).ok();
        parsed.zip(expected).is_some_and(|(cert, expected)| verify_server_name(&cert, &expected).is_ok())
    }
}

impl ServingCertificate {
    /// Parses PEM text: the chain with the server's own certificate first, and its key.
    ///
    /// # Errors
    /// See [`CertificateError`].
    pub fn from_pem(chain: &[u8], key: &[u8]) -> Result<Self, CertificateError> {
        let usual = ArcSwap::from_pointee(certified_key(chain, key)?);
        Ok(ServingCertificate { usual, named: ArcSwap::default() })
    }

    /// Replaces the certificate for future handshakes.
    ///
    /// # Errors
    /// See [`CertificateError`]; the old certificate stays.
    pub fn replace(&self, chain: &[u8], key: &[u8]) -> Result<(), CertificateError> {
        self.usual.store(Arc::new(certified_key(chain, key)?));
        Ok(())
    }

    /// Replaces the certificates for clients that request a name; the first match is used.
    pub fn replace_named(&self, named: Vec<NamedCertificate>) {
        self.named.store(Arc::new(named));
    }
}

fn certified_key(chain: &[u8], key: &[u8]) -> Result<CertifiedKey, CertificateError> {
    check_chain(chain)?;
    check_key(key)?;
    let chain: Vec<_> = CertificateDer::pem_slice_iter(chain)
        .collect::<Result<_, _>>()
        .map_err(|_| CertificateError::BrokenChain)?;
    if chain.is_empty() {
        return Err(CertificateError::BrokenChain);
    }
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| CertificateError::BrokenKey)?;
    CertifiedKey::from_der(chain, key, &aws_lc_rs::default_provider()).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => CertificateError::Mismatch,
        error => CertificateError::Unusable(error),
    })
}

/// PEM label of a certificate (RFC 7468, section 5).
const CERTIFICATE: &str = "CERTIFICATE";

/// Checks that a text contains a certificate. The error names the PEM blocks that the text contains instead.
fn check_chain(text: &[u8]) -> Result<(), CertificateError> {
    let types = block_types(text);
    match &types[..] {
        types if types.iter().any(|label| label == CERTIFICATE) => Ok(()),
        [] => Err(CertificateError::NoChain),
        [only] if only.ends_with("PRIVATE KEY") => Err(CertificateError::KeyForChain),
        _ => Err(CertificateError::OtherForChain(types)),
    }
}

/// Checks that a text contains a private key; the error names what it contains instead.
fn check_key(text: &[u8]) -> Result<(), CertificateError> {
    let types = block_types(text);
    match &types[..] {
        types if types.iter().any(|name| name.ends_with("PRIVATE KEY")) => Ok(()),
        [] => Err(CertificateError::NoKey),
        [only] if only == "CERTIFICATE" => Err(CertificateError::ChainForKey),
        _ => Err(CertificateError::OtherForKey(types)),
    }
}

/// Returns the types of the PEM blocks of a text, in order (RFC 7468).
fn block_types(text: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(text);
    let types =
        text.lines().filter_map(|line| line.trim_end().strip_prefix("-----BEGIN ")?.strip_suffix("-----"));
    types.map(str::to_owned).collect()
}

impl fmt::Debug for ServingCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServingCertificate")
    }
}

impl ResolvesServerCert for ServingCertificate {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let named = self.named.load();
        let requested = hello.server_name().filter(|_| !named.is_empty());
        let found = requested.and_then(|name| named.iter().find(|certificate| certificate.is_for(name)));
        Some(found.map_or_else(|| self.usual.load_full(), |certificate| certificate.key.clone()))
    }
}

/// The TLS settings of the operator.
#[derive(Clone, Debug)]
pub struct TlsSettings {
    /// Whether HTTP/2 is offered.
    pub serves_http2: bool,
    /// Whether only TLS 1.3 is offered, without TLS 1.2.
    pub is_modern: bool,
    /// IANA names of the cipher suites of TLS 1.2. If empty, all suites that are considered secure are
    /// offered. The suites of TLS 1.3 are always offered.
    pub suites: Vec<String>,
    /// IANA numbers of the key exchange groups. If empty, all groups that are considered secure are offered.
    pub groups: Vec<u16>,
}

impl Default for TlsSettings {
    fn default() -> TlsSettings {
        TlsSettings { serves_http2: true, is_modern: false, suites: Vec::new(), groups: Vec::new() }
    }
}

impl TlsSettings {
    /// Checks that the settings can be used.
    ///
    /// # Errors
    /// The server supports none of the values that the operator named.
    pub fn check(&self) -> Result<(), String> {
        self.provider().map(drop)
    }

    fn provider(&self) -> Result<CryptoProvider, String> {
        let mut provider = aws_lc_rs::default_provider();
        let is_old = |suite: &SupportedCipherSuite| suite.version().version == ProtocolVersion::TLSv1_2;
        if !self.suites.is_empty() {
            provider.cipher_suites.retain(|suite| {
                !is_old(suite) || self.suites.iter().any(|name| Some(name.as_str()) == suite.suite().as_str())
            });
        }
        if !self.groups.is_empty() {
            provider.kx_groups.retain(|group| self.groups.contains(&u16::from(group.name())));
        }
        if provider.kx_groups.is_empty() {
            return Err("--tls-curve-preferences: the server has none of these".to_owned());
        }
        Ok(provider)
    }
}

/// The TLS configuration of the listener. The list of accepted authorities can be replaced; a replacement
/// takes effect with the next handshake.
pub struct ServerTls {
    certificate: Arc<ServingCertificate>,
    settings: TlsSettings,
    provider: Arc<CryptoProvider>,
    current: ArcSwap<ServerConfig>,
}

impl ServerTls {
    /// Sets the authorities that the handshake names to clients, from a PEM bundle; entries that cannot be
    /// parsed are skipped.
    pub fn name_authorities(&self, bundle: &[u8]) {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(CertificateDer::pem_slice_iter(bundle).filter_map(Result::ok));
        let next = config(self.certificate.clone(), &self.settings, &self.provider, roots.subjects());
        self.current.store(Arc::new(next));
    }

    /// Returns the configuration of the next handshake.
    pub(super) fn current(&self) -> Arc<ServerConfig> {
        self.current.load_full()
    }
}

/// Creates the TLS configuration of the listener, with TLS 1.2 (if the settings allow it) and 1.3. HTTP/2, if
/// it is served, is preferred over HTTP/1.1. Clients are asked for a certificate.
///
/// # Errors
/// The server supports none of the values that the operator named.
pub fn server_config(
    certificate: Arc<ServingCertificate>,
    settings: &TlsSettings,
) -> Result<Arc<ServerTls>, String> {
    let provider = Arc::new(settings.provider()?);
    let current = config(certificate.clone(), settings, &provider, Vec::new());
    Ok(Arc::new(ServerTls {
        certificate,
        settings: settings.clone(),
        provider,
        current: ArcSwap::from_pointee(current),
    }))
}

fn config(
    certificate: Arc<ServingCertificate>,
    settings: &TlsSettings,
    provider: &Arc<CryptoProvider>,
    authorities: Vec<DistinguishedName>,
) -> ServerConfig {
    let versions: &[_] = if settings.is_modern { &[&TLS13] } else { &[&TLS13, &TLS12] };
    let ask = AskForCertificate { provider: provider.clone(), authorities };
    let mut config = ServerConfig::builder_with_details(provider.clone(), Arc::new(Clock))
        .with_protocol_versions(versions)
        .expect("the settings leave cipher suites for each of these versions")
        .with_client_cert_verifier(Arc::new(ask))
        .with_cert_resolver(certificate);
    let protocols: &[&[u8]] = if settings.serves_http2 { &[HTTP2, HTTP1] } else { &[HTTP1] };
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    config
}

#[derive(Debug)]
struct AskForCertificate {
    provider: Arc<CryptoProvider>,
    authorities: Vec<DistinguishedName>,
}

impl ClientCertVerifier for AskForCertificate {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.authorities
    }

    fn verify_client_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_the_epoch_become_the_epoch() {
        for (seconds, want) in [(-1, 0), (i64::MIN, 0), (0, 0), (1_700_000_000, 1_700_000_000)] {
            assert_eq!(not_before_epoch(seconds).as_secs(), want);
        }
    }

    #[test]
    fn an_unusable_certificate_or_key_is_refused_with_a_reason() {
        let block = |name: &str| format!("-----BEGIN {name}-----\nAAAA\n-----END {name}-----\n");
        let (chain, key, other) = (block("CERTIFICATE"), block("EC PRIVATE KEY"), block("X509 CRL"));
        for (certificate, private, want) in [
            ("", &*key, "tls: failed to find any PEM data in certificate input"),
            ("no PEM", &key, "tls: failed to find any PEM data in certificate input"),
            (
                &key,
                &chain,
                "tls: failed to find certificate PEM data in certificate input, but did find a private key; PEM inputs \
                 may have been switched",
            ),
            (
                &other,
                &key,
                "tls: failed to find \"CERTIFICATE\" PEM block in certificate input after skipping PEM blocks of the \
                 following types: [X509 CRL]",
            ),
            (&chain, "no PEM", "tls: failed to find any PEM data in key input"),
            (&chain, &chain, "tls: found a certificate rather than a key in the PEM for the private key"),
            (
                &chain,
                &other,
                "tls: failed to find PEM block with type ending in \"PRIVATE KEY\" in key input after skipping PEM \
                 blocks of the following types: [X509 CRL]",
            ),
        ] {
            let error = certified_key(certificate.as_bytes(), private.as_bytes()).unwrap_err();
            assert_eq!(error.to_string(), want);
        }
    }
}
