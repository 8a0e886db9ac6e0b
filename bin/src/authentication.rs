//! Who may come in: the flags of authentication, checked with the files they name, and the chain built of them.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use api::state::policy::EngineAccounts;
use auth::Authenticator;
use auth::authn::bootstrap::BootstrapTokens;
use auth::authn::jwt::Issuers;
use auth::authn::request_header::{HeaderNames, RequestHeaders};
use auth::authn::service_account::ServiceAccountTokens;
use auth::authn::token_file::StaticTokens;
use auth::authn::x509::{CaBundle, ClientCertificates};
use auth::authn::{Anonymous, NameDomains, SigningKey, VerificationKey};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

use crate::config::{NamedFile, named};
use crate::flags::{AuthenticationFlags, Profile};
use crate::issuers::IssuersConfig;
use crate::webhooks::WebhookConfig;

/// The checked flags of authentication.
#[derive(Clone, Debug)]
pub struct AuthenticationConfig {
    /// CAs of client certificates besides the server's own.
    pub client_ca: Option<NamedFile>,
    /// The authenticating proxy.
    pub proxy: Option<ProxyConfig>,
    /// Static bearer tokens.
    pub token_auth: Option<StaticTokens>,
    /// Signing and verification of service account tokens.
    pub tokens: TokenConfig,
    /// Whether bootstrap tokens are accepted.
    pub bootstrap_tokens: bool,
    /// Issuers whose tokens are accepted.
    pub issuers: IssuersConfig,
    /// Server that is asked about tokens.
    pub webhook: Option<WebhookConfig>,
    /// Which requests without credentials are served.
    pub anonymous: Anonymous,
}

/// An authenticating proxy.
#[derive(Clone, Debug)]
pub struct ProxyConfig {
    /// CAs of its certificate.
    pub client_ca: NamedFile,
    /// Common names that it may have; empty: every name.
    pub allowed_names: Vec<String>,
    /// Headers that it sends.
    pub headers: HeaderNames,
}

/// Signing and verification of service account tokens.
#[derive(Clone, Debug)]
pub struct TokenConfig {
    /// Issuers: the first signs, all are accepted. Never empty.
    pub issuers: Vec<String>,
    /// Audiences of this server. Never empty.
    pub audiences: Vec<String>,
    /// The signing key, if configured; otherwise the server creates one.
    pub signing_key: Option<NamedFile>,
    /// Further keys that verify tokens.
    pub keys: Vec<NamedFile>,
    /// Address of the keys in the discovery document, if it is another server's.
    pub keys_uri: Option<String>,
    /// Whether legacy tokens are looked up in their secrets.
    pub lookup: bool,
    /// Longest validity of a token.
    pub lifetime_max: Option<Duration>,
    /// Whether clients that do not renew their token get a long-lived one.
    pub extends: bool,
}

impl AuthenticationConfig {
    /// Takes the flags of authentication.
    ///
    /// # Errors
    /// One that fits one line.
    pub fn from_flags(
        mut flags: AuthenticationFlags,
        naming: Profile,
        allows_all: bool,
    ) -> anyhow::Result<Self> {
        let tokens = TokenConfig::from_flags(&mut flags, naming)?;
        let client_ca = named(flags.client_ca_file.take())?;
        let client_bundle =
            client_ca.as_ref().map(|file| check_bundle("--client-ca-file", file)).transpose()?;
        let proxy = ProxyConfig::from_flags(&mut flags, client_bundle.as_ref())?;
        let token_auth = named(flags.token_auth_file)?
            .map(|NamedFile { path, bytes }| {
                StaticTokens::parse(&bytes).with_context(|| format!("--token-auth-file {}", path.display()))
            })
            .transpose()?;
        let webhook = WebhookConfig::from_flags(
            flags.authentication_token_webhook_config_file,
            &flags.authentication_token_webhook_version,
            flags.authentication_token_webhook_cache_ttl,
        )?;
        let (issuers, anonymous) =
            IssuersConfig::from_flags(flags.oidc, flags.authentication_config, &tokens.issuers, naming)?;
        if anonymous.is_some() && flags.anonymous_auth.is_some() {
            bail!(
                "--anonymous-auth flag cannot be set when anonymous field is configured in authentication configuration \
                 file"
            );
        }
        // With AlwaysAllow an anonymous user could do everything, so anonymous requests are off
        // (docs/api/authentication.md#anonymous-requests).
        let anonymous = anonymous.unwrap_or(match flags.anonymous_auth.unwrap_or(true) && !allows_all {
            true => Anonymous::Accepted,
            false => Anonymous::Refused,
        });
        Ok(AuthenticationConfig {
            client_ca,
            proxy,
            token_auth,
            tokens,
            bootstrap_tokens: flags.enable_bootstrap_token_auth,
            issuers,
            webhook,
            anonymous,
        })
    }
}

