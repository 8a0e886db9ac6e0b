//! Addresses of the servers that use one etcd. Each server has a key in kube-apiserver's form. The lease of
//! the key ends if the server does not write the key again (docs/api/peers.md#addresses).
//!
//! ```text
//! server ─ every few seconds ─► /registry/peerserverleases/<identity> ─► any server that forwards a request
//! ```
//!
//! The keys are not objects, so the copies do not contain them, and they are read from etcd when needed.
//! Values of other servers are not trusted: a value without an address is skipped.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use engine::KeyRange;
use etcd::rpc::{
    Compare, DeleteRangeRequest, KeyValue, PutRequest, RangeRequest, Request, RequestOp, TxnRequest,
};

use super::Replica;
use objects::codec::protobuf::{
    self,
    envelope::{self, Unknown},
};
use objects::store::Addresses;
use types::schema::registry::{Registry, Resource};
use values::json::{Object, Value};
use values::status::Status;

/// Path of the keys, below the prefix.
const PATH: &str = "peerserverleases/";

/// Time after which a server that does not renew its key is forgotten.
pub(super) const TTL: Duration = Duration::from_secs(15);

/// Maximum number of servers that are read. In practice, far fewer servers use one etcd.
const SERVERS_MAX: i64 = 1000;

/// Label that contains the identity of the server of an address.
const IDENTITY: &str = "apiserverIdentity";

impl Replica {
    /// Announces the address of a server until the lease ends.
    pub(super) async fn write_address(
        &self,
        server: &str,
        address: SocketAddr,
        round: i64,
    ) -> Result<(), Status> {
        let value = encode(self.endpoints()?, server, address, round)?;
        let lease = self.client.lease(TTL.as_secs().cast_signed()).await;
        let lease = lease.map_err(|error| self.unanswered(&error))?;
        self.change_known(Request::Put(PutRequest { key: self.address_of(server), value, lease }).into())
            .await
    }

    /// Removes the address of a server.
    pub(super) async fn remove_address(&self, server: &str) -> Result<(), Status> {
        let delete = DeleteRangeRequest { key: self.address_of(server), range_end: Bytes::new() };
        self.change_known(Request::Delete(delete).into()).await
    }

    /// Changes a key of a server. During and after a move of the store, this function has no effect, because
    /// etcd then accepts only the writes of the move.
    pub(super) async fn change_known(&self, operation: RequestOp) -> Result<(), Status> {
        let compare = vec![Compare::mod_revision(self.mark_key(), self.claimed())];
        let request = TxnRequest { compare, success: vec![operation], ..TxnRequest::default() };
        self.client.txn(&request).await.map(drop).map_err(|error| self.unanswered(&error))
    }

    /// Returns the host and port of each server whose lease has not ended, by server identity.
    pub(super) async fn read_addresses(&self) -> Result<Addresses, Status> {
        let (found, endpoints) = (self.read_known(self.address_of("")).await?, self.endpoints()?);
        Ok(found.iter().filter_map(|kv| decode(self.values.registry(), endpoints, &kv.value)).collect())
    }

    /// Reads those keys of servers whose bytes begin with `start`.
    pub(super) async fn read_known(&self, start: Bytes) -> Result<Vec<KeyValue>, Status> {
        let range = KeyRange::prefix(&start);
        let end = range.end.unwrap_or_else(|| Bytes::from_static(b"\0"));
        let request =
            RangeRequest { key: start, range_end: end, limit: SERVERS_MAX, ..RangeRequest::default() };
        Ok(self.client.range(&request).await.map_err(|error| self.unanswered(&error))?.kvs)
    }

    fn address_of(&self, server: &str) -> Bytes {
        format!("{}{PATH}{server}", self.keys.prefix()).into()
    }

    pub(super) fn endpoints(&self) -> Result<&Resource, Status> {
        let found = self.keys.etcd_key(b"/core/endpoints/x/x").and_then(|(_, resource)| resource);
        found.map(|resource| &**resource).ok_or_else(|| Status::internal("endpoints are not built in"))
    }
}

pub(super) fn object<const N: usize>(members: [(&str, Value); N]) -> Value {
    Value::Object(members.into_iter().map(|(name, value)| (name.to_owned().into(), value)).collect())
}

