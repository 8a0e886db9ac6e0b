//! Flags about who may come in: certificates, tokens, issuers, proxies.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::forms::{List, boolean, pair};
use crate::duration;

// Not a documentation comment: clap would use it as the description of the whole command line.
#[derive(Clone, Debug, Default, Args)]
pub struct AuthenticationFlags {
    /// CA bundle (PEM) of client certificates, in addition to the server's own CA. Reloaded when it changes.
    #[arg(long, value_name = "FILE")]
    pub client_ca_file: Option<PathBuf>,

    /// CSV file of static bearer tokens: token, user, uid, and optionally groups.
    #[arg(long, value_name = "FILE")]
    pub token_auth_file: Option<PathBuf>,

    /// Private key (PEM) that signs service account tokens. Default: a key created by the server.
    #[arg(long, value_name = "FILE")]
    pub service_account_signing_key_file: Option<PathBuf>,

    /// Socket of a process that signs service account tokens instead of the server, and tells the keys that verify them.
    #[arg(long, value_name = "PATH")]
    pub service_account_signing_endpoint: Option<String>,

    /// Further keys (PEM, private or public) that verify service account tokens. Repeatable.
    #[arg(long, value_name = "FILE")]
    // The type is not a path: clap would drop an empty path, but an empty name must be reported as a missing
    // file.
    pub service_account_key_file: Vec<OsString>,

    /// Issuer of service account tokens, a URL. Repeatable: the first issues, all are accepted. Default: the address
    /// of the server's own service.
    #[arg(long, value_name = "URL")]
    pub service_account_issuer: Vec<String>,

    /// Address of the keys of service account tokens in the discovery document. Default: this server.
    #[arg(long, value_name = "URL")]
    pub service_account_jwks_uri: Option<String>,

    /// Refuse legacy service account tokens that are not in a secret any more.
    #[arg(long, value_name = "BOOL", default_value_t = true, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_parser = boolean, action = clap::ArgAction::Set)]
    pub service_account_lookup: bool,

    /// Audiences that service account tokens must be issued for, separated by commas. Default: the issuers.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub api_audiences: Vec<String>,

    /// Longest validity of a requested token, at least an hour. Default: no limit.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration::parse,
          allow_hyphen_values = true)]
    pub service_account_max_token_expiration: Duration,

    /// Issue tokens that are valid for a year to clients that do not renew them.
    #[arg(long, value_name = "BOOL", default_value_t = true, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_parser = boolean, action = clap::ArgAction::Set)]
    pub service_account_extend_token_expiration: bool,

    /// Accept bootstrap tokens, which are kept in secrets of the system namespace.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = false,
          default_missing_value = "true", value_parser = boolean, action = clap::ArgAction::Set)]
    pub enable_bootstrap_token_auth: bool,

    /// CA bundle (PEM) of the authenticating proxy. Needs --requestheader-username-headers. Reloaded when it changes.
    #[arg(long, value_name = "FILE")]
    pub requestheader_client_ca_file: Option<PathBuf>,

    /// Common names of the proxy's certificate, separated by commas. Default: every name.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub requestheader_allowed_names: Vec<String>,

    /// Headers of the proxy with the user; the first with a value counts.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub requestheader_username_headers: Vec<String>,

    /// Headers of the proxy with the uid of the user.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub requestheader_uid_headers: Vec<String>,

    /// Headers of the proxy with groups.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub requestheader_group_headers: Vec<String>,

    /// First parts of the names of headers of the proxy with extra values.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub requestheader_extra_headers_prefix: Vec<String>,

    /// File of issuers of tokens and of anonymous access. Reloaded when it changes. Not together with --oidc-* flags.
    #[arg(long, value_name = "FILE")]
    pub authentication_config: Option<PathBuf>,

    #[command(flatten)]
    pub oidc: OidcFlags,

    /// Kubeconfig file of a server that is asked about tokens.
    #[arg(long, value_name = "FILE")]
    pub authentication_token_webhook_config_file: Option<PathBuf>,

    /// How long an answer about a token is kept.
    #[arg(long, value_name = "DURATION", default_value = "2m0s", value_parser = duration::kept,
          allow_hyphen_values = true)]
    pub authentication_token_webhook_cache_ttl: Duration,

    /// Version of the reviews sent to that server. One of: v1, v1beta1.
    #[arg(long, value_name = "VERSION", default_value = "v1beta1")]
    pub authentication_token_webhook_version: String,

    /// Serve requests without credentials as system:anonymous. Default: true, unless the authorization mode is
    /// AlwaysAllow.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true",
          value_parser = boolean)]
    pub anonymous_auth: Option<bool>,
}

// Not a documentation comment: clap would use it as the description of the whole command line.
#[derive(Clone, Debug, Default, Args)]
pub struct OidcFlags {
    /// Issuer of OpenID Connect tokens, an https address below which its keys are found.
    #[arg(long, value_name = "URL")]
    pub oidc_issuer_url: Option<String>,

    /// Audience that tokens of the issuer must have.
    #[arg(long, value_name = "NAME")]
    pub oidc_client_id: Option<String>,

    /// CA bundle (PEM) of the issuer's server. Default: the authorities of the system.
    #[arg(long, value_name = "FILE")]
    // The type is not a path: clap would drop an empty path, but it matters that the flag is given.
    pub oidc_ca_file: Option<OsString>,

    /// Claim that is the user name. Default: sub.
    #[arg(long, value_name = "CLAIM")]
    pub oidc_username_claim: Option<String>,

    /// Prefix of user names; - for none. Default: the issuer and #, unless the claim is email.
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub oidc_username_prefix: Option<String>,

    /// Claim with the groups.
    #[arg(long, value_name = "CLAIM")]
    pub oidc_groups_claim: Option<String>,

    /// Prefix of groups.
    #[arg(long, value_name = "TEXT")]
    pub oidc_groups_prefix: Option<String>,

    /// Claim and value that tokens must have, as claim=value. Repeatable.
    #[arg(long, value_name = "PAIR", value_parser = pair)]
    pub oidc_required_claim: Vec<(String, String)>,

    /// Accepted signature algorithms, separated by commas. Default: RS256.
    #[arg(long, value_name = "NAMES")]
    pub oidc_signing_algs: Vec<List>,
}

impl OidcFlags {
    /// Whether any of the flags is given, be it with an empty value.
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
