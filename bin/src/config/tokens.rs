//! Flags of service account tokens: their issuers, the keys that sign and verify them, and their lifetime.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow};
use api::state::tokens::EXTENDED_LIFETIME;
use auth::authn::{KeyError, SigningKey, VerificationKey};
use clap::Args;
use go::quote;
use go::url::Url;

use crate::config::named_file::{NamedFile, named};
use crate::flags::duration;
use crate::flags::problems::{FlagError, Problems};
use crate::flags::profile::Profile;
use crate::flags::value_parsers::boolean;

/// The lifetime in requests for tokens that the server may extend
/// (`--service-account-extend-token-expiration`).
const RENEWED_AFTER: Duration = Duration::from_secs(60 * 60 + 7);

/// Smallest and largest value of `--service-account-max-token-expiration`.
const TOKEN_LIFETIME_MAX: (Duration, Duration) = (Duration::from_secs(60 * 60), Duration::from_secs(1 << 32));

// This struct has no documentation comment, because clap would use the comment as the description of the whole command
// line.
#[derive(Clone, Debug, Default, Args)]
pub struct TokenFlags {
    /// Private key (PEM) that signs service account tokens. Default: a key created by the server.
    #[arg(long, value_name = "FILE")]
    pub service_account_signing_key_file: Option<PathBuf>,

    /// Socket of a process that signs service account tokens instead of the server and provides the keys that
    /// verify them.
    #[arg(long, value_name = "PATH")]
    pub service_account_signing_endpoint: Option<String>,

    /// Additional keys (PEM, private or public) that verify service account tokens. Repeatable.
    #[arg(long, value_name = "FILE")]
    // The type is not a path, because clap drops empty paths, but the server must report an empty name as a missing
    // file.
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
}

/// Signing and verification of service account tokens.
#[derive(Clone, Debug)]
pub struct TokenSettings {
    /// Issuers. New tokens have the first issuer, and tokens of all issuers are accepted. The list is never
    /// empty.
    pub issuers: Vec<String>,
    /// Audiences that identify this server. The list is never empty.
    pub audiences: Vec<String>,
    /// The socket of an external process that signs the tokens, if configured.
    pub endpoint: Option<String>,
    /// The configured signing key, or `None` if the server creates a key.
    pub signing_key: Option<NamedFile>,
    /// Further keys that verify tokens.
    pub keys: Vec<NamedFile>,
    /// URL of the keys in the discovery document, if configured.
    pub keys_uri: Option<String>,
    /// Whether a legacy token is only accepted if its secret exists.
    pub lookup: bool,
    /// Longest validity of a token, or `None` if it is not limited.
    pub lifetime_max: Option<Duration>,
    /// Whether clients that do not renew their token get a long-lived token.
    pub extends: bool,
}

impl TokenFlags {
    /// Returns the issuers. New tokens have the first issuer, and tokens of all issuers are accepted.
    pub fn issuers(&self, naming: Profile) -> Vec<String> {
        if self.service_account_issuer.is_empty() {
            return vec![format!("https://{}.default.svc.cluster.local", naming.word)];
        }
        self.service_account_issuer.clone()
    }

    /// Reads the files of keys, and returns the settings. Adds an error for each value and file that cannot be used.
    pub fn settings(&self, naming: Profile, problems: &mut Problems) -> Option<TokenSettings> {
        let endpoint = self.service_account_signing_endpoint.clone().filter(|path| !path.is_empty());
        if let Some(endpoint) = &endpoint {
            problems.take(self.check_endpoint_alone(endpoint))?;
        }
        let signing_key = problems.take(self.signing_key());
        let lifetime_max = problems.take(self.lifetime_max());
        self.check_issuers(problems);
        let keys_uri = self.service_account_jwks_uri.clone().filter(|uri| !uri.is_empty());
        if let Some(uri) = &keys_uri {
            problems.take(check_keys_uri(uri));
        }
        if endpoint.is_none() && self.is_incomplete() {
            let text = "--service-account-signing-key-file, --service-account-issuer, and --api-audiences should be specified \
                        together";
            problems.add(FlagError::worded("service-account-signing-key-file", "", text));
        }
        let keys = problems.take(self.keys());
        let issuers = self.issuers(naming);
        let mut audiences = self.api_audiences.clone();
        audiences.retain(|audience| !audience.is_empty());
        if audiences.is_empty() {
            audiences.clone_from(&issuers);
        }
        let extends = self.service_account_extend_token_expiration;
        if let Some(limit) = lifetime_max.flatten().filter(|_| extends) {
            warn_of_short_lifetimes(limit);
        }
        Some(TokenSettings {
            issuers,
            audiences,
            endpoint,
            signing_key: signing_key?,
            keys: keys?,
            keys_uri,
            lookup: self.service_account_lookup,
            lifetime_max: lifetime_max?,
            extends,
        })
    }

