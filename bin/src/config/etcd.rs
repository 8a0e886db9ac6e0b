//! Flags of the connection to etcd, with the names that kube-apiserver uses (docs/api/etcd.md).

use std::path::{Path, PathBuf};
use std::time::Duration;

use ::etcd::{Endpoint, Tls};
use clap::Args;
use values::naming::Naming;
use wire::outgoing::{Authorities, Egress};

use crate::flags::duration;
use crate::flags::problems::FlagError;
use crate::host::files;
use crate::store::etcd::{EtcdSettings, SEPARABLE, SeparableResource, SeparateResource, are_the_same};
use crate::store::location::Direction;

/// The storage encoding of objects of built-in types.
const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

// The comments of the structs below are not documentation comments, because clap would use a documentation comment as
// the description of the whole command line.

// The flags of a client of etcd, which the server and the command `migrate` share.
#[derive(Clone, Debug, Args)]
pub struct EtcdClientFlags {
    /// Prefix of all keys in etcd, or in a snapshot of etcd.
    #[arg(long, value_name = "PREFIX", default_value = "/registry")]
    pub etcd_prefix: String,

    /// CA bundle (PEM) that the certificates of etcd are verified against.
    #[arg(long, value_name = "FILE")]
    pub etcd_cafile: Option<PathBuf>,

    /// Client certificate (PEM) to present to etcd.
    #[arg(long, value_name = "FILE")]
    pub etcd_certfile: Option<PathBuf>,

    /// Private key (PEM) of --etcd-certfile.
    #[arg(long, value_name = "FILE")]
    pub etcd_keyfile: Option<PathBuf>,
}

// The flags of a server that stores objects in etcd.
#[derive(Clone, Debug, Args)]
pub struct EtcdFlags {
    /// Endpoints of etcd (scheme://host:port, separated by commas). With this flag, objects are stored in
    /// etcd, which several servers can share. Without this flag, objects are stored in the server's own
    /// store.
    #[arg(long, value_name = "URLS", value_delimiter = ',')]
    pub etcd_servers: Vec<String>,

    #[command(flatten)]
    pub client: EtcdClientFlags,

    /// Resources that are stored in another etcd, as group/resource#url;url, separated by commas. Only events
    /// and leases can be stored in another etcd.
    #[arg(long, value_name = "OVERRIDES", value_delimiter = ',')]
    pub etcd_servers_overrides: Vec<String>,

    /// Move the store while the server serves it, and then serve it from the new location. to-etcd moves the store from
    /// the server's own log to --etcd-servers. to-log moves the store from --etcd-servers to the server's own log.
    /// Possible values: to-etcd, to-log.
    #[arg(long, value_name = "DIRECTION", value_parser = direction)]
    pub live_migration: Option<Direction>,

    /// How often this server compacts etcd. 0 means that this server does not compact etcd, so another
    /// program must do so.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration::parse_clamped)]
    pub etcd_compaction_interval: Duration,

    /// How long the health check waits for a response of etcd.
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = duration::parse_clamped)]
    pub etcd_healthcheck_timeout: Duration,

    /// How long the readiness check waits for a response of etcd.
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = duration::parse_clamped)]
    pub etcd_readycheck_timeout: Duration,

    /// Encoding of objects of built-in types in etcd. Possible value: application/vnd.kubernetes.protobuf.
    #[arg(long, value_name = "TYPE", default_value = "application/vnd.kubernetes.protobuf")]
    pub storage_media_type: String,
}

impl EtcdFlags {
    /// Returns the flags with these endpoints, and with the defaults of all other flags.
    pub fn with_endpoints(endpoints: &str, client: EtcdClientFlags) -> EtcdFlags {
        EtcdFlags {
            etcd_servers: endpoints.split(',').map(str::to_owned).collect(),
            client,
            etcd_servers_overrides: Vec::new(),
            live_migration: None,
            etcd_compaction_interval: Duration::from_secs(300),
            etcd_healthcheck_timeout: Duration::from_secs(2),
            etcd_readycheck_timeout: Duration::from_secs(2),
            storage_media_type: MEDIA_TYPE.to_owned(),
        }
    }
}

