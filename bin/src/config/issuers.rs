//! Issuers of tokens: the flags or the configuration file of the issuers, the documents with their keys, and
//! reloads of the configuration file.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use auth::authn::jws::Algorithm;
use auth::authn::jwt::file::{self as issuers_file, AnonymousSettings, Contents};
use auth::authn::jwt::settings::{ClaimRule, IssuerSettings, JwtSettings, Mapping, Mappings, Settings};
use auth::authn::jwt::{DocumentFuture, Fetch, FetchedDocument, Issuer, Issuers};
use auth::authn::{Anonymous, NameDomains};
use clap::Args;
use futures_util::FutureExt;
use go::quote;
use go::url::Url;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Uri};
use jiff::Timestamp;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use types::features::{Feature, Features};
use wire::metrics::reloads::Reloads;
use wire::outgoing::{self, ClientTls, Credentials, Egress, Endpoint, Networks};
use wire::typed;

use crate::flags::profile::Profile;
use crate::flags::value_parsers::{List, pair};
use crate::host::authorities::system_authorities;
use crate::host::files::{self, opening};
use crate::host::reload::{self, FileGroup};
use crate::remote::freshness;

/// Pause between two attempts to read a discovery document: the first pause and the longest pause.
const DISCOVERY_INTERVAL: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));

/// Maximum number of concurrent reads of discovery documents. If one provider has many issuers, its
/// connection queue may be too short for more reads, and a rejected connection is retried only after seconds.
const DISCOVERIES_AT_ONCE: usize = 4;

/// How long a read waits for a free slot. After this time the read starts without a slot, so that an issuer
/// that hangs does not delay other issuers for long.
const DISCOVERY_TURN: Duration = Duration::from_secs(1);

/// Time limit for reading the keys of all issuers of a changed file. If the limit is exceeded, the server
/// tries the change again.
const READY_TIMEOUT: Duration = Duration::from_secs(60);

// This struct has no documentation comment, because clap would use the comment as the description of the whole command
// line.
#[derive(Clone, Debug, Default, Args)]
pub struct OidcFlags {
    /// https URL of the issuer of OpenID Connect tokens. The server reads the discovery document of the
    /// issuer below this URL.
    #[arg(long, value_name = "URL")]
    pub oidc_issuer_url: Option<String>,

    /// Audience that tokens of the issuer must have.
    #[arg(long, value_name = "NAME")]
    pub oidc_client_id: Option<String>,

    /// CA bundle (PEM) that the certificate of the issuer is verified against. Default: the certificate
    /// authorities of the system.
    #[arg(long, value_name = "FILE")]
    // The type is not a path, because clap drops empty paths, but the server must notice the flag even if its
    // value is empty.
    pub oidc_ca_file: Option<OsString>,

    /// Claim that contains the user name. Default: sub.
    #[arg(long, value_name = "CLAIM")]
    pub oidc_username_claim: Option<String>,

    /// Prefix that the server adds to user names. - means no prefix. Default: the issuer URL and #, or no
    /// prefix if the claim is email.
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
    /// Returns whether at least one of the flags is given, even with an empty value.
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

/// The sources of issuers.
pub struct IssuerSources<'f> {
    /// The flags of a single issuer.
    pub oidc: &'f OidcFlags,
    /// The configuration file of all issuers, if one is given.
    pub file: Option<&'f Path>,
    /// Issuers of service account tokens.
    pub own: &'f [String],
}

/// The configured issuers, from flags or a file.
#[derive(Clone, Debug)]
pub struct IssuersSettings {
    settings: Settings,
    algorithms: Vec<Algorithm>,
    /// The configuration file of the issuers, if there is one.
    file: Option<PathBuf>,
    /// The settings for anonymous requests in the file when the server started. These settings must not
    /// change.
    anonymous: Option<AnonymousSettings>,
    /// Issuers of service account tokens.
    own: Vec<String>,
    naming: Profile,
    networks: Networks,
    /// Whether issuers may select a network.
    may_name_networks: bool,
}

