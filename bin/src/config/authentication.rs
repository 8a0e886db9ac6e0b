//! The flags of authentication, checked together with the files that they name, and the authenticator chain
//! built from them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use api::state::policy::EngineAccounts;
use api::state::tokens::external::UnknownKeys;
use api::state::tokens::{EXTENDED_LIFETIME, TokenSigner};
use auth::Authenticator;
use auth::authn::bootstrap::BootstrapTokens;
use auth::authn::jwt::Issuers;
use auth::authn::request_header::{HeaderNames, RequestHeaders};
use auth::authn::service_account::ServiceAccountTokens;
use auth::authn::token_file::{StaticTokens, TokenFileError};
use auth::authn::x509::{CaBundle, ClientCertificates};
use auth::authn::{Anonymous, KeyError, NameDomains, SigningKey, VerificationKey};
use go::quote;
use go::url::Url;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use types::features::Features;
use wire::outgoing::Networks;

use crate::config::issuers::IssuersConfig;
use crate::config::webhooks::WebhookConfig;
use crate::config::{NamedFile, named};
use crate::flags::duration;
use crate::flags::{AuthenticationFlags, Profile};

/// The checked flags of authentication.
#[derive(Clone, Debug)]
pub struct AuthenticationConfig {
    /// CAs of client certificates, in addition to the server's own.
    pub client_ca: Option<NamedFile>,
    /// The authenticating proxy, if one is configured.
    pub proxy: Option<ProxyConfig>,
    /// Static bearer tokens, if a file has them.
    pub token_auth: Option<StaticTokens>,
    /// Signing and verification of service account tokens.
    pub tokens: TokenConfig,
    /// Whether bootstrap tokens are accepted.
    pub bootstrap_tokens: bool,
    /// Issuers whose tokens are accepted.
    pub issuers: IssuersConfig,
    /// Server to which token reviews are sent, if configured.
    pub webhook: Option<WebhookConfig>,
    /// The requests that are served without credentials.
    pub anonymous: Anonymous,
}

/// Settings of an authenticating proxy.
#[derive(Clone, Debug)]
pub struct ProxyConfig {
    /// CAs that the proxy's certificate is verified against.
    pub client_ca: NamedFile,
    /// Common names that the proxy's certificate may have; empty: every name.
    pub allowed_names: Vec<String>,
    /// Headers in which the proxy names the user.
    pub headers: HeaderNames,
}

/// Signing and verification of service account tokens.
#[derive(Clone, Debug)]
pub struct TokenConfig {
    /// Issuers: the first one signs, and all are accepted. Never empty.
    pub issuers: Vec<String>,
    /// Audiences that identify this server. Never empty.
    pub audiences: Vec<String>,
    /// The socket of an external process that signs the tokens, if configured.
    pub endpoint: Option<String>,
    /// The configured signing key; `None`: the server creates one.
    pub signing_key: Option<NamedFile>,
    /// Further keys that verify tokens.
    pub keys: Vec<NamedFile>,
    /// Address of the keys in the discovery document, if another server publishes them.
    pub keys_uri: Option<String>,
    /// Whether legacy tokens are looked up in their secrets.
    pub lookup: bool,
    /// Longest validity of a token, if limited.
    pub lifetime_max: Option<Duration>,
    /// Whether clients that do not renew their token get a long-lived one.
    pub extends: bool,
}

