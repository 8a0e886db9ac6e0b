//! The copies of what etcd keeps: one of the etcd of all resources, and one of each etcd that keeps a resource apart
//! (docs/api/etcd.md). They are opened, followed, tended and closed together.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use api::state::allocation::Ports;
use engine::Engine;
use futures_util::future::{join_all, select_all, try_join_all};
use objects::store::Ledger;
use objects::store::backends::{Backend, Backends};
use replica::{Replica, compaction};
use tokio::task::JoinSet;
use types::served::Types;
use values::naming::Naming;
use wire::metrics::Metrics;

use crate::etcd::{self, EtcdConfig};
use crate::files;

/// A copy of what one etcd keeps.
struct Copy {
    /// What the keys begin with of which it is served; empty for that of all resources.
    prefixes: Vec<String>,
    etcd: EtcdConfig,
    /// Directory of the copy and of what is known of it.
    directory: PathBuf,
    engine: Engine,
    replica: Arc<Replica>,
}

/// The copies of a server; that of all resources is the first. None where the server has a log of its own.
#[derive(Default)]
pub struct Copies(Vec<Copy>);

impl Copies {
    /// Opens the copies and brings them up to their etcds. `open` opens an engine that follows in a directory.
    ///
    /// # Errors
    /// An etcd cannot be reached for a minute, or a copy not be kept.
    pub async fn open(
        etcd: &EtcdConfig,
        data_dir: &Path,
        naming: &'static Naming,
        limits: (&Ports, Duration),
        open: impl Fn(&Path) -> anyhow::Result<Engine>,
    ) -> anyhow::Result<Copies> {
        let main = (Vec::new(), etcd.clone(), data_dir.to_owned());
        let apart = etcd.apart(naming).into_iter().map(|(resources, prefixes, etcd)| {
            (prefixes, etcd, data_dir.join(format!("etcd-of-{}", resources.join("-"))))
        });
        let open = &open;
        let copies = std::iter::once(main).chain(apart).map(|(prefixes, etcd, directory)| async move {
            files::private_dir(&directory)?;
            let opened = etcd.open(&directory, naming, limits, None, open).await;
            let (engine, replica) = match &prefixes[..] {
                [] => opened?,
                prefixes => opened.with_context(|| format!("of {}", prefixes.join(" and ")))?,
            };
            Ok::<_, anyhow::Error>(Copy { prefixes, etcd, directory, engine, replica })
        });
        Ok(Copies(try_join_all(copies).await?))
    }

    /// The copy of all resources.
    pub fn main(&self) -> Option<(&Engine, &Arc<Replica>)> {
        self.0.first().map(|copy| (&copy.engine, &copy.replica))
    }

    /// Where objects are kept; `own` is the server's own log, where it has one.
    pub fn backends(&self, own: &Engine) -> Backends {
        let backend =
            |copy: &Copy| Backend::new(copy.engine.clone(), Some(copy.replica.clone() as Arc<dyn Ledger>));
        let Some((main, apart)) = self.0.split_first() else {
            return Backends::new(Backend::new(own.clone(), None), Vec::new());
        };
        Backends::new(
            backend(main),
            apart.iter().map(|copy| (copy.prefixes.clone(), backend(copy))).collect(),
        )
    }

    /// Begins to follow the etcds, until the tasks are dropped.
    pub fn follow(&self) -> JoinSet<()> {
        self.0.iter().map(|copy| copy.replica.clone().follow()).collect()
    }

    /// Waits until the copies, which are followed, have what their etcds have now.
    ///
    /// # Errors
    /// One does not for a minute.
    pub async fn caught_up(&self) -> anyhow::Result<()> {
        for copy in &self.0 {
            copy.etcd.caught_up(&copy.replica).await?;
        }
        Ok(())
    }

    /// Tells which types are served, and where changes are counted.
    pub fn serve(&self, types: &Arc<Types>, metrics: &Arc<Metrics>) {
        self.0.iter().for_each(|copy| copy.replica.serve(types.clone(), metrics.clone()));
    }

    /// Begins to compact the etcds and to look at their health, until the tasks are dropped.
    pub fn tend(&self) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        for copy in &self.0 {
            let (replica, interval) = (copy.replica.clone(), copy.etcd.compaction_interval);
            if !interval.is_zero() {
                tasks.spawn(async move { compaction::run(replica, interval).await });
            }
            let (replica, timeout) = (copy.replica.clone(), copy.etcd.check_timeout);
            tasks.spawn(async move { replica.watch_health(timeout).await });
        }
        tasks
    }

    /// Why the first copy that cannot go on is none any more, once there is one: the next start fills it anew.
    pub async fn broken(&self) -> anyhow::Error {
        if self.0.is_empty() {
            return std::future::pending().await;
        }
        let broken = self.0.iter().map(|copy| Box::pin(copy.broken()));
        select_all(broken).await.0
    }

    /// The engines of the copies but that of all resources.
    pub fn engines_apart(&self) -> Vec<Engine> {
        self.0.iter().skip(1).map(|copy| copy.engine.clone()).collect()
    }

    /// Closes the copies.
    pub async fn close(&self) {
        join_all(self.0.iter().map(|copy| copy.engine.close())).await;
    }
}

impl Copy {
    async fn broken(&self) -> anyhow::Error {
        let mut losses = self.engine.watch_losses();
        let damaged = async {
            if losses.wait_for(|losses| !losses.is_empty()).await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            () = damaged => match etcd::forget_cluster(&self.directory) {
                Ok(()) => anyhow!("the copy of etcd's store has records that cannot be read: the next start fills it anew"),
                Err(error) => anyhow!(error).context("cannot forget the copy of etcd's store"),
            },
            refusal = self.engine.failed() => anyhow!("the store's log failed: {refusal}"),
            broken = self.replica.broken() => match etcd::forget_cluster(&self.directory) {
                Ok(()) => anyhow!("the copy of etcd's store is broken: {broken}"),
                Err(error) => anyhow!(error).context("cannot forget the copy of etcd's store"),
            },
        }
    }
}
