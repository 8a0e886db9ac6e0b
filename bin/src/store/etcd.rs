//! The local copy of the objects in an etcd (docs/api/etcd.md).
//!
//! The copy is in the data directory, next to a file that identifies the etcd cluster. If the copy no longer fits etcd,
//! the server deletes it and fills a new copy. No data is lost, because etcd has all objects.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ::etcd::{Client, Config as ClientConfig, Dial, Dialing, Endpoint, Tls};
use anyhow::{Context, bail};
use api::state::allocation::Ports;
use api::state::secrecy::Secrecy;
use engine::Engine;
use replica::{Continuation, Replica};
use types::schema::registry::Registry;
use values::naming::Naming;
use wire::outgoing::Egress;

use crate::host::files;
use crate::store::location::{Direction, StoreLocation, recorded, store_id};

/// Name of the directory of the copy.
pub const COPY_DIR: &str = "etcd-copy";

/// Name of the file that identifies the etcd cluster to which the copy belongs.
const CLUSTER_FILE: &str = "etcd-cluster";

/// Maximum time of one call of etcd, including all attempts.
const CALL_DEADLINE: Duration = Duration::from_secs(10);

/// How long the start waits for etcd, and the pause between two attempts.
const START_WAIT: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(1));

/// Difference between the revision of the source and the revision of the first object in etcd. During the
/// move, the source may use the revisions in between for its writes.
pub const ROOM: u64 = 2000;

/// Properties of the objects in a copy, from the flags of the server.
#[derive(Clone, Copy, Debug)]
pub struct CopyLimits {
    /// The naming profile of the objects.
    pub naming: &'static Naming,
    /// The node ports that services may have.
    pub ports: Ports,
    /// The lifetime of events; 0 means that events have no lease.
    pub event_ttl: Duration,
}

/// Settings of the etcd that stores the objects.
#[derive(Clone)]
pub struct EtcdSettings {
    /// The members of the etcd.
    pub endpoints: Vec<Endpoint>,
    /// Credentials of connections, or `None` if connections are not encrypted.
    pub tls: Option<Tls>,
    /// The prefix of all keys.
    pub prefix: String,
    /// Resources that are stored in a separate etcd.
    pub apart: Vec<SeparateResource>,
    /// Direction of a live move of the store, if one is configured.
    pub live: Option<Direction>,
    /// Interval between compactions of etcd. Zero means that this server does not compact etcd.
    pub compaction_interval: Duration,
    /// Timeout of health checks of etcd.
    pub check_timeout: Duration,
    /// The encryption of values; `None` if values are not encrypted.
    pub secrecy: Option<Arc<Secrecy>>,
    /// The egress for connections to the members of etcd.
    pub egress: Egress,
}

/// A resource that can be stored in a separate etcd. A few functions of the server read such a resource together with
/// other resources. These functions wait until the newest states of both etcd clusters are known.
pub struct SeparableResource {
    /// Group of the resource without the suffix of the naming profile.
    pub group: &'static str,
    /// Plural name of the resource.
    pub plural: &'static str,
}

/// The resources that can be stored in a separate etcd.
pub const SEPARABLE: [SeparableResource; 2] = [
    SeparableResource { group: "", plural: "events" },
    SeparableResource { group: "coordination", plural: "leases" },
];

/// A resource that is stored in a separate etcd.
#[derive(Clone)]
pub struct SeparateResource {
    /// The resource that is not stored in the main etcd.
    pub resource: &'static SeparableResource,
    /// The members of the etcd cluster that stores the resource.
    pub endpoints: Vec<Endpoint>,
}

/// A dialer that connects to members of etcd through an egress proxy.
struct Proxied(Egress);

impl Dial for Proxied {
    fn dial<'d>(&'d self, host: &'d str, port: u16) -> Dialing<'d> {
        Box::pin(async move {
            let stream = self.0.connect(host, port).await.map_err(|failure| failure.to_string())?;
            Ok(Box::new(stream) as Box<dyn ::etcd::Stream>)
        })
    }
}

impl std::fmt::Debug for EtcdSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EtcdSettings").field("endpoints", &self.endpoints).finish_non_exhaustive()
    }
}