impl AuthenticationConfig {
    /// Checks the flags of authentication and reads their files.
    ///
    /// # Errors
    /// An error of one line.
    pub fn from_flags(
        mut flags: AuthenticationFlags,
        naming: Profile,
        allows_all: bool,
        networks: &Networks,
        features: &Features,
    ) -> anyhow::Result<Self> {
        let mut problems = Problems::default();
        let tokens = TokenConfig::from_flags(&mut flags, naming, &mut problems)?;
        let file = flags.authentication_config;
        let issuers =
            IssuersConfig::from_flags(flags.oidc, file, &tokens.issuers, naming, networks, features);
        let headers = HeaderFlags {
            names: HeaderNames {
                user: flags.requestheader_username_headers,
                uid: flags.requestheader_uid_headers,
                groups: flags.requestheader_group_headers,
                extra_prefixes: flags.requestheader_extra_headers_prefix,
            },
            allowed: flags.requestheader_allowed_names,
        };
        headers.check(&mut problems);
        let (issuers, anonymous) = problems.end_with(issuers)?;
        let client_ca = named(flags.client_ca_file)?;
        let client_bundle =
            client_ca.as_ref().map(|file| check_bundle("client-ca-bundle", file)).transpose()?;
        let proxy = ProxyConfig::new(flags.requestheader_client_ca_file, headers, client_bundle.as_ref())?;
        let token_auth = named(flags.token_auth_file)?
            .map(|NamedFile { path, bytes }| {
                let tokens = StaticTokens::parse(&bytes).map_err(|error| match error {
                    TokenFileError::TooFewColumns(_) => anyhow!("token file '{}' {error}", path.display()),
                    TokenFileError::Syntax { .. } | TokenFileError::NotText { .. } => anyhow!("{error}"),
                })?;
                for doubt in tokens.doubts() {
                    tracing::warn!(file = %path.display(), "token file: {doubt}");
                }
                Ok::<_, anyhow::Error>(tokens)
            })
            .transpose()?;
        let webhook = WebhookConfig::from_flags(
            flags.authentication_token_webhook_config_file,
            &flags.authentication_token_webhook_version,
            flags.authentication_token_webhook_cache_ttl,
            &networks.control_plane,
        )?;
        if anonymous.is_some() && flags.anonymous_auth.is_some() {
            bail!(
                "anonymous: Forbidden: --anonymous-auth flag cannot be set when anonymous field is configured in \
                 authentication configuration file"
            );
        }
        // With AlwaysAllow, an anonymous user could do everything, so anonymous requests are refused
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

/// Problems with flags, all of which are reported at once.
#[derive(Default)]
struct Problems(Vec<String>);

impl Problems {
    fn add(&mut self, problem: impl Into<String>) {
        self.0.push(problem.into());
    }

    /// Returns the result of checking further flags if there are no problems. Otherwise fails with all
    /// problems, those collected here first.
    fn end_with<T>(mut self, made: anyhow::Result<T>) -> anyhow::Result<T> {
        let made = match made {
            Ok(made) if self.0.is_empty() => return Ok(made),
            Ok(_) => None,
            Err(error) if self.0.is_empty() => return Err(error),
            Err(error) => Some(format!("{error:#}")),
        };
        self.0.splice(0..0, made);
        bail!("{}", go::join_errors(self.0).unwrap_or_default())
    }
}

/// The flags about headers of the authenticating proxy.
struct HeaderFlags {
    names: HeaderNames,
    allowed: Vec<String>,
}

impl HeaderFlags {
    fn check(&self, problems: &mut Problems) {
        let HeaderFlags { names: HeaderNames { user, uid, groups, extra_prefixes }, allowed } = self;
        for (flag, values) in [
            ("requestheader-username-headers", user),
            ("requestheader-uid-headers", uid),
            ("requestheader-group-headers", groups),
            ("requestheader-extra-headers-prefix", extra_prefixes),
            ("requestheader-allowed-names", allowed),
        ] {
            if values.iter().any(|value| value.trim().is_empty()) {
                problems.add(format!("empty value in \"{flag}\""));
            }
        }
        let is_standard = |name: &String| name.eq_ignore_ascii_case("X-Remote-Uid");
        if !uid.is_empty() && !uid.iter().any(is_standard) {
            problems.add(
                "--requestheader-uid-headers is set without specifying the standard X-Remote-Uid header - API aggregation \
                 will not work",
            );
        }
    }
}

impl ProxyConfig {
    /// Checks the flags of the proxy. `clients` are the authorities of users' certificates.
    fn new(
        client_ca: Option<PathBuf>,
        HeaderFlags { names: headers, allowed: allowed_names }: HeaderFlags,
        clients: Option<&CaBundle>,
    ) -> anyhow::Result<Option<Self>> {
        let Some(client_ca) = named(client_ca)? else { return Ok(None) };
        let bundle = check_bundle("request-header", &client_ca)?;
        if headers.user.is_empty() {
            tracing::warn!(
                "--requestheader-username-headers names no header: a proxy cannot authenticate users until it does"
            );
        }
        if allowed_names.is_empty() && clients.is_some_and(|clients| clients.overlaps(&bundle)) {
            bail!(
                "--requestheader-client-ca-file and --client-ca-file contain overlapping certificates; \
                 --requestheader-allowed-names must be specified to ensure regular client certificates cannot set \
                 authenticating proxy headers for arbitrary users"
            );
        }
        Ok(Some(ProxyConfig { client_ca, allowed_names, headers }))
    }
}

/// Refuses a file without certificates, with the message of kube-apiserver.
fn check_bundle(purpose: &str, file: &NamedFile) -> anyhow::Result<CaBundle> {
    let name = format!("{purpose}::{}", file.path.display());
    if file.bytes.is_empty() {
        bail!("missing content for CA bundle {}", quote(&name));
    }
    let failed = |why: &str| anyhow!("error loading CA bundle for {}: {why}", quote(&name));
    let count = CertificateDer::pem_slice_iter(&file.bytes).filter(Result::is_ok).count();
    if count == 0 {
        return Err(failed("data does not contain any valid RSA or ECDSA certificates"));
    }
    CaBundle::from_pem(&file.bytes).map_err(|error| failed(&error.to_string()))
}

/// The lifetime that clients request if they are expected to renew their token.
const RENEWED_AFTER: Duration = Duration::from_secs(60 * 60 + 7);

/// Smallest and largest value of the limit on a token's validity.
const TOKEN_LIFETIME_MAX: (Duration, Duration) = (Duration::from_secs(60 * 60), Duration::from_secs(1 << 32));

impl TokenConfig {
    /// Checks the flags of service account tokens.
    fn from_flags(
        flags: &mut AuthenticationFlags,
        naming: Profile,
        problems: &mut Problems,
    ) -> anyhow::Result<Self> {
        let mut issuers = std::mem::take(&mut flags.service_account_issuer);
        let endpoint = flags.service_account_signing_endpoint.take().filter(|path| !path.is_empty());
        if let Some(endpoint) = &endpoint {
            if is_given(flags.service_account_signing_key_file.as_deref()) {
                bail!(
                    "service-account-signing-key-file and service-account-signing-endpoint are mutually exclusive and \
                     cannot be set at the same time"
                );
            }
            if !flags.service_account_key_file.is_empty() {
                problems.add(
                    "can't set `--service-account-signing-key-file` and/or `--service-account-key-file` with \
                     `--service-account-signing-endpoint` (They are mutually exclusive)",
                );
            }
            if !is_socket(endpoint) {
                problems.add(format!(
                    "invalid value {} passed for `--service-account-signing-endpoint`, should be a valid location on the \
                     filesystem or must be prefixed with @ to name UDS in abstract namespace",
                    quote(endpoint)
                ));
            }
        }
        let signing_key = match flags.service_account_signing_key_file.take() {
            Some(path) => {
                let failed = || "failed to parse service-account-issuer-key-file";
                let file = named(Some(path)).with_context(failed)?;
                if let Some(NamedFile { path, bytes }) = &file {
                    let why = |error| private_key_problem(path, &error);
                    SigningKey::from_pem(bytes).map_err(why).with_context(failed)?;
                }
                file
            }
            None => None,
        };
        let limit = flags.service_account_max_token_expiration;
        if !limit.is_zero() && !(TOKEN_LIFETIME_MAX.0..=TOKEN_LIFETIME_MAX.1).contains(&limit) {
            bail!("the service-account-max-token-expiration must be between 1 hour and 2^32 seconds");
        }
        for (at, issuer) in issuers.iter().enumerate() {
            let shown = quote(issuer);
            match Url::parse(issuer) {
                Err(why) if issuer.contains(':') => problems.add(format!(
                    "service-account-issuer {shown} contained a ':' but was not a valid URL: {why}"
                )),
                _ if issuer.is_empty() => {
                    problems.add("service-account-issuer should not be an empty string")
                }
                _ if issuers[..at].contains(issuer) => {
                    problems.add(format!("service-account-issuer {shown} is already specified"));
                }
                _ => {}
            }
        }
        let keys_uri = flags.service_account_jwks_uri.take().filter(|uri| !uri.is_empty());
        match keys_uri.as_deref().map(|uri| (uri, Url::parse(uri))) {
            Some((_, Err(why))) => {
                problems.add(format!("service-account-jwks-uri must be a valid URL: {why}"))
            }
            Some((uri, Ok(parsed))) if parsed.scheme() != "https" => {
                problems.add(format!("service-account-jwks-uri requires https scheme, parsed as: {uri}"));
            }
            Some((_, Ok(_))) | None => {}
        }
        let is_incomplete = match issuers.first().map(String::as_str) {
            None => false,
            Some("") => signing_key.is_some() || !flags.api_audiences.is_empty(),
            // With verification keys but without the signing key, the configuration has lost a file. Without
            // any key, the server creates one.
            Some(_) => signing_key.is_none() && !flags.service_account_key_file.is_empty(),
        };
        if endpoint.is_none() && is_incomplete {
            problems.add(
                "--service-account-signing-key-file, --service-account-issuer, and --api-audiences should be specified \
                 together",
            );
        }
        if issuers.is_empty() {
            issuers.push(format!("https://{}.default.svc.cluster.local", naming.word));
        }
        let mut audiences = std::mem::take(&mut flags.api_audiences);
        audiences.retain(|audience| !audience.is_empty());
        if audiences.is_empty() {
            audiences.clone_from(&issuers);
        }
        let mut keys = Vec::new();
        for path in std::mem::take(&mut flags.service_account_key_file) {
            if let Some(NamedFile { bytes, path }) = named(Some(PathBuf::from(path)))? {
                VerificationKey::from_pem(&bytes).map_err(|error| public_key_problem(&path, &error))?;
                keys.push(NamedFile { bytes, path });
            }
        }
        let lifetime_max = (!limit.is_zero()).then_some(limit);
        let extends = flags.service_account_extend_token_expiration;
        let lookup = flags.service_account_lookup;
        if let Some(limit) = lifetime_max.filter(|_| extends) {
            warn_of_short_lifetimes(limit);
        }
        Ok(TokenConfig {
            issuers,
            audiences,
            endpoint,
            signing_key,
            keys,
            keys_uri,
            lookup,
            lifetime_max,
            extends,
        })
    }
}

/// Warns about the effect of a lifetime limit on tokens of clients that do not renew them, with the messages
/// of kube-apiserver.
fn warn_of_short_lifetimes(limit: Duration) {
    let shown = duration::shown(limit);
    if limit < RENEWED_AFTER {
        tracing::warn!(
            "service-account-extend-token-expiration is true, in order to correctly trigger safe transition logic, \
             service-account-max-token-expiration must be set longer than {} seconds (currently {shown})",
            RENEWED_AFTER.as_secs()
        );
    }
    if limit < EXTENDED_LIFETIME {
        tracing::warn!(
            "service-account-extend-token-expiration is true, enabling tokens valid up to {} seconds, which is longer than \
             service-account-max-token-expiration set to {shown}",
            EXTENDED_LIFETIME.as_secs()
        );
    }
}

fn is_given(path: Option<&Path>) -> bool {
    path.is_some_and(|path| !path.as_os_str().is_empty())
}

/// Returns whether a text can name a socket: a path from the root, or a name of words joined by dots in the abstract namespace.
fn is_socket(text: &str) -> bool {
    let is_word = |word: &str| {
        !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))
    };
    match text.strip_prefix('@') {
        Some(name) => name.split('.').all(is_word),
        None => text.starts_with('/') && !text.chars().any(|c| c.is_whitespace() || c.is_control()),
    }
}

