//! Allocations of a service, which change in the same transaction as the service. Each address of the service
//! has an object that contains it, and the ports are bits of one value. Both records have kube-apiserver's
//! form, so that this server and kube-apiserver never allocate the same item (docs/api/etcd.md#allocation).
//!
//! ```text
//! service ─ addresses taken ─► if /ipaddresses/<address> is absent ─► put it          given back ─► delete it
//!         └ ports           ─► if /ranges/servicenodeports is unchanged ─► put it with other bits
//! ```

use std::net::IpAddr;

use bytes::Bytes;
use etcd::rpc::{Compare, DeleteRangeRequest, PutRequest, RangeRequest, Request, RequestOp};

use super::Replica;
use api::state::allocation::allocated_items;
use objects::codec::protobuf::envelope::{self, Unknown};
use objects::codec::protobuf::{self, write_bytes, write_delimited};
use objects::store;
use types::schema::builtin;
use types::schema::registry::Resource;
use values::clock;
use values::json::{Object, Value};
use values::names;
use values::status::Status;

/// Path of the port bits below the prefix.
pub(super) const PORTS: &str = "ranges/servicenodeports";

/// The conditions and operations that a service adds to its transaction.
#[derive(Default)]
pub(super) struct Parts {
    pub(super) compare: Vec<Compare>,
    pub(super) operations: Vec<RequestOp>,
}

/// A service, with its value before the write and its value after the write.
pub(super) struct Service<'s> {
    pub(super) namespace: &'s str,
    pub(super) name: &'s str,
    pub(super) before: Option<&'s [u8]>,
    pub(super) after: Option<&'s [u8]>,
}

impl Replica {
    /// Returns the changes of allocations for a change of a service; empty for most changes.
    ///
    /// # Errors
    /// Fails if etcd does not return the allocated ports.
    pub(super) async fn allocated(&self, service: &Service<'_>) -> Result<Parts, Status> {
        let (old_addresses, old_ports) = service.before.map(allocated_items).unwrap_or_default();
        let (addresses, ports) = service.after.map(allocated_items).unwrap_or_default();
        let mut parts = Parts::default();
        for address in addresses.iter().filter(|address| !old_addresses.contains(address)) {
            let key = self.address_key(address);
            parts.compare.push(Compare::mod_revision(key.clone(), 0));
            let value = self.address_object(address, service)?;
            parts.operations.push(Request::Put(PutRequest { key, value, lease: 0 }).into());
        }
        for address in old_addresses.iter().filter(|address| !addresses.contains(address)) {
            let delete = DeleteRangeRequest { key: self.address_key(address), range_end: Bytes::new() };
            parts.operations.push(Request::Delete(delete).into());
        }
        let taken: Vec<u16> = ports.iter().filter(|port| !old_ports.contains(port)).copied().collect();
        let given: Vec<u16> = old_ports.iter().filter(|port| !ports.contains(port)).copied().collect();
        if !taken.is_empty() || !given.is_empty() {
            self.ports(&mut parts, &taken, &given).await?;
        }
        Ok(parts)
    }

    pub(super) fn address_key(&self, address: &IpAddr) -> Bytes {
        format!("{}ipaddresses/{address}", self.keys.prefix()).into()
    }

    /// Encodes the object that assigns an address to a service.
    pub(super) fn address_object(&self, address: &IpAddr, service: &Service<'_>) -> Result<Bytes, Status> {
        let resource = self.addresses()?;
        let object = |members: Vec<(String, Value)>| {
            let mut object = Object::new();
            members.into_iter().for_each(|(name, value)| object.push(name, value));
            Value::Object(object)
        };
        let text = |name: &str, value: &str| (name.to_owned(), Value::from(value));
        let family = if address.is_ipv4() { "IPv4" } else { "IPv6" };
        let labels = object(vec![
            text(&format!("ipaddress.{}", self.naming.label("ip-family")), family),
            text(
                &format!("ipaddress.{}", self.naming.label("managed-by")),
                &format!("ipallocator{}", self.naming.group_suffix),
            ),
        ]);
        let metadata = object(vec![
            text("name", &address.to_string()),
            text("uid", &names::uid()),
            text("creationTimestamp", &clock::now()),
            ("labels".to_owned(), labels),
        ]);
        let parent = object(vec![
            text("group", ""),
            text("resource", "services"),
            text("namespace", service.namespace),
            text("name", service.name),
        ]);
        let storage = resource.stored();
        let Value::Object(whole) = object(vec![
            text("kind", &storage.kind),
            text("apiVersion", &storage.api_version),
            ("metadata".to_owned(), metadata),
            ("spec".to_owned(), object(vec![("parentRef".to_owned(), parent)])),
        ]) else {
            return Err(Status::internal("no object"));
        };
        let payload = store::payload(resource, &whole);
        self.values.encode(resource, &payload, None).map_err(Status::internal)
    }

    fn addresses(&self) -> Result<&Resource, Status> {
        let found = self.keys.etcd_key(b"/networking/ipaddresses/x").and_then(|(_, resource)| resource);
        found.map(|resource| &**resource).ok_or_else(|| Status::internal("addresses are not built in"))
    }