impl IssuersSettings {
    /// Checks the flags of a single issuer, or reads the file of all issuers. The file also has settings for
    /// anonymous requests.
    ///
    /// # Errors
    /// The flags or the file are invalid. The error lists all problems.
    pub fn new(
        sources: &IssuerSources<'_>,
        naming: Profile,
        networks: &Networks,
        features: &Features,
    ) -> anyhow::Result<(Self, Option<Anonymous>)> {
        let IssuerSources { oidc, file, own } = *sources;
        let may_name_networks = features.has(Feature::IssuerNetworks);
        if file.is_some() && oidc.is_used() {
            bail!("authentication-config file and oidc-* flags are mutually exclusive");
        }
        let mut algorithms = Algorithm::ALL.to_vec();
        algorithms.sort_by_key(|algorithm| algorithm.name());
        let mut in_file = None;
        let settings = match file {
            Some(path) => {
                let Contents { settings, anonymous, .. } = read(path, naming)?;
                let checked = settings.validate(own, anonymous.as_ref(), may_name_networks);
                checked.map_err(|why| anyhow!(why))?;
                in_file = anonymous;
                settings
            }
            None if oidc.is_used() => {
                let names = List::all(&oidc.oidc_signing_algs);
                let settings = Settings { jwt: vec![of_flags(oidc)?] };
                settings.validate(own, None, may_name_networks).map_err(|why| anyhow!(why))?;
                algorithms = signing_algorithms(&names)?;
                settings
            }
            None => Settings::default(),
        };
        check_networks(&settings, networks)?;
        let anonymous = in_file.as_ref().map(|given| match (given.enabled, given.paths.is_empty()) {
            (false, _) => Anonymous::Refused,
            (true, true) => Anonymous::Accepted,
            (true, false) => Anonymous::OnPaths(given.paths.clone()),
        });
        let settings = IssuersSettings {
            settings,
            algorithms,
            file: file.map(Path::to_owned),
            anonymous: in_file,
            own: own.to_vec(),
            naming,
            networks: networks.clone(),
            may_name_networks,
        };
        Ok((settings, anonymous))
    }

    /// Returns whether there are issuers, or a reload of the file may add issuers.
    pub fn is_used(&self) -> bool {
        self.file.is_some() || !self.settings.jwt.is_empty()
    }

    /// Returns the issuers in the new contents of the configuration file.
    fn changed(&self, bytes: &[u8]) -> anyhow::Result<Vec<Arc<Issuer>>> {
        let contents = contents(bytes, self.naming)?;
        let anonymous = contents.anonymous.as_ref();
        let checked = contents.settings.validate(&self.own, anonymous, self.may_name_networks);
        checked.map_err(|why| anyhow!(why))?;
        if contents.anonymous != self.anonymous {
            bail!("anonymous: Forbidden: changed from initial configuration file");
        }
        check_networks(&contents.settings, &self.networks)?;
        create_issuers(&contents.settings, &self.algorithms, &self.networks)
    }

    /// Builds the authenticator of these issuers. [`follow`] later reads the keys of the issuers.
    ///
    /// # Errors
    /// A certificate is invalid.
    pub fn build(&self, domains: &NameDomains) -> anyhow::Result<Issuers> {
        Ok(Issuers::new(create_issuers(&self.settings, &self.algorithms, &self.networks)?, domains.clone()))
    }
}

/// Reads and parses the configuration file.
fn read(path: &Path, naming: Profile) -> anyhow::Result<Contents> {
    let failed = || format!("failed to load authentication configuration from file \"{}\"", path.display());
    let bytes = files::read(path).map_err(|error| opening(path, &error)).with_context(failed)?;
    contents(&bytes, naming).with_context(failed)
}

fn contents(bytes: &[u8], naming: Profile) -> anyhow::Result<Contents> {
    if bytes.is_empty() {
        bail!("empty config data");
    }
    let document = typed::document(bytes).map_err(anyhow::Error::msg)?;
    let group = naming.group("apiserver.config", true);
    issuers_file::read(&document, &group).map_err(anyhow::Error::msg)
}

fn signing_algorithms(names: &[String]) -> anyhow::Result<Vec<Algorithm>> {
    if names.is_empty() {
        return Ok(vec![Algorithm::Rs256]);
    }
    let known = |name: &String| {
        Algorithm::by_name(name).ok_or_else(|| anyhow!("oidc: unsupported signing alg: {}", quote(name)))
    };
    names.iter().map(known).collect()
}