/// Returns why a file of private keys is not used: with the message of kube-apiserver if the file has no key,
/// with a precise one otherwise.
fn private_key_problem(path: &Path, error: &KeyError) -> anyhow::Error {
    let why = match error {
        KeyError::Empty | KeyError::Pem(_) => {
            "data does not contain a valid RSA or ECDSA private key".to_owned()
        }
        KeyError::ManyPrivate(_) | KeyError::Unusable { .. } => error.to_string(),
    };
    anyhow!("error reading private key file {}: {why}", path.display())
}

/// Describes why a file of public keys is not used, like [`private_key_problem`].
fn public_key_problem(path: &Path, error: &KeyError) -> anyhow::Error {
    let why = match error {
        KeyError::Empty | KeyError::Pem(_) => {
            "data does not contain any valid RSA or ECDSA public keys".to_owned()
        }
        KeyError::ManyPrivate(_) | KeyError::Unusable { .. } => error.to_string(),
    };
    anyhow!("error reading public key file {}: {why}", path.display())
}

/// The parts of a chain that are replaced when their files change.
pub struct Bundles {
    /// Authenticator of client certificates.
    pub clients: Arc<ClientCertificates>,
    /// Authenticator of the proxy's certificates, if a proxy is configured.
    pub proxies: Option<Arc<ClientCertificates>>,
    /// Issuers of accepted tokens, if any are configured.
    pub issuers: Option<Arc<Issuers>>,
    /// Authenticator of service account tokens.
    pub tokens: Arc<ServiceAccountTokens>,
}

