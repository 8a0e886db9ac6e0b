//! The identity of a server among the servers that share a store: a Lease that shows that the server is alive,
//! and contains the address for its peers (docs/api/etcd.md#election). The elected server deletes the leases of
//! servers that are gone.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use sha2::{Digest, Sha256};

use super::collections::objects;
use super::{Ending, Trouble};
use crate::writes::bootstrap::{ObjectStore, ObjectTarget, WriteResult};
use crate::writes::loopback::Loopback;
use crate::writes::server::Server;
use objects::store;
use types::schema::registry::Resource;
use values::clock;
use values::json::{Object, Value};
use values::names;
use values::status::Status;

/// Duration of a lease after its last renewal.
const DURATION: Duration = Duration::from_secs(3600);

/// Interval of renewals.
const RENEW: Duration = Duration::from_secs(10);

/// Interval of searches for expired leases.
const COLLECT: Duration = Duration::from_secs(3600);

/// Port of a server that is alone on its host.
const USUAL_PORT: u16 = 6443;

/// Number of bytes of the host name's digest that form the name of the lease.
const ID_BYTES: usize = 16;

fn target(server: &Server, name: &str) -> ObjectTarget {
    ObjectTarget {
        group: "coordination",
        version: "v1",
        resource: "leases",
        namespace: server.types.naming.system("system"),
        name: name.to_owned(),
    }
}

/// Returns the lease name of a server: a digest of the host name and of the component name, each preceded by its
/// length. The digest also contains the port, if the port is not the usual port, so that servers on one host have
/// different names.
fn lease_name(host: &str, component: &str, port: u16) -> String {
    let mut digest = Sha256::new();
    let port = if port == USUAL_PORT { String::new() } else { port.to_string() };
    for part in [host, component, &port].into_iter().filter(|part| !part.is_empty()) {
        digest.update(u16::try_from(part.len()).unwrap_or(u16::MAX).to_be_bytes());
        digest.update(part.as_bytes());
    }
    format!("apiserver-{}", base32(&digest.finalize()[..ID_BYTES]))
}

/// Returns the name of this server among the servers on the same store.
pub(super) fn own_name(server: &Server) -> String {
    lease_name(
        &own_host(server),
        &server.types.naming.system("apiserver"),
        server.operations.own_service.port,
    )
}

fn own_host(server: &Server) -> String {
    server.operations.host_name.to_lowercase()
}

/// Returns the servers whose leases have not expired, by name, each with the name of its process.
pub(super) fn servers(server: &Server) -> Result<BTreeMap<String, String>, Status> {
    let label = format!("apiserver.{}", server.types.naming.label("identity"));
    let (component, now) = (server.types.naming.system("apiserver"), clock::system_time());
    let leases = leases(server)?;
    let snapshot = server.store.backends.holding(&leases).engine().snapshot();
    let all = objects(&snapshot, &leases).into_iter().map(|(_, lease)| lease);
    let found = all
        .filter(|lease| lease.str_at(&["metadata", "labels", &label]) == component && !is_over(lease, now))
        .map(|lease| {
            [&["metadata", "name"], &["spec", "holderIdentity"]].map(|at| lease.str_at(at).to_owned())
        })
        .filter(|[_, holder]| !holder.is_empty());
    Ok(found.map(|[name, holder]| (name, holder)).collect())
}

/// Returns the key prefix of the leases of all servers.
pub(super) fn leases(server: &Server) -> Result<Bytes, Status> {
    let of_all = target(server, "");
    Ok(store::collection(Loopback::new(server).resource(&of_all)?, &of_all.namespace))
}

/// Encodes bytes in base32 (RFC 4648), in lower case and without padding.
fn base32(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let (mut text, mut bits, mut count) = (String::new(), 0_u32, 0);
    for byte in bytes {
        (bits, count) = (bits << 8 | u32::from(*byte), count + 8);
        while count >= 5 {
            count -= 5;
            text.push(char::from(DIGITS[(bits >> count & 31) as usize]));
        }
        bits &= (1 << count) - 1;
    }
    if count > 0 {
        text.push(char::from(DIGITS[(bits << (5 - count) & 31) as usize]));
    }
    text
}

/// Runs the controller that renews the lease of this server.
pub(super) async fn renew(server: Arc<Server>) -> Ending {
    let (host, name) = (own_host(&server), own_name(&server));
    let holder = format!("{name}_{}", names::uid());
    loop {
        renew_once(&server, &host, &name, &holder).await?;
        clock::sleep(RENEW).await;
    }
}

