//! Objects stored in etcd: the checked flags, and the local copy of the objects (docs/api/etcd.md).
//!
//! The copy is in the data directory, next to a file that identifies the cluster of etcd. If the copy no
//! longer fits etcd, the server deletes it and fills a new one; no data is lost by that.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ::etcd::{Client, Config as ClientConfig, Dial, Dialing, Endpoint, Tls};
use anyhow::{Context, anyhow, bail};
use api::state::allocation::Ports;
use api::state::secrecy::Secrecy;
use engine::Engine;
use replica::{Continuation, Replica};
use types::schema::registry::Registry;
use values::naming::Naming;
use wire::outgoing::{Authorities, Egress};

use crate::config::read;
use crate::flags::{Direction, EtcdFlags};
use crate::host::files;
use crate::store::relocation;

/// Name of the directory of the copy.
pub const COPY_DIR: &str = "etcd-copy";

/// Name of the file that identifies the cluster of etcd that the copy belongs to.
const CLUSTER_FILE: &str = "etcd-cluster";

/// Maximum time of one call of etcd, with all its attempts.
const CALL_DEADLINE: Duration = Duration::from_secs(10);

/// How long the start waits for etcd, and the pause between attempts.
const START_WAIT: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(1));

/// The storage encoding of objects of built-in types.
const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// Settings of the etcd that stores the objects.
#[derive(Clone)]
pub struct EtcdConfig {
    endpoints: Vec<Endpoint>,
    tls: Option<Tls>,
    prefix: String,
    /// Resources that have an etcd of their own.
    apart: Vec<Apart>,
    /// Direction of a live move of the store, if one is configured.
    pub live: Option<Direction>,
    /// Interval between compactions of etcd; zero: this server does not compact it.
    pub compaction_interval: Duration,
    /// Timeout of health checks of etcd.
    pub check_timeout: Duration,
    /// How values are encrypted; `None`: values are not encrypted.
    secrecy: Option<Arc<Secrecy>>,
    /// How the members of etcd are reached.
    egress: Egress,
}

/// A resource that can have an etcd of its own. The few functions of the server that read it together with
/// other resources wait until the newest state of both is known.
struct Separable {
    /// Group of the resource without the suffix of the naming profile.
    group: &'static str,
    plural: &'static str,
}

const SEPARABLE: [Separable; 2] =
    [Separable { group: "", plural: "events" }, Separable { group: "coordination", plural: "leases" }];

/// A resource that is kept in an etcd of its own.
#[derive(Clone)]
struct Apart {
    resource: &'static Separable,
    endpoints: Vec<Endpoint>,
}

/// A dialer that connects to members through a proxy.
struct Proxied(Egress);

impl Dial for Proxied {
    fn dial<'d>(&'d self, host: &'d str, port: u16) -> Dialing<'d> {
        Box::pin(async move {
            let stream = self.0.connect(host, port).await.map_err(|failure| failure.to_string())?;
            Ok(Box::new(stream) as Box<dyn ::etcd::Stream>)
        })
    }
}

impl std::fmt::Debug for EtcdConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EtcdConfig").field("endpoints", &self.endpoints).finish_non_exhaustive()
    }
}