    /// Adds the change of the port bits. The transaction fails if another server has changed the bits.
    async fn ports(&self, parts: &mut Parts, taken: &[u16], given: &[u16]) -> Result<(), Status> {
        let key: Bytes = format!("{}{PORTS}", self.keys.prefix()).into();
        let request = RangeRequest { key: key.clone(), ..RangeRequest::default() };
        let found = self.client.range(&request).await.map_err(|error| self.unanswered(&error))?;
        let found = found.kvs.into_iter().next();
        let mut bits = match &found {
            Some(kv) => Bits::read(&kv.value).map_err(Status::internal)?,
            None => Bits::for_range(&self.ports),
        };
        // If another server has taken the port in the meantime, use a condition that fails, so that the
        // caller repeats the write with the current state.
        let is_taken = taken.iter().any(|port| bits.has(*port));
        taken.iter().for_each(|port| bits.set(*port, true));
        given.iter().for_each(|port| bits.set(*port, false));
        let known = if is_taken { -1 } else { found.map_or(0, |kv| kv.mod_revision) };
        parts.compare.push(Compare::mod_revision(key.clone(), known));
        let value = bits.write().map_err(Status::internal)?;
        parts.operations.push(Request::Put(PutRequest { key, value, lease: 0 }).into());
        Ok(())
    }
}

/// The ports of a range as a bit set with one bit for each port. The stored form is a big-endian number.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct Bits {
    range: String,
    first: u16,
    /// The bits, with the lowest byte first.
    bytes: Vec<u8>,
}

impl Bits {
    pub(super) fn for_range(range: &str) -> Bits {
        let first = range.split('-').next().and_then(|first| first.parse().ok()).unwrap_or_default();
        Bits { range: range.to_owned(), first, bytes: Vec::new() }
    }

    pub(super) fn read(value: &[u8]) -> Result<Bits, String> {
        let enveloped = Unknown::read(value).map_err(|error| error.to_string())?;
        let mut reader = protobuf::Reader::new(enveloped.raw);
        let (mut range, mut data) = ("", &b""[..]);
        while let Some((number, field)) = reader.next().map_err(|error| error.to_string())? {
            match number {
                2 => range = field.string().map_err(|error| error.to_string())?,
                3 => data = field.bytes().map_err(|error| error.to_string())?,
                _ => {}
            }
        }
        let bytes = data.iter().rev().copied().collect();
        Ok(Bits { bytes, ..Bits::for_range(range) })
    }

    /// Returns whether a port is in the range and therefore has a bit.
    pub(super) fn holds(&self, port: u16) -> bool {
        let last = self.range.split('-').nth(1).and_then(|last| last.parse().ok()).unwrap_or(u16::MAX);
        (self.first..=last).contains(&port)
    }

    fn place(&self, port: u16) -> Option<(usize, u8)> {
        let at = usize::from(port.checked_sub(self.first)?);
        Some((at / 8, 1 << (at % 8)))
    }

    /// Returns the ports whose bits are set.
    pub(super) fn allocated(&self) -> impl Iterator<Item = u16> {
        let bits = self.bytes.iter().zip(0_usize..).flat_map(|(byte, at)| {
            (0..8).filter(move |bit| byte >> bit & 1 == 1).map(move |bit| at * 8 + bit)
        });
        bits.filter_map(|at| self.first.checked_add(u16::try_from(at).ok()?))
    }

    pub(super) fn has(&self, port: u16) -> bool {
        self.place(port).is_some_and(|(at, bit)| self.bytes.get(at).is_some_and(|byte| byte & bit != 0))
    }

    pub(super) fn set(&mut self, port: u16, taken: bool) {
        let Some((at, bit)) = self.place(port) else { return };
        if self.bytes.len() <= at {
            self.bytes.resize(at + 1, 0);
        }
        if taken { self.bytes[at] |= bit } else { self.bytes[at] &= !bit }
    }

    pub(super) fn write(&self) -> Result<Bytes, protobuf::EncodeError> {
        let len = self.bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        let data: Vec<u8> = self.bytes[..len].iter().rev().copied().collect();
        let mut out = Vec::with_capacity(data.len() + 64);
        envelope::wrap("v1", "RangeAllocation", &mut out, |out| {
            write_delimited(1, out, |out| protobuf::encode(builtin::OBJECT_META, &Object::new(), out))?;
            write_bytes(2, self.range.as_bytes(), out);
            write_bytes(3, &data, out);
            Ok::<_, protobuf::EncodeError>(())
        })?;
        Ok(out.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocated_ports_are_stored_as_bits_of_one_number() {
        let mut bits = Bits::for_range("30000-32767");
        for (port, taken, bytes) in [
            (30_000, true, &[1][..]),
            (30_009, true, &[1, 2]),
            (30_000, false, &[0, 2]),
            (29_999, true, &[0, 2]),
        ] {
            bits.set(port, taken);
            assert_eq!(bits.bytes, bytes, "{port}");
        }
        assert_eq!(bits.allocated().collect::<Vec<_>>(), [30_009]);
        assert!(bits.holds(30_000) && bits.holds(32_767) && !bits.holds(32_768) && !bits.holds(29_999));
        assert!(bits.has(30_009) && !bits.has(30_000) && !bits.has(29_999) && !bits.has(32_767));
        let written = bits.write().unwrap();
        let start = b"k8s\0\n\x15\n\x02v1\x12\x0fRangeAllocation\x12";
        assert!(written.starts_with(start), "{written:?}");
        assert!(written.ends_with(b"\x12\x0b30000-32767\x1a\x02\x02\x00\x1a\x00\"\x00"), "{written:?}");
        assert_eq!(Bits::read(&written).unwrap(), bits);
    }
}
