//! Flags of authentication: certificates, static and bootstrap tokens, the token webhook, and anonymous requests.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::anyhow;
use auth::authn::Anonymous;
use auth::authn::token_file::{StaticTokens, TokenFileError};
use auth::authn::x509::CaBundle;
use clap::Args;
use types::features::Features;
use wire::outgoing::Networks;

use crate::config::issuers::{IssuerSources, IssuersSettings, OidcFlags};
use crate::config::named_file::{NamedFile, named};
use crate::config::proxy::{ProxyFlags, ProxySettings, check_bundle};
use crate::config::tokens::{TokenFlags, TokenSettings};
use crate::flags::duration;
use crate::flags::problems::{FlagError, Problems, path_text};
use crate::flags::profile::Profile;
use crate::flags::value_parsers::boolean;
use crate::remote::webhooks::TokenWebhook;

// This struct has no documentation comment, because clap would use the comment as the description of the whole command
// line.
#[derive(Clone, Debug, Default, Args)]
pub struct AuthenticationFlags {
    /// CA bundle (PEM) that client certificates are verified against, in addition to the server's own CA.
    /// Reloaded when the file changes.
    #[arg(long, value_name = "FILE")]
    pub client_ca_file: Option<PathBuf>,

    /// CSV file of static bearer tokens. Each line has a token, a user name, a uid, and optionally groups.
    #[arg(long, value_name = "FILE")]
    pub token_auth_file: Option<PathBuf>,

    /// Accept bootstrap tokens, which are secrets in the system namespace.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = false,
          default_missing_value = "true", value_parser = boolean, action = clap::ArgAction::Set)]
    pub enable_bootstrap_token_auth: bool,

    /// Configuration of token issuers and of anonymous access (AuthenticationConfiguration, YAML or JSON).
    /// Reloaded when the file changes. Cannot be combined with --oidc-* flags.
    #[arg(long, value_name = "FILE")]
    pub authentication_config: Option<PathBuf>,

    /// Kubeconfig of a server that verifies bearer tokens (webhook).
    #[arg(long, value_name = "FILE")]
    pub authentication_token_webhook_config_file: Option<PathBuf>,

    /// How long a response of the token webhook is cached.
    #[arg(long, value_name = "DURATION", default_value = "2m0s", value_parser = duration::parse_clamped,
          allow_hyphen_values = true)]
    pub authentication_token_webhook_cache_ttl: Duration,

    /// API version of the TokenReview objects that are sent to the token webhook. Possible values: v1,
    /// v1beta1.
    #[arg(long, value_name = "VERSION", default_value = "v1beta1")]
    pub authentication_token_webhook_version: String,

    /// Serve requests without credentials as the user system:anonymous. Default: true, or false if the
    /// authorization mode is AlwaysAllow.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true",
          value_parser = boolean)]
    pub anonymous_auth: Option<bool>,

    #[command(flatten, next_help_heading = "Service account tokens")]
    pub tokens: TokenFlags,

    #[command(flatten, next_help_heading = "Authenticating proxy")]
    pub proxy: ProxyFlags,

    #[command(flatten, next_help_heading = "OpenID Connect")]
    pub oidc: OidcFlags,
}

/// Settings of the authenticators.
#[derive(Clone, Debug)]
pub struct AuthenticationSettings {
    /// CAs of client certificates, in addition to the server's own CA.
    pub client_ca: Option<NamedFile>,
    /// The authenticating proxy, if one is configured.
    pub proxy: Option<ProxySettings>,
    /// Static bearer tokens, if a file of tokens is configured.
    pub token_auth: Option<StaticTokens>,
    /// Signing and verification of service account tokens.
    pub tokens: TokenSettings,
    /// Whether bootstrap tokens are accepted.
    pub bootstrap_tokens: bool,
    /// Issuers whose tokens are accepted.
    pub issuers: IssuersSettings,
    /// The server to which token reviews are sent, if one is configured.
    pub webhook: Option<TokenWebhook>,
    /// The requests that are served without credentials.
    pub anonymous: Anonymous,
}

/// Settings of other groups of flags that authentication depends on.
#[derive(Clone, Copy)]
pub struct Surroundings<'s> {
    /// The naming profile of the store.
    pub naming: Profile,
    /// Whether one of the authorizers allows every request.
    pub allows_all: bool,
    /// The networks through which issuers and the webhook are reached.
    pub networks: &'s Networks,
    /// The feature gates, with their values.
    pub features: &'s Features,
}

