//! Repairs the allocations of services. Repairs are needed for servers that stopped between two writes, or
//! that allocated under other rules (docs/api/etcd.md#allocation). The elected server runs the repair.
//!
//! ```text
//! services ─ their ports      ─► set in /ranges/servicenodeports; others that stay set for long are given back
//!          └ their addresses  ─► /ipaddresses/<address> each; those of services that no longer have them are deleted
//! ```
//!
//! Each change is a transaction that fails if the read values have changed, so the repair never affects a
//! service that is created in the meantime. Some servers allocate ports before they store the service.
//! Therefore a port is released only after it was without a service for longer than a request can last.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use engine::{Entry, Snapshot};
use etcd::rpc::{Compare, DeleteRangeRequest, PutRequest, RangeRequest, Request, RequestOp, TxnRequest};

use super::allocated::{Bits, PORTS, Service};
use super::{Replica, number};
use api::state::allocation::allocated_items;
use objects::store::damaged;
use values::json::{self, Value};
use values::status::Status;

/// Key prefix of services in the engine.
const SERVICES: &[u8] = b"/core/services/";
/// Key prefix of the objects for addresses.
const ADDRESSES: &[u8] = b"/networking/ipaddresses/";

/// Time for which an item must be allocated without a service before it is released. No request lasts longer
/// than this time.
const GRACE: Duration = Duration::from_secs(120);

/// Maximum number of address changes in one round. The next round makes further changes.
const CHANGES_MAX: usize = 256;

/// Ports that are allocated but do not belong to a service, with the time at which a repair first found the
/// port.
#[derive(Debug, Default)]
pub(super) struct Leaks(HashMap<u16, Instant>);

impl Leaks {
    /// Records the ports that are leaked now. Returns the ports that have been leaked for longer than
    /// `GRACE`.
    fn note(&mut self, leaking: &BTreeSet<u16>, now: Instant) -> Vec<u16> {
        self.0.retain(|port, _| leaking.contains(port));
        for port in leaking {
            self.0.entry(*port).or_insert(now);
        }
        let mut over: Vec<u16> = self
            .0
            .iter()
            .filter(|(_, since)| now.duration_since(**since) > GRACE)
            .map(|(port, _)| *port)
            .collect();
        over.sort_unstable();
        over
    }
}

/// A service that has an allocated address, and the entry of the service.
struct Holder {
    namespace: String,
    name: String,
    entry: Entry,
}

impl Replica {
    /// Runs one round. Returns false if an item must be checked again soon.
    pub(super) async fn repair(&self) -> Result<bool, Status> {
        // Read the ports before the services. If the port bits change between the two reads, the transaction
        // that changes the bits fails.
        let ports_key: Bytes = format!("{}{PORTS}", self.keys.prefix()).into();
        let request = RangeRequest { key: ports_key.clone(), ..RangeRequest::default() };
        let found = self.client.range(&request).await.map_err(|error| self.unanswered(&error))?;
        self.current().await?;
        let snapshot = self.engine.snapshot();
        let (mut ports, mut addresses) = (BTreeSet::new(), BTreeMap::new());
        for entry in snapshot.prefix(SERVICES) {
            let place = std::str::from_utf8(&entry.key()[SERVICES.len()..]).ok();
            let Some((namespace, name)) = place.and_then(|place| place.split_once('/')) else { continue };
            let (namespace, name) = (namespace.to_owned(), name.to_owned());
            let (of_service, its_ports) = allocated_items(&entry.read().map_err(damaged)?.value);
            ports.extend(its_ports);
            for address in of_service {
                let (namespace, name) = (namespace.clone(), name.clone());
                addresses.insert(address, Holder { namespace, name, entry: entry.clone() });
            }
        }
        let kv = found.kvs.into_iter().next();
        let bits = match &kv {
            Some(kv) => Bits::read(&kv.value).map_err(Status::internal)?,
            None => Bits::for_range(&self.ports),
        };
        let known = kv.map_or(0, |kv| kv.mod_revision);
        let is_settled = self.repair_ports(&ports, bits, ports_key, known).await?;
        Ok(self.repair_addresses(&snapshot, &addresses).await? && is_settled)
    }

    async fn repair_ports(
        &self,
        held: &BTreeSet<u16>,
        mut bits: Bits,
        key: Bytes,
        known: i64,
    ) -> Result<bool, Status> {
        let taken: BTreeSet<u16> = bits.allocated().collect();
        // A port outside the range has no bit.
        let missing: Vec<u16> = held.difference(&taken).copied().filter(|port| bits.holds(*port)).collect();
        let leaking = taken.difference(held).copied().collect();
        let over = self.leaks.lock().note(&leaking, Instant::now());
        if !missing.is_empty() || !over.is_empty() {
            tracing::warn!(?missing, given_back = ?over, "allocation of node ports repaired");
            missing.iter().for_each(|port| bits.set(*port, true));
            over.iter().for_each(|port| bits.set(*port, false));
            let value = bits.write().map_err(Status::internal)?;
            let put = Request::Put(PutRequest { key: key.clone(), value, lease: 0 });
            return self.commit_repair(vec![Compare::mod_revision(key, known)], put.into()).await;
        }
        Ok(leaking.is_empty())
    }