/// Builds the chain. `client_cas` is the PEM bundle of the CAs of client certificates.
///
/// # Errors
/// An error of one line.
pub fn chain(
    config: &AuthenticationConfig,
    client_cas: &[u8],
    naming: Profile,
    accounts: Arc<EngineAccounts>,
    tokens: Arc<ServiceAccountTokens>,
    signer: &TokenSigner,
) -> anyhow::Result<(Authenticator, Bundles)> {
    let domains = &NameDomains::new(naming.domain);
    let bundle = CaBundle::from_pem(client_cas).context("--client-ca-file")?;
    let clients = Arc::new(ClientCertificates::new(bundle, domains));
    let mut chain = Authenticator::new()
        .with_certificates(clients.clone())
        .with_audiences(config.tokens.audiences.clone())
        .with_anonymous(config.anonymous.clone());
    if config.client_ca.is_none() && config.proxy.is_none() {
        // Only the server's own authority is trusted, which the operator did not choose: certificates of
        // other authorities are ignored.
        chain = chain.ignoring_other_certificates();
    }
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
    chain = chain.with_shared_tokens(tokens.clone());
    if config.bootstrap_tokens {
        chain = chain.with_tokens(BootstrapTokens::new(accounts, domains.bootstrap_type()));
    }
    if let TokenSigner::External(external) = signer {
        chain = chain.with_remote_tokens(Arc::new(UnknownKeys(external.clone())));
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
    use crate::flags;
    use crate::host::files::scratch::Scratch;
    use std::ffi::OsString;

    #[test]
    fn a_socket_of_a_signer_is_a_path_or_a_name() {
        for (text, want) in [
            ("/run/signer.sock", true),
            ("@signer.sock", true),
            ("@a-b_c.d", true),
            ("signer", false),
            ("@signer@", false),
            ("@a.b  .c", false),
            ("@", false),
            ("@a..b", false),
            ("/run/x /signer", false),
        ] {
            assert_eq!(is_socket(text), want, "{text}");
        }
    }

    #[test]
    fn a_signer_leaves_no_place_for_keys() {
        let dir = Scratch::new();
        let pem = rcgen::KeyPair::generate().unwrap().serialize_pem();
        std::fs::write(dir.join("key"), pem).unwrap();
        for (flag, want) in [
            ("", None),
            (
                "--service-account-signing-key-file=KEY",
                Some(
                    "service-account-signing-key-file and service-account-signing-endpoint are mutually exclusive and cannot \
                     be set at the same time",
                ),
            ),
            (
                "--service-account-key-file=KEY",
                Some(
                    "can't set `--service-account-signing-key-file` and/or `--service-account-key-file` with \
                     `--service-account-signing-endpoint` (They are mutually exclusive)",
                ),
            ),
        ] {
            let flag = flag.replace("KEY", &dir.join("key").display().to_string());
            let line = format!(
                "cluster-apiserver --data-dir={} --service-account-signing-endpoint=/run/x {flag}",
                dir.display()
            );
            let words = line.split_whitespace().map(OsString::from);
            let config = Config::from_flags(flags::parse(words).unwrap().flags());
            assert_eq!(config.err().map(|error| format!("{error:#}")).as_deref(), want, "{flag}");
        }
    }

    #[test]
    fn flags_that_contradict_each_other_are_refused() {
        let dir = Scratch::new();
        let pem = rcgen::KeyPair::generate().unwrap().serialize_pem();
        let file = |name: &str, text: &str| {
            std::fs::write(dir.join(name), text).unwrap();
            dir.join(name).display().to_string()
        };
        let key = file("key", &pem);
        const HEAD: &str = "apiVersion: apiserver.config.cluster.io/v1\nkind: AuthenticationConfiguration\n";
        let anonymous = file("anonymous", &format!("{HEAD}anonymous: {{enabled: true}}\n"));
        let network = file(
            "network",
            &format!(
                "{HEAD}jwt: [{{issuer: {{url: 'https://a', audiences: [b], egressSelectorType: cluster}}, claimMappings: \
                 {{username: {{expression: claims.sub}}}}}}]\n"
            ),
        );
        let empty = file("empty", "");
        let json = file("json", "{\"apiVersion\": \"x\",}");
        let twice = file("twice", &format!("{HEAD}jwt: []\njwt: []\n"));
        let loading =
            |path: &str| format!("failed to load authentication configuration from file \"{path}\": ");
        for (arguments, want) in [
            (
                format!("--authentication-config={anonymous} --anonymous-auth=true"),
                "anonymous: Forbidden: --anonymous-auth flag cannot be set when anonymous field is configured in \
                 authentication configuration file"
                    .to_owned(),
            ),
            (
                format!("--authentication-config={network}"),
                "oidc: egress lookup required with egress selector type \"cluster\"".to_owned(),
            ),
            (
                format!(
                    "--authentication-config={network} \
                     --feature-gates=StructuredAuthenticationConfigurationEgressSelector=false"
                ),
                "invalid authentication configuration: jwt[0].issuer.egressSelectorType: Invalid value: \"cluster\": egress \
                 selector is not supported when StructuredAuthenticationConfigurationEgressSelector feature gate is disabled"
                    .to_owned(),
            ),
            (
                format!("--oidc-ca-file= --authentication-config={anonymous}"),
                "authentication-config file and oidc-* flags are mutually exclusive".to_owned(),
            ),
            (
                "--oidc-signing-algs=".to_owned(),
                "oidc-issuer-url and oidc-client-id must be specified together when any oidc-* flags are set"
                    .to_owned(),
            ),
            (
                "--oidc-issuer-url=http://a --oidc-client-id=b --oidc-username-claim= --oidc-signing-algs=none"
                    .to_owned(),
                "invalid authentication configuration: [jwt[0].issuer.url: Invalid value: \"http://a\": URL scheme must be \
                 https, jwt[0].claimMappings.username: Required value: claim or expression is required]"
                    .to_owned(),
            ),
            (
                "--oidc-issuer-url=https://a --oidc-client-id=b --oidc-required-claim=a=b --oidc-required-claim=a=c \
                 --oidc-signing-algs=RS256,"
                    .to_owned(),
                "oidc: unsupported signing alg: \"\"".to_owned(),
            ),
            (
                format!("--service-account-issuer= --service-account-signing-key-file={key}"),
                "[service-account-issuer should not be an empty string, --service-account-signing-key-file, \
                 --service-account-issuer, and --api-audiences should be specified together]"
                    .to_owned(),
            ),
            (format!("--authentication-config={empty}"), format!("{}empty config data", loading(&empty))),
            (
                format!("--authentication-config={json}"),
                format!(
                    "{}couldn't get version/kind; json parse error: invalid character '}}' looking for beginning of object \
                     key string",
                    loading(&json)
                ),
            ),
            (
                format!("--authentication-config={twice}"),
                format!(
                    "{}strict decoding error: yaml: unmarshal errors:\n  line 4: key \"jwt\" already set in map",
                    loading(&twice)
                ),
            ),
        ] {
            let line = format!("cluster-apiserver --data-dir={} {arguments}", dir.display());
            let words = line.split_whitespace().map(OsString::from);
            let config = Config::from_flags(flags::parse(words).unwrap().flags());
            assert_eq!(config.err().map(|error| format!("{error:#}")), Some(want), "{arguments}");
        }
    }

    #[test]
    fn anonymous_requests_are_served_unless_everything_is_allowed() {
        // See docs/api/authentication.md#anonymous-requests.
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
