//! Copies etcd, or a snapshot of etcd, to another etcd. Keys and values are copied unchanged and are not
//! interpreted.
//!
//! The lease objects of servers are left out. Keys with a lease get a new lease of etcd. Finally, the command
//! reads the target and compares it with the source.

use std::time::Duration;

use anyhow::{Context, bail};
use engine::{KeyRange, Revision, Role};
use etcd::Client;
use etcd::rpc::{KeyValue, PutRequest, RangeRequest, Request, TxnRequest};
use etcd::snapshot::Snapshot;
use futures_util::{StreamExt, TryStreamExt, stream};
use replica::Replica;
use replica::digests::{Digests, Sums};

use super::{Report, Scratch, open};
use crate::cli::args::Migrate;
use crate::cli::progress::Progress;
use crate::store::etcd::{EtcdSettings, ROOM};

/// Number of keys in a page.
const PAGE_KEYS: usize = 100;

/// Maximum number of concurrent writes.
const WRITES_MAX: usize = 32;

/// Keys that are not copied: the lease objects of servers, the marks of moves, and the key that raises a
/// revision.
const LEFT_OUT: [&str; 4] = ["masterleases/", "peerserverleases/", "migration", "migration-revisions"];

/// The source of a copy.
pub enum CopySource<'s> {
    Etcd(&'s EtcdSettings),
    File(&'s Snapshot),
}

/// Reads the keys of a source or a target in pages.
enum Pages<'s> {
    Etcd { client: Client, next: Option<Vec<u8>>, end: Vec<u8>, at: i64 },
    File { snapshot: &'s Snapshot, order: Vec<usize>, done: usize },
}

impl<'a> Pages<'a> {
    fn new(from: &CopySource<'a>, prefix: &str, at: i64) -> Pages<'a> {
        let range = KeyRange::prefix(prefix.as_bytes());
        match from {
            CopySource::Etcd(config) => Pages::Etcd {
                client: config.client(),
                next: Some(range.start.to_vec()),
                end: range.end.unwrap_or_default().to_vec(),
                at,
            },
            CopySource::File(snapshot) => {
                let keys = snapshot.keys();
                let mut order: Vec<usize> =
                    (0..keys.len()).filter(|at| keys[*at].key.starts_with(prefix.as_bytes())).collect();
                order.sort_by(|a, b| keys[*a].key.cmp(&keys[*b].key));
                Pages::File { snapshot, order, done: 0 }
            }
        }
    }

    /// Returns the next keys in order. The list is empty at the end.
    async fn next(&mut self) -> anyhow::Result<Vec<KeyValue>> {
        match self {
            Pages::Etcd { client, next, end, at } => {
                let Some(key) = next.take() else { return Ok(Vec::new()) };
                let request = RangeRequest {
                    key: key.into(),
                    range_end: end.clone().into(),
                    limit: PAGE_KEYS as i64,
                    revision: *at,
                    ..RangeRequest::default()
                };
                let page = client.range(&request).await?;
                *at = if *at == 0 { page.header.unwrap_or_default().revision } else { *at };
                *next = page.kvs.last().filter(|_| page.more).map(|last| [&last.key[..], b"\0"].concat());
                Ok(page.kvs)
            }
            Pages::File { snapshot, order, done } => {
                let page = &order[*done..order.len().min(*done + PAGE_KEYS)];
                *done += page.len();
                let keys = snapshot.keys();
                page.iter().map(|at| Ok(snapshot.read(&keys[*at])?)).collect()
            }
        }
    }
}

/// Copies all keys, and compares the target with the source.
pub async fn copy(flags: &Migrate, from: CopySource<'_>, to: &EtcdSettings) -> anyhow::Result<Report> {
    let prefix = format!("/{}/", to.prefix().trim_matches('/'));
    let scratch = Scratch::new()?;
    // These replicas are used only for the marks of moves and the revision.
    let replica_of = |config: &EtcdSettings, name: &str| {
        let engine = open(&scratch.0.join(name), Role::Follower, &None)?;
        let ports = &flags.service_node_port_range;
        let replica = Replica::new(config.client(), engine, flags.naming, config.prefix(), ports);
        Ok::<_, anyhow::Error>(replica)
    };
    let target = replica_of(to, "target")?;
    let id = identity(&from).await?;
    if let Some((mark, _)) = target.mark().await? {
        if mark != format!("filling {id}") {
            bail!("the target belongs to another move: its mark is {mark:?}");
        }
    } else if target.count().await? > 0 {
        bail!("the target is not empty: {} keys below {prefix}", target.count().await?);
    }
    let at = match &from {
        CopySource::File(snapshot) => snapshot.revision(),
        CopySource::Etcd(config) if flags.dry_run => newest(&config.client()).await?,
        // After this mark, no server of this project writes to the source.
        CopySource::Etcd(config) => {
            let source = replica_of(config, "source")?;
            source.leave(&id).await?.get().cast_signed()
        }
    };
    let source = Revision::new(at.unsigned_abs());
    let raised_by = target.raising(source, ROOM).await?;
    let mut report =
        Report { dry_run: flags.dry_run, from_revision: source.get(), raised_by, ..Report::default() };
    let there = digests(Pages::new(&from, &prefix, at), &prefix).await?;
    if flags.dry_run {
        return Ok(report.with_digests(there));
    }
    target.claim(&id).await?;
    target.raise(source, ROOM).await?;
    let client = to.client();
    let total = there.values().map(|digest| digest.objects).sum();
    let pages = Pages::new(&from, &prefix, at);
    write(pages, &client, &prefix, flags.event_ttl, Progress::new("migrate", total)).await?;
    let written = digests(Pages::new(&CopySource::Etcd(to), &prefix, 0), &prefix).await?;
    if written != there {
        let differing: Vec<&str> = there
            .keys()
            .chain(written.keys().filter(|resource| !there.contains_key(*resource)))
            .filter(|resource| there.get(*resource) != written.get(*resource))
            .map(String::as_str)
            .collect();
        bail!("source and target differ: {}", differing.join(", "));
    }
    target.conclude().await?;
    report.revision = newest(&client).await?.unsigned_abs();
    Ok(report.with_digests(there))
}

/// Returns the identity of a source. The same file or etcd always has the same identity, so that a second run
/// continues an interrupted copy.
async fn identity(from: &CopySource<'_>) -> anyhow::Result<String> {
    match from {
        CopySource::File(snapshot) => {
            Ok(format!("snapshot-{}-{}", snapshot.revision(), snapshot.keys().len()))
        }
        CopySource::Etcd(config) => {
            let client = config.client();
            client.range(&RangeRequest { key: "\0".into(), ..RangeRequest::default() }).await?;
            Ok(format!("etcd-{:016x}", client.cluster()))
        }
    }
}

/// Writes all keys of the pages below `prefix` to another etcd.
async fn write(
    mut pages: Pages<'_>,
    client: &Client,
    prefix: &str,
    lease_ttl: Duration,
    mut progress: Progress,
) -> anyhow::Result<()> {
    let mut done = 0;
    // All keys with a lease share a single new lease with the lifetime `lease_ttl`.
    let mut lease = None;
    loop {
        let page = pages.next().await?;
        if page.is_empty() {
            return Ok(());
        }
        done += page.len() as u64;
        let page: Vec<KeyValue> = page.into_iter().filter(|kv| is_moved(&kv.key, prefix)).collect();
        if lease.is_none() && page.iter().any(|kv| kv.lease != 0) {
            lease = Some(client.lease(lease_ttl.as_secs().max(1).cast_signed()).await?);
        }
        let writes = stream::iter(page).map(async |kv| {
            let lease = if kv.lease == 0 { 0 } else { lease.unwrap_or_default() };
            let put = Request::Put(PutRequest { key: kv.key, value: kv.value, lease });
            client.txn(&TxnRequest { success: vec![put.into()], ..TxnRequest::default() }).await.map(drop)
        });
        writes.buffer_unordered(WRITES_MAX).try_collect::<()>().await.context("etcd")?;
        progress.update(done);
    }
}

async fn newest(client: &Client) -> anyhow::Result<i64> {
    let answer = client.range(&RangeRequest { key: "\0".into(), ..RangeRequest::default() }).await?;
    Ok(answer.header.unwrap_or_default().revision)
}

fn is_moved(key: &[u8], prefix: &str) -> bool {
    let rest = key.strip_prefix(prefix.as_bytes()).unwrap_or_default();
    !LEFT_OUT.iter().any(|left| {
        if left.ends_with('/') { rest.starts_with(left.as_bytes()) } else { rest == left.as_bytes() }
    })
}

/// Returns a digest for each resource. The resource is the first segment of a key after the prefix.
async fn digests(mut pages: Pages<'_>, prefix: &str) -> anyhow::Result<Digests> {
    let mut sums = Sums::default();
    loop {
        let page = pages.next().await?;
        if page.is_empty() {
            return Ok(sums.finish());
        }
        for kv in page.iter().filter(|kv| is_moved(&kv.key, prefix)) {
            let rest = String::from_utf8_lossy(&kv.key[prefix.len()..]).into_owned();
            let resource = rest.split('/').next().unwrap_or_default();
            sums.add(resource.to_owned(), &kv.key, &kv.value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_of_servers_and_migration_marks_are_not_migrated() {
        for (key, want) in [
            ("/registry/pods/a/b", true),
            ("/registry/ranges/servicenodeports", true),
            ("/registry/masterleases/10.0.0.1", false),
            ("/registry/peerserverleases/x", false),
            ("/registry/migration", false),
            ("/registry/migration-revisions", false),
            ("/registry/migrations.example/things/a", true),
        ] {
            assert_eq!(is_moved(key.as_bytes(), "/registry/"), want, "{key}");
        }
    }
}