impl ProxyConfig {
    /// `clients` are the authorities of the certificates of users.
    fn from_flags(
        flags: &mut AuthenticationFlags,
        clients: Option<&CaBundle>,
    ) -> anyhow::Result<Option<Self>> {
        const FLAG: &str = "--requestheader-client-ca-file";
        let client_ca = named(flags.requestheader_client_ca_file.take())?;
        let headers = HeaderNames {
            user: std::mem::take(&mut flags.requestheader_username_headers),
            uid: std::mem::take(&mut flags.requestheader_uid_headers),
            groups: std::mem::take(&mut flags.requestheader_group_headers),
            extra_prefixes: std::mem::take(&mut flags.requestheader_extra_headers_prefix),
        };
        let allowed_names = std::mem::take(&mut flags.requestheader_allowed_names);
        let Some(client_ca) = client_ca else {
            return Ok(None);
        };
        let bundle = check_bundle(FLAG, &client_ca)?;
        if headers.user.is_empty() {
            bail!("{FLAG} needs --requestheader-username-headers");
        }
        if allowed_names.is_empty() && clients.is_some_and(|clients| clients.overlaps(&bundle)) {
            bail!(
                "{FLAG} and --client-ca-file contain overlapping certificates; --requestheader-allowed-names must be \
                 specified to ensure regular client certificates cannot set authenticating proxy headers for arbitrary \
                 users"
            );
        }
        Ok(Some(ProxyConfig { client_ca, allowed_names, headers }))
    }
}

/// Refuses a file without certificates.
fn check_bundle(flag: &str, file: &NamedFile) -> anyhow::Result<CaBundle> {
    let mut count = 0;
    for certificate in CertificateDer::pem_slice_iter(&file.bytes) {
        certificate.with_context(|| format!("{flag} {}: broken PEM", file.path.display()))?;
        count += 1;
    }
    if count == 0 {
        bail!("{flag} {}: no certificate in it", file.path.display());
    }
    CaBundle::from_pem(&file.bytes).with_context(|| format!("{flag} {}", file.path.display()))
}

/// Whether a URL may begin with this (RFC 3986).
fn is_scheme(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
}

/// Shortest and longest limit of a token's validity.
const TOKEN_LIFETIME_MAX: (Duration, Duration) = (Duration::from_secs(60 * 60), Duration::from_secs(1 << 32));

impl TokenConfig {
    /// Takes the flags of service account tokens.
    fn from_flags(flags: &mut AuthenticationFlags, naming: Profile) -> anyhow::Result<Self> {
        let mut issuers = std::mem::take(&mut flags.service_account_issuer);
        if issuers.is_empty() {
            issuers.push(format!("https://{}.default.svc.cluster.local", naming.word));
        }
        for issuer in &issuers {
            if issuer.is_empty() {
                bail!("service-account-issuer should not be an empty string");
            }
            if issuers.iter().filter(|other| *other == issuer).count() > 1 {
                bail!("service-account-issuer {issuer:?} is already specified");
            }
            // As kube-apiserver: an issuer with a colon must be a URL.
            if issuer.split_once(':').is_some_and(|(scheme, _)| !is_scheme(scheme)) {
                bail!("service-account-issuer {issuer:?} contained a ':' but was not a valid URL");
            }
        }
        let mut audiences = std::mem::take(&mut flags.api_audiences);
        audiences.retain(|audience| !audience.is_empty());
        if audiences.is_empty() {
            audiences.clone_from(&issuers);
        }
        let signing_key = named(flags.service_account_signing_key_file.take())
            .context("failed to parse service-account-issuer-key-file")?;
        if let Some(file) = &signing_key {
            SigningKey::from_pem(&file.bytes)
                .with_context(|| format!("--service-account-signing-key-file {}", file.path.display()))?;
        }
        let mut keys = Vec::new();
        for path in std::mem::take(&mut flags.service_account_key_file) {
            const FLAG: &str = "--service-account-key-file";
            if let Some(NamedFile { bytes, path }) = named(Some(path))? {
                VerificationKey::from_pem(&bytes).with_context(|| format!("{FLAG} {}", path.display()))?;
                keys.push(NamedFile { bytes, path });
            }
        }
        let limit = flags.service_account_max_token_expiration;
        if !limit.is_zero() && !(TOKEN_LIFETIME_MAX.0..=TOKEN_LIFETIME_MAX.1).contains(&limit) {
            bail!("the service-account-max-token-expiration must be between 1 hour and 2^32 seconds");
        }
        let lifetime_max = (!limit.is_zero()).then_some(limit);
        let extends = flags.service_account_extend_token_expiration;
        let keys_uri = flags.service_account_jwks_uri.take();
        if let Some(uri) = &keys_uri
            && !uri.starts_with("https://")
        {
            bail!("service-account-jwks-uri requires https scheme, parsed as: {uri}");
        }
        let lookup = flags.service_account_lookup;
        Ok(TokenConfig { issuers, audiences, signing_key, keys, keys_uri, lookup, lifetime_max, extends })
    }
}

