//! Fields that an endpoint must not record in managed fields: fields that the endpoint does not write, and
//! fields that have no owner (docs/api/apply.md#managed-fields).

use std::borrow::Cow;
use std::sync::LazyLock;

use super::compare::Comparison;
use crate::strategy::Endpoint;
use types::schema::registry::Resource;
use types::schema::table::Text;
use values::field::{Element, FieldSet, Node};

/// Metadata that identifies the object or that the server maintains.
const IDENTITY: [&str; 11] = [
    "apiVersion",
    "kind",
    "metadata.name",
    "metadata.namespace",
    "metadata.creationTimestamp",
    "metadata.selfLink",
    "metadata.uid",
    "metadata.clusterName",
    "metadata.generation",
    "metadata.managedFields",
    "metadata.resourceVersion",
];

/// The fields that no manager owns.
static OWNED_BY_NOBODY: LazyLock<FieldSet<'static>> = LazyLock::new(|| FieldSet::of_fields(&IDENTITY));

/// The member `metadata` as a whole, which no manager owns.
static METADATA: LazyLock<FieldSet<'static>> = LazyLock::new(|| FieldSet::of_fields(&["metadata"]));

/// Fields that an update through `/ephemeralcontainers` writes.
const EPHEMERAL: [&[&str]; 1] = [&["spec", "ephemeralContainers"]];

/// Fields that `/finalize` of namespaces does not write.
const BY_FINALIZE: [&str; 1] = ["status"];

/// Fields that `/approval` does not write.
const BY_APPROVAL: [&str; 2] = ["spec", "status.certificate"];

/// Fields that an endpoint does not own.
#[derive(Clone, Debug)]
pub struct Reset {
    skipped: Cow<'static, FieldSet<'static>>,
    /// The only fields that the endpoint owns; `None` if the endpoint owns all fields that are not skipped.
    only: Option<&'static [&'static [&'static str]]>,
}

impl Reset {
    /// Returns the reset for an endpoint that owns all fields of its body, except the identity and the
    /// metadata that the server maintains. The subresource `scale` is such an endpoint.
    pub fn none() -> Reset {
        Reset { skipped: Cow::Borrowed(&OWNED_BY_NOBODY), only: None }
    }

    /// Returns the reset for `endpoint` of `resource`.
    pub fn for_endpoint(resource: &Resource, endpoint: Endpoint) -> Reset {
        let status = resource.table.status.as_ref();
        let declared = |paths: &[Text]| {
            let paths: Vec<&str> = paths.iter().map(|path| &**path).collect();
            FieldSet::of_fields(&paths).into_owned()
        };
        let (set, only): (FieldSet<'static>, Option<&'static [&'static [&'static str]]>) = match endpoint {
            Endpoint::Main => (status.map_or_else(FieldSet::new, |s| declared(&s.reset_by_main)), None),
            Endpoint::Status => (status.map_or_else(FieldSet::new, |s| declared(&s.reset_by_status)), None),
            Endpoint::Finalize => (FieldSet::of_fields(&BY_FINALIZE), None),
            Endpoint::Approval => (FieldSet::of_fields(&BY_APPROVAL), None),
            Endpoint::EphemeralContainers => (FieldSet::new(), Some(&EPHEMERAL)),
            // The writer of a resize owns all fields in the request, even fields that a resize cannot change. Other
            // managers lose these fields.
            Endpoint::Resize | Endpoint::Scale | Endpoint::Binding => (FieldSet::new(), None),
        };
        let mut skipped = Cow::Borrowed(&*OWNED_BY_NOBODY);
        if !set.is_empty() {
            skipped = Cow::Owned(OWNED_BY_NOBODY.clone().union(set));
        }
        Reset { skipped, only }
    }

    /// Removes the fields that no manager owns from a set that a client sent.
    pub fn without_identity(set: FieldSet<'_>) -> FieldSet<'_> {
        set.difference(&OWNED_BY_NOBODY).difference(&METADATA)
    }

    /// Returns the paths that a comparison may skip, together with everything below these paths.
    pub fn skipped(&self) -> &FieldSet<'static> {
        &self.skipped
    }

    /// Returns whether the endpoint owns all fields that are not skipped.
    pub fn owns_all(&self) -> bool {
        self.only.is_none()
    }

    /// Removes fields that the endpoint does not own from a comparison that already skipped
    /// [`Reset::skipped`].
    pub fn filter<'t>(&self, comparison: Comparison<'t>) -> Comparison<'t> {
        match self.only {
            None => comparison,
            Some(only) => Comparison {
                removed: matching(comparison.removed, only, 0),
                modified: matching(comparison.modified, only, 0),
                added: matching(comparison.added, only, 0),
            },
        }
    }

    /// Returns the fields of an applied configuration that take effect at this endpoint: the fields that the
    /// endpoint writes, and the fields that identify the object.
    pub fn applied<'t>(&self, set: FieldSet<'t>) -> FieldSet<'t> {
        let identity = set.clone().within(&OWNED_BY_NOBODY);
        self.owned(set).union(identity)
    }

    /// Returns the fields of an applied configuration that the manager owns after the apply at this endpoint.
    pub fn owned<'t>(&self, set: FieldSet<'t>) -> FieldSet<'t> {
        let set = set.recursive_difference(&self.skipped).difference(&METADATA);
        match self.only {
            None => set,
            Some(only) => matching(set, only, 0),
        }
    }
}

/// Returns the paths of `set` that match a pattern or lie below a match. The caller has already matched
/// `level` steps.
fn matching<'t>(set: FieldSet<'t>, patterns: &[&[&str]], level: usize) -> FieldSet<'t> {
    let nodes = set.nodes().iter().map(|node| {
        let fits = |pattern: &&&[&str]| match (pattern.get(level), &node.element) {
            (Some(&"*"), _) => true,
            (Some(name), Element::Field(field)) => field == name,
            _ => false,
        };
        let fitting: Vec<&[&str]> = patterns.iter().filter(fits).copied().collect();
        if fitting.iter().any(|pattern| pattern.len() == level + 1) {
            return node.clone();
        }
        let children = matching(node.children.clone(), &fitting, level + 1);
        Node { element: node.element.clone(), member: false, children }
    });
    FieldSet::from_nodes(nodes.collect())
}
