//! Flags about who may come in: certificates, tokens, issuers, proxies.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::boolean;
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

    /// Further keys (PEM, private or public) that verify service account tokens. Repeatable.
    #[arg(long, value_name = "FILE")]
    pub service_account_key_file: Vec<PathBuf>,

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
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration::parse)]
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

    /// Serve requests without credentials as system:anonymous. Default: true, unless the authorization mode is
    /// AlwaysAllow.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true",
          value_parser = boolean)]
    pub anonymous_auth: Option<bool>,
}
