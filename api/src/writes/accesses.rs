//! Counts accesses to the store (docs/api/operations.md#accesses-to-the-store).
//!
//! kube-apiserver serves most reads from objects in memory. Only the remaining reads access the store of
//! kube-apiserver. This module counts the accesses that kube-apiserver would make.

use std::time::{Duration, Instant};

use super::plugin::Operation;
use super::server::Server;
use super::write::WriteIntent;
use types::options::ListOptions;
use types::schema::registry::Resource;
use values::request_scope;

/// Returns whether kube-apiserver would keep the objects of this type in memory. kube-apiserver keeps every type whose
/// objects do not expire.
pub fn is_cached(resource: &Resource) -> bool {
    !resource.table.behavior.expires
}

/// Returns whether kube-apiserver would read one object from its store. A read that accepts an older version is
/// served from memory if kube-apiserver keeps the type in memory.
pub fn reads_object_from_store(resource: &Resource, resource_version: &str) -> bool {
    resource_version.is_empty() || !is_cached(resource)
}

/// The kind of access that a list or a watch makes to the store.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum StoreAccess {
    /// A read of the newest revision, which returns no objects.
    Version,
    /// A read of the only object that can match.
    Object,
    /// A read of all objects.
    Objects,
}

impl StoreAccess {
    /// Returns the name of the operation in the metrics.
    fn operation(self) -> &'static str {
        match self {
            StoreAccess::Version | StoreAccess::Object => "get",
            StoreAccess::Objects => "list",
        }
    }
}

/// Returns the access that a list makes. If the type is kept in memory, a list that has to begin at the
/// newest revision reads that revision, and any other list makes no access. If the type is not kept in
/// memory, a list reads the objects. `is_one` means that the field selector names one object. `from_version`
/// means that the list continues an earlier list at the version of that earlier list.
pub fn list_access(
    resource: &Resource,
    options: &ListOptions,
    is_one: bool,
    from_version: bool,
) -> Option<StoreAccess> {
    match (is_cached(resource), is_one) {
        (true, _) => (options.resource_version.is_empty() && !from_version).then_some(StoreAccess::Version),
        (false, true) => Some(StoreAccess::Object),
        (false, false) => Some(StoreAccess::Objects),
    }
}

/// Returns the access that a watch makes before it sends changes. A watch that begins at the newest revision
/// reads that revision. If the type is not kept in memory, a watch with initial events reads the objects
/// instead.
pub fn watch_access(resource: &Resource, options: &ListOptions, is_one: bool) -> Option<StoreAccess> {
    match (is_cached(resource), options.send_initial_events == Some(true)) {
        (true, _) => options.resource_version.is_empty().then_some(StoreAccess::Version),
        (false, true) => Some(if is_one { StoreAccess::Object } else { StoreAccess::Objects }),
        (false, false) => matches!(&*options.resource_version, "" | "0").then_some(StoreAccess::Version),
    }
}

/// Returns whether kube-apiserver would begin a write with the object in its memory. Such a write reads from
/// the store only if the write does not end as an update of that object.
pub fn begins_with_cached_object(intent: &WriteIntent<'_>) -> bool {
    intent.write.operation == Operation::Update && is_cached(intent.write.resource)
}

impl Server {
    /// Counts an access to the store that began at `began`.
    pub fn accessed(&self, resource: &Resource, operation: &str, began: Instant) {
        self.accessed_for(resource, operation, began.elapsed());
    }

    /// Counts an access to the store that took `took`.
    pub fn accessed_for(&self, resource: &Resource, operation: &str, took: Duration) {
        request_scope::stored(took);
        self.operations.metrics.accessed(&resource.group, operation, &resource.table.plural, took);
    }

    /// Counts an access without a duration. Use this method if this server has no comparable access, or if
    /// the access lasts as long as the client reads.
    pub fn accessed_untimed(&self, resource: &Resource, operation: &str) {
        self.operations.metrics.store_requests.count(&[&*resource.group, operation, &*resource.table.plural]);
    }

    /// Counts the access that a list makes to the store.
    pub fn listed(&self, resource: &Resource, access: StoreAccess, took: Option<Duration>) {
        self.count_access(resource, access, took);
        self.operations.metrics.lists.count(&[&*resource.group, &*resource.table.plural]);
    }

