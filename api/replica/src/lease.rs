//! etcd leases for objects with a time to live. Objects that are written at about the same time have the same
//! lease, as in kube-apiserver, because a lease is more expensive for etcd than a key.

use std::time::{Duration, Instant};

use etcd::{Client, Error};
use tokio::sync::Mutex;

/// Maximum time for which a lease is reused for further objects. An object can outlive its time to live by
/// at most `REUSE`.
const REUSE: Duration = Duration::from_secs(60);

/// Maximum time of the reuse as a fraction of the time to live.
const REUSE_PART: f64 = 0.05;

/// Maximum number of objects per lease. etcd deletes all objects of a lease at the same time.
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
    /// Returns a lease for an object that lives for `ttl`.
    pub(super) async fn lease_for(&self, client: &Client, ttl: Duration) -> Result<i64, Error> {
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

    /// Forgets a lease that ended early. Possible causes are a long stop of etcd, and an operator who revoked
    /// the lease.
    pub(super) async fn forget(&self, id: i64) {
        let mut current = self.0.lock().await;
        if current.as_ref().is_some_and(|lease| lease.id == id) {
            *current = None;
        }
    }
}