/// The parts of a chain that follow files while the server runs.
pub struct Bundles {
    /// Client certificates.
    pub clients: Arc<ClientCertificates>,
    /// Certificates of the authenticating proxy.
    pub proxies: Option<Arc<ClientCertificates>>,
    /// Issuers of tokens.
    pub issuers: Option<Arc<Issuers>>,
    /// Service account tokens.
    pub tokens: Arc<ServiceAccountTokens>,
}

/// Builds the chain. `client_cas` is the PEM bundle of the CAs of client certificates.
///
/// # Errors
/// One that fits one line.
pub fn chain(
    config: &AuthenticationConfig,
    client_cas: &[u8],
    naming: Profile,
    accounts: Arc<EngineAccounts>,
    account_tokens: ServiceAccountTokens,
) -> anyhow::Result<(Authenticator, Bundles)> {
    let domains = &NameDomains::new(naming.domain);
    let bundle = CaBundle::from_pem(client_cas).context("--client-ca-file")?;
    let clients = Arc::new(ClientCertificates::new(bundle, domains));
    let mut chain = Authenticator::new()
        .with_certificates(clients.clone())
        .with_audiences(config.tokens.audiences.clone())
        .with_anonymous(config.anonymous.clone());
    let mut proxies = None;
    if let Some(proxy) = &config.proxy {
        let bundle = CaBundle::from_pem(&proxy.client_ca.bytes).context("--requestheader-client-ca-file")?;
        let certificates = proxies.insert(Arc::new(ClientCertificates::new(bundle, domains))).clone();
        let (allowed, headers) = (proxy.allowed_names.clone(), proxy.headers.clone());
        chain = chain.with_request_headers(RequestHeaders::new(certificates, allowed, headers));
    }
    if let Some(tokens) = &config.token_auth {
        chain = chain.with_tokens(tokens.clone());
    }
    let tokens = Arc::new(account_tokens);
    chain = chain.with_shared_tokens(tokens.clone());
    if config.bootstrap_tokens {
        chain = chain.with_tokens(BootstrapTokens::new(accounts, domains.bootstrap_type()));
    }
    let mut issuers = None;
    if config.issuers.is_used() {
        let built = issuers.insert(Arc::new(config.issuers.build(domains)?));
        chain = chain.with_remote_tokens(built.clone());
    }
    if let Some(webhook) = &config.webhook {
        let tokens = webhook.build(config.tokens.audiences.clone(), naming)?;
        chain = chain.with_remote_tokens(Arc::new(tokens));
    }
    Ok((chain, Bundles { clients, proxies, issuers, tokens }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::files::scratch::Scratch;
    use crate::flags;
    use std::ffi::OsString;

    #[test]
    fn anonymous_requests_are_served_unless_everything_is_allowed() {
        // docs/api/authentication.md#anonymous-requests.
        let dir = Scratch::new();
        for (arguments, want) in [
            ("", Anonymous::Accepted),
            ("--authorization-mode=AlwaysAllow", Anonymous::Refused),
            ("--authorization-mode=AlwaysAllow --anonymous-auth", Anonymous::Refused),
            ("--anonymous-auth=false", Anonymous::Refused),
        ] {
            let line = format!("cluster-apiserver --data-dir={} {arguments}", dir.display());
            let words = line.split_whitespace().map(OsString::from);
            let config = Config::from_flags(flags::parse(words).unwrap().flags()).unwrap();
            assert_eq!(config.authentication.anonymous, want, "{arguments}");
        }
    }
}