fn direction(text: &str) -> Result<Direction, String> {
    match text {
        "to-etcd" => Ok(Direction::ToEtcd),
        "to-log" => Ok(Direction::ToLog),
        _ => Err("must be to-etcd or to-log".to_owned()),
    }
}

impl EtcdFlags {
    /// Reads the files that the flags name, and returns the settings, or `None` if no endpoints are given.
    ///
    /// # Errors
    /// A value is invalid, two flags contradict each other, or a file cannot be used.
    pub fn settings(
        &self,
        naming: &'static Naming,
        egress: &Egress,
    ) -> Result<Option<EtcdSettings>, FlagError> {
        let urls: Vec<&str> =
            self.etcd_servers.iter().map(|url| url.trim()).filter(|url| !url.is_empty()).collect();
        self.check_storage()?;
        let overrides = overrides(&self.etcd_servers_overrides)?;
        if urls.is_empty() {
            return match self.live_migration {
                Some(_) => Err(together("live-migration", "--live-migration needs --etcd-servers")),
                None => Ok(None),
            };
        }
        let endpoints = urls.into_iter().map(Endpoint::parse).collect::<Result<Vec<_>, _>>();
        let servers = self.etcd_servers.join(",");
        let endpoints = endpoints.map_err(|why| {
            FlagError::worded("etcd-servers", servers, format_args!("--etcd-servers: {why}"))
        })?;
        let apart = separately_stored(overrides, &endpoints, naming)?;
        self.check_single(&apart)?;
        let tls = self.tls(&endpoints, &apart)?;
        let check_timeout = self.etcd_healthcheck_timeout.min(self.etcd_readycheck_timeout);
        if check_timeout.is_zero() {
            let text = "--etcd-healthcheck-timeout and --etcd-readycheck-timeout must be positive";
            return Err(FlagError::worded("etcd-healthcheck-timeout", "0", text));
        }
        Ok(Some(EtcdSettings {
            endpoints,
            tls,
            prefix: self.client.etcd_prefix.clone(),
            apart,
            live: self.live_migration,
            compaction_interval: self.etcd_compaction_interval,
            check_timeout,
            secrecy: None,
            egress: egress.clone(),
        }))
    }

    /// Checks the storage encoding, even if no endpoints are given.
    ///
    /// # Errors
    /// The media type is unknown.
    pub fn check_storage(&self) -> Result<(), FlagError> {
        let types = ["application/json", MEDIA_TYPE, "application/yaml"];
        let media_type = self.storage_media_type.as_str();
        // An empty value selects the default.
        if !media_type.is_empty() && !types.contains(&media_type) {
            let types = types.join(", ");
            let text = format!("--storage-media-type {media_type:?} invalid, allowed values: {types}");
            return Err(FlagError::worded("storage-media-type", media_type, text));
        }
        Ok(())
    }

    /// Checks the flags that have a single value.
    fn check_single(&self, apart: &[SeparateResource]) -> Result<(), FlagError> {
        if self.live_migration.is_some() && !apart.is_empty() {
            let text = "--live-migration cannot be combined with --etcd-servers-overrides";
            return Err(together("live-migration", text));
        }
        let encoding = self.storage_media_type.as_str();
        if !matches!(encoding, "" | MEDIA_TYPE) {
            let text = format!(
                "--storage-media-type {encoding:?} is not supported: objects are stored as {MEDIA_TYPE}"
            );
            return Err(FlagError::worded("storage-media-type", encoding, text));
        }
        if self.client.etcd_prefix.trim_matches('/').is_empty() {
            let text = "--etcd-prefix must not be empty";
            return Err(FlagError::worded("etcd-prefix", &self.client.etcd_prefix, text));
        }
        Ok(())
    }

