//! Verification of other servers, and authentication to them: certificates of authorities and clients,
//! tokens, passwords.
//!
//! The types have no `Debug`: keys and tokens must not reach a log.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};

use super::authorities::{Authorities, provider};

/// The credentials with which this server authenticates itself.
#[derive(Clone, Default, Eq, PartialEq)]
pub struct Identity {
    /// PEM of the client certificate and of its key.
    pub certificate: Option<(Vec<u8>, Vec<u8>)>,
    /// Bearer token; it takes precedence over a password.
    pub token: Option<String>,
    /// User name and password (RFC 7617).
    pub password: Option<(String, String)>,
}

/// The verification of a server, and the authentication of this server to it.
#[derive(Clone, Copy, Default)]
pub struct Credentials<'c> {
    /// PEM of the authorities that verify the server's certificate.
    pub authorities: &'c [u8],
    /// PEM of the authorities to use if `authorities` is empty. Certificates that cannot be parsed are
    /// skipped, because the bundle of an operating system may contain such certificates.
    pub otherwise: &'c [u8],
    /// Name that the server's certificate must have, if it is not the host of the URL.
    pub server_name: Option<&'c str>,
    /// Credentials of this server; `None` if this server does not authenticate itself.
    pub identity: Option<&'c Identity>,
    /// Whether any certificate of the server is accepted.
    pub is_unverified: bool,
    /// Further headers for authentication or impersonation.
    pub headers: &'c [(String, String)],
    /// URL of the proxy, if any.
    pub proxy: Option<&'c str>,
}

/// A TLS client configuration that can be used for many connections.
#[derive(Clone, Debug)]
pub struct ClientTls(pub(super) Arc<ClientConfig>);

impl ClientTls {
    /// Reads certificates and keys.
    ///
    /// # Errors
    /// A certificate or key cannot be parsed.
    pub fn new(credentials: &Credentials<'_>) -> Result<ClientTls, String> {
        Ok(ClientTls(Arc::new(config(credentials)?)))
    }
}

/// Returns the headers that authenticate this server.
pub(super) fn headers(credentials: &Credentials<'_>) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    let absent = Identity::default();
    let identity = credentials.identity.unwrap_or(&absent);
    let authorization = match (&identity.token, &identity.password) {
        (Some(token), _) => Some(("token", format!("Bearer {token}"))),
        (None, Some((user, password))) => {
            Some(("password", format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))))
        }
        (None, None) => None,
    };
    let odd = |what: &str| format!("the {what} contains characters that a header cannot carry");
    if let Some((what, authorization)) = authorization {
        let mut value = HeaderValue::try_from(authorization).map_err(|_| odd(what))?;
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
    }
    for (name, value) in credentials.headers {
        let name = HeaderName::try_from(name.as_str()).map_err(|_| odd("name of a header"))?;
        headers.append(name, HeaderValue::try_from(value.as_str()).map_err(|_| odd("user to act as"))?);
    }
    Ok(headers)
}

fn config(credentials: &Credentials<'_>) -> Result<ClientConfig, String> {
    let verifier: Arc<dyn ServerCertVerifier> = if credentials.is_unverified {
        Arc::new(Unverified(provider()))
    } else if credentials.authorities.is_empty() {
        Authorities::read_leniently(credentials.otherwise).into_verifier()
    } else {
        Authorities::read(credentials.authorities)?.into_verifier()
    };
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
    match credentials.identity.and_then(|identity| identity.certificate.as_ref()) {
        None => Ok(builder.with_no_client_auth()),
        Some((chain, key)) => {
            let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(chain).collect();
            let chain = chain.map_err(|_| "the client certificate is not PEM".to_owned())?;
            let key = PrivateKeyDer::from_pem_slice(key)
                .map_err(|_| "the client key is not a PEM private key".to_owned())?;
            builder.with_client_auth_cert(chain, key).map_err(|error| error.to_string())
        }
    }
}

/// Verifier that accepts any server certificate, for configurations that disable verification.
#[derive(Debug)]
struct Unverified(Arc<CryptoProvider>);

impl ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
