//! Flags about what users may do.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::forms::List;
use crate::duration;

/// What users may do.
#[derive(Args, Clone, Debug)]
pub struct AuthorizationFlags {
    /// Authorizers in order, separated by commas. Any of: ABAC, AlwaysAllow, AlwaysDeny, Node, RBAC, Webhook. Default:
    /// RBAC.
    #[arg(long, value_name = "MODES")]
    pub authorization_mode: Vec<List>,

    /// Policies of the authorizer ABAC, a line each (JSON).
    #[arg(long, value_name = "FILE")]
    pub authorization_policy_file: Option<PathBuf>,

    /// Kubeconfig of the server that the authorizer Webhook asks.
    #[arg(long, value_name = "FILE")]
    pub authorization_webhook_config_file: Option<PathBuf>,

    /// Version of the reviews sent to it: v1 or v1beta1. Default: v1beta1.
    #[arg(long, value_name = "VERSION")]
    pub authorization_webhook_version: Option<String>,

    /// How long its permissions are kept. Default: 5m0s.
    #[arg(long, value_name = "DURATION", value_parser = duration::kept, allow_hyphen_values = true)]
    pub authorization_webhook_cache_authorized_ttl: Option<Duration>,

    /// How long its refusals are kept. Default: 30s.
    #[arg(long, value_name = "DURATION", value_parser = duration::kept, allow_hyphen_values = true)]
    pub authorization_webhook_cache_unauthorized_ttl: Option<Duration>,

    /// Authorizers and their settings in one file (AuthorizationConfiguration); read again when it changes.
    #[arg(long, value_name = "FILE")]
    pub authorization_config: Option<PathBuf>,
}

impl AuthorizationFlags {
    /// Whether a flag says what the configuration file says.
    pub fn names_authorizers(&self) -> bool {
        !self.authorization_mode.is_empty()
            || self.authorization_webhook_config_file.is_some()
            || self.authorization_webhook_version.is_some()
            || self.authorization_webhook_cache_authorized_ttl.is_some()
            || self.authorization_webhook_cache_unauthorized_ttl.is_some()
    }
}
