//! Leases of etcd for objects with a time to live. Objects that are written about the same time share one, as kube-apiserver's
//! do: a lease costs etcd more than a key.

use std::time::{Duration, Instant};

use etcd::{Client, Error};
use tokio::sync::Mutex;

/// How long a lease is given to further objects: each lives that much longer than it was meant to, at most.
const REUSE: Duration = Duration::from_secs(60);

/// Part of the time to live that is the most of that.
const REUSE_PART: f64 = 0.05;

/// Most objects of one lease: they are deleted together.
const OBJECTS_MAX: u32 = 1000;

#[derive(Default)]
pub(super) struct Leases(Mutex<Option<Lease>>);

struct Lease {
    id: i64,
    ttl: Duration,
    until: Instant,
    objects: u32,
}

impl Leases {
    /// A lease for an object that lives for `ttl`.
    pub(super) async fn of(&self, client: &Client, ttl: Duration) -> Result<i64, Error> {
        let mut current = self.0.lock().await;
        if let Some(lease) = current.as_mut()
            && lease.ttl == ttl
            && lease.until > Instant::now()
            && lease.objects < OBJECTS_MAX
        {
            lease.objects += 1;
            return Ok(lease.id);
        }
        let reuse = REUSE.min(ttl.mul_f64(REUSE_PART));
        let seconds = (ttl + reuse).as_secs_f64().ceil().max(1.0);
        let until = Instant::now() + reuse;
        let id = client.lease(seconds as i64).await?;
        *current = Some(Lease { id, ttl, until, objects: 1 });
        Ok(id)
    }

    /// Forgets a lease that is over before its time: etcd was stopped for long, or an operator revoked it.
    pub(super) async fn forget(&self, id: i64) {
        let mut current = self.0.lock().await;
        if current.as_ref().is_some_and(|lease| lease.id == id) {
            *current = None;
        }
    }
}
