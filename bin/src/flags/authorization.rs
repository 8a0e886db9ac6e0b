//! Flags of authorization.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::forms::List;
use crate::flags::duration;

/// The flags that choose and configure the authorizers.
#[derive(Args, Clone, Debug)]
pub struct AuthorizationFlags {
    /// Authorizers to ask, in this order, separated by commas. Possible values: ABAC, AlwaysAllow,
    /// AlwaysDeny, Node, RBAC, Webhook. Default: RBAC.
    #[arg(long, value_name = "MODES")]
    pub authorization_mode: Vec<List>,

    /// File with the rules of the authorizer ABAC, one JSON object per line.
    #[arg(long, value_name = "FILE")]
    pub authorization_policy_file: Option<PathBuf>,

    /// Kubeconfig of the server that the authorizer Webhook asks.
    #[arg(long, value_name = "FILE")]
    pub authorization_webhook_config_file: Option<PathBuf>,

    /// API version of the SubjectAccessReview objects that the authorizer Webhook sends. Possible values: v1,
    /// v1beta1. Default: v1beta1.
    #[arg(long, value_name = "VERSION")]
    pub authorization_webhook_version: Option<String>,

    /// How long a permission from the authorizer Webhook is cached. Default: 5m0s.
    #[arg(long, value_name = "DURATION", value_parser = duration::kept, allow_hyphen_values = true)]
    pub authorization_webhook_cache_authorized_ttl: Option<Duration>,

    /// How long a refusal from the authorizer Webhook is cached. Default: 30s.
    #[arg(long, value_name = "DURATION", value_parser = duration::kept, allow_hyphen_values = true)]
    pub authorization_webhook_cache_unauthorized_ttl: Option<Duration>,

    /// Configuration of the authorizers (AuthorizationConfiguration). Replaces --authorization-mode and the
    /// --authorization-webhook-* flags. Reloaded when the file changes.
    #[arg(long, value_name = "FILE")]
    pub authorization_config: Option<PathBuf>,
}

impl AuthorizationFlags {
    /// Returns whether a flag is given that `--authorization-config` replaces.
    pub fn names_authorizers(&self) -> bool {
        !self.authorization_mode.is_empty()
            || self.authorization_webhook_config_file.is_some()
            || self.authorization_webhook_version.is_some()
            || self.authorization_webhook_cache_authorized_ttl.is_some()
            || self.authorization_webhook_cache_unauthorized_ttl.is_some()
    }
}
