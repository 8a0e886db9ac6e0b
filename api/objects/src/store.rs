//! Objects in the engine: their keys, selector attributes and stored bytes. `access.rs` opens the store for a
//! permission.
//!
//! A key is `/<stored group or "core">/<resource>/[<namespace>/]<name>`. Lists are in key order. The value is
//! the stored form of the object, which is also the served form. The selector attributes are stored next to
//! the value.

use std::collections::BTreeMap;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;

use bytes::Bytes;
use engine::{CommitError, Committed, Entry, Payload, ReadError, Record, Write};

pub use access::{Component, Store, StoreScope, StoreView, engine_for_path};

use crate::validation::names::path_segment;
use types::attributes::{self, Attributes, Selection};
use types::schema::decode::{decode_own, decode_settled, decode_sharing};
use types::schema::decoded::DecodeError;
use types::schema::encode::encode_stamped;
use types::schema::etcd_path::etcd_path;
use types::schema::registry::Resource;
use values::field::go_quote;
use values::json::Object;
use values::object::{meta, set_meta};
use values::status::{Status, StatusReason};

mod access;
#[cfg(test)]
mod access_test;
pub mod backends;
#[cfg(test)]
mod bloom_test;

/// An external authority that decides the writes of a server and has the newest revision. With a ledger, the
/// engine only follows the ledger; all other functions work as without a ledger. Servers with the same ledger
/// announce their addresses to each other through the ledger.
pub trait Ledger: Send + Sync {
    /// Decides one write. The future resolves when the engine has applied the write.
    fn commit(&self, write: Write) -> Pending<'_, Result<Committed, CommitFailure>>;

    /// Resolves when the engine has applied every write that any server acknowledged before the call.
    fn current(&self) -> Pending<'_, Result<(), Status>>;

    /// Announces the address of this server to the other servers for some seconds. `round` must differ in
    /// each call.
    fn announce<'l>(
        &'l self,
        server: &'l str,
        address: SocketAddr,
        round: i64,
    ) -> Pending<'l, Result<(), Status>>;

    /// Withdraws the announcement of this server.
    fn withdraw<'l>(&'l self, server: &'l str) -> Pending<'l, Result<(), Status>>;

    /// Returns the host and port of each announced server, by server identity.
    fn announced(&self) -> Pending<'_, Result<Addresses, Status>>;

    /// Announces for some seconds that the server at an address is an endpoint of the API servers' service.
    /// `round` must differ in each call.
    fn enter_service(&self, address: IpAddr, round: i64) -> Pending<'_, Result<(), Status>>;

    /// Withdraws an address from the endpoints of the API servers' service.
    fn leave_service(&self, address: IpAddr) -> Pending<'_, Result<(), Status>>;

    /// Returns the endpoint addresses of the API servers' service, sorted by their text.
    fn in_service(&self) -> Pending<'_, Result<Vec<IpAddr>, Status>>;

    /// Repairs the allocations of services, which are stored separately from the service objects. Returns
    /// `true` if the repair is complete. If the result is `false`, the caller should soon repeat the repair.
    fn repair_allocations(&self) -> Pending<'_, Result<bool, Status>>;

    /// Returns an error with the reason if the ledger recently could not decide writes.
    fn health(&self) -> Result<(), String>;
}

/// Host and port of each server, by server identity.
pub type Addresses = BTreeMap<String, (String, u16)>;

/// Boxed future of a method of [`Ledger`].
pub type Pending<'l, T> = Pin<Box<dyn Future<Output = T> + Send + 'l>>;

/// Reason why a write was not committed.
#[derive(Debug)]
pub enum CommitFailure {
    /// The condition was not satisfied. Contains the newest state.
    Conflict {
        /// Newest state of the object; `None` if the object does not exist.
        current: Option<Entry>,
    },
    /// The condition was satisfied, but another write has allocated a value that this write allocates, such
    /// as an address. The caller must compute the write again.
    Again,
    /// The engine refused the write. This variant occurs only without a ledger.
    Engine(CommitError),
    /// The write failed with this Status for the client.
    Status(Box<Status>),
}

impl From<Status> for CommitFailure {
    fn from(status: Status) -> CommitFailure {
        CommitFailure::Status(Box::new(status))
    }
}

/// A stored object: its key, revision and content.
#[derive(Clone, Debug)]
pub struct Stored {
    /// Engine entry with revision and key.
    pub entry: Entry,
    /// Record with key, selector attributes and value.
    pub record: Record,
}

/// Reads the record of an entry. If the record is damaged, the result is a 500 that contains the key.
pub fn read(entry: Entry) -> Result<Stored, Status> {
    let record = entry.read().map_err(damaged)?;
    Ok(Stored { entry, record })
}

