//! The labels that a node agent may set on its node. With other labels, an agent could attract pods to its
//! node.

use std::collections::BTreeSet;

use objects::validation::StructView;
use values::naming::Naming;

/// Labels in the system's domain that describe the machine.
const OF_MACHINE: &[&str] = &["hostname", "arch", "os"];
const OF_MACHINE_BETA: &[&str] = &["arch", "os", "instance-type"];
const OF_PLACE: &[&str] = &["region", "zone"];

/// Returns the labels that differ between two versions of an object.
pub(super) fn changed<'v>(new: StructView<'v>, old: StructView<'v>) -> BTreeSet<&'v str> {
    let labels = |object: StructView<'v>| object.child("metadata").child("labels");
    let (new, old) = (labels(new), labels(old));
    let differs = |name: &str| new.get(name) != old.get(name);
    [new, old]
        .into_iter()
        .flat_map(StructView::members)
        .map(|(name, _)| name)
        .filter(|name| differs(name))
        .collect()
}

/// Returns the labels in `changed` that an agent may not change: all labels in the domains of the system,
/// except the labels that agents set.
pub(super) fn forbidden<'v>(changed: BTreeSet<&'v str>, naming: &Naming) -> BTreeSet<&'v str> {
    changed.into_iter().filter(|name| is_of_system(name, naming) && !is_of_agent(name, naming)).collect()
}

fn is_of_system(label: &str, naming: &Naming) -> bool {
    let Some((prefix, _)) = label.split_once('/') else { return false };
    let group_domain = naming.group_suffix.trim_start_matches('.');
    [naming.domain, group_domain].into_iter().any(|domain| is_in(prefix, domain))
}

fn is_of_agent(label: &str, naming: &Naming) -> bool {
    let Some((prefix, name)) = label.split_once('/') else { return false };
    let sub = |first: &str| format!("{first}.{}", naming.domain);
    if is_in(prefix, &sub("node-restriction")) {
        return false;
    }
    is_in(prefix, &sub("kubelet"))
        || is_in(prefix, &sub("node"))
        || prefix == naming.domain && OF_MACHINE.contains(&name)
        || prefix == sub("beta") && OF_MACHINE_BETA.contains(&name)
        || (prefix == sub("topology") || prefix == sub("failure-domain.beta")) && OF_PLACE.contains(&name)
}

/// Returns whether `name` is `domain` or a subdomain of `domain`.
fn is_in(name: &str, domain: &str) -> bool {
    name.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use values::naming::KUBERNETES;
    use values::testing::object;

    #[test]
    fn node_agents_may_change_only_allowed_labels_of_the_system_domains() {
        for (label, allowed) in [
            ("own", true),
            ("example.com/own", true),
            ("notkubernetes.io/own", true),
            ("kubernetes.io/hostname", true),
            ("kubernetes.io/other", false),
            ("beta.kubernetes.io/instance-type", true),
            ("topology.kubernetes.io/zone", true),
            ("topology.kubernetes.io/rack", false),
            ("failure-domain.beta.kubernetes.io/region", true),
            ("node.kubernetes.io/anything", true),
            ("a.kubelet.kubernetes.io/anything", true),
            ("node-restriction.kubernetes.io/anything", false),
            ("a.node-restriction.kubernetes.io/anything", false),
            ("a.k8s.io/b", false),
        ] {
            assert_eq!(forbidden([label].into(), &KUBERNETES).is_empty(), allowed, "{label}");
        }
    }

    #[test]
    fn changed_lists_added_removed_and_modified_labels() {
        let (new, old) = (
            object(r#"{"metadata":{"labels":{"a":"1","b":"1","c":"1"}}}"#),
            object(r#"{"metadata":{"labels":{"a":"1","b":"2","d":"1"}}}"#),
        );
        assert_eq!(
            changed(StructView::from_object(&new), StructView::from_object(&old)),
            ["b", "c", "d"].into()
        );
        assert_eq!(changed(StructView::from_object(&new), StructView::from(None)), ["a", "b", "c"].into());
    }
}
