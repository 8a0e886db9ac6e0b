//! Which accesses to the store are counted (docs/api/operations.md#accesses-to-the-store).
//!
//! kube-apiserver keeps objects in memory, and asks its store for the rest only. The numbers are those that it would have.

use std::time::{Duration, Instant};

use super::admission::Operation;
use super::context::Context;
use super::write::Intent;
use types::options::ListOptions;
use types::schema::registry::Resource;
use values::request_scope;

/// Whether objects of a type are kept in memory: all but those that expire.
pub fn is_kept(resource: &Resource) -> bool {
    !resource.table.behavior.expires
}

/// Whether a read of one object asks the store: one that takes no older version does.
pub fn asks_for_object(resource: &Resource, resource_version: &str) -> bool {
    resource_version.is_empty() || !is_kept(resource)
}

/// What a list or a watch asks of the store.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Asked {
    /// The newest version, by a list that has no object.
    Version,
    /// The one object that there can be.
    Object,
    /// All objects.
    Objects,
}

impl Asked {
    /// The access as it is counted.
    fn operation(self) -> &'static str {
        match self {
            Asked::Version | Asked::Object => "get",
            Asked::Objects => "list",
        }
    }
}

/// What a list asks of the store: the newest version, or of a type that is not kept, the objects. `is_one` says that the field
/// selector names one object; `from_version` that the list continues another one at the version of that.
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

/// What a watch asks of the store before it tells of changes: as a list, but that one without initial events of a type that is
/// not kept asks for the version to begin at.
pub fn asks_for_watch(resource: &Resource, options: &ListOptions, is_one: bool) -> Option<Asked> {
    match (is_kept(resource), options.send_initial_events == Some(true)) {
        (true, _) => options.resource_version.is_empty().then_some(Asked::Version),
        (false, true) => Some(if is_one { Asked::Object } else { Asked::Objects }),
        (false, false) => matches!(&*options.resource_version, "" | "0").then_some(Asked::Version),
    }
}

/// Whether a write begins with the object that is kept in memory, and asks the store for it only if it comes to something else
/// than another state of the object.
pub fn begins_with_kept(intent: &Intent<'_>) -> bool {
    intent.operation == Operation::Update && is_kept(intent.resource)
}

impl Context {
    /// Counts an access to the store that began at `began`.
    pub fn accessed(&self, resource: &Resource, operation: &str, began: Instant) {
        self.accessed_for(resource, operation, began.elapsed());
    }

    /// Counts an access to the store that took so long.
    pub fn accessed_for(&self, resource: &Resource, operation: &str, took: Duration) {
        request_scope::stored(took);
        self.metrics().accessed(&resource.group, operation, &resource.table.plural, took);
    }

    /// Counts an access of which no time is known: there is none like it here, or it lasts as long as the client reads.
    pub fn accessed_untimed(&self, resource: &Resource, operation: &str) {
        self.metrics().store_requests.count(&[&*resource.group, operation, &*resource.table.plural]);
    }

    /// Counts what a list asks of the store.
    pub fn listed(&self, resource: &Resource, asked: Asked, took: Option<Duration>) {
        self.asked(resource, asked, took);
        self.metrics().lists.count(&[&*resource.group, &*resource.table.plural]);
    }

    /// Counts what a watch asks of the store, for which `took` finds the newest version.
    pub fn watched(&self, resource: &Resource, asked: Asked, took: Duration) {
        match asked {
            Asked::Version => self.listed(resource, asked, Some(took)),
            // kube-apiserver lists such objects by no list of its own.
            Asked::Object | Asked::Objects => self.asked(resource, asked, None),
        }
    }

    fn asked(&self, resource: &Resource, asked: Asked, took: Option<Duration>) {
        match took {
            Some(took) => self.accessed_for(resource, asked.operation(), took),
            None => self.accessed_untimed(resource, asked.operation()),
        }
    }

    /// Counts a change that the server's own store has taken; one of another store counts where that tells of it. Those of types
    /// that are not kept are told to watchers only.
    pub fn changed(&self, resource: &Resource) {
        if is_kept(resource) && self.backends().of(resource).ledger().is_none() {
            self.metrics().store_events.count(&[&*resource.group, &*resource.table.plural]);
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