    /// Returns the credentials of connections, or `None` if connections are not encrypted.
    fn tls(&self, endpoints: &[Endpoint], apart: &[SeparateResource]) -> Result<Option<Tls>, FlagError> {
        let client = match (&self.client.etcd_certfile, &self.client.etcd_keyfile) {
            (None, None) => None,
            (Some(certificate), Some(key)) => {
                Some((read("etcd-certfile", certificate)?, read("etcd-keyfile", key)?))
            }
            (Some(_), None) => return Err(together("etcd-certfile", "--etcd-certfile needs --etcd-keyfile")),
            (None, Some(_)) => return Err(together("etcd-keyfile", "--etcd-keyfile needs --etcd-certfile")),
        };
        let client = client.as_ref().map(|(certificate, key)| (&certificate[..], &key[..]));
        if let Some(path) = &self.client.etcd_cafile {
            let wrong = |why: &str| {
                let text = format!("--etcd-cafile {}: {why}", path.display());
                FlagError::worded("etcd-cafile", path.display(), text)
            };
            let authorities = Authorities::read(&read("etcd-cafile", path)?);
            let authorities = authorities.map_err(|why| wrong(&why))?;
            if authorities.is_empty() {
                return Err(wrong("no certificate in it"));
            }
            let tls = Tls::new(authorities.into_verifier(), client);
            return tls.map(Some).map_err(|why| wrong(&why.to_string()));
        }
        if endpoints.iter().any(|endpoint| endpoint.tls) {
            return Err(together("etcd-servers", "--etcd-servers with https:// needs --etcd-cafile"));
        }
        if apart.iter().flat_map(|apart| &apart.endpoints).any(|endpoint| endpoint.tls) {
            let text = "--etcd-servers-overrides with https:// needs --etcd-cafile";
            return Err(together("etcd-servers-overrides", text));
        }
        Ok(None)
    }
}

/// Returns the error of a flag that requires or excludes another flag.
fn together(flag: &str, text: &str) -> FlagError {
    FlagError::worded(flag, "", text)
}

/// Reads the file that a flag names.
fn read(flag: &str, path: &Path) -> Result<Vec<u8>, FlagError> {
    files::read(path).map_err(|error| {
        FlagError::worded(flag, path.display(), format_args!("--{flag} {}: {error}", path.display()))
    })
}

/// Parses resources and the endpoints of the etcd that stores them: `group/resource#url;url`, as in
/// kube-apiserver.
fn overrides(texts: &[String]) -> Result<Vec<(&str, Vec<Endpoint>)>, FlagError> {
    let overrides = texts.iter().filter(|text| !text.is_empty()).map(|text| {
        let (resource, servers) = text.split_once('#')?;
        let endpoints = servers.split(';').map(Endpoint::parse).collect::<Result<Vec<_>, _>>().ok()?;
        (resource.split('/').count() == 2).then_some((resource, endpoints))
    });
    overrides.collect::<Option<Vec<_>>>().ok_or_else(|| {
        FlagError::worded(
            "etcd-servers-overrides",
            texts.join(","),
            "--etcd-servers-overrides invalid, must be of format: group/resource#servers, where servers are URLs, semicolon separated",
        )
    })
}

