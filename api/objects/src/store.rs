//! Objects in the engine: their keys, attributes and stored bytes; `access.rs` opens the store for a permission.
//!
//! A key is `/<stored group or "core">/<resource>/[<namespace>/]<name>`; key order is list order. The value is the
//! stored form, which is also the served form; the selector attributes are stored beside it.

use std::collections::BTreeMap;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;

use bytes::Bytes;
use engine::{CommitError, Committed, Entry, Payload, ReadError, Record, Write};

pub use access::{Part, Reach, Store, View, engine_for_path};

use crate::validation::names::path_segment;
use types::attributes::{self, Attributes, Selection};
use types::schema::decode::{DecodeError, decode_beside, decode_own, decode_settled};
use types::schema::encode::encode_stamped;
use types::schema::etcd_path::etcd_path;
use types::schema::registry::Resource;
use values::field::go_quote;
use values::json::Object;
use values::object::{meta, set_meta};
use values::status::{Reason, Status};

mod access;
#[cfg(test)]
mod access_test;
pub mod backends;
#[cfg(test)]
mod bloom_test;

/// Who decides the writes of a server, and knows how new a state must be, where that is not its own engine. The engine follows
/// then, and everything but this is the same. Servers that share one tell each other by it where they are.
pub trait Ledger: Send + Sync {
    /// Decides one write. By the answer the engine has it.
    fn commit(&self, write: Write) -> Pending<'_, Result<Committed, CommitFailure>>;

    /// Resolves once the engine has everything that was acknowledged by any server before the call.
    fn current(&self) -> Pending<'_, Result<(), Status>>;

    /// Says to the other servers where this one is reached, for some seconds. `round` is another one each time.
    fn announce<'l>(
        &'l self,
        server: &'l str,
        address: SocketAddr,
        round: i64,
    ) -> Pending<'l, Result<(), Status>>;

    /// Says to the other servers that this one is not reached any more.
    fn withdraw<'l>(&'l self, server: &'l str) -> Pending<'l, Result<(), Status>>;

    /// Host and port of the servers that are reached, by their identity.
    fn announced(&self) -> Pending<'_, Result<Addresses, Status>>;

    /// Says that the server at an address stands behind the service of the servers, for some seconds. `round` is another one
    /// each time.
    fn enter_service(&self, address: IpAddr, round: i64) -> Pending<'_, Result<(), Status>>;

    /// Says that it does no more.
    fn leave_service(&self, address: IpAddr) -> Pending<'_, Result<(), Status>>;

    /// The addresses of the servers that do, in the order of their texts.
    fn in_service(&self) -> Pending<'_, Result<Vec<IpAddr>, Status>>;

    /// Puts right what is allocated to services beside their objects; says whether nothing is left to be looked at soon.
    fn repair_allocations(&self) -> Pending<'_, Result<bool, Status>>;

    /// Whether writes could be decided a moment ago; if not, why.
    fn health(&self) -> Result<(), String>;
}

/// Host and port of servers, by their identity.
pub type Addresses = BTreeMap<String, (String, u16)>;

/// An answer that is under way.
pub type Pending<'l, T> = Pin<Box<dyn Future<Output = T> + Send + 'l>>;

/// Why a write was not committed.
#[derive(Debug)]
pub enum CommitFailure {
    /// The condition did not hold; the newest state.
    Conflict {
        /// `None` where there is none.
        current: Option<Entry>,
    },
    /// The condition held, but what the write takes along, such as an address, was taken meanwhile: begin again.
    Again,
    /// The engine, which decides itself, refused.
    Engine(CommitError),
    /// What the caller is to be answered.
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
    /// Revision and key.
    pub entry: Entry,
    /// Key, attributes and value.
    pub record: Record,
}

/// Reads an entry's bytes; damage becomes a 500 that names the key.
pub fn read(entry: Entry) -> Result<Stored, Status> {
    let record = entry.read().map_err(damaged)?;
    Ok(Stored { entry, record })
}

