//! Checks the pods that a node agent creates. An agent may create only mirror pods that refer to no other
//! objects in the API.

use objects::validation::StructView;
use values::naming::Naming;

/// The reason why a pod may not be created.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum PodRefusal {
    /// The text that explains the refusal.
    Because(String),
    /// The node that owns the pod does not exist.
    NoNode,
}

/// Returns the reason why the agent of `node` may not create a pod, if any. `uid` is the uid of the node, if
/// the node exists.
pub(super) fn refusal(
    pod: StructView<'_>,
    node: &str,
    uid: Option<&str>,
    naming: &Naming,
) -> Option<PodRefusal> {
    let because = |why: String| Some(PodRefusal::Because(why));
    let may_only = |what: &str| because(format!("node {node:?} can only create pods with {what}"));
    let (metadata, spec) = (pod.child("metadata"), pod.child("spec"));
    let mirror = naming.label("config.mirror");
    if !metadata.child("annotations").has(&mirror) {
        return because(format!(
            "pod does not have {mirror:?} annotation, node {node:?} can only create mirror pods"
        ));
    }
    if spec.text("nodeName") != node {
        return may_only("spec.nodeName set to itself");
    }
    let mut owners = metadata.structs("ownerReferences");
    let owner = match (owners.next(), owners.next()) {
        (None, _) => return may_only("an owner reference set to itself"),
        (Some(_), Some(_)) => return may_only("a single owner reference set to itself"),
        (Some(owner), None) => owner,
    };
    let [api_version, kind, name] = ["apiVersion", "kind", "name"].map(|field| owner.text(field));
    if api_version != "v1" || kind != "Node" || name != node {
        return may_only("an owner reference set to itself");
    }
    if !owner.is_true("controller") {
        return may_only("a controller owner reference set to itself");
    }
    if owner.is_true("blockOwnerDeletion") {
        return because(format!("node {node:?} must not set blockOwnerDeletion on an owner reference"));
    }
    let Some(uid) = uid else { return Some(PodRefusal::NoNode) };
    if owner.text("uid") != uid {
        return because(format!("node {node} UID mismatch: expected {} got {uid}", owner.text("uid")));
    }
    let referred = referred(spec)?;
    because(format!("node {node:?} can not create pods that reference {referred}"))
}