/// Converts the flags of a single issuer into settings.
fn of_flags(flags: &OidcFlags) -> anyhow::Result<JwtSettings> {
    let text = |flag: &Option<String>| flag.clone().unwrap_or_default();
    let (url, client) = (text(&flags.oidc_issuer_url), text(&flags.oidc_client_id));
    if url.is_empty() || client.is_empty() {
        bail!("oidc-issuer-url and oidc-client-id must be specified together when any oidc-* flags are set");
    }
    let authorities = match flags.oidc_ca_file.as_ref().filter(|path| !path.is_empty()).map(Path::new) {
        Some(path) => {
            let bytes = files::read(path).map_err(|error| opening(path, &error))?;
            let text = String::from_utf8_lossy(&bytes).into_owned();
            // An empty text would mean the CAs of the system, but an empty file must not mean that.
            if text.is_empty() { "\n".to_owned() } else { text }
        }
        None => String::new(),
    };
    let claim = flags.oidc_username_claim.clone().unwrap_or_else(|| "sub".to_owned());
    let prefix = match text(&flags.oidc_username_prefix) {
        prefix if prefix == "-" => String::new(),
        prefix if prefix.is_empty() && claim != "email" => format!("{url}#"),
        prefix => prefix,
    };
    let groups = text(&flags.oidc_groups_claim);
    // If a claim is given several times, the last value counts.
    let required: BTreeMap<String, String> = flags.oidc_required_claim.iter().cloned().collect();
    let rule = |(claim, required_value)| ClaimRule { claim, required_value, ..ClaimRule::default() };
    Ok(JwtSettings {
        issuer: IssuerSettings {
            url,
            audiences: vec![client],
            certificate_authority: authorities,
            ..IssuerSettings::default()
        },
        claim_rules: required.into_iter().map(rule).collect(),
        mappings: Mappings {
            username: Mapping { claim, prefix: Some(prefix), ..Mapping::default() },
            groups: Mapping {
                claim: groups,
                prefix: Some(text(&flags.oidc_groups_prefix)),
                ..Mapping::default()
            },
            ..Mappings::default()
        },
        user_rules: Vec::new(),
    })
}

/// Checks that no issuer selects a network, if no networks are configured.
fn check_networks(settings: &Settings, networks: &Networks) -> anyhow::Result<()> {
    let mut named = settings.jwt.iter().map(|jwt| &jwt.issuer.egress_selector_type);
    match named.find(|network| !network.is_empty()) {
        Some(network) if !networks.is_configured => {
            bail!("oidc: egress lookup required with egress selector type {network:?}")
        }
        _ => Ok(()),
    }
}

fn create_issuers(
    settings: &Settings,
    algorithms: &[Algorithm],
    networks: &Networks,
) -> anyhow::Result<Vec<Arc<Issuer>>> {
    let issuer = |jwt: &JwtSettings| {
        let egress = match jwt.issuer.egress_selector_type.as_str() {
            "cluster" => networks.cluster.clone(),
            "controlplane" => networks.control_plane.clone(),
            _ => networks.direct(),
        };
        let documents = Documents::new(jwt.issuer.certificate_authority.as_bytes(), egress)?;
        let issuer =
            Issuer::new(jwt, algorithms.to_vec(), Arc::new(documents)).map_err(|why| anyhow!(why))?;
        Ok(Arc::new(issuer))
    };
    settings.jwt.iter().map(issuer).collect()
}

/// Time limit for a request and its response, and maximum size of a document. A key set has a few thousand
/// bytes.
const DOCUMENT_TIMEOUT: Duration = Duration::from_secs(30);
const DOCUMENT_BYTES_MAX: usize = 1 << 20;

/// A client that reads the documents of an issuer over HTTPS. The client does not follow redirects, because
/// the discovery document has the URL of the keys.
struct Documents {
    tls: ClientTls,
    egress: Egress,
}

impl Documents {
    /// Creates a client that trusts the CAs of a PEM bundle, or the CAs of the system if the bundle is empty.
    fn new(authorities: &[u8], egress: Egress) -> anyhow::Result<Documents> {
        let system;
        let authorities = match authorities {
            [] => {
                system = system_authorities();
                &system
            }
            authorities => authorities,
        };
        let credentials = Credentials { authorities, ..Credentials::default() };
        let tls = ClientTls::new(&credentials).map_err(anyhow::Error::msg)?;
        Ok(Documents { tls, egress })
    }

    /// Returns the target and the headers of a request for a document.
    fn request(&self, url: &str, token: Option<&str>) -> Result<(Endpoint, HeaderMap), String> {
        let failed = |why: &str| format!("Get {}: {why}", quote(url));
        let parts = Url::parse(url).map_err(|why| format!("while calling {url}: {why}"))?;
        match parts.scheme() {
            "https" if parts.host().is_empty() => return Err(failed("http: no Host in request URL")),
            "https" => {}
            "http" => return Err(failed("this is not an https address")),
            other => return Err(failed(&format!("unsupported protocol scheme {}", quote(other)))),
        }
        let uri: Uri = url.parse().map_err(|_| failed("this is not an address"))?;
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
        if host.is_empty() {
            return Err(failed("this is not an address"));
        }
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let port = uri.port_u16().unwrap_or(443);
        let endpoint = Endpoint::at_port(host, port, path, Some(&self.tls))?.through(&self.egress);
        let mut headers = HeaderMap::new();
        if let Some(token) = token {
            let mut bearer = HeaderValue::try_from(format!("Bearer {token}"))
                .map_err(|_| "the access token cannot stand in a header".to_owned())?;
            bearer.set_sensitive(true);
            headers.insert(AUTHORIZATION, bearer);
        }
        Ok((endpoint, headers))
    }
}

