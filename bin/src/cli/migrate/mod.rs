//! `migrate`: moves a store between a data directory and etcd, or out of a snapshot file of etcd. No server
//! may use the store during the move.
//!
//! ```text
//! DIR      ─► etcd   objects, in kube-apiserver's encoding, above the source's revisions
//! etcd     ─► DIR    a copy at etcd's revisions, which becomes a log        FILE ─► DIR  the same, far above
//! etcd, FILE ─► etcd keys and values unchanged (`raw`)
//! ```
//!
//! The report has the number of objects of each resource, and a digest that is the same for source and
//! target.

mod raw;

use std::cell::RefCell;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, anyhow, bail};
use api::state::secrecy::Secrecy;
use engine::{Engine, Revision, Role};
use etcd::snapshot::Snapshot;
use futures_util::FutureExt;
use replica::Replica;
use replica::digests::{Digest, Digests};
use replica::migration::MoveError;
use serde::Serialize;
use wire::outgoing::Egress;

use crate::cli::args::{Format, Migrate};
use crate::cli::output::{self, Outcome};
use crate::cli::progress::Progress;
use crate::cli::report;
use crate::config::encryption::EncryptionSettings;
use crate::config::etcd::EtcdFlags;
use crate::flags::profile::{Profile, profile};
use crate::host::files;
use crate::store::etcd::{COPY_DIR, CopyLimits, EtcdSettings, ROOM};
use crate::store::identity::{self, PROFILE_FILE, remember_profile};
use crate::store::location::{StoreLocation, log_dir, recorded, store_id};
use crate::store::relocation::{self, IntoEtcd};

/// Difference between the first revision of the new store and the revision of the snapshot. The difference is
/// larger than the number of writes that etcd can accept in several years after the snapshot.
const ABOVE_SNAPSHOT: u64 = 1_000_000_000;

/// A source or a target of a move.
enum End {
    Etcd(EtcdSettings),
    Dir(PathBuf),
    File(PathBuf),
}

/// The moved objects, or the objects that a dry run would move.
#[derive(Default, Serialize)]
struct Report {
    dry_run: bool,
    /// The newest revision of the source that was moved.
    from_revision: u64,
    /// The newest revision of the target.
    revision: u64,
    /// Number of writes that only raise the revision of etcd.
    raised_by: u64,
    resources: Vec<Resource>,
}

#[derive(Serialize)]
struct Resource {
    resource: String,
    objects: u64,
    digest: String,
}

impl Report {
    fn with_digests(mut self, digests: Digests) -> Report {
        let resource = |(resource, Digest { objects, sum })| Resource { resource, objects, digest: sum };
        self.resources = digests.into_iter().map(resource).collect();
        self
    }
}

/// Runs the command and prints the report.
pub fn run(flags: &Migrate, out: &mut impl Write) -> anyhow::Result<Outcome> {
    let (from, to) = (end(flags, &flags.from)?, end(flags, &flags.to)?);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let report = runtime.block_on(async {
        match (&from, &to) {
            (End::Dir(from), End::Etcd(to)) => dir_to_etcd(flags, from, to).await,
            (End::Etcd(from), End::Dir(to)) => etcd_to_dir(flags, from, to).await,
            (End::File(from), End::Dir(to)) => file_to_dir(flags, from, to).await,
            (End::Etcd(from), End::Etcd(to)) => raw::copy(flags, raw::CopySource::Etcd(from), to).await,
            (End::File(from), End::Etcd(to)) => {
                raw::copy(flags, raw::CopySource::File(&snapshot(from)?), to).await
            }
            (End::Dir(_), End::Dir(_)) => {
                bail!("cannot migrate from one data directory to another: use backup and restore")
            }
            (_, End::File(_)) => {
                bail!("--to {} is a file: give a data directory or endpoints of etcd", flags.to)
            }
        }
    });
    runtime.shutdown_background();
    let report = report?;
    if flags.output != Format::Text {
        output::write(out, flags.output, &report, |_| Ok(()))?;
        return Ok(Outcome::Fine);
    }
    for Resource { resource, objects, digest } in &report.resources {
        writeln!(out, "{resource}: {}, {}", report::count(*objects, "object", "objects"), &digest[..16])?;
    }
    let objects = report.resources.iter().map(|resource| resource.objects).sum();
    let objects = report::count(objects, "object", "objects");
    if report.dry_run {
        writeln!(
            out,
            "{objects} would be moved from revision {}; etcd's revision would be raised by {}",
            report.from_revision,
            report::count(report.raised_by, "write", "writes")
        )?;
    } else {
        writeln!(
            out,
            "{objects} moved from revision {}, source and target are equal; the store continues from revision {}",
            report.from_revision, report.revision
        )?;
    }
    Ok(Outcome::Fine)
}