/// Returns the resources that are not stored in the main etcd.
fn separately_stored(
    overrides: Vec<(&str, Vec<Endpoint>)>,
    main: &[Endpoint],
    naming: &'static Naming,
) -> Result<Vec<SeparateResource>, FlagError> {
    let wrong = |name: &str, text: String| FlagError::worded("etcd-servers-overrides", name, text);
    let mut found: Vec<SeparateResource> = Vec::new();
    for (name, endpoints) in overrides {
        let is_it = |known: &&SeparableResource| {
            let group = naming.group(known.group, !known.group.is_empty());
            name.split_once('/') == Some((&group, known.plural))
        };
        let Some(resource) = SEPARABLE.iter().find(is_it) else {
            let leases = naming.group("coordination", true);
            let text = format!(
                "--etcd-servers-overrides {name:?} is not supported: only /events and {leases}/leases can be stored in another etcd"
            );
            return Err(wrong(name, text));
        };
        if found.iter().any(|other| std::ptr::eq(other.resource, resource)) {
            return Err(wrong(name, format!("--etcd-servers-overrides names {name:?} twice")));
        }
        found.push(SeparateResource { resource, endpoints });
    }
    found.retain(|apart| !are_the_same(&apart.endpoints, main));
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::line;
    use std::ffi::OsString;

    #[test]
    fn etcd_endpoints_and_their_certificates_are_validated() {
        let missing = "No such file or directory (os error 2)";
        for (line, want) in [
            ("", Ok(None)),
            ("--etcd-servers=http://127.0.0.1:2379,http://b", Ok(Some(2))),
            ("--etcd-servers=b:2379", Err("--etcd-servers: endpoint \"b:2379\": no http:// or https:// URL")),
            ("--etcd-servers=https://b", Err("--etcd-servers with https:// needs --etcd-cafile")),
            ("--etcd-servers=https://b --etcd-cafile=none", Err(missing)),
            ("--etcd-servers=http://b --etcd-certfile=none", Err("--etcd-certfile needs --etcd-keyfile")),
            ("--etcd-servers=http://b --etcd-prefix=/", Err("--etcd-prefix must not be empty")),
            ("--etcd-servers=http://b --storage-media-type=application/json", Err("is not supported")),
            ("--etcd-servers-overrides=/events#http://c", Ok(None)),
            ("--etcd-servers-overrides=/pods#http://c", Ok(None)),
            ("--etcd-servers-overrides=events", Err("invalid, must be of format")),
            ("--etcd-servers=http://b --etcd-servers-overrides=/events#http://c;http://d", Ok(Some(1))),
            (
                "--etcd-servers=http://b --etcd-servers-overrides=/pods#http://c",
                Err("only /events and coordination.cluster.io/leases can be stored in another etcd"),
            ),
            (
                "--etcd-servers=http://b --etcd-servers-overrides=/events#http://c,/events#http://d",
                Err("names \"/events\" twice"),
            ),
            (
                "--etcd-servers=http://b --etcd-servers-overrides=/events#https://c",
                Err("--etcd-servers-overrides with https:// needs --etcd-cafile"),
            ),
            (
                "--etcd-servers=http://b --etcd-servers-overrides=/events#http://c --live-migration=to-log",
                Err("cannot be combined with --etcd-servers-overrides"),
            ),
            ("--etcd-servers=http://b --etcd-healthcheck-timeout=0s", Err("must be positive")),
        ] {
            let words = std::iter::once("cluster-apiserver").chain(line.split_whitespace());
            let flags = line::parse(words.map(OsString::from)).unwrap().flags();
            let got = flags.etcd.settings(flags.store.naming, &Egress::default());
            match (got, want) {
                (Ok(got), Ok(want)) => assert_eq!(got.map(|config| config.endpoints.len()), want, "{line}"),
                (Err(got), Err(want)) => assert!(format!("{got:#}").contains(want), "{line}: {got:#}"),
                (got, want) => panic!("{line}: {got:?}, not {want:?}"),
            }
        }
    }

    #[test]
    fn resources_with_the_same_etcd_override_share_one_copy() {
        for (overrides, want) in [
            (
                "/events#http://c;http://d,coordination.k8s.io/leases#http://d;http://c",
                "events leases /core/events/ /coordination/leases/",
            ),
            (
                "/events#http://c,coordination.k8s.io/leases#http://d",
                "events /core/events/, leases /coordination/leases/",
            ),
            ("/events#http://b,coordination.k8s.io/leases#http://d", "leases /coordination/leases/"),
        ] {
            let line =
                format!("x --naming=kubernetes --etcd-servers=http://b --etcd-servers-overrides={overrides}");
            let flags = line::parse(line.split(' ').map(OsString::from)).unwrap().flags();
            let config = flags.etcd.settings(flags.store.naming, &Egress::default()).unwrap().unwrap();
            let apart = config.apart(flags.store.naming).into_iter();
            let shown =
                apart.map(|(names, prefixes, _)| format!("{} {}", names.join(" "), prefixes.join(" ")));
            assert_eq!(shown.collect::<Vec<_>>().join(", "), want, "{overrides}");
        }
    }
}
