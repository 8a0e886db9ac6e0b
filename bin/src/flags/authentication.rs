//! Flags of authentication: certificates, tokens, issuers, proxies.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::forms::{List, boolean, pair};
use crate::flags::duration;

// Not a documentation comment: clap would use it as the description of the whole command line.
#[derive(Clone, Debug, Default, Args)]
pub struct AuthenticationFlags {
    /// CA bundle (PEM) that client certificates are verified against, in addition to the server's own CA.
    /// Reloaded when the file changes.
    #[arg(long, value_name = "FILE")]
    pub client_ca_file: Option<PathBuf>,

    /// CSV file of static bearer tokens. Each line has a token, a user name, a uid, and optionally groups.
    #[arg(long, value_name = "FILE")]
    pub token_auth_file: Option<PathBuf>,

    /// Private key (PEM) that signs service account tokens. Default: a key created by the server.
    #[arg(long, value_name = "FILE")]
    pub service_account_signing_key_file: Option<PathBuf>,

    /// Socket of a process that signs service account tokens instead of the server and provides the keys that
    /// verify them.
    #[arg(long, value_name = "PATH")]
    pub service_account_signing_endpoint: Option<String>,

    /// Additional keys (PEM, private or public) that verify service account tokens. Repeatable.
    #[arg(long, value_name = "FILE")]
    // Not a path, because clap would drop an empty path, but an empty name must be reported as a missing file.
    pub service_account_key_file: Vec<OsString>,

    /// URL of the issuer of service account tokens. Repeatable: the first issuer is written into new tokens,
    /// and tokens of all issuers are accepted. Default: the address of the server's own service.
    #[arg(long, value_name = "URL")]
    pub service_account_issuer: Vec<String>,

    /// URL of the keys that verify service account tokens, as named in the discovery document. Default: an
    /// address of this server.
    #[arg(long, value_name = "URL")]
    pub service_account_jwks_uri: Option<String>,

    /// Refuse legacy service account tokens whose secret no longer exists.
    #[arg(long, value_name = "BOOL", default_value_t = true, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_parser = boolean, action = clap::ArgAction::Set)]
    pub service_account_lookup: bool,

    /// Audiences of the server, separated by commas. A service account token must be issued for one of them.
    /// Default: the issuers.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub api_audiences: Vec<String>,

    /// Longest validity of a service account token that a client requests. At least 1h; 0 means no limit.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration::parse,
          allow_hyphen_values = true)]
    pub service_account_max_token_expiration: Duration,

    /// Issue tokens that are valid for a year to clients that do not renew them.
    #[arg(long, value_name = "BOOL", default_value_t = true, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_parser = boolean, action = clap::ArgAction::Set)]
    pub service_account_extend_token_expiration: bool,

    /// Accept bootstrap tokens, which are secrets in the system namespace.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = false,
          default_missing_value = "true", value_parser = boolean, action = clap::ArgAction::Set)]
    pub enable_bootstrap_token_auth: bool,

    /// CA bundle (PEM) that the client certificate of an authenticating proxy is verified against. Requires
    /// --requestheader-username-headers. Reloaded when the file changes.
    #[arg(long, value_name = "FILE")]
    pub requestheader_client_ca_file: Option<PathBuf>,

    /// Common names that the client certificate of an authenticating proxy may have, separated by commas.
    /// Default: every name.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub requestheader_allowed_names: Vec<String>,

    /// Request headers in which an authenticating proxy sends the user name, separated by commas. The first
    /// header with a value counts.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub requestheader_username_headers: Vec<String>,

    /// Request headers in which an authenticating proxy sends the uid of the user, separated by commas.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub requestheader_uid_headers: Vec<String>,

    /// Request headers in which an authenticating proxy sends groups of the user, separated by commas.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub requestheader_group_headers: Vec<String>,

    /// Prefixes of the request headers in which an authenticating proxy sends extra values of the user,
    /// separated by commas.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub requestheader_extra_headers_prefix: Vec<String>,

    /// Configuration of token issuers and of anonymous access (AuthenticationConfiguration, YAML or JSON).
    /// Reloaded when the file changes. Cannot be combined with --oidc-* flags.
    #[arg(long, value_name = "FILE")]
    pub authentication_config: Option<PathBuf>,

    #[command(flatten)]
    pub oidc: OidcFlags,

    /// Kubeconfig of a server that verifies bearer tokens (webhook).
    #[arg(long, value_name = "FILE")]
    pub authentication_token_webhook_config_file: Option<PathBuf>,

    /// How long a response of the token webhook is cached.
    #[arg(long, value_name = "DURATION", default_value = "2m0s", value_parser = duration::kept,
          allow_hyphen_values = true)]
    pub authentication_token_webhook_cache_ttl: Duration,

    /// API version of the TokenReview objects that are sent to the token webhook. Possible values: v1,
    /// v1beta1.
    #[arg(long, value_name = "VERSION", default_value = "v1beta1")]
    pub authentication_token_webhook_version: String,

    /// Serve requests without credentials as the user system:anonymous. Default: true, unless the
    /// authorization mode is AlwaysAllow.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true",
          value_parser = boolean)]
    pub anonymous_auth: Option<bool>,
}

// Not a documentation comment: clap would use it as the description of the whole command line.
#[derive(Clone, Debug, Default, Args)]
pub struct OidcFlags {
    /// https URL of the issuer of OpenID Connect tokens. The server finds the keys of the issuer below this
    /// URL.
    #[arg(long, value_name = "URL")]
    pub oidc_issuer_url: Option<String>,

    /// Audience that tokens of the issuer must have.
    #[arg(long, value_name = "NAME")]
    pub oidc_client_id: Option<String>,

    /// CA bundle (PEM) that the certificate of the issuer is verified against. Default: the certificate
    /// authorities of the system.
    #[arg(long, value_name = "FILE")]
    // Not a path, because clap would drop an empty path, but even an empty value counts as a use of the flag.
    pub oidc_ca_file: Option<OsString>,

    /// Claim that contains the user name. Default: sub.
    #[arg(long, value_name = "CLAIM")]
    pub oidc_username_claim: Option<String>,

    /// Prefix that the server adds to user names. - means no prefix. Default: the issuer and #, unless the
    /// claim is email.
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub oidc_username_prefix: Option<String>,

    /// Claim that contains the groups of the user.
    #[arg(long, value_name = "CLAIM")]
    pub oidc_groups_claim: Option<String>,

    /// Prefix that the server adds to the names of groups.
    #[arg(long, value_name = "TEXT")]
    pub oidc_groups_prefix: Option<String>,

    /// Claim and value that tokens must have, as claim=value. Repeatable.
    #[arg(long, value_name = "PAIR", value_parser = pair)]
    pub oidc_required_claim: Vec<(String, String)>,

    /// Signature algorithms that are accepted, separated by commas. Default: RS256.
    #[arg(long, value_name = "NAMES")]
    pub oidc_signing_algs: Vec<List>,
}

impl OidcFlags {
    /// Returns whether any of the flags is given, even with an empty value.
    pub fn is_used(&self) -> bool {
        let texts = [
            &self.oidc_issuer_url,
            &self.oidc_client_id,
            &self.oidc_username_claim,
            &self.oidc_username_prefix,
            &self.oidc_groups_claim,
            &self.oidc_groups_prefix,
        ];
        texts.iter().any(|text| text.is_some())
            || self.oidc_ca_file.is_some()
            || !(self.oidc_required_claim.is_empty() && self.oidc_signing_algs.is_empty())
    }
}