fn end(flags: &Migrate, text: &str) -> anyhow::Result<End> {
    if !text.contains("://") {
        let path = PathBuf::from(text);
        return Ok(if path.is_file() { End::File(path) } else { End::Dir(path) });
    }
    let etcd = EtcdFlags::with_endpoints(text, flags.etcd.clone());
    let settings = etcd.settings(flags.naming, &Egress::default())?;
    settings.map(End::Etcd).ok_or_else(|| anyhow!("{text:?} names no endpoint"))
}

/// Returns the limits of a copy of etcd from the flags and the naming profile.
fn limits(flags: &Migrate, naming: Profile) -> CopyLimits {
    CopyLimits { naming, ports: flags.service_node_port_range, event_ttl: flags.event_ttl }
}

/// Opens a store whose values have this encryption.
fn open(dir: &Path, role: Role, secrecy: &Option<Arc<Secrecy>>) -> anyhow::Result<Engine> {
    let seal = secrecy.clone().map(|secrecy| secrecy as Arc<dyn engine::Seal>);
    let bloom_scheme = types::bloom::SCHEME;
    Ok(Engine::open(engine::Options { bloom_scheme, role, seal, ..engine::Options::new(dir) })?)
}

/// Returns the encryption of values in source and target.
fn secrecy(flags: &Migrate, naming: Profile) -> anyhow::Result<Option<Arc<Secrecy>>> {
    let Some(path) = &flags.encryption_provider_config else { return Ok(None) };
    EncryptionSettings::read(path, false, naming)?.enforce().map(Some)
}

fn snapshot(path: &Path) -> anyhow::Result<Snapshot> {
    Snapshot::open(path).with_context(|| path.display().to_string())
}

/// Returns the naming profile that a data directory records, or else the profile in the flags.
fn naming(flags: &Migrate, dir: &Path) -> anyhow::Result<Profile> {
    let Some(bytes) = files::read_if_there(&dir.join(PROFILE_FILE))? else { return Ok(flags.naming) };
    let text = String::from_utf8_lossy(&bytes);
    profile(text.trim()).map_err(|why| anyhow!("{}: the naming profile {why}", dir.display()))
}

async fn dir_to_etcd(flags: &Migrate, from: &Path, to: &EtcdSettings) -> anyhow::Result<Report> {
    if !log_dir(from).is_dir() {
        bail!("--from {} contains no store", from.display());
    }
    if recorded(from)? == Some(StoreLocation::Etcd) {
        bail!("--from {}: its objects were moved to etcd", from.display());
    }
    let naming = naming(flags, from)?;
    let secrecy = secrecy(flags, naming)?;
    let to = &to.encrypted(secrecy.clone());
    let source = open(&log_dir(from), Role::Leader, &secrecy)?;
    identity::must_have_profile(&source, from, naming)?;
    relocation::must_be_whole(&source, from)?;
    let newest = source.revision();
    if flags.dry_run {
        let replica =
            Replica::new(to.client(), source.clone(), naming, to.prefix(), &flags.service_node_port_range);
        refuse_unless_free(&replica, from).await?;
        let raised_by = replica.raising(newest, ROOM).await?;
        let digests = replica.digests(&source.snapshot())?;
        let report = Report { dry_run: true, from_revision: newest.get(), raised_by, ..Report::default() };
        return Ok(report.with_digests(digests));
    }
    let open = |dir: &Path| open(dir, Role::Follower, &secrecy);
    let into = IntoEtcd::begin(to, from, limits(flags, naming), newest, open).await?;
    let (progress, total) = (RefCell::new(Progress::new("migrate", 0)), source.stats().keys);
    into.fill(&source, |done| progress.borrow_mut().update_of(done, total)).await?;
    drop(progress);
    let revision = into.revision();
    let digests = into.finish(&source).await?;
    source.close().await;
    relocation::put_log_aside(from)?;
    let report = Report { from_revision: newest.get(), revision: revision.get(), ..Report::default() };
    Ok(report.with_digests(digests))
}

/// Checks before the first write that the target is empty or belongs to this move.
async fn refuse_unless_free(replica: &Replica, dir: &Path) -> anyhow::Result<()> {
    let id = store_id(dir)?;
    match replica.mark().await? {
        Some((mark, _)) if mark == format!("filling {id}") || mark == format!("left {id}") => Ok(()),
        Some((mark, _)) => bail!("the target belongs to another move: its mark is {mark:?}"),
        None => match replica.count().await? {
            0 => Ok(()),
            count => bail!("the target is not empty: {count} keys"),
        },
    }
}

