//! Issuers of tokens: their flags or configuration file, the documents with their keys, and changes of the file.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use auth::authn::jws::Algorithm;
use auth::authn::jwt::file::{self, Contents};
use auth::authn::jwt::settings::{ClaimRule, IssuerSettings, JwtSettings, Mapping, Mappings, Settings};
use auth::authn::jwt::{Fetch, FetchError, Fetched, Issuer, Issuers, Provider};
use auth::authn::{Anonymous, NameDomains};
use http::{Method, Request, Uri};

use crate::flags::{OidcFlags, Profile};
use crate::https::{HttpsError, Trust};
use crate::reload::{self, Watched};

/// Time between two attempts to read a discovery document.
const DISCOVERY_INTERVAL: Duration = Duration::from_secs(10);

/// Issuers as they are configured.
#[derive(Clone, Debug)]
pub struct IssuersConfig {
    settings: Settings,
    algorithms: Vec<Algorithm>,
    /// The file they are in, if they are in one.
    file: Option<PathBuf>,
    /// Issuers of service account tokens.
    own: Vec<String>,
    naming: Profile,
}

impl IssuersConfig {
    /// Takes the flags of one issuer, or the file of all of them, and what the file says about anonymous requests.
    /// `own` are the issuers of service account tokens.
    ///
    /// # Errors
    /// One that tells all problems.
    pub fn from_flags(
        oidc: OidcFlags,
        path: Option<PathBuf>,
        own: &[String],
        naming: Profile,
    ) -> anyhow::Result<(Self, Option<Anonymous>)> {
        if path.is_some() && oidc.is_used() {
            bail!("authentication-config file and oidc-* flags are mutually exclusive");
        }
        let mut algorithms = Algorithm::ALL.to_vec();
        algorithms.sort_by_key(|algorithm| algorithm.name());
        let mut anonymous = None;
        let settings = match &path {
            Some(path) => {
                let contents = read(path, naming)?;
                contents.settings.validate(own).map_err(|why| anyhow!(why))?;
                if let Some(said) = contents.anonymous {
                    said.validate().map_err(|why| anyhow!(why))?;
                    anonymous = Some(match (said.enabled, said.paths.is_empty()) {
                        (false, _) => Anonymous::Refused,
                        (true, true) => Anonymous::Accepted,
                        (true, false) => Anonymous::OnPaths(said.paths),
                    });
                }
                contents.settings
            }
            None if oidc.is_used() => {
                algorithms = signing_algorithms(&oidc.oidc_signing_algs)?;
                let settings = Settings { jwt: vec![of_flags(oidc)?] };
                settings.validate(own).map_err(|why| anyhow!(why))?;
                settings
            }
            None => Settings::default(),
        };
        for jwt in &settings.jwt {
            let network = &jwt.issuer.egress_selector_type;
            if !network.is_empty() {
                bail!("oidc: egress lookup required with egress selector type {network:?}");
            }
        }
        Ok((IssuersConfig { settings, algorithms, file: path, own: own.to_vec(), naming }, anonymous))
    }

    /// Whether tokens of issuers may be accepted, now or after a change of the file.
    pub fn is_used(&self) -> bool {
        self.file.is_some() || !self.settings.jwt.is_empty()
    }

    /// The authenticator of these issuers. Their keys are read once [`follow`] runs.
    ///
    /// # Errors
    /// Unusable certificates.
    pub fn build(&self, domains: &NameDomains) -> anyhow::Result<Issuers> {
        Ok(Issuers::new(made(&self.settings, &self.algorithms)?, domains.clone()))
    }
}

/// Reads the configuration file.
fn read(path: &Path, naming: Profile) -> anyhow::Result<Contents> {
    let failed = || format!("failed to load authentication configuration from file \"{}\"", path.display());
    let bytes = std::fs::read(path).map_err(|error| opening(path, &error)).with_context(failed)?;
    contents(&bytes, naming).with_context(failed)
}

fn contents(bytes: &[u8], naming: Profile) -> anyhow::Result<Contents> {
    let document = api::wire::codec::yaml::parse(bytes)?;
    let mut json = Vec::new();
    api::values::json::write(&document.value, &mut json);
    let value = serde_json::from_slice(&json)?;
    let group = naming.group("apiserver.config", true);
    file::read(&String::from_utf8_lossy(bytes), &value, &group).map_err(|why| anyhow!(why))
}

/// An error of opening a file in the words of Go.
pub fn opening(path: &Path, error: &std::io::Error) -> anyhow::Error {
    let why = match error.kind() {
        std::io::ErrorKind::NotFound => "no such file or directory".to_owned(),
        std::io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        _ => error.to_string(),
    };
    anyhow!("open {}: {why}", path.display())
}

fn signing_algorithms(names: &[String]) -> anyhow::Result<Vec<Algorithm>> {
    let names: Vec<&str> = names.iter().map(String::as_str).filter(|name| !name.is_empty()).collect();
    if names.is_empty() {
        return Ok(vec![Algorithm::Rs256]);
    }
    let known = |name: &&str| {
        Algorithm::by_name(name).ok_or_else(|| anyhow!("oidc: unsupported signing alg: {name:?}"))
    };
    names.iter().map(known).collect()
}