impl AuthenticationFlags {
    /// Reads the files that the flags name, and returns the settings. Adds an error for each value and file that cannot
    /// be used.
    pub fn settings(
        &self,
        given: Surroundings<'_>,
        problems: &mut Problems,
    ) -> Option<AuthenticationSettings> {
        let Surroundings { naming, networks, features, .. } = given;
        let file = self.authentication_config.as_deref();
        let sources = IssuerSources { oidc: &self.oidc, file, own: &self.tokens.issuers(naming) };
        let issuers = problems.take_for(
            if file.is_some() { "authentication-config" } else { "oidc-issuer-url" },
            file.map_or_else(
                || self.oidc.oidc_issuer_url.clone().unwrap_or_default(),
                |path| path_text(Some(path)),
            ),
            IssuersSettings::new(&sources, naming, networks, features),
        );
        let tokens = self.tokens.settings(naming, problems);
        self.proxy.check_names(problems);
        let client_ca = problems.take(self.client_ca());
        let clients = client_ca.as_ref().and_then(Option::as_ref).map(|clients| &clients.bundle);
        let proxy = problems.take(self.proxy.settings(clients));
        let token_auth = problems.take(self.token_auth());
        let path = self.authentication_token_webhook_config_file.clone();
        let webhook = problems.take_for(
            "authentication-token-webhook-config-file",
            path_text(path.as_deref()),
            TokenWebhook::read(
                path,
                &self.authentication_token_webhook_version,
                self.authentication_token_webhook_cache_ttl,
                &networks.control_plane,
            ),
        );
        let (issuers, anonymous) = issuers?;
        let anonymous = problems.take(self.anonymous(anonymous, given.allows_all));
        Some(AuthenticationSettings {
            client_ca: client_ca?.map(|clients| clients.file),
            proxy: proxy?,
            token_auth: token_auth?,
            tokens: tokens?,
            bootstrap_tokens: self.enable_bootstrap_token_auth,
            issuers,
            webhook: webhook?,
            anonymous: anonymous?,
        })
    }

    /// Reads the CA bundle of client certificates, if one is configured.
    fn client_ca(&self) -> Result<Option<ClientAuthorities>, FlagError> {
        let Some(path) = &self.client_ca_file else { return Ok(None) };
        let read = || -> anyhow::Result<ClientAuthorities> {
            let file = named(path.clone())?;
            let bundle = check_bundle("client-ca-bundle", &file)?;
            Ok(ClientAuthorities { file, bundle })
        };
        read().map(Some).map_err(|why| FlagError::worded("client-ca-file", path.display(), why))
    }

    /// Reads the file of static bearer tokens, if one is configured.
    fn token_auth(&self) -> Result<Option<StaticTokens>, FlagError> {
        let Some(path) = &self.token_auth_file else { return Ok(None) };
        let read = || -> anyhow::Result<StaticTokens> {
            let NamedFile { path, bytes } = named(path.clone())?;
            let tokens = StaticTokens::parse(&bytes).map_err(|error| match error {
                TokenFileError::TooFewColumns(_) => anyhow!("token file '{}' {error}", path.display()),
                TokenFileError::Syntax { .. } | TokenFileError::NotText { .. } => anyhow!("{error}"),
            })?;
            for doubt in tokens.doubts() {
                tracing::warn!(file = %path.display(), "token file: {doubt}");
            }
            Ok(tokens)
        };
        read().map(Some).map_err(|why| FlagError::worded("token-auth-file", path.display(), why))
    }

    /// Returns which requests are served without credentials. `in_file` is the setting in the authentication
    /// configuration file.
    fn anonymous(&self, in_file: Option<Anonymous>, allows_all: bool) -> Result<Anonymous, FlagError> {
        match (in_file, self.anonymous_auth) {
            (Some(_), Some(given)) => {
                let text = "anonymous: Forbidden: --anonymous-auth flag cannot be set when anonymous field is configured in \
                            authentication configuration file";
                Err(FlagError::worded("anonymous-auth", given, text))
            }
            (Some(anonymous), None) => Ok(anonymous),
            // With AlwaysAllow, an anonymous user could do everything, so anonymous requests are refused
            // (docs/api/authentication.md#anonymous-requests).
            (None, given) if given.unwrap_or(true) && !allows_all => Ok(Anonymous::Accepted),
            (None, _) => Ok(Anonymous::Refused),
        }
    }
}

/// The CA bundle of client certificates: its file, and the parsed certificates.
struct ClientAuthorities {
    file: NamedFile,
    bundle: CaBundle,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::line;
    use crate::config::Config;
    use crate::host::files::scratch::Scratch;
    use std::ffi::OsString;

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
            let config = Config::from_flags(&line::parse(words).unwrap().flags());
            assert_eq!(config.err().map(|error| format!("{error:#}")), Some(want), "{arguments}");
        }
    }

    #[test]
    fn anonymous_requests_are_accepted_unless_the_mode_is_always_allow() {
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
            let config = Config::from_flags(&line::parse(words).unwrap().flags()).unwrap();
            assert_eq!(config.authentication.anonymous, want, "{arguments}");
        }
    }
}