    /// Counts the access that a watch makes to the store. `took` is the duration of the read of the newest
    /// revision.
    pub fn watched(&self, resource: &Resource, access: StoreAccess, took: Duration) {
        match access {
            StoreAccess::Version => self.listed(resource, access, Some(took)),
            // kube-apiserver counts this access to the store, but does not count the access as a list.
            StoreAccess::Object | StoreAccess::Objects => self.count_access(resource, access, None),
        }
    }

    fn count_access(&self, resource: &Resource, access: StoreAccess, took: Option<Duration>) {
        match took {
            Some(took) => self.accessed_for(resource, access.operation(), took),
            None => self.accessed_untimed(resource, access.operation()),
        }
    }

    /// Counts a change in the server's own store. Other code counts the changes of a shared store, when the
    /// shared store reports them. Changes of types that kube-apiserver does not keep in memory are not
    /// counted.
    pub fn changed(&self, resource: &Resource) {
        if is_cached(resource) && self.store.backends.backend_for(resource).ledger().is_none() {
            self.operations.metrics.store_events.count(&[&*resource.group, &*resource.table.plural]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::attributes::Selection;
    use types::schema::registry::Registry;
    use values::naming::KUBERNETES;
    use values::query::Query;

    #[test]
    fn list_access_follows_the_type_and_the_requested_version() {
        let registry = Registry::new(&KUBERNETES);
        let pods = registry.resource("", "v1", "pods").unwrap();
        let events = registry.resource("", "v1", "events").unwrap();
        for (resource, version, want) in
            [(pods, "", true), (pods, "0", false), (pods, "7", false), (events, "0", true)]
        {
            assert_eq!(
                reads_object_from_store(resource, version),
                want,
                "{} {version}",
                resource.table.plural
            );
        }
        for (resource, query, is_one, from_version, want) in [
            (pods, "", false, false, Some(StoreAccess::Version)),
            (pods, "limit=5", false, false, Some(StoreAccess::Version)),
            (pods, "", true, false, Some(StoreAccess::Version)),
            (pods, "resourceVersion=0", false, false, None),
            (pods, "resourceVersion=7&resourceVersionMatch=Exact", false, false, None),
            (pods, "continue=a", false, true, None),
            (pods, "continue=a", false, false, Some(StoreAccess::Version)),
            (events, "", false, false, Some(StoreAccess::Objects)),
            (events, "resourceVersion=0", false, false, Some(StoreAccess::Objects)),
            (events, "", true, false, Some(StoreAccess::Object)),
        ] {
            let options =
                ListOptions::from_query(&Query::parse(query), Selection::everything(), false, "meta.k8s.io");
            let access = list_access(resource, &options.unwrap(), is_one, from_version);
            assert_eq!(access, want, "{} {query} {is_one}", resource.table.plural);
        }
    }

    #[test]
    fn watch_access_follows_the_type_and_the_requested_start() {
        const NONE: &str = "resourceVersionMatch=NotOlderThan&sendInitialEvents=false";
        const STREAM: &str = "resourceVersionMatch=NotOlderThan&sendInitialEvents=true";
        let registry = Registry::new(&KUBERNETES);
        let pods = registry.resource("", "v1", "pods").unwrap();
        let events = registry.resource("", "v1", "events").unwrap();
        for (resource, query, version, is_one, want) in [
            (pods, "", "", false, Some(StoreAccess::Version)),
            (pods, "", "0", false, None),
            (pods, "", "7", false, None),
            (pods, STREAM, "", true, Some(StoreAccess::Version)),
            (pods, STREAM, "7", false, None),
            (pods, NONE, "", false, Some(StoreAccess::Version)),
            (events, "", "", false, Some(StoreAccess::Objects)),
            (events, "", "0", true, Some(StoreAccess::Object)),
            (events, "", "7", false, None),
            (events, STREAM, "7", false, Some(StoreAccess::Objects)),
            (events, NONE, "", false, Some(StoreAccess::Version)),
            (events, NONE, "0", false, Some(StoreAccess::Version)),
            (events, NONE, "7", false, None),
        ] {
            let text = format!("{query}&resourceVersion={version}");
            let options =
                ListOptions::from_query(&Query::parse(&text), Selection::everything(), true, "meta.k8s.io");
            let access = watch_access(resource, &options.unwrap(), is_one);
            assert_eq!(access, want, "{} {text} {is_one}", resource.table.plural);
        }
    }
}
