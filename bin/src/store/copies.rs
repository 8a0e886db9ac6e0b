//! The local copies of the objects in etcd: a copy of the main etcd, and a copy of each etcd for separate
//! resources (docs/api/etcd.md). All copies are opened, followed, maintained and closed together.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, anyhow};
use engine::Engine;
use futures_util::FutureExt;
use futures_util::future::{join_all, select_all, try_join_all};
use objects::store::Ledger;
use objects::store::backends::{Backend, Backends};
use replica::{Replica, compaction};
use tokio::task::JoinSet;
use types::served::Types;
use wire::metrics::Metrics;

use crate::host::files;
use crate::store::etcd::{self, CopyLimits, EtcdSettings};

/// The local copy of the contents of one etcd.
struct Copy {
    /// Prefixes of the keys that are served from this copy; empty for the main copy.
    prefixes: Vec<String>,
    etcd: EtcdSettings,
    /// Directory of the copy and of the files that describe it.
    directory: PathBuf,
    engine: Engine,
    replica: Arc<Replica>,
}

/// The copies of a server. The first copy is the main copy. There are no copies if the server's own log
/// stores the objects.
#[derive(Default)]
pub struct Copies(Vec<Copy>);

impl Copies {
    /// Opens the copies, and fills copies that are missing or do not fit. `open` opens a follower engine in a
    /// directory.
    ///
    /// # Errors
    /// An etcd cannot be reached for a minute, or a copy cannot be stored.
    pub async fn open(
        etcd: &EtcdSettings,
        data_dir: &Path,
        limits: CopyLimits,
        open: impl Fn(&Path) -> anyhow::Result<Engine>,
    ) -> anyhow::Result<Copies> {
        let main = (Vec::new(), etcd.clone(), data_dir.to_owned());
        let apart = etcd.apart(limits.naming).into_iter().map(|(resources, prefixes, etcd)| {
            (prefixes, etcd, data_dir.join(format!("etcd-of-{}", resources.join("-"))))
        });
        let open = &open;
        let copies = std::iter::once(main).chain(apart).map(|(prefixes, etcd, directory)| async move {
            files::private_dir(&directory)?;
            let opened = etcd.open(&directory, limits, None, open).await;
            let (engine, replica) = match &prefixes[..] {
                [] => opened?,
                prefixes => opened.with_context(|| format!("of {}", prefixes.join(" and ")))?,
            };
            Ok::<_, anyhow::Error>(Copy { prefixes, etcd, directory, engine, replica })
        });
        Ok(Copies(try_join_all(copies).await?))
    }

    /// Returns the main copy, or `None` if the server's own log stores the objects.
    pub fn main(&self) -> Option<(&Engine, &Arc<Replica>)> {
        self.0.first().map(|copy| (&copy.engine, &copy.replica))
    }

    /// Returns the backends that store objects. If there are no copies, the backend is the server's own log
    /// `own`.
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

    /// Starts tasks that follow the etcd clusters. Dropping the result ends the tasks.
    pub fn follow(&self) -> JoinSet<()> {
        self.0.iter().map(|copy| copy.replica.clone().follow()).collect()
    }

    /// Waits until each copy has the newest state of its etcd. The tasks of [`Copies::follow`] must be
    /// running.
    ///
    /// # Errors
    /// A copy is not up to date after a minute.
    pub async fn caught_up(&self) -> anyhow::Result<()> {
        for copy in &self.0 {
            copy.etcd.caught_up(&copy.replica).await?;
        }
        Ok(())
    }

    /// Sets the served types, and the metrics that count changes.
    pub fn serve(&self, types: &Arc<Types>, metrics: &Arc<Metrics>) {
        self.0.iter().for_each(|copy| copy.replica.serve(types.clone(), metrics.clone()));
    }

    /// Starts tasks that compact the etcd clusters and check their health. Dropping the result ends the
    /// tasks.
    pub fn tend(&self) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        for copy in &self.0 {
            let (replica, interval) = (copy.replica.clone(), copy.etcd.compaction_interval);
            if !interval.is_zero() {
                tasks.spawn(async move { compaction::run(replica, interval).await }.boxed());
            }
            let (replica, timeout) = (copy.replica.clone(), copy.etcd.check_timeout);
            tasks.spawn(async move { replica.watch_health(timeout).await }.boxed());
        }
        tasks
    }

    /// Waits until a copy cannot continue, and returns the reason. The next start fills this copy again.
    pub async fn broken(&self) -> anyhow::Error {
        if self.0.is_empty() {
            return std::future::pending().await;
        }
        let broken = self.0.iter().map(|copy| Box::pin(copy.broken()));
        select_all(broken).await.0
    }

    /// Returns the engines of all copies except the main copy.
    pub fn engines_apart(&self) -> Vec<Engine> {
        self.0.iter().skip(1).map(|copy| copy.engine.clone()).collect()
    }

    /// Closes the engines of all copies.
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
                Ok(()) => anyhow!("the local copy of etcd has unreadable records: the next start fills it again"),
                Err(error) => anyhow!(error).context("cannot discard the local copy of etcd"),
            },
            refusal = self.engine.failed() => anyhow!("the store's log failed: {refusal}"),
            broken = self.replica.broken() => match etcd::forget_cluster(&self.directory) {
                Ok(()) => anyhow!("the local copy of etcd is broken: {broken}"),
                Err(error) => anyhow!(error).context("cannot discard the local copy of etcd"),
            },
        }
    }
}