/// Reads the record of an entry if the selection includes its object. Records of other objects are not read.
pub fn read_selected(
    resource: &Resource,
    selection: &Selection,
    entry: Entry,
) -> Result<Option<Stored>, Status> {
    if selects(resource, selection, &entry)? { read(entry).map(Some) } else { Ok(None) }
}

/// Returns whether the selection includes the object of an entry. Reads the selector attributes. Reads the
/// value only if a release with other selectable fields wrote the selector attributes.
pub fn selects(resource: &Resource, selection: &Selection, entry: &Entry) -> Result<bool, Status> {
    if selection.is_everything() {
        return Ok(true);
    }
    let ObjectName { namespace, name } = object_name(resource, entry.key());
    if !selection.field().may_match(name, namespace) {
        return Ok(false);
    }
    if !selection.needs_attributes() {
        return Ok(true);
    }
    let attributes = entry.attributes().map_err(damaged)?;
    let attributes = Attributes::new(&attributes);
    if selection.is_outdated(&attributes) {
        return is_selected(resource, selection, &read(entry.clone())?.record);
    }
    Ok(selection.matches(name, namespace, &attributes))
}

/// Returns an object with only its kind and name, as a placeholder for an object that cannot be read.
pub fn remains(resource: &Resource, namespace: &str, name: &str) -> Object {
    let stored = resource.stored();
    let mut object = Object::new();
    object.push("kind", stored.kind.clone().into());
    object.push("apiVersion", stored.api_version.as_str().into());
    set_meta(&mut object, "name", Some(name.into()));
    if !namespace.is_empty() {
        set_meta(&mut object, "namespace", Some(namespace.into()));
    }
    object
}

/// Returns the 500 for a record that cannot be read.
pub fn damaged(error: ReadError) -> Status {
    Status::new(StatusReason::StorageReadError, error.to_string())
}

impl Stored {
    /// Returns the object as a tree, in the stored version.
    pub fn object(&self, resource: &Resource) -> Result<Object, Status> {
        decode_stored(resource, &self.record.value)
    }

    /// Returns the object as a tree with all parts parsed, for callers that build a similar object from the tree.
    pub fn settled(&self, resource: &Resource) -> Result<Object, Status> {
        decode_settled(&resource.stored().message, &self.record.value).map_err(unreadable)
    }

    /// Returns the object as a tree. `new` is the object that will replace this object. Parts that are equal in both
    /// objects are parsed once.
    pub fn object_sharing(&self, resource: &Resource, new: &mut Object) -> Result<Object, Status> {
        decode_sharing(&resource.stored().message, &self.record.value, new).map_err(unreadable)
    }
}

fn unreadable(error: DecodeError) -> Status {
    Status::new(StatusReason::StorageReadError, error.to_string())
}

/// Decodes a stored value into a tree.
pub fn decode_stored(resource: &Resource, value: &[u8]) -> Result<Object, Status> {
    decode_own(&resource.stored().message, value).map_err(unreadable)
}

/// Encodes an object for storage: the value, with space for its revision, and the selector attributes.
pub fn payload(resource: &Resource, object: &Object) -> Payload {
    payload_of_change(resource, object, &[])
}

/// Encodes an object like [`payload`]. The object replaces an object with the selector attributes `replaced`.
pub fn payload_of_change(resource: &Resource, object: &Object, replaced: &[u8]) -> Payload {
    let (value, stamp_at) = encode_stamped(&resource.stored().message, object);
    let attributes = attributes::encode_changed(&resource.stored().table, object, replaced);
    Payload {
        attributes: attributes.into(),
        value: value.into(),
        stamp_at: Some(stamp_at),
        ttl: resource.stored().ttl,
        essential: resource.table.behavior.essential || is_essential(object),
    }
}

/// Returns whether a write of the object is a step of its deletion. The engine accepts such writes even if
/// the disk is full.
pub fn is_essential(object: &Object) -> bool {
    !meta(object, "deletionTimestamp").is_empty()
}

/// Returns the key of one object; `namespace` is empty for cluster-scoped resources.
pub fn key(resource: &Resource, namespace: &str, name: &str) -> Bytes {
    let prefix = &resource.stored().key_prefix;
    let mut key = Vec::with_capacity(prefix.len() + namespace.len() + name.len() + 1);
    key.extend_from_slice(prefix.as_bytes());
    if !namespace.is_empty() {
        key.extend_from_slice(namespace.as_bytes());
        key.push(b'/');
    }
    key.extend_from_slice(name.as_bytes());
    key.into()
}