impl Fetch for Documents {
    fn get(&self, url: &str, token: Option<&str>) -> DocumentFuture {
        let request = self.request(url, token);
        Box::pin(async move {
            let (endpoint, headers) = request?;
            let got = outgoing::get_at_most(&endpoint, headers, DOCUMENT_TIMEOUT, DOCUMENT_BYTES_MAX).await;
            let (head, body) = got.map_err(|failure| failure.to_string())?;
            let content_type = head.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
            Ok(FetchedDocument {
                code: head.status.as_u16(),
                status: head.status.to_string(),
                content_type: content_type.unwrap_or_default().to_owned(),
                fresh_for: freshness::lifetime(&head.headers, Timestamp::now()),
                body: body.to_vec(),
            })
        })
    }
}

/// Reads the keys of the issuers, and reloads the configuration file when it changes. If the new contents are
/// invalid, the old issuers stay in use. If keys are not available yet, the server requests them again.
pub async fn follow(config: &IssuersSettings, issuers: &Issuers, reloads: &Reloads) {
    let turns = Arc::new(Semaphore::new(DISCOVERIES_AT_ONCE));
    for issuer in issuers.all().iter() {
        tokio::spawn(discover(Arc::downgrade(issuer), turns.clone()).boxed());
    }
    let Some(path) = &config.file else { return std::future::pending().await };
    let mut watched = FileGroup::new(vec![path.clone()]);
    reloads.uses(&watched.contents()[0]);
    let mut pending = None;
    loop {
        tokio::time::sleep(reload::BUNDLE_INTERVAL).await;
        if let Some([bytes]) = watched.changed() {
            pending = Some(bytes.clone());
        }
        let Some(bytes) = &pending else { continue };
        let read = match config.changed(bytes) {
            Ok(read) => read,
            Err(error) => {
                let error = format!("{error:#}");
                tracing::warn!(
                    %error,
                    "authentication configuration not reloaded, the old one stays in use: correct the file"
                );
                reloads.failed();
                pending = None;
                continue;
            }
        };
        // The new issuers replace the old issuers only after all their keys have been read.
        let mut discovering: JoinSet<()> =
            read.iter().map(|issuer| discover(Arc::downgrade(issuer), turns.clone())).collect();
        let all = async { while discovering.join_next().await.is_some() {} };
        match tokio::time::timeout(READY_TIMEOUT, all).await {
            Ok(()) => {
                issuers.replace(read);
                reloads.succeeded(bytes);
                tracing::info!("authentication configuration reloaded");
                pending = None;
            }
            Err(_) => {
                tracing::warn!(
                    "authentication configuration not reloaded, the old one stays in use: its issuers cannot be reached"
                );
                reloads.failed();
            }
        }
    }
}

/// Reads the discovery document of an issuer. Retries until a read succeeds or the issuer is dropped.
async fn discover(issuer: Weak<Issuer>, turns: Arc<Semaphore>) {
    let mut delay = DISCOVERY_INTERVAL.0;
    loop {
        {
            let Some(issuer) = issuer.upgrade() else { return };
            let _turn = tokio::time::timeout(DISCOVERY_TURN, turns.acquire()).await;
            let Err(error) = issuer.provider().discover().await else { return };
            tracing::warn!(
                issuer = issuer.url(), %error,
                "keys of a token issuer not fetched yet: check that the server can reach the issuer"
            );
        }
        tokio::time::sleep(delay).await;
        delay = (delay * 2).min(DISCOVERY_INTERVAL.1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn issuer_documents_are_fetched_from_https_urls_only() {
        let key = rcgen::KeyPair::generate().unwrap();
        let authority = rcgen::CertificateParams::new(["a".to_owned()]).unwrap().self_signed(&key).unwrap();
        let documents = Documents::new(authority.pem().as_bytes(), Egress::default()).unwrap();
        for (url, want) in [
            ("https://a.example/b?c", None),
            ("https://[::1]:8443", None),
            ("", Some("Get \"\": unsupported protocol scheme \"\"")),
            ("/x", Some("Get \"/x\": unsupported protocol scheme \"\"")),
            ("ftp://a", Some("Get \"ftp://a\": unsupported protocol scheme \"ftp\"")),
            ("http://a", Some("Get \"http://a\": this is not an https address")),
            ("https:///b", Some("Get \"https:///b\": http: no Host in request URL")),
            (":::", Some("while calling :::: parse \":::\": missing protocol scheme")),
        ] {
            assert_eq!(documents.request(url, None).err().as_deref(), want, "{url}");
        }
    }
}
