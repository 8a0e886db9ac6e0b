//! The order of the steps. Types that other types need come first, and owners come before their dependents. The
//! deletions of objects that were created after the point are at the end, in the reverse order.

use std::collections::HashMap;

use super::step::{UndoAction, UndoStep};

/// Types that other types need, in the order of their creation. Types in neither list come after this list and before
/// [`LAST`].
const FIRST: [&str; 14] = [
    "namespaces",
    "customresourcedefinitions",
    "priorityclasses",
    "storageclasses",
    "runtimeclasses",
    "clusterroles",
    "clusterrolebindings",
    "roles",
    "rolebindings",
    "serviceaccounts",
    "secrets",
    "configmaps",
    "persistentvolumes",
    "persistentvolumeclaims",
];

/// Types that restrict other objects, or intercept writes of other objects. These types are brought back
/// last.
const LAST: [&str; 9] = [
    "horizontalpodautoscalers",
    "poddisruptionbudgets",
    "resourcequotas",
    "limitranges",
    "apiservices",
    "mutatingadmissionpolicies",
    "validatingadmissionpolicies",
    "mutatingwebhookconfigurations",
    "validatingwebhookconfigurations",
];

/// Returns the rank of a type by its qualified name.
fn rank(resource: &str) -> usize {
    let plural = resource.split('.').next().unwrap_or_default();
    let first = FIRST.iter().position(|known| *known == plural);
    let last = || LAST.iter().position(|known| *known == plural).map(|at| FIRST.len() + 1 + at);
    first.or_else(last).unwrap_or(FIRST.len())
}

/// Returns the steps in the order of their execution.
pub fn ordered(mut steps: Vec<UndoStep>) -> Vec<UndoStep> {
    steps.sort_by_cached_key(|step| {
        (rank(&step.resource), step.resource.clone(), step.namespace.clone(), step.name.clone())
    });
    let places: HashMap<&str, usize> =
        steps.iter().enumerate().map(|(at, step)| (step.uid.as_str(), at)).collect();
    let mut visit = Visit { steps: &steps, places, is_visited: vec![false; steps.len()], order: Vec::new() };
    (0..steps.len()).for_each(|at| visit.add(at));
    let order = visit.order;
    let mut taken: Vec<Option<UndoStep>> = steps.into_iter().map(Some).collect();
    let (mut kept, mut deleted) = (Vec::new(), Vec::new());
    for step in order.into_iter().filter_map(|at| taken[at].take()) {
        let phase = if step.action == UndoAction::Delete { &mut deleted } else { &mut kept };
        phase.push(step);
    }
    kept.extend(deleted.into_iter().rev());
    kept
}

/// A traversal from dependents to owners.
struct Visit<'s> {
    steps: &'s [UndoStep],
    /// Position of each step by the uid of its object.
    places: HashMap<&'s str, usize>,
    is_visited: Vec<bool>,
    order: Vec<usize>,
}

impl Visit<'_> {
    /// Adds the owners of a step, then the step. The traversal is not recursive, because a chain of owners may be as
    /// long as the plan.
    fn add(&mut self, at: usize) {
        let mut stack = vec![(at, false)];
        while let Some((at, has_owners)) = stack.pop() {
            if has_owners {
                self.order.push(at);
            } else if !std::mem::replace(&mut self.is_visited[at], true) {
                stack.push((at, true));
                let owners = self.steps[at].owners.iter();
                let owners = owners.filter_map(|uid| self.places.get(uid.as_str()));
                stack.extend(owners.map(|owner| (*owner, false)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn undo_restores_dependencies_first_and_deletes_new_objects_in_reverse_order() {
        let step = |action, resource: &str, uid: &str, owners: &[&str]| UndoStep {
            action,
            resource: resource.to_owned(),
            name: uid.to_owned(),
            uid: uid.to_owned(),
            owners: owners.iter().map(|&owner| owner.to_owned()).collect(),
            ..UndoStep::default()
        };
        let steps = vec![
            step(UndoAction::Create, "pods", "pod", &["set"]),
            step(UndoAction::Create, "replicasets.apps", "set", &["web"]),
            step(UndoAction::Delete, "namespaces", "new-namespace", &[]),
            step(UndoAction::Delete, "configmaps", "new-map", &["new-gear"]),
            step(UndoAction::Delete, "gears.g.example.com", "new-gear", &[]),
            step(UndoAction::Restore, "deployments.apps", "web", &[]),
            step(UndoAction::Create, "secrets", "secret", &["gear"]),
            step(UndoAction::Create, "gears.g.example.com", "gear", &["gear"]),
            step(UndoAction::Create, "customresourcedefinitions.apiextensions.k8s.io", "gears", &[]),
            step(UndoAction::Create, "namespaces", "namespace", &[]),
            step(UndoAction::Create, "resourcequotas", "quota", &["gone"]),
        ];
        let order = ordered(steps).into_iter().map(|step| step.name).collect::<Vec<_>>().join(" ");
        assert_eq!(order, "namespace gears gear secret web set pod quota new-map new-gear new-namespace");
    }

    #[test]
    fn ordering_undo_steps_ends_for_owner_cycles_and_long_chains() {
        let step = |at: usize, owner: usize| UndoStep {
            uid: at.to_string(),
            owners: vec![owner.to_string()],
            name: format!("{at:06}"),
            ..UndoStep::default()
        };
        let chain: Vec<UndoStep> = (0..100_000).map(|at| step(at, at + 1)).collect();
        let names: Vec<String> = ordered(chain).into_iter().map(|step| step.name).collect();
        assert!(names.is_sorted_by(|one, two| one > two));
        assert_eq!(ordered(vec![step(1, 2), step(2, 1)]).len(), 2);
    }
}