/// Checks that a name given by a client can be part of a key.
///
/// # Errors
/// 400 if the name is empty or is not a valid path segment.
pub fn check_key_name(name: &str) -> Result<(), Status> {
    if name.is_empty() {
        return Err(Status::bad_request("Name parameter required."));
    }
    let faults = path_segment(name);
    if faults.is_empty() {
        return Ok(());
    }
    let (name, faults) = (go_quote(name), faults.join(";"));
    Err(Status::bad_request(format!("Name parameter invalid: {name}: {faults}")))
}

/// Returns the key of an object for error messages, which is the key that the reference server uses in etcd.
pub fn etcd_key(resource: &Resource, namespace: &str, name: &str) -> String {
    let mut key = format!("/registry/{}/", etcd_path(resource));
    if !namespace.is_empty() {
        key.push_str(namespace);
        key.push('/');
    }
    key.push_str(name);
    key
}

/// Returns the common key prefix of all objects of a resource, or of its objects in one namespace.
pub fn collection(resource: &Resource, namespace: &str) -> Bytes {
    key(resource, namespace, "")
}

/// Returns whether the selection includes the object in `record`. Unlike [`selects`], this function gets a
/// record that was already read.
pub fn is_selected(resource: &Resource, selection: &Selection, record: &Record) -> Result<bool, Status> {
    if selection.is_everything() {
        return Ok(true);
    }
    let ObjectName { namespace, name } = object_name(resource, &record.key);
    let attributes = Attributes::new(&record.attributes);
    if selection.is_outdated(&attributes) {
        let object = decode_stored(resource, &record.value)?;
        let fresh = attributes::encode(&resource.stored().table, &object);
        return Ok(selection.matches(name, namespace, &Attributes::new(&fresh)));
    }
    Ok(selection.matches(name, namespace, &attributes))
}

/// The namespace and name of an object.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct ObjectName<'n> {
    /// Namespace; empty for cluster-scoped objects.
    pub namespace: &'n str,
    /// Name of the object.
    pub name: &'n str,
}

impl<'n> ObjectName<'n> {
    /// Returns the name of a cluster-scoped object.
    pub fn cluster_scoped(name: &'n str) -> Self {
        ObjectName { namespace: "", name }
    }
}

/// Returns the namespace and name of the object whose key of `resource` is `key`.
pub fn object_name<'k>(resource: &Resource, key: &'k [u8]) -> ObjectName<'k> {
    let rest = key.get(resource.stored().key_prefix.len()..).unwrap_or_default();
    let rest = std::str::from_utf8(rest).unwrap_or_default();
    let (namespace, name) =
        if resource.namespaced() { rest.split_once('/').unwrap_or(("", rest)) } else { ("", rest) };
    ObjectName { namespace, name }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::schema::registry::Registry;
    use values::naming::KUBERNETES;

    #[test]
    fn a_name_that_cannot_be_part_of_a_key_is_refused() {
        for (name, want) in [
            ("a", None),
            ("a:b.", None),
            ("", Some("Name parameter required.")),
            (".", Some("Name parameter invalid: \".\": may not be '.'")),
            ("a/b", Some("Name parameter invalid: \"a/b\": may not contain '/'")),
            ("a/%", Some("Name parameter invalid: \"a/%\": may not contain '/';may not contain '%'")),
        ] {
            let refused = check_key_name(name).err();
            assert_eq!(refused.as_ref().map(|status| &*status.message), want, "{name}");
            assert!(refused.is_none_or(|status| status.code == 400), "{name}");
        }
    }

    #[test]
    fn errors_show_the_key_of_the_reference_server() {
        let registry = Registry::new(&KUBERNETES);
        for (group, plural, namespace, want) in [
            ("", "pods", "n", "/registry/pods/n/a"),
            ("", "services", "n", "/registry/services/specs/n/a"),
            ("", "endpoints", "n", "/registry/services/endpoints/n/a"),
            ("", "replicationcontrollers", "n", "/registry/controllers/n/a"),
            ("", "nodes", "", "/registry/minions/a"),
            ("apps", "deployments", "n", "/registry/deployments/n/a"),
            ("events.k8s.io", "events", "n", "/registry/events/n/a"),
            ("networking.k8s.io", "ingresses", "n", "/registry/ingress/n/a"),
            (
                "apiextensions.k8s.io",
                "customresourcedefinitions",
                "",
                "/registry/apiextensions.k8s.io/customresourcedefinitions/a",
            ),
            ("apiregistration.k8s.io", "apiservices", "", "/registry/apiregistration.k8s.io/apiservices/a"),
        ] {
            let resource = registry.resource(group, "v1", plural).unwrap();
            assert_eq!(etcd_key(resource, namespace, "a"), want);
        }
    }
}