fn encode(resource: &Resource, server: &str, address: SocketAddr, round: i64) -> Result<Bytes, Status> {
    let port = object([
        ("name", "https".into()),
        ("port", Value::Int(address.port().into())),
        ("protocol", "TCP".into()),
    ]);
    let subset = object([
        ("addresses", Value::Array(vec![object([("ip", address.ip().to_string().into())])])),
        ("ports", Value::Array(vec![port])),
    ]);
    let metadata =
        object([("generation", Value::Int(round)), ("labels", object([(IDENTITY, server.into())]))]);
    record(resource, metadata, subset)
}

/// Encodes the value of a key of a server: an Endpoints object with one subset.
pub(super) fn record(resource: &Resource, metadata: Value, subset: Value) -> Result<Bytes, Status> {
    let stored = resource.stored();
    let whole: Object = [
        ("kind", Value::from(&*stored.kind)),
        ("apiVersion", stored.api_version.as_str().into()),
        ("metadata", metadata),
        ("subsets", Value::Array(vec![subset])),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned().into(), value))
    .collect();
    let mut out = Vec::with_capacity(256);
    envelope::wrap_object(&stored.message, &whole, &mut out).map_err(Status::internal)?;
    Ok(out.into())
}

/// Decodes a value that [`record`] encoded. Returns the object, its first subset, and the first address of
/// that subset.
pub(super) fn read(registry: &Registry, resource: &Resource, value: &[u8]) -> Option<[Value; 3]> {
    let unknown = Unknown::read(value).ok()?;
    let object = protobuf::decode(registry, &resource.stored().message, unknown.raw).ok()?;
    let object = Value::Object(object);
    let subset = first(&object, "subsets")?;
    let address = first(&subset, "addresses")?;
    Some([object, subset, address])
}

fn first(value: &Value, member: &str) -> Option<Value> {
    value.get(member)?.as_array()?.first().cloned()
}

fn decode(registry: &Registry, resource: &Resource, value: &[u8]) -> Option<(String, (String, u16))> {
    let [object, subset, address] = read(registry, resource, value)?;
    let (server, port) = (object.str_at(&["metadata", "labels", IDENTITY]), first(&subset, "ports")?);
    let port = u16::try_from(port.get("port")?.as_i64()?).ok().filter(|port| *port > 0)?;
    let host = address.str_at(&["ip"]);
    (!server.is_empty() && !host.is_empty()).then(|| (server.to_owned(), (host.to_owned(), port)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use values::naming::KUBERNETES;

    /// A value in the form in which kube-apiserver writes it.
    const THEIRS: &[u8] = b"k8s\0\n\x0f\n\x02v1\x12\tEndpoints\x12o\nK\n\0\x12\0\x1a\0\"\0*\x002\x008\x0bB\0Z9\n\x11\
        apiserverIdentity\x12$apiserver-wlv32tlttr4jl3gtroqexyxapa\x12 \n\x0c\n\x0810.1.1.1\x1a\0\x1a\x10\n\x05https\x10\
        \xaa\xd3\x01\x1a\x03TCP\x1a\0\"\0";

    #[test]
    fn endpoints_are_encoded_and_decoded_like_those_of_the_reference_server() {
        let registry = Registry::new(&KUBERNETES);
        let resource = registry.resource("", "v1", "endpoints").unwrap();
        let name = "apiserver-wlv32tlttr4jl3gtroqexyxapa";
        let ours = encode(resource, name, "10.1.1.1:27050".parse().unwrap(), 11).unwrap();
        assert_eq!(ours, THEIRS);
        let known = Some((name.to_owned(), ("10.1.1.1".to_owned(), 27_050)));
        assert_eq!(decode(&registry, resource, THEIRS), known);
        let v6 = encode(resource, "a", "[::1]:443".parse().unwrap(), 1).unwrap();
        assert_eq!(decode(&registry, resource, &v6), Some(("a".to_owned(), ("::1".to_owned(), 443))));
        let nameless = encode(resource, "", "[::1]:443".parse().unwrap(), 1).unwrap();
        let portless = encode(resource, "a", "[::1]:0".parse().unwrap(), 1).unwrap();
        for other in [&b""[..], b"k8s\0", b"no", &THEIRS[..40], &nameless, &portless] {
            assert_eq!(decode(&registry, resource, other), None, "{other:?}");
        }
    }
}
