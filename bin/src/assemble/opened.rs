//! The second phase of a run: the store is open, and copies of etcd have caught up with etcd.

use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use api::state::secrecy::Secrecy;
use engine::{Engine, Role};
use futures_util::FutureExt;
use tokio::task::JoinSet;

use crate::assemble::Run;
use crate::assemble::listening::{BoundPort, Listening};
use crate::config::Config;
use crate::config::encryption::EncryptionSettings;
use crate::config::store::{Durability, StoreSettings};
use crate::host::files;
use crate::store::copies::Copies;
use crate::store::etcd::{CopyLimits, EtcdSettings};
use crate::store::location::{Plan, StoreLocation, log_dir, plan};
use crate::store::{identity, losses, upgrade};

/// Maximum disk space that is reserved for deletes, for leases, and for updates that continue a deletion (such as the
/// removal of a finalizer). The space is enough for ten objects of the maximum size, or for a hundred thousand deletes.
const RESERVE_BYTES: u64 = 16 << 20;

/// A run whose store is open.
pub struct Opened<'p> {
    pub(super) run: Run<'p>,
    pub(super) port: BoundPort,
    pub(super) store: OpenStore,
}

/// Opens stores with the settings of a run.
#[derive(Clone)]
pub struct StoreOpener {
    settings: StoreSettings,
    /// The clock of the stores, if the test features can move it.
    clock: Option<fn() -> SystemTime>,
    /// The encryption of stored values. `None` means that stored values are not encrypted.
    pub secrecy: Option<Arc<Secrecy>>,
    /// Settings of the etcd in the flags, if any.
    pub etcd: Option<EtcdSettings>,
    /// Limits of the copies of etcd.
    pub limits: CopyLimits,
}

/// The open store of a run, and the tasks that belong to it.
pub struct OpenStore {
    /// The location of the objects, and the direction of a live migration if there is one.
    pub plan: Plan,
    pub opener: StoreOpener,
    /// The store that is served: the server's own log, or the main copy of etcd.
    pub engine: Engine,
    /// All stores of the run.
    pub engines: Vec<Engine>,
    /// The copies of etcd; empty if the server's own log stores the objects.
    pub copies: Copies,
    /// The task that reports damaged records of the server's own log.
    pub reporting: JoinSet<()>,
    /// The tasks that apply changes of etcd to the copies.
    pub following: JoinSet<()>,
}

impl OpenStore {
    /// Returns whether the server's own log stores the objects.
    pub fn is_own_log(&self) -> bool {
        self.copies.main().is_none()
    }
}

impl<'p> Listening<'p> {
    /// Opens the store of the data directory.
    ///
    /// # Errors
    /// The store cannot be opened, the store belongs to another naming profile, or etcd cannot be reached.
    pub async fn open(self) -> anyhow::Result<Opened<'p>> {
        let Listening { run, port } = self;
        let data_dir = &run.config.store.data_dir;
        files::private_dir(data_dir)?;
        let opener = StoreOpener::new(&run.config)?;
        let plan = plan(data_dir, opener.etcd.as_ref().map(|etcd| etcd.live))?;
        if plan.location == StoreLocation::Etcd {
            identity::remember_profile(data_dir, run.config.store.naming)?;
        }
        let copies = open_copies(&run, &opener, plan).await?;
        let engine = match copies.main() {
            Some((engine, _)) => engine.clone(),
            None => open_log(&opener).await?,
        };
        // Losses are reported only for the server's own log. A damaged copy of etcd loses nothing, because it
        // is filled from etcd again.
        let mut reporting = JoinSet::new();
        if copies.main().is_none() {
            losses::report(&engine, data_dir).await;
            reporting.spawn(losses::follow(engine.clone(), data_dir.clone()).boxed());
        }
        let mut engines = copies.engines_apart();
        engines.push(engine.clone());
        run.ending.attach_stores(engines.clone());
        let following = copies.follow();
        run.unless_stopped(copies.caught_up()).await?;
        let store = OpenStore { plan, opener, engine, engines, copies, reporting, following };
        Ok(Opened { run, port, store })
    }
}

/// Opens the local copies of etcd if the objects are stored in etcd.
async fn open_copies(run: &Run<'_>, opener: &StoreOpener, plan: Plan) -> anyhow::Result<Copies> {
    let Some(etcd) = opener.etcd.as_ref().filter(|_| plan.location == StoreLocation::Etcd) else {
        return Ok(Copies::default());
    };
    let open = |dir: &Path| opener.open(dir, Role::Follower);
    run.unless_stopped(Copies::open(etcd, &run.config.store.data_dir, opener.limits, open)).await
}

/// Opens the server's own log.
async fn open_log(opener: &StoreOpener) -> anyhow::Result<Engine> {
    let StoreSettings { data_dir, naming, .. } = &opener.settings;
    let log_dir = log_dir(data_dir);
    upgrade::check_for_store(data_dir, &log_dir)?;
    let engine = opener.open(&log_dir, Role::Leader)?;
    identity::settle(&engine, data_dir, naming).await?;
    Ok(engine)
}

impl StoreOpener {
    /// Creates an opener from the settings, and activates the configured encryption.
    fn new(config: &Config) -> anyhow::Result<StoreOpener> {
        let secrecy = config.encryption.as_ref().map(EncryptionSettings::enforce).transpose()?;
        let limits = CopyLimits {
            naming: config.store.naming,
            ports: config.service.ranges.ports,
            event_ttl: config.requests.limits.event_ttl,
        };
        let etcd = config.etcd.as_ref().map(|etcd| etcd.encrypted(secrecy.clone()));
        let clock = config.testing.then_some(values::clock::system_time as fn() -> SystemTime);
        Ok(StoreOpener { settings: config.store.clone(), clock, secrecy, etcd, limits })
    }

    /// Opens a store in a directory as the leader or a follower.
    ///
    /// # Errors
    /// The store is damaged, in use, or cannot be read.
    pub fn open(&self, dir: &Path, role: Role) -> anyhow::Result<Engine> {
        let durability = match (role, self.settings.durability) {
            // After a crash of the machine, the records that a copy has lost are read from etcd again.
            (Role::Follower, _) => engine::Durability::Replicated,
            (Role::Leader, Durability::Sync) => engine::Durability::Sync,
            (Role::Leader, Durability::Relaxed) => engine::Durability::Relaxed,
        };
        Ok(Engine::open(engine::Options {
            durability,
            history_retention: self.settings.history_retention,
            history_bytes_max: self.settings.history_bytes_max,
            bloom_scheme: types::bloom::SCHEME,
            role,
            seal: self.secrecy.clone().map(|secrecy| secrecy as Arc<dyn engine::Seal>),
            clock: self.clock,
            // A follower needs no reserve: etcd decides which writes are accepted, not the local disk.
            reserve_bytes: if role == Role::Leader { RESERVE_BYTES } else { 0 },
            ..engine::Options::new(dir)
        })?)
    }

    /// Returns the data directory.
    pub fn data_dir(&self) -> &Path {
        &self.settings.data_dir
    }
}