    /// Checks that no keys are configured together with an external signer, and that the socket of the signer
    /// has a valid name.
    fn check_endpoint_alone(&self, endpoint: &str) -> Result<(), FlagError> {
        let wrong = |text: String| Err(FlagError::worded("service-account-signing-endpoint", endpoint, text));
        if self.service_account_signing_key_file.as_ref().is_some_and(|path| !path.as_os_str().is_empty()) {
            return wrong(
                "service-account-signing-key-file and service-account-signing-endpoint are mutually exclusive and \
                 cannot be set at the same time"
                    .to_owned(),
            );
        }
        if !self.service_account_key_file.is_empty() {
            return wrong(
                "can't set `--service-account-signing-key-file` and/or `--service-account-key-file` with \
                 `--service-account-signing-endpoint` (They are mutually exclusive)"
                    .to_owned(),
            );
        }
        if !is_socket(endpoint) {
            return wrong(format!(
                "invalid value {} passed for `--service-account-signing-endpoint`, should be a valid location on the \
                 filesystem or must be prefixed with @ to name UDS in abstract namespace",
                quote(endpoint)
            ));
        }
        Ok(())
    }

    /// Reads the file of the signing key, if one is configured.
    fn signing_key(&self) -> Result<Option<NamedFile>, FlagError> {
        let Some(path) = &self.service_account_signing_key_file else { return Ok(None) };
        let read = || -> anyhow::Result<NamedFile> {
            let file = named(path.clone())?;
            SigningKey::from_pem(&file.bytes).map_err(|error| private_key_problem(path, &error))?;
            Ok(file)
        };
        read()
            .context("failed to parse service-account-issuer-key-file")
            .map(Some)
            .map_err(|why| FlagError::worded("service-account-signing-key-file", path.display(), why))
    }

    /// Reads the files of further keys.
    fn keys(&self) -> Result<Vec<NamedFile>, FlagError> {
        let read = |path: PathBuf| -> anyhow::Result<NamedFile> {
            let file = named(path)?;
            VerificationKey::from_pem(&file.bytes).map_err(|error| public_key_problem(&file.path, &error))?;
            Ok(file)
        };
        let paths = self.service_account_key_file.iter().map(PathBuf::from);
        let key = |path: PathBuf| {
            let path_text = path.display().to_string();
            read(path).map_err(|why| FlagError::worded("service-account-key-file", path_text, why))
        };
        paths.map(key).collect()
    }

    /// Returns the longest validity of a token, if it is limited.
    fn lifetime_max(&self) -> Result<Option<Duration>, FlagError> {
        let limit = self.service_account_max_token_expiration;
        if limit.is_zero() {
            return Ok(None);
        }
        if !(TOKEN_LIFETIME_MAX.0..=TOKEN_LIFETIME_MAX.1).contains(&limit) {
            let text = "the service-account-max-token-expiration must be between 1 hour and 2^32 seconds";
            let value = duration::duration_text(limit);
            return Err(FlagError::worded("service-account-max-token-expiration", value, text));
        }
        Ok(Some(limit))
    }

    /// Adds an error for each invalid issuer.
    fn check_issuers(&self, problems: &mut Problems) {
        let issuers = &self.service_account_issuer;
        for (at, issuer) in issuers.iter().enumerate() {
            let quoted = quote(issuer);
            let text = match Url::parse(issuer) {
                Err(why) if issuer.contains(':') => {
                    format!("service-account-issuer {quoted} contained a ':' but was not a valid URL: {why}")
                }
                _ if issuer.is_empty() => "service-account-issuer should not be an empty string".to_owned(),
                _ if issuers[..at].contains(issuer) => {
                    format!("service-account-issuer {quoted} is already specified")
                }
                _ => continue,
            };
            problems.add(FlagError::worded("service-account-issuer", issuer, text));
        }
    }