async fn etcd_to_dir(flags: &Migrate, from: &EtcdSettings, to: &Path) -> anyhow::Result<Report> {
    if flags.dry_run {
        let scratch = Scratch::new()?;
        let secrecy = secrecy(flags, flags.naming)?;
        let from = from.encrypted(secrecy.clone());
        let open = |dir: &Path| open(dir, Role::Follower, &secrecy);
        let (engine, replica) = from.open(&scratch.0, limits(flags, flags.naming), None, open).await?;
        let unreadable = replica.unreadable().await?;
        if !unreadable.is_empty() {
            bail!("these keys cannot be read, and would be lost: {}", unreadable.join(", "));
        }
        let from_revision = engine.revision().get();
        let report = Report { dry_run: true, from_revision, ..Report::default() };
        return Ok(report.with_digests(replica.digests(&engine.snapshot())?));
    }
    let naming = begin_dir(flags, to)?;
    let secrecy = secrecy(flags, naming)?;
    let from = from.moving_to_log().encrypted(secrecy.clone());
    let open_as = |dir: &Path, role| open(dir, role, &secrecy);
    let (engine, replica) =
        from.open(to, limits(flags, naming), None, |dir| open_as(dir, Role::Follower)).await?;
    let following = tokio::spawn(replica.clone().follow().boxed());
    let moved = relocation::out_of_etcd(to, &engine, &replica, |dir| open_as(dir, Role::Leader)).await;
    following.abort();
    let revision = engine.revision().get();
    let report = Report { from_revision: revision, revision, ..Report::default() };
    Ok(report.with_digests(moved?))
}

async fn file_to_dir(flags: &Migrate, from: &Path, to: &Path) -> anyhow::Result<Report> {
    let snapshot = snapshot(from)?;
    let from_revision = Revision::new(snapshot.revision().unsigned_abs());
    let scratch = Scratch::new()?;
    let naming = if flags.dry_run { flags.naming } else { begin_dir(flags, to)? };
    let dir = if flags.dry_run { scratch.0.clone() } else { to.join(COPY_DIR) };
    if dir.exists() {
        // An interrupted import starts again from the beginning of the file.
        std::fs::remove_dir_all(&dir).with_context(|| format!("cannot remove {}", dir.display()))?;
    }
    let secrecy = secrecy(flags, naming)?;
    let engine = open(&dir, Role::Follower, &secrecy)?;
    // The replica needs a client, but an import never connects to etcd.
    let client = ::etcd::Client::new(::etcd::Config {
        endpoints: Vec::new(),
        tls: None,
        deadline: std::time::Duration::ZERO,
    });
    let ports = &flags.service_node_port_range;
    let replica = Replica::new(client, engine.clone(), naming, &flags.etcd.etcd_prefix, ports);
    let replica = replica.noting_leases(flags.event_ttl).with_secrecy(secrecy.clone());
    let revision = Revision::new(from_revision.get() + ABOVE_SNAPSHOT);
    let mut progress = Progress::new("migrate", 0);
    let total = snapshot.keys().len() as u64;
    let states = snapshot.keys().iter().zip(1..).map(|(key, done)| {
        progress.update_of(done, total);
        snapshot.read(key).map_err(|error| MoveError::InUse(format!("{}: {error}", from.display())))
    });
    replica.import(revision, states).await?;
    drop(progress);
    if flags.dry_run {
        let report = Report { dry_run: true, from_revision: from_revision.get(), ..Report::default() };
        return Ok(report.with_digests(replica.digests(&engine.snapshot())?));
    }
    let digests = relocation::settle(to, &engine, &replica, |dir| open(dir, Role::Leader, &secrecy)).await?;
    let report = Report { from_revision: from_revision.get(), revision: revision.get(), ..Report::default() };
    Ok(report.with_digests(digests))
}

/// Creates a data directory. Fails if the directory already contains a store.
fn begin_dir(flags: &Migrate, to: &Path) -> anyhow::Result<Profile> {
    if log_dir(to).exists() && recorded(to)? != Some(StoreLocation::Etcd) {
        bail!("--to {} already contains a store: choose an empty directory", to.display());
    }
    files::private_dir(to)?;
    let naming = naming(flags, to)?;
    remember_profile(to, naming)?;
    Ok(naming)
}

/// A temporary directory that is removed when this value is dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> anyhow::Result<Scratch> {
        let name = format!("cluster-migrate-{}-{}", std::process::id(), values::names::uid());
        let path = std::env::temp_dir().join(name);
        files::private_dir(&path)?;
        Ok(Scratch(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
