//! The API servers whose addresses are the endpoints of their common service. Each server has a key in
//! kube-apiserver's form. The lease of the key ends if the server does not write the key again
//! (docs/api/operations.md#service-of-the-server).
//!
//! ```text
//! server ─ every few seconds ─► /registry/masterleases/<address> ─► endpoints of the service, maintained by all servers
//! ```
//!
//! The keys are not objects, and are read from etcd when needed. Values of other servers are not trusted: a
//! value without an address is skipped.

use std::net::IpAddr;

use bytes::Bytes;
use etcd::rpc::{DeleteRangeRequest, PutRequest, Request};

use super::Replica;
use super::addresses::{TTL, object, read, record};
use types::schema::registry::{Registry, Resource};
use values::json::Value;
use values::status::Status;

/// Path of the keys, below the prefix.
const PATH: &str = "masterleases/";

impl Replica {
    /// Announces that the server at an address is in service. The announcement ends with the lease.
    pub(super) async fn write_in_service(&self, address: IpAddr, round: i64) -> Result<(), Status> {
        let value = encode(self.endpoints()?, address, round)?;
        let lease = self.client.lease(TTL.as_secs().cast_signed()).await;
        let lease = lease.map_err(|error| self.unanswered(&error))?;
        let key = self.in_service_of(&address.to_string());
        self.change_known(Request::Put(PutRequest { key, value, lease }).into()).await
    }

    /// Removes the server at an address from the service.
    pub(super) async fn remove_in_service(&self, address: IpAddr) -> Result<(), Status> {
        let key = self.in_service_of(&address.to_string());
        self.change_known(Request::Delete(DeleteRangeRequest { key, range_end: Bytes::new() }).into()).await
    }

    /// Returns the addresses of all servers in service, sorted by their text.
    pub(super) async fn read_in_service(&self) -> Result<Vec<IpAddr>, Status> {
        let (found, endpoints) = (self.read_known(self.in_service_of("")).await?, self.endpoints()?);
        let registry = self.values.registry();
        // The keys end with the address and are sorted, so the addresses are sorted as well.
        Ok(found.iter().filter_map(|kv| decode(registry, endpoints, &kv.value)).collect())
    }

    fn in_service_of(&self, address: &str) -> Bytes {
        format!("{}{PATH}{address}", self.keys.prefix()).into()
    }
}

fn encode(resource: &Resource, address: IpAddr, round: i64) -> Result<Bytes, Status> {
    let addresses = Value::Array(vec![object([("ip", address.to_string().into())])]);
    record(resource, object([("generation", Value::Int(round))]), object([("addresses", addresses)]))
}

fn decode(registry: &Registry, resource: &Resource, value: &[u8]) -> Option<IpAddr> {
    let [_, _, address] = read(registry, resource, value)?;
    address.str_at(&["ip"]).parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use values::naming::KUBERNETES;

    /// A value in the form in which kube-apiserver writes it.
    const THEIRS: &[u8] =
        b"k8s\0\n\x0f\n\x02v1\x12\tEndpoints\x12\"\n\x10\n\0\x12\0\x1a\0\"\0*\x002\x008\x0bB\0\
        \x12\x0e\n\x0c\n\x0810.1.1.1\x1a\0\x1a\0\"\0";

    #[test]
    fn servers_in_service_are_encoded_and_decoded_like_those_of_the_reference_server() {
        let registry = Registry::new(&KUBERNETES);
        let resource = registry.resource("", "v1", "endpoints").unwrap();
        let address: IpAddr = "10.1.1.1".parse().unwrap();
        assert_eq!(encode(resource, address, 11).unwrap(), THEIRS);
        assert_eq!(decode(&registry, resource, THEIRS), Some(address));
        let v6: IpAddr = "fd00::1".parse().unwrap();
        assert_eq!(decode(&registry, resource, &encode(resource, v6, 1).unwrap()), Some(v6));
        let named = record(resource, object([]), object([("addresses", Value::Array(vec![]))])).unwrap();
        for other in [&b""[..], b"k8s\0", b"no", &THEIRS[..40], &named] {
            assert_eq!(decode(&registry, resource, other), None, "{other:?}");
        }
    }
}