    async fn repair_addresses(
        &self,
        snapshot: &Snapshot,
        held: &BTreeMap<IpAddr, Holder>,
    ) -> Result<bool, Status> {
        let (mut named, mut is_settled, mut changes) = (HashSet::new(), true, 0);
        let now = SystemTime::now();
        for entry in snapshot.prefix(ADDRESSES) {
            let text = std::str::from_utf8(&entry.key()[ADDRESSES.len()..]).unwrap_or_default();
            let Ok(address) = text.parse::<IpAddr>() else { continue };
            let object = json::parse(&entry.read().map_err(damaged)?.value).map_err(Status::internal)?;
            let owner = ["namespace", "name"].map(|member| object.str_at(&["spec", "parentRef", member]));
            let is_its =
                held.get(&address).is_some_and(|holder| owner == [&*holder.namespace, &*holder.name]);
            if is_its || !self.is_of_a_service(&object) {
                named.insert(address);
                continue;
            }
            if !is_older(&object, GRACE, now) {
                named.insert(address);
                is_settled = false;
                continue;
            }
            if changes < CHANGES_MAX {
                changes += 1;
                tracing::warn!(%address, "address released that no service uses");
                let key = self.address_key(&address);
                let compare = vec![Compare::mod_revision(key.clone(), number(entry.revision()))];
                let delete = Request::Delete(DeleteRangeRequest { key, range_end: Bytes::new() });
                is_settled &= self.commit_repair(compare, delete.into()).await?;
            }
        }
        for (address, holder) in held.iter().filter(|(address, _)| !named.contains(*address)) {
            if changes >= CHANGES_MAX {
                return Ok(false);
            }
            changes += 1;
            let Holder { namespace, name, entry } = holder;
            let Some((service_key, _)) = self.keys.etcd_key(entry.key()) else { continue };
            tracing::warn!(%address, namespace, name, "allocation of a service address repaired");
            let key = self.address_key(address);
            let compare = vec![
                Compare::mod_revision(key.clone(), 0),
                Compare::mod_revision(service_key, number(entry.revision())),
            ];
            let value =
                self.address_object(address, &Service { namespace, name, before: None, after: None })?;
            let put = Request::Put(PutRequest { key, value, lease: 0 });
            is_settled &= self.commit_repair(compare, put.into()).await?;
        }
        Ok(is_settled)
    }

    /// Returns whether a server, and not a client, created the address object for a service. The repair does
    /// not change objects of clients.
    fn is_of_a_service(&self, object: &Value) -> bool {
        let label = format!("ipaddress.{}", self.naming.label("managed-by"));
        object.str_at(&["metadata", "labels", &label]) == format!("ipallocator{}", self.naming.group_suffix)
            && object.str_at(&["spec", "parentRef", "resource"]) == "services"
    }

    /// Makes one change in a transaction with conditions, and returns whether the conditions were satisfied.
    /// If a condition was not satisfied, the next round checks the item again.
    async fn commit_repair(&self, mut compare: Vec<Compare>, operation: RequestOp) -> Result<bool, Status> {
        compare.push(Compare::mod_revision(self.mark_key(), self.claimed()));
        let request = TxnRequest { compare, success: vec![operation], ..TxnRequest::default() };
        let answer = self.client.txn(&request).await.map_err(|error| self.unanswered(&error))?;
        Ok(answer.succeeded)
    }
}

/// Returns whether an object was created more than `than` ago. An object without a creation time counts as
/// old.
fn is_older(object: &Value, than: Duration, now: SystemTime) -> bool {
    let made = object.str_at(&["metadata", "creationTimestamp"]).parse::<jiff::Timestamp>();
    made.map(SystemTime::from).ok().and_then(|made| made.checked_add(than)).is_none_or(|end| end < now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_given_back_when_no_service_has_had_it_for_a_while() {
        let (mut leaks, start) = (Leaks::default(), Instant::now());
        for (seconds, leaking, want) in [
            (0, &[1, 2][..], &[][..]),
            (60, &[1], &[]),
            (100, &[1, 2], &[]),
            (121, &[1, 2], &[1]),
            (122, &[2], &[]),
            (200, &[2], &[]),
            (221, &[2], &[2]),
        ] {
            let leaking = leaking.iter().copied().collect();
            assert_eq!(leaks.note(&leaking, start + Duration::from_secs(seconds)), want, "after {seconds} s");
        }
    }

    #[test]
    fn an_object_is_older_than_the_grace_period_by_its_creation_timestamp() {
        let now = SystemTime::from("2026-01-01T00:03:00Z".parse::<jiff::Timestamp>().unwrap());
        for (made, want) in [("2026-01-01T00:00:59Z", true), ("2026-01-01T00:01:01Z", false), ("", true)] {
            let object =
                json::parse(format!(r#"{{"metadata":{{"creationTimestamp":"{made}"}}}}"#).as_bytes());
            assert_eq!(is_older(&object.unwrap(), GRACE, now), want, "{made}");
        }
    }
}