    /// Returns whether the flags of keys and issuers are incomplete, because some of them must be given
    /// together.
    fn is_incomplete(&self) -> bool {
        let has_signing_key = self.service_account_signing_key_file.is_some();
        match self.service_account_issuer.first().map(String::as_str) {
            None => false,
            Some("") => has_signing_key || !self.api_audiences.is_empty(),
            // Verification keys without a signing key are a mistake of the operator. If there are no keys at
            // all, the server creates a key.
            Some(_) => !has_signing_key && !self.service_account_key_file.is_empty(),
        }
    }
}

fn check_keys_uri(uri: &str) -> Result<(), FlagError> {
    let text = match Url::parse(uri) {
        Err(why) => format!("service-account-jwks-uri must be a valid URL: {why}"),
        Ok(parsed) if parsed.scheme() != "https" => {
            format!("service-account-jwks-uri requires https scheme, parsed as: {uri}")
        }
        Ok(_) => return Ok(()),
    };
    Err(FlagError::worded("service-account-jwks-uri", uri, text))
}

/// Logs the warnings of kube-apiserver about a lifetime limit that is too short for clients that do not renew
/// their tokens.
fn warn_of_short_lifetimes(limit: Duration) {
    let text = duration::duration_text(limit);
    if limit < RENEWED_AFTER {
        tracing::warn!(
            "service-account-extend-token-expiration is true, in order to correctly trigger safe transition logic, \
             service-account-max-token-expiration must be set longer than {} seconds (currently {text})",
            RENEWED_AFTER.as_secs()
        );
    }
    if limit < EXTENDED_LIFETIME {
        tracing::warn!(
            "service-account-extend-token-expiration is true, enabling tokens valid up to {} seconds, which is longer than \
             service-account-max-token-expiration set to {text}",
            EXTENDED_LIFETIME.as_secs()
        );
    }
}

/// Returns whether `text` is a valid name of a socket: an absolute path, or a name in the abstract namespace that
/// consists of words joined by dots.
fn is_socket(text: &str) -> bool {
    let is_word = |word: &str| {
        !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))
    };
    match text.strip_prefix('@') {
        Some(name) => name.split('.').all(is_word),
        None => text.starts_with('/') && !text.chars().any(|c| c.is_whitespace() || c.is_control()),
    }
}

/// Returns the error for a file of private keys that cannot be used. If the file has no key, the message
/// equals the message of kube-apiserver. Otherwise the message has more details.
fn private_key_problem(path: &Path, error: &KeyError) -> anyhow::Error {
    let why = match error {
        KeyError::Empty | KeyError::Pem(_) => {
            "data does not contain a valid RSA or ECDSA private key".to_owned()
        }
        KeyError::ManyPrivate(_) | KeyError::Unusable { .. } => error.to_string(),
    };
    anyhow!("error reading private key file {}: {why}", path.display())
}

/// Returns the error for a file of public keys that cannot be used, like [`private_key_problem`].
fn public_key_problem(path: &Path, error: &KeyError) -> anyhow::Error {
    let why = match error {
        KeyError::Empty | KeyError::Pem(_) => {
            "data does not contain any valid RSA or ECDSA public keys".to_owned()
        }
        KeyError::ManyPrivate(_) | KeyError::Unusable { .. } => error.to_string(),
    };
    anyhow!("error reading public key file {}: {why}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::line;
    use crate::config::Config;
    use crate::host::files::scratch::Scratch;

    #[test]
    fn the_socket_of_an_external_signer_is_a_path_or_an_abstract_name() {
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
    fn an_external_signer_excludes_flags_for_signing_keys() {
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
            let config = Config::from_flags(&line::parse(words).unwrap().flags());
            assert_eq!(config.err().map(|error| format!("{error:#}")).as_deref(), want, "{flag}");
        }
    }
}