/// Returns the first kind of API object to which the spec of a pod refers, if any.
fn referred(spec: StructView<'_>) -> Option<&'static str> {
    if !spec.text("serviceAccountName").is_empty() {
        return Some("serviceaccounts");
    }
    let containers = || {
        ["initContainers", "containers", "ephemeralContainers"]
            .into_iter()
            .flat_map(move |list| spec.structs(list))
    };
    let from_environment = |reference: &str, source: &str| {
        containers().any(|container| {
            container.structs("envFrom").any(|from| from.has(source))
                || container.structs("env").any(|variable| variable.child("valueFrom").has(reference))
        })
    };
    let volumes = || spec.structs("volumes");
    let projected = |source: &str| {
        volumes().any(|volume| volume.child("projected").structs("sources").any(|from| from.has(source)))
    };
    // The sources of all volume drivers use the same member names for secrets.
    let of_drivers = || {
        volumes().any(|volume| {
            volume.members().any(|(_, source)| {
                let source = StructView::from(Some(source));
                ["secretRef", "nodePublishSecretRef"].iter().any(|name| source.has(name))
                    || source.has("shareName") && source.has("secretName")
            })
        })
    };
    let of_volumes = |kind: &str| volumes().any(|volume| volume.has(kind));
    if !spec.items("imagePullSecrets").is_empty()
        || of_volumes("secret")
        || projected("secret")
        || from_environment("secretKeyRef", "secretRef")
        || of_drivers()
    {
        return Some("secrets");
    }
    if of_volumes("configMap")
        || projected("configMap")
        || from_environment("configMapKeyRef", "configMapRef")
    {
        return Some("configmaps");
    }
    if !spec.items("resourceClaims").is_empty() {
        return Some("resourceclaims");
    }
    volumes().find_map(referred_by_volume)
}

/// Returns the kind of API object to which a volume of a pod refers, except secrets and config maps.
fn referred_by_volume(volume: StructView<'_>) -> Option<&'static str> {
    const DIRECT: [(&str, &str); 5] = [
        ("csi", "csidrivers (via CSI volumes)"),
        ("glusterfs", "endpoints (via glusterFS volumes)"),
        ("persistentVolumeClaim", "persistentvolumeclaims"),
        ("ephemeral", "persistentvolumeclaims (via ephemeral volumes)"),
        ("azureFile", "secrets (via azureFile volumes)"),
    ];
    const PROJECTED: [(&str, &str); 3] = [
        ("serviceAccountToken", "serviceaccounts (via projected volumes)"),
        ("clusterTrustBundle", "clustertrustbundles"),
        ("podCertificate", "podcertificates"),
    ];
    let first = |of: StructView<'_>, known: &[(&str, &'static str)]| {
        known.iter().find(|(member, _)| of.has(member)).map(|(_, referred)| *referred)
    };
    let mut sources = volume.child("projected").structs("sources");
    first(volume, &DIRECT).or_else(|| sources.find_map(|source| first(source, &PROJECTED)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use values::naming::KUBERNETES;
    use values::testing::object;

    #[test]
    fn a_node_agent_creates_only_mirror_pods_without_references_to_other_objects() {
        let mirror = r#""annotations":{"kubernetes.io/config.mirror":"x"}"#;
        let owner = r#"{"apiVersion":"v1","kind":"Node","name":"n","uid":"u","controller":true}"#;
        let pod = |metadata: &str, spec: &str| format!(r#"{{"metadata":{{{metadata}}},"spec":{{{spec}}}}}"#);
        let owned = format!(r#"{mirror},"ownerReferences":[{owner}]"#);
        let good = |more: &str| pod(&owned, &format!(r#""nodeName":"n"{more}"#));
        let with_owner =
            |owner: &str| pod(&format!(r#"{mirror},"ownerReferences":[{owner}]"#), r#""nodeName":"n""#);
        let can_only = |what: &str| format!("node \"n\" can only create pods with {what}");
        let refers = |what: &str| format!("node \"n\" can not create pods that reference {what}");
        for (pod, want) in [
            (good(""), String::new()),
            (
                pod("", ""),
                "pod does not have \"kubernetes.io/config.mirror\" annotation, node \"n\" can only create mirror pods"
                    .to_owned(),
            ),
            (pod(&owned, r#""nodeName":"m""#), can_only("spec.nodeName set to itself")),
            (pod(mirror, r#""nodeName":"n""#), can_only("an owner reference set to itself")),
            (with_owner(&format!("{owner},{owner}")), can_only("a single owner reference set to itself")),
            (with_owner(&owner.replace("\"n\"", "\"m\"")), can_only("an owner reference set to itself")),
            (with_owner(&owner.replace("true", "false")), can_only("a controller owner reference set to itself")),
            (
                with_owner(&owner.replace("true", r#"true,"blockOwnerDeletion":true"#)),
                "node \"n\" must not set blockOwnerDeletion on an owner reference".to_owned(),
            ),
            (
                with_owner(&owner.replace("\"u\"", "\"v\"")),
                "node n UID mismatch: expected v got u".to_owned(),
            ),
            (good(r#","serviceAccountName":"s""#), refers("serviceaccounts")),
            (good(r#","imagePullSecrets":[{"name":"s"}]"#), refers("secrets")),
            (good(r#","volumes":[{"name":"v","secret":{}}]"#), refers("secrets")),
            (good(r#","volumes":[{"name":"v","cephfs":{"secretRef":{"name":"s"}}}]"#), refers("secrets")),
            (
                good(r#","containers":[{"env":[{"name":"e","valueFrom":{"secretKeyRef":{}}}]}]"#),
                refers("secrets"),
            ),
            (good(r#","containers":[{"envFrom":[{"configMapRef":{}}]}]"#), refers("configmaps")),
            (
                good(r#","volumes":[{"name":"v","projected":{"sources":[{"clusterTrustBundle":{}}]}}]"#),
                refers("clustertrustbundles"),
            ),
            (
                good(r#","volumes":[{"name":"v","persistentVolumeClaim":{}}]"#),
                refers("persistentvolumeclaims"),
            ),
            (
                good(r#","volumes":[{"name":"v","ephemeral":{}}]"#),
                refers("persistentvolumeclaims (via ephemeral volumes)"),
            ),
            (
                good(r#","volumes":[{"name":"w","hostPath":{}},{"name":"v","csi":{"driver":"d"}}]"#),
                refers("csidrivers (via CSI volumes)"),
            ),
            (good(r#","resourceClaims":[{"name":"c"}]"#), refers("resourceclaims")),
            (
                good(r#","volumes":[{"name":"v","projected":{"sources":[{"serviceAccountToken":{}}]}}]"#),
                refers("serviceaccounts (via projected volumes)"),
            ),
            (
                good(r#","volumes":[{"name":"v","projected":{"sources":[{"downwardAPI":{}},{"podCertificate":{}}]}}]"#),
                refers("podcertificates"),
            ),
            (
                good(r#","volumes":[{"name":"v","projected":{"sources":[{"downwardAPI":{}}]}}]"#),
                String::new(),
            ),
        ] {
            let got = match refusal(StructView::from_object(&object(&pod)), "n", Some("u"), &KUBERNETES) {
                None => String::new(),
                Some(PodRefusal::Because(why)) => why,
                Some(PodRefusal::NoNode) => "no node".to_owned(),
            };
            assert_eq!(got, want, "{pod}");
        }
        let missing = refusal(StructView::from_object(&object(&good(""))), "n", None, &KUBERNETES);
        assert_eq!(missing, Some(PodRefusal::NoNode));
    }
}