impl EtcdConfig {
    /// Checks the flags and reads the files they name; `None` without endpoints.
    ///
    /// # Errors
    /// An error of one line.
    pub fn from_flags(flags: &EtcdFlags, naming: &'static Naming) -> anyhow::Result<Option<EtcdConfig>> {
        let urls: Vec<&str> =
            flags.etcd_servers.iter().map(|url| url.trim()).filter(|url| !url.is_empty()).collect();
        check_storage(flags)?;
        let overrides = overrides(&flags.etcd_servers_overrides)?;
        if urls.is_empty() {
            if flags.live_migration.is_some() {
                bail!("--live-migration needs --etcd-servers");
            }
            return Ok(None);
        }
        let endpoints = urls.into_iter().map(Endpoint::parse).collect::<Result<Vec<_>, _>>();
        let endpoints = endpoints.map_err(|why| anyhow!("--etcd-servers: {why}"))?;
        let apart = apart(overrides, &endpoints, naming)?;
        if flags.live_migration.is_some() && !apart.is_empty() {
            bail!("--live-migration cannot be combined with --etcd-servers-overrides");
        }
        if !matches!(flags.storage_media_type.as_str(), "" | MEDIA_TYPE) {
            bail!(
                "--storage-media-type {:?} is not supported: objects are stored as {MEDIA_TYPE}",
                flags.storage_media_type
            );
        }
        let client = match (&flags.etcd_certfile, &flags.etcd_keyfile) {
            (None, None) => None,
            (Some(certificate), Some(key)) => {
                Some((read("--etcd-certfile", certificate)?, read("--etcd-keyfile", key)?))
            }
            (Some(_), None) => bail!("--etcd-certfile needs --etcd-keyfile"),
            (None, Some(_)) => bail!("--etcd-keyfile needs --etcd-certfile"),
        };
        let client = client.as_ref().map(|(certificate, key)| (&certificate[..], &key[..]));
        let tls = match &flags.etcd_cafile {
            Some(path) => {
                let wrong = |why: &str| anyhow!("--etcd-cafile {}: {why}", path.display());
                let authorities = Authorities::read(&read("--etcd-cafile", path)?);
                let authorities = authorities.map_err(|why| wrong(&why))?;
                if authorities.is_empty() {
                    return Err(wrong("no certificate in it"));
                }
                let tls = Tls::new(authorities.into_verifier(), client);
                Some(tls.map_err(|why| wrong(&why.to_string()))?)
            }
            None if endpoints.iter().any(|endpoint| endpoint.tls) => {
                bail!("--etcd-servers with https:// needs --etcd-cafile")
            }
            None if apart.iter().flat_map(|apart| &apart.endpoints).any(|endpoint| endpoint.tls) => {
                bail!("--etcd-servers-overrides with https:// needs --etcd-cafile")
            }
            None => None,
        };
        if flags.etcd_prefix.trim_matches('/').is_empty() {
            bail!("--etcd-prefix must not be empty");
        }
        let check_timeout = flags.etcd_healthcheck_timeout.min(flags.etcd_readycheck_timeout);
        if check_timeout.is_zero() {
            bail!("--etcd-healthcheck-timeout and --etcd-readycheck-timeout must be positive");
        }
        Ok(Some(EtcdConfig {
            endpoints,
            tls,
            prefix: flags.etcd_prefix.clone(),
            apart,
            live: flags.live_migration,
            compaction_interval: flags.etcd_compaction_interval,
            check_timeout,
            secrecy: None,
            egress: Egress::default(),
        }))
    }

    /// Returns these settings with another egress.
    #[must_use]
    pub fn through(self, egress: &Egress) -> EtcdConfig {
        EtcdConfig { egress: egress.clone(), ..self }
    }