impl EtcdSettings {
    /// Returns the settings of each separate etcd, with the names and the key prefixes of its resources.
    pub fn apart(&self, naming: &'static Naming) -> Vec<(Vec<&'static str>, Vec<String>, EtcdSettings)> {
        let registry = Registry::new(naming);
        let mut found: Vec<(Vec<&'static str>, Vec<String>, EtcdSettings)> = Vec::new();
        for SeparateResource { resource, endpoints } in &self.apart {
            let group = naming.group(resource.group, !resource.group.is_empty());
            let Some(kept) = registry.resource(&group, "v1", resource.plural) else { continue };
            let key_prefix = kept.stored().key_prefix.clone();
            match found.iter_mut().find(|(.., etcd)| are_the_same(&etcd.endpoints, endpoints)) {
                Some((names, prefixes, _)) => {
                    names.push(resource.plural);
                    prefixes.push(key_prefix);
                }
                None => {
                    let etcd =
                        EtcdSettings { endpoints: endpoints.clone(), apart: Vec::new(), ..self.clone() };
                    found.push((vec![resource.plural], vec![key_prefix], etcd));
                }
            }
        }
        found
    }

    /// Returns these settings for a live move from etcd to the server's own log.
    #[must_use]
    pub fn moving_to_log(&self) -> EtcdSettings {
        EtcdSettings { live: Some(Direction::ToLog), ..self.clone() }
    }

    /// Returns these settings with an encryption of values.
    #[must_use]
    pub fn encrypted(&self, secrecy: Option<Arc<Secrecy>>) -> EtcdSettings {
        EtcdSettings { secrecy, ..self.clone() }
    }

    /// Creates a client without connecting.
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

    /// Opens the copy. Fills the copy if it is missing or does not fit etcd. `open` opens a follower engine
    /// in a directory. If a store is being moved into etcd, `source` is the revision of this store.
    ///
    /// # Errors
    /// etcd cannot be reached for a minute, or the copy cannot be stored.
    pub async fn open(
        &self,
        data_dir: &Path,
        limits: CopyLimits,
        source: Option<engine::Revision>,
        open: impl Fn(&Path) -> anyhow::Result<Engine>,
    ) -> anyhow::Result<(Engine, Arc<Replica>)> {
        let CopyLimits { naming, ports, event_ttl } = limits;
        let client = self.client();
        let (dir, cluster_file) = (data_dir.join(COPY_DIR), data_dir.join(CLUSTER_FILE));
        let replica_of = |engine: &Engine| {
            let replica = Replica::new(client.clone(), engine.clone(), naming, &self.prefix, &ports);
            Arc::new(replica.noting_leases(event_ttl).with_secrecy(self.secrecy.clone()))
        };
        let mut engine = open(&dir)?;
        let mut replica = replica_of(&engine);
        let continuation = self.retried(|| replica.continuation()).await?;
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
        let id = store_id(data_dir)?;
        match source {
            Some(source) => {
                // Check before the mark is written. If the revision of etcd cannot be raised, etcd must not
                // be changed.
                replica.raising(source, ROOM).await?;
                replica.claim(&id).await?;
                replica.raise(source, ROOM).await?;
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

    /// Fills the copy. Retries if an attempt fails after it made progress.
    async fn filled(&self, replica: &Arc<Replica>) -> anyhow::Result<engine::Revision> {
        loop {
            let before = replica.revision();
            match self.retried(|| replica.fill()).await {
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

    /// Refuses an etcd that a move is filling, or from which the store was moved away. Removes the mark if it belongs
    /// to a completed move of this server.
    async fn check_mark(&self, replica: &Replica, id: &str, data_dir: &Path) -> anyhow::Result<()> {
        let Some((mark, _)) = self.retried(|| replica.mark()).await? else { return Ok(()) };
        if mark == format!("filling {id}") && recorded(data_dir)? == Some(StoreLocation::Etcd) {
            replica.claim(id).await?;
            return Ok(replica.conclude().await?);
        }
        if mark == format!("left {id}") && self.live == Some(Direction::ToLog) {
            return Ok(());
        }
        bail!("etcd has the mark of a move, {mark:?}: see docs/api/etcd.md#moving")
    }

    /// Waits until the copy has the newest state of etcd. The task that follows etcd must be running.
    ///
    /// # Errors
    /// The copy is not up to date after a minute.
    pub async fn caught_up(&self, replica: &Replica) -> anyhow::Result<()> {
        let from = replica.revision();
        self.retried(|| async {
            replica.current().await.map_err(|status| io::Error::other(status.into_message()))
        })
        .await?;
        tracing::info!(
            from = from.get(),
            revision = replica.revision().get(),
            "local copy of etcd up to date"
        );
        Ok(())
    }

    /// Calls `ask` until it succeeds, for a minute at most.
    async fn retried<T, E, F>(&self, ask: impl Fn() -> F) -> anyhow::Result<T>
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

/// Removes the file that identifies the etcd cluster of the copy, so that the next start fills a new copy.
///
/// # Errors
/// The file cannot be removed.
pub fn forget_cluster(data_dir: &Path) -> io::Result<()> {
    match std::fs::remove_file(data_dir.join(CLUSTER_FILE)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Returns whether both lists have the same endpoints.
pub fn are_the_same(one: &[Endpoint], other: &[Endpoint]) -> bool {
    let urls = |all: &[Endpoint]| all.iter().map(Endpoint::url).collect::<BTreeSet<_>>();
    urls(one) == urls(other)
}