/// The settings that the flags of one issuer stand for.
fn of_flags(flags: OidcFlags) -> anyhow::Result<JwtSettings> {
    let text = |flag: Option<String>| flag.unwrap_or_default();
    let (url, client) = (text(flags.oidc_issuer_url), text(flags.oidc_client_id));
    if url.is_empty() || client.is_empty() {
        bail!("oidc-issuer-url and oidc-client-id must be specified together when any oidc-* flags are set");
    }
    let authorities = match flags.oidc_ca_file.filter(|path| !path.as_os_str().is_empty()) {
        Some(path) => {
            let bytes = std::fs::read(&path).map_err(|error| opening(&path, &error))?;
            let text = String::from_utf8_lossy(&bytes).into_owned();
            // An empty bundle must not stand for the authorities of the system.
            if text.is_empty() { "\n".to_owned() } else { text }
        }
        None => String::new(),
    };
    let claim = flags.oidc_username_claim.filter(|claim| !claim.is_empty()).unwrap_or("sub".to_owned());
    let prefix = match text(flags.oidc_username_prefix) {
        prefix if prefix == "-" => String::new(),
        prefix if prefix.is_empty() && claim != "email" => format!("{url}#"),
        prefix => prefix,
    };
    let groups = text(flags.oidc_groups_claim);
    let required = flags.oidc_required_claim.iter().map(|pair| {
        let (claim, value) = pair.split_once('=').ok_or_else(|| {
            anyhow!(
                "invalid argument {pair:?} for \"--oidc-required-claim\" flag: malformed pair, expect string=string"
            )
        })?;
        let (claim, required_value) = (claim.to_owned(), value.to_owned());
        Ok(ClaimRule { claim, required_value, ..ClaimRule::default() })
    });
    Ok(JwtSettings {
        issuer: IssuerSettings {
            url,
            audiences: vec![client],
            certificate_authority: authorities,
            ..IssuerSettings::default()
        },
        claim_rules: required.collect::<anyhow::Result<_>>()?,
        mappings: Mappings {
            username: Mapping { claim, prefix: Some(prefix), ..Mapping::default() },
            groups: Mapping {
                claim: groups,
                prefix: Some(text(flags.oidc_groups_prefix)),
                ..Mapping::default()
            },
            ..Mappings::default()
        },
        user_rules: Vec::new(),
    })
}

fn made(settings: &Settings, algorithms: &[Algorithm]) -> anyhow::Result<Vec<Arc<Issuer>>> {
    let issuer = |jwt: &JwtSettings| {
        let IssuerSettings { url, discovery_url, certificate_authority, .. } = &jwt.issuer;
        let documents = Documents(Trust::new(certificate_authority.as_bytes(), None)?);
        let elsewhere = Some(discovery_url.as_str()).filter(|url| !url.is_empty());
        let provider = Provider::new(url, elsewhere, Arc::new(documents));
        let issuer = Issuer::new(jwt, algorithms.to_vec(), provider).map_err(|why| anyhow!(why))?;
        Ok(Arc::new(issuer))
    };
    settings.jwt.iter().map(issuer).collect()
}

/// Reads an issuer's documents over HTTPS.
struct Documents(Trust);

impl Fetch for Documents {
    fn get(&self, url: &str) -> Fetched {
        let (trust, url) = (self.0.clone(), url.to_owned());
        Box::pin(async move {
            let failed = |error: HttpsError| FetchError(error.to_string());
            let uri: Uri = url.parse().map_err(|_| failed(HttpsError::Address(url)))?;
            let request = Request::builder().method(Method::GET);
            let (status, body) = trust.ask(None, &uri, request, Vec::new()).await.map_err(failed)?;
            match status.is_success() {
                true => Ok(body.to_vec()),
                false => Err(FetchError(status.to_string())),
            }
        })
    }
}

/// Reads the keys of the issuers, and the configuration file when it changes.
pub async fn follow(config: &IssuersConfig, issuers: &Issuers) {
    discover(issuers);
    let Some(path) = &config.file else { return std::future::pending().await };
    let mut watched = Watched::new(vec![path.clone()]);
    loop {
        tokio::time::sleep(reload::BUNDLE_INTERVAL).await;
        let Some([bytes]) = watched.changed() else { continue };
        let read = contents(bytes, config.naming).and_then(|contents| {
            contents.settings.validate(&config.own).map_err(|why| anyhow!(why))?;
            made(&contents.settings, &config.algorithms)
        });
        match read {
            Ok(read) => {
                issuers.replace(read);
                discover(issuers);
                tracing::info!("authentication configuration reloaded");
            }
            Err(error) => {
                let error = format!("{error:#}");
                tracing::warn!(%error, "still using the old authentication configuration");
            }
        }
    }
}

/// Starts to read the discovery documents of all issuers; an issuer that is replaced ends its attempts.
fn discover(issuers: &Issuers) {
    for issuer in issuers.all().iter() {
        let issuer = Arc::downgrade(issuer);
        tokio::spawn(async move {
            while let Some(delay) = attempt(&issuer).await {
                tokio::time::sleep(delay).await;
            }
        });
    }
}

/// One attempt; the time until the next one, if there is to be one.
async fn attempt(issuer: &Weak<Issuer>) -> Option<Duration> {
    let issuer = issuer.upgrade()?;
    match issuer.provider().discover().await {
        Ok(()) => None,
        Err(error) => {
            tracing::warn!(issuer = issuer.url(), %error, "keys of an issuer cannot be discovered yet");
            Some(DISCOVERY_INTERVAL)
        }
    }
}