async fn renew_once(server: &Server, host: &str, name: &str, holder: &str) -> Result<(), Status> {
    let (loopback, target) = (Loopback::new(server), target(server, name));
    let found = loopback.get(&target)?;
    let is_new = found.is_none();
    let mut lease = match found {
        Some(Value::Object(lease)) => lease,
        _ => Object::new(),
    };
    let naming = server.types.naming;
    let metadata = lease.object_entry("metadata");
    metadata.insert("name", name.into());
    metadata.insert("namespace", target.namespace.as_str().into());
    let labels = metadata.object_entry("labels");
    labels.insert(
        format!("apiserver.{}", naming.label("identity")),
        naming.system("apiserver").as_str().into(),
    );
    labels.insert(naming.label("hostname"), host.into());
    if let Some(address) = server.outgoing.peers.address().or(server.operations.own_service.advertised) {
        let annotations = metadata.object_entry("annotations");
        annotations.insert(naming.label("peer-advertise-address"), address.to_string().as_str().into());
    }
    let spec = lease.object_entry("spec");
    spec.insert("holderIdentity", holder.into());
    spec.insert("leaseDurationSeconds", Value::Int(DURATION.as_secs() as i64));
    spec.insert("renewTime", Value::from(clock::now_micros()));
    let written = if is_new {
        loopback.create(&target, Value::Object(lease)).await?
    } else {
        loopback.update(&target, Value::Object(lease)).await?
    };
    if written != WriteResult::Done {
        tracing::debug!(name, "another server of this host has renewed the lease");
    }
    Ok(())
}

/// Runs the controller that deletes expired leases of servers.
pub(super) async fn collect(server: Arc<Server>) -> Ending {
    loop {
        collect_once(&server).await?;
        clock::sleep(COLLECT).await;
    }
}

async fn collect_once(server: &Server) -> Result<(), Trouble> {
    let loopback = Loopback::new(server);
    let of_all = target(server, "");
    let resource: &Resource = loopback.resource(&of_all)?;
    let label = format!("apiserver.{}", server.types.naming.label("identity"));
    let (component, now) = (server.types.naming.system("apiserver"), clock::system_time());
    let snapshot = server.store.engine_of(resource).snapshot();
    for entry in snapshot.prefix(&store::collection(resource, &of_all.namespace)) {
        let stored = store::read(entry)?;
        let lease = Value::Object(stored.object(resource)?);
        if lease.str_at(&["metadata", "labels", &label]) == component && is_over(&lease, now) {
            let name = lease.str_at(&["metadata", "name"]).to_owned();
            tracing::info!(name, "lease of a stopped server deleted");
            loopback.delete(&target(server, &name), &lease).await?;
        }
    }
    Ok(())
}

/// Returns whether a lease has expired. A lease without times counts as expired.
fn is_over(lease: &Value, now: SystemTime) -> bool {
    let renewed: Option<jiff::Timestamp> = lease.str_at(&["spec", "renewTime"]).parse().ok();
    let lasts = lease.at(&["spec", "leaseDurationSeconds"]).and_then(Value::as_i64);
    let (Some(renewed), Some(lasts)) = (renewed, lasts.and_then(|lasts| u64::try_from(lasts).ok())) else {
        return true;
    };
    SystemTime::from(renewed).checked_add(Duration::from_secs(lasts)).is_none_or(|end| end < now)
}

#[cfg(test)]
mod tests {
    use super::*;
    use values::json;

    #[test]
    fn an_identity_lease_name_is_derived_from_its_host() {
        // Test vectors of RFC 4648, section 10.
        for (bytes, want) in [
            ("", ""),
            ("f", "my"),
            ("fo", "mzxq"),
            ("foo", "mzxw6"),
            ("foob", "mzxw6yq"),
            ("foobar", "mzxw6ytboi"),
        ] {
            assert_eq!(base32(bytes.as_bytes()), want);
        }
        // The name of the lease of a kube-apiserver on this host.
        let usual = lease_name("vm", "kube-apiserver", USUAL_PORT);
        assert_eq!(usual, "apiserver-wlv32tlttr4jl3gtroqexyxapa");
        let others = [("vm", 6444), ("v", 6444), ("v", 6445)]
            .map(|(host, port)| lease_name(host, "kube-apiserver", port));
        assert!(
            !others.contains(&usual)
                && others.iter().all(|one| others.iter().filter(|other| *other == one).count() == 1)
        );
    }

    #[test]
    fn an_identity_lease_is_over_when_it_was_not_renewed_for_its_duration() {
        let now = SystemTime::from("2026-01-01T01:00:00Z".parse::<jiff::Timestamp>().unwrap());
        for (spec, want) in [
            (r#"{"renewTime":"2026-01-01T00:00:01.000000Z","leaseDurationSeconds":3600}"#, false),
            (r#"{"renewTime":"2025-12-31T23:59:59.000000Z","leaseDurationSeconds":3600}"#, true),
            (r#"{"renewTime":"2026-01-01T00:59:00.000000Z","leaseDurationSeconds":10}"#, true),
            (r#"{"leaseDurationSeconds":10}"#, true),
            (r#"{"renewTime":"2026-01-01T00:59:00.000000Z"}"#, true),
        ] {
            let lease = json::parse(format!("{{\"spec\":{spec}}}").as_bytes()).unwrap();
            assert_eq!(is_over(&lease, now), want, "{spec}");
        }
    }
}