    /// Returns the separate etcds, each with the names and the key prefixes of its resources.
    pub fn apart(&self, naming: &'static Naming) -> Vec<(Vec<&'static str>, Vec<String>, EtcdConfig)> {
        let registry = Registry::new(naming);
        let mut found: Vec<(Vec<&'static str>, Vec<String>, EtcdConfig)> = Vec::new();
        for Apart { resource, endpoints } in &self.apart {
            let group = naming.group(resource.group, !resource.group.is_empty());
            let Some(kept) = registry.resource(&group, "v1", resource.plural) else { continue };
            let key_prefix = kept.stored().key_prefix.clone();
            match found.iter_mut().find(|(.., etcd)| are_the_same(&etcd.endpoints, endpoints)) {
                Some((names, prefixes, _)) => {
                    names.push(resource.plural);
                    prefixes.push(key_prefix);
                }
                None => {
                    let etcd = EtcdConfig { endpoints: endpoints.clone(), apart: Vec::new(), ..self.clone() };
                    found.push((vec![resource.plural], vec![key_prefix], etcd));
                }
            }
        }
        found
    }

    /// Returns these settings for a server that moves its store out of etcd while serving it.
    #[must_use]
    pub fn moving_to_log(&self) -> EtcdConfig {
        EtcdConfig { live: Some(Direction::ToLog), ..self.clone() }
    }

    /// Returns these settings with an encryption of values.
    #[must_use]
    pub fn encrypted(&self, secrecy: Option<Arc<Secrecy>>) -> EtcdConfig {
        EtcdConfig { secrecy, ..self.clone() }
    }

    /// Creates a client; it does not connect yet.
    pub fn client(&self) -> Client {
        let (endpoints, tls) = (self.endpoints.clone(), self.tls.clone());
        let dial =
            (!self.egress.is_direct()).then(|| Arc::new(Proxied(self.egress.clone())) as Arc<dyn Dial>);
        Client::dialing(ClientConfig { endpoints, tls, deadline: CALL_DEADLINE }, dial)
    }

    /// Returns the prefix of all keys.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Opens the copy and brings it up to date with etcd. `open` opens a follower engine in a directory.
    /// `source` is the revision of the store that is being moved into etcd, if there is a move.
    ///
    /// # Errors
    /// etcd cannot be reached for a minute, or the copy cannot be stored.
    pub async fn open(
        &self,
        data_dir: &Path,
        naming: &'static Naming,
        (ports, event_ttl): (&Ports, Duration),
        source: Option<engine::Revision>,
        open: impl Fn(&Path) -> anyhow::Result<Engine>,
    ) -> anyhow::Result<(Engine, Arc<Replica>)> {
        let client = self.client();
        let (dir, cluster_file) = (data_dir.join(COPY_DIR), data_dir.join(CLUSTER_FILE));
        let replica_of = |engine: &Engine| {
            let replica = Replica::new(client.clone(), engine.clone(), naming, (&self.prefix, ports));
            Arc::new(replica.noting_leases(event_ttl).with_secrecy(self.secrecy.clone()))
        };
        let mut engine = open(&dir)?;
        let mut replica = replica_of(&engine);
        let continuation = self.asked(|| replica.continuation()).await?;
        let cluster = format!("{:016x} {}\n", client.cluster(), self.prefix);
        let known = files::read_if_there(&cluster_file)?;
        let other =
            known.as_deref() != Some(cluster.as_bytes()) && engine.revision() > engine::Revision::ZERO;
        let why = match continuation {
            Continuation::Discard(why) => Some(why),
            Continuation::Fits if !engine.losses().unaccepted_counts().is_empty() => {
                Some("it has records that cannot be read".to_owned())
            }
            Continuation::Fits if other => {
                Some("it is of another cluster, or under another prefix".to_owned())
            }
            Continuation::Fits => None,
        };
        if let Some(why) = why {
            tracing::warn!(why, "local copy of etcd is rebuilt");
            engine.close().await;
            drop(replica);
            drop(engine);
            std::fs::remove_dir_all(&dir).with_context(|| format!("cannot remove {}", dir.display()))?;
            engine = open(&dir)?;
            replica = replica_of(&engine);
        }
        let id = relocation::store_id(data_dir)?;
        match source {
            Some(source) => {
                // The check comes before the mark: an etcd whose revision cannot be raised is left unchanged.
                replica.raising(source, relocation::ROOM).await?;
                replica.claim(&id).await?;
                replica.raise(source, relocation::ROOM).await?;
            }
            None => self.check_mark(&replica, &id, data_dir).await?,
        }
        files::write_private(&cluster_file, cluster.as_bytes())?;
        replica.forget_filled().await;
        if replica.is_to_be_filled() {
            let at = self.filled(&replica).await?;
            tracing::info!(
                cluster = format!("{:x}", client.cluster()),
                revision = at.get(),
                keys = engine.stats().keys,
                "local copy of etcd filled"
            );
        }
        Ok((engine, replica))
    }

    /// Fills the copy. After an interruption it continues, as long as each attempt makes progress.
    async fn filled(&self, replica: &Arc<Replica>) -> anyhow::Result<engine::Revision> {
        loop {
            let before = replica.revision();
            match self.asked(|| replica.fill()).await {
                Err(error) if replica.revision() > before => {
                    tracing::warn!(
                        error = format!("{error:#}"),
                        revision = replica.revision().get(),
                        "filling the local copy of etcd interrupted, continuing"
                    );
                }
                ended => return ended,
            }
        }
    }

    /// Refuses an etcd that a move is filling, or that the store has left. If the mark belongs to a move of this server
    /// of which only the removal of the mark is missing, removes the mark.
    async fn check_mark(&self, replica: &Replica, id: &str, data_dir: &Path) -> anyhow::Result<()> {
        let Some((mark, _)) = self.asked(|| replica.mark()).await? else { return Ok(()) };
        if mark == format!("filling {id}") && relocation::recorded(data_dir)? == Some(relocation::Place::Etcd)
        {
            replica.claim(id).await?;
            return Ok(replica.conclude().await?);
        }
        if mark == format!("left {id}") && self.live == Some(Direction::ToLog) {
            return Ok(());
        }
        bail!("etcd has the mark of a move, {mark:?}: see docs/api/etcd.md#moving")
    }

    /// Waits until the copy has the newest state of etcd. The copy must follow etcd meanwhile.
    ///
    /// # Errors
    /// The copy is not up to date after a minute.
    pub async fn caught_up(&self, replica: &Replica) -> anyhow::Result<()> {
        let from = replica.revision();
        self.asked(|| async { replica.current().await.map_err(|status| io::Error::other(status.message)) })
            .await?;
        tracing::info!(
            from = from.get(),
            revision = replica.revision().get(),
            "local copy of etcd up to date"
        );
        Ok(())
    }

    /// Retries `ask` for a while if it fails.
    async fn asked<T, E, F>(&self, ask: impl Fn() -> F) -> anyhow::Result<T>
    where
        E: std::error::Error + Send + Sync + 'static,
        F: Future<Output = Result<T, E>>,
    {
        let until = tokio::time::Instant::now() + START_WAIT.0;
        loop {
            match ask().await {
                Ok(answer) => return Ok(answer),
                Err(error) if tokio::time::Instant::now() < until => {
                    tracing::warn!(%error, "waiting for etcd to respond");
                    tokio::time::sleep(START_WAIT.1).await;
                }
                Err(error) => return Err(error).context("etcd"),
            }
        }
    }
}

/// Forgets which cluster of etcd the copy belongs to, so that the next start fills a new copy.
///
/// # Errors
/// The file cannot be removed.
pub fn forget_cluster(data_dir: &Path) -> io::Result<()> {
    match std::fs::remove_file(data_dir.join(CLUSTER_FILE)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Checks the storage encoding.
///
/// # Errors
/// The media type is not supported.
pub fn check_storage(flags: &EtcdFlags) -> anyhow::Result<()> {
    let types = ["application/json", MEDIA_TYPE, "application/yaml"];
    let wanted = flags.storage_media_type.as_str();
    // An empty value selects the default.
    if !wanted.is_empty() && !types.contains(&wanted) {
        bail!("--storage-media-type {wanted:?} invalid, allowed values: {}", types.join(", "));
    }
    Ok(())
}

/// Returns whether both lists name the members of the same etcd.
fn are_the_same(one: &[Endpoint], other: &[Endpoint]) -> bool {
    let urls = |all: &[Endpoint]| all.iter().map(Endpoint::url).collect::<BTreeSet<_>>();
    urls(one) == urls(other)
}

/// Parses resources and the etcds that store them: `group/resource#url;url`, as in kube-apiserver.
fn overrides(texts: &[String]) -> anyhow::Result<Vec<(&str, Vec<Endpoint>)>> {
    let overrides = texts.iter().filter(|text| !text.is_empty()).map(|text| {
        let (resource, servers) = text.split_once('#')?;
        let endpoints = servers.split(';').map(Endpoint::parse).collect::<Result<Vec<_>, _>>().ok()?;
        (resource.split('/').count() == 2).then_some((resource, endpoints))
    });
    overrides.collect::<Option<Vec<_>>>().ok_or_else(|| {
        anyhow!(
            "--etcd-servers-overrides invalid, must be of format: group/resource#servers, where servers are URLs, semicolon separated"
        )
    })
}

/// Returns the resources whose etcd is not the main one.
fn apart(
    overrides: Vec<(&str, Vec<Endpoint>)>,
    main: &[Endpoint],
    naming: &'static Naming,
) -> anyhow::Result<Vec<Apart>> {
    let mut found: Vec<Apart> = Vec::new();
    for (name, endpoints) in overrides {
        let is_it = |known: &&Separable| {
            let group = naming.group(known.group, !known.group.is_empty());
            name.split_once('/') == Some((&group, known.plural))
        };
        let Some(resource) = SEPARABLE.iter().find(is_it) else {
            bail!(
                "--etcd-servers-overrides {name:?} is not supported: only /events and {}/leases can be stored in another etcd",
                naming.group("coordination", true)
            );
        };
        if found.iter().any(|other| std::ptr::eq(other.resource, resource)) {
            bail!("--etcd-servers-overrides names {name:?} twice");
        }
        found.push(Apart { resource, endpoints });
    }
    found.retain(|apart| !are_the_same(&apart.endpoints, main));
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags;
    use std::ffi::OsString;

    #[test]
    fn endpoints_and_what_goes_with_them_are_checked() {
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
            let flags = flags::parse(words.map(OsString::from)).unwrap().flags();
            let got = EtcdConfig::from_flags(&flags.etcd, flags.naming);
            match (got, want) {
                (Ok(got), Ok(want)) => assert_eq!(got.map(|config| config.endpoints.len()), want, "{line}"),
                (Err(got), Err(want)) => assert!(format!("{got:#}").contains(want), "{line}: {got:#}"),
                (got, want) => panic!("{line}: {got:?}, not {want:?}"),
            }
        }
    }

    #[test]
    fn resources_with_one_etcd_share_its_copy() {
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
            let flags = flags::parse(line.split(' ').map(OsString::from)).unwrap().flags();
            let config = EtcdConfig::from_flags(&flags.etcd, flags.naming).unwrap().unwrap();
            let apart = config.apart(flags.naming).into_iter();
            let shown =
                apart.map(|(names, prefixes, _)| format!("{} {}", names.join(" "), prefixes.join(" ")));
            assert_eq!(shown.collect::<Vec<_>>().join(", "), want, "{overrides}");
        }
    }
}