/// Reads an entry's bytes if the object is selected; the bytes of other objects are not read.
pub fn read_selected(
    resource: &Resource,
    selection: &Selection,
    entry: Entry,
) -> Result<Option<Stored>, Status> {
    if selects(resource, selection, &entry)? { read(entry).map(Some) } else { Ok(None) }
}

/// Whether the object of an entry is selected. Reads its attributes; its value only where those were written by a
/// release that kept other ones.
pub fn selects(resource: &Resource, selection: &Selection, entry: &Entry) -> Result<bool, Status> {
    if selection.is_everything() {
        return Ok(true);
    }
    let (namespace, name) = identity(resource, entry.key());
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

/// An object of the resource that says its name and nothing else: what is left of one that cannot be read.
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

/// 500 for bytes that cannot be read.
pub fn damaged(error: ReadError) -> Status {
    Status::new(Reason::StorageReadError, error.to_string())
}

impl Stored {
    /// The object as a tree, in the stored version.
    pub fn object(&self, resource: &Resource) -> Result<Object, Status> {
        decode_stored(resource, &self.record.value)
    }

    /// The same with its parts parsed: for callers that make a similar object from it.
    pub fn settled(&self, resource: &Resource) -> Result<Object, Status> {
        decode_settled(&resource.stored().message, &self.record.value).map_err(unreadable)
    }

    /// The same, for the object `new` that will replace it: equal parts are parsed once.
    pub fn beside(&self, resource: &Resource, new: &mut Object) -> Result<Object, Status> {
        decode_beside(&resource.stored().message, &self.record.value, new).map_err(unreadable)
    }
}

fn unreadable(error: DecodeError) -> Status {
    Status::new(Reason::StorageReadError, error.to_string())
}

/// The tree of a stored value.
pub fn decode_stored(resource: &Resource, value: &[u8]) -> Result<Object, Status> {
    decode_own(&resource.stored().message, value).map_err(unreadable)
}

/// Encodes an object for storage: value with stamp slot, and attributes.
pub fn payload(resource: &Resource, object: &Object) -> Payload {
    payload_of_change(resource, object, &[])
}

/// As [`payload`] for what replaces an object with the attributes `replaced`.
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

/// Whether a write of the object is a step of its deletion, which is taken on a full disk.
pub fn is_essential(object: &Object) -> bool {
    !meta(object, "deletionTimestamp").is_empty()
}

/// The key of one object; `namespace` is empty for cluster-scoped resources.
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
/// 400 for an empty name, and for one that is no segment of a path.
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

/// The key of an object as errors show it: where the reference server keeps it in etcd.
pub fn shown_key(resource: &Resource, namespace: &str, name: &str) -> String {
    let mut key = format!("/registry/{}/", etcd_path(resource));
    if !namespace.is_empty() {
        key.push_str(namespace);
        key.push('/');
    }
    key.push_str(name);
    key
}

/// The common start of the keys of a collection: all of a resource, or one namespace of it.
pub fn collection(resource: &Resource, namespace: &str) -> Bytes {
    key(resource, namespace, "")
}

/// [`selects`] for a state that was read.
pub fn is_selected(resource: &Resource, selection: &Selection, record: &Record) -> Result<bool, Status> {
    if selection.is_everything() {
        return Ok(true);
    }
    let (namespace, name) = identity(resource, &record.key);
    let attributes = Attributes::new(&record.attributes);
    if selection.is_outdated(&attributes) {
        let object = decode_stored(resource, &record.value)?;
        let fresh = attributes::encode(&resource.stored().table, &object);
        return Ok(selection.matches(name, namespace, &Attributes::new(&fresh)));
    }
    Ok(selection.matches(name, namespace, &attributes))
}

/// Namespace and name of a key of `resource`; the namespace is empty for cluster-scoped resources.
pub fn identity<'k>(resource: &Resource, key: &'k [u8]) -> (&'k str, &'k str) {
    let rest = key.get(resource.stored().key_prefix.len()..).unwrap_or_default();
    let rest = std::str::from_utf8(rest).unwrap_or_default();
    if resource.namespaced() { rest.split_once('/').unwrap_or(("", rest)) } else { ("", rest) }
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
            assert_eq!(shown_key(resource, namespace, "a"), want);
        }
    }
}
