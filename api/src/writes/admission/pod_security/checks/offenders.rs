//! The pod-level settings and the containers that fail a check, and their names in messages.

use std::collections::BTreeSet;

use super::{Container, Pod};
use objects::validation::StructView;

/// The pod-level settings and the containers of a pod that fail a check.
#[derive(Default)]
pub(super) struct Offenders<'p> {
    /// Whether the pod-level security context fails the check.
    pub pod: bool,
    /// The containers that fail the check.
    pub containers: Vec<&'p str>,
}

impl<'p> Offenders<'p> {
    /// Returns the containers that fail a check.
    pub fn among(pod: Pod<'p>, fails: impl FnMut(&Container<'p>) -> bool) -> Offenders<'p> {
        Offenders { pod: false, containers: pod.containers().filter(fails).map(|c| c.name).collect() }
    }

    /// Applies a check to the security contexts of the pod and its containers, and returns the pod and the
    /// containers that fail.
    pub fn in_contexts(pod: Pod<'p>, mut fails: impl FnMut(StructView<'p>) -> bool) -> Offenders<'p> {
        let of_pod = fails(pod.context());
        Offenders { pod: of_pod, ..Offenders::among(pod, |container| fails(container.context)) }
    }

    /// Returns whether the pod and all containers pass the check.
    pub fn is_empty(&self) -> bool {
        !self.pod && self.containers.is_empty()
    }

    /// Returns `one` if one container fails, `many` otherwise.
    pub fn plural(&self, one: &'static str, many: &'static str) -> &'static str {
        plural(self.containers.len(), one, many)
    }

    /// Formats the offenders: `pod`, `container "a"`, `containers "a", "b"`, `pod and container "a"`.
    pub fn names(&self) -> String {
        let containers = match self.containers.as_slice() {
            [] => String::new(),
            names => format!("{} {}", self.plural("container", "containers"), quoted(names)),
        };
        match (self.pod, containers.is_empty()) {
            (true, true) => "pod".to_owned(),
            (true, false) => format!("pod and {containers}"),
            (false, _) => containers,
        }
    }
}

/// Returns `one` for a count of 1, `many` otherwise.
pub(super) fn plural(count: usize, one: &'static str, many: &'static str) -> &'static str {
    if count == 1 { one } else { many }
}

/// Formats texts as `"a", "b"`.
pub(super) fn quoted<T: AsRef<str>>(texts: &[T]) -> String {
    let quoted: Vec<String> = texts.iter().map(|text| format!("\"{}\"", text.as_ref())).collect();
    quoted.join(", ")
}

/// Formats a set as `"a", "b"`, in order.
pub(super) fn quoted_set(texts: &BTreeSet<&str>) -> String {
    quoted(&texts.iter().collect::<Vec<_>>())
}
