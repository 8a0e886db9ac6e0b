//! Counts accesses to the store (docs/api/operations.md#accesses-to-the-store).
//!
//! kube-apiserver serves most reads from objects in memory and asks its store only for the rest. This module
//! counts the accesses that kube-apiserver would make.

use std::time::{Duration, Instant};

use super::plugin::Operation;
use super::server::Server;
use super::write::WriteIntent;
use types::options::ListOptions;
use types::schema::registry::Resource;
use values::request_scope;

/// Returns whether kube-apiserver would keep objects of this type in memory. Only types that expire are not
/// kept.
pub fn is_kept(resource: &Resource) -> bool {
    !resource.table.behavior.expires
}

/// Returns whether a read of one object asks the store. A read that accepts an older version is served from
/// memory if the type is kept.
pub fn asks_for_object(resource: &Resource, resource_version: &str) -> bool {
    resource_version.is_empty() || !is_kept(resource)
}

/// The kind of access that a list or a watch makes to the store.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Asked {
    /// A read of the newest version, without objects.
    Version,
    /// A read of the only object that can match.
    Object,
    /// A read of all objects.
    Objects,
}

impl Asked {
    /// Returns the name of the operation in the metrics.
    fn operation(self) -> &'static str {
        match self {
            Asked::Version | Asked::Object => "get",
            Asked::Objects => "list",
        }
    }
}

/// Returns the access that a list makes: a read of the newest version or, if the type is not kept in memory,
/// of the objects. `is_one` means that the field selector names one object. `from_version` means that the
/// list continues an earlier list at that list's version.
pub fn asks_for_list(
    resource: &Resource,
    options: &ListOptions,
    is_one: bool,
    from_version: bool,
) -> Option<Asked> {
    match (is_kept(resource), is_one) {
        (true, _) => (options.resource_version.is_empty() && !from_version).then_some(Asked::Version),
        (false, true) => Some(Asked::Object),
        (false, false) => Some(Asked::Objects),
    }
}

/// Returns the access that a watch makes before it sends changes. The rules are those of a list, except that
/// a watch without initial events, of a type that is not kept in memory, reads only the version at which it
/// begins.
pub fn asks_for_watch(resource: &Resource, options: &ListOptions, is_one: bool) -> Option<Asked> {
    match (is_kept(resource), options.send_initial_events == Some(true)) {
        (true, _) => options.resource_version.is_empty().then_some(Asked::Version),
        (false, true) => Some(if is_one { Asked::Object } else { Asked::Objects }),
        (false, false) => matches!(&*options.resource_version, "" | "0").then_some(Asked::Version),
    }
}

/// Returns whether a write begins with the object that is kept in memory. Such a write asks the store only if
/// its result is not an update of that object.
pub fn begins_with_kept(intent: &WriteIntent<'_>) -> bool {
    intent.write.operation == Operation::Update && is_kept(intent.write.resource)
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

    /// Counts an access without a duration, because this server has no comparable access or because the
    /// access lasts as long as the client reads.
    pub fn accessed_untimed(&self, resource: &Resource, operation: &str) {
        self.operations.metrics.store_requests.count(&[&*resource.group, operation, &*resource.table.plural]);
    }

    /// Counts the access that a list makes to the store.
    pub fn listed(&self, resource: &Resource, asked: Asked, took: Option<Duration>) {
        self.asked(resource, asked, took);
        self.operations.metrics.lists.count(&[&*resource.group, &*resource.table.plural]);
    }

    /// Counts the access that a watch makes to the store. `took` is the time in which the newest version was
    /// found.
    pub fn watched(&self, resource: &Resource, asked: Asked, took: Duration) {
        match asked {
            Asked::Version => self.listed(resource, asked, Some(took)),
            // kube-apiserver counts this access to the store, but does not count it as a list.
            Asked::Object | Asked::Objects => self.asked(resource, asked, None),
        }
    }

    fn asked(&self, resource: &Resource, asked: Asked, took: Option<Duration>) {
        match took {
            Some(took) => self.accessed_for(resource, asked.operation(), took),
            None => self.accessed_untimed(resource, asked.operation()),
        }
    }

    /// Counts a change that the server's own store has committed. Changes of a shared store are counted where
    /// that store reports them. Changes of types that are not kept in memory are not counted.
    pub fn changed(&self, resource: &Resource) {
        if is_kept(resource) && self.store.backends.of(resource).ledger().is_none() {
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
    fn reads_of_kept_types_ask_for_the_newest_version_only() {
        let registry = Registry::new(&KUBERNETES);
        let pods = registry.resource("", "v1", "pods").unwrap();
        let events = registry.resource("", "v1", "events").unwrap();
        for (resource, version, want) in
            [(pods, "", true), (pods, "0", false), (pods, "7", false), (events, "0", true)]
        {
            assert_eq!(asks_for_object(resource, version), want, "{} {version}", resource.table.plural);
        }
        for (resource, query, is_one, from_version, want) in [
            (pods, "", false, false, Some(Asked::Version)),
            (pods, "limit=5", false, false, Some(Asked::Version)),
            (pods, "", true, false, Some(Asked::Version)),
            (pods, "resourceVersion=0", false, false, None),
            (pods, "resourceVersion=7&resourceVersionMatch=Exact", false, false, None),
            (pods, "continue=a", false, true, None),
            (pods, "continue=a", false, false, Some(Asked::Version)),
            (events, "", false, false, Some(Asked::Objects)),
            (events, "resourceVersion=0", false, false, Some(Asked::Objects)),
            (events, "", true, false, Some(Asked::Object)),
        ] {
            let options =
                ListOptions::from_query(&Query::parse(query), Selection::everything(), false, "meta.k8s.io");
            let asked = asks_for_list(resource, &options.unwrap(), is_one, from_version);
            assert_eq!(asked, want, "{} {query} {is_one}", resource.table.plural);
        }
    }

    #[test]
    fn watches_of_types_that_are_not_kept_ask_for_what_they_begin_with() {
        const NONE: &str = "resourceVersionMatch=NotOlderThan&sendInitialEvents=false";
        const STREAM: &str = "resourceVersionMatch=NotOlderThan&sendInitialEvents=true";
        let registry = Registry::new(&KUBERNETES);
        let pods = registry.resource("", "v1", "pods").unwrap();
        let events = registry.resource("", "v1", "events").unwrap();
        for (resource, query, version, is_one, want) in [
            (pods, "", "", false, Some(Asked::Version)),
            (pods, "", "0", false, None),
            (pods, "", "7", false, None),
            (pods, STREAM, "", true, Some(Asked::Version)),
            (pods, STREAM, "7", false, None),
            (pods, NONE, "", false, Some(Asked::Version)),
            (events, "", "", false, Some(Asked::Objects)),
            (events, "", "0", true, Some(Asked::Object)),
            (events, "", "7", false, None),
            (events, STREAM, "7", false, Some(Asked::Objects)),
            (events, NONE, "", false, Some(Asked::Version)),
            (events, NONE, "0", false, Some(Asked::Version)),
            (events, NONE, "7", false, None),
        ] {
            let text = format!("{query}&resourceVersion={version}");
            let options =
                ListOptions::from_query(&Query::parse(&text), Selection::everything(), true, "meta.k8s.io");
            let asked = asks_for_watch(resource, &options.unwrap(), is_one);
            assert_eq!(asked, want, "{} {text} {is_one}", resource.table.plural);
        }
    }
}
