//! Go's names of string types, which errors of decoding and of conversions contain.
//!
//! The table has the types that clients write most. For all other types, errors say `string`.

use super::table::{Field, Message};

/// Names of types, each with the fields of that type, or with elements of that type.
const NAMED: [(&str, &[&str]); 45] = [
    ("types.UID", &["ObjectMeta.uid", "OwnerReference.uid", "Preconditions.uid"]),
    ("v1.AddressType", &["EndpointSlice.addressType"]),
    ("v1.Capability", &["Capabilities.add", "Capabilities.drop"]),
    ("v1.CompletionMode", &["JobSpec.completionMode"]),
    ("v1.ConcurrencyPolicy", &["CronJobSpec.concurrencyPolicy"]),
    ("v1.ConditionStatus", &["NodeCondition.status", "PodCondition.status"]),
    ("v1.ContainerRestartPolicy", &["Container.restartPolicy"]),
    ("v1.DNSPolicy", &["PodSpec.dnsPolicy"]),
    ("v1.DaemonSetUpdateStrategyType", &["DaemonSetUpdateStrategy.type"]),
    ("v1.DeletionPropagation", &["DeleteOptions.propagationPolicy"]),
    ("v1.DeploymentStrategyType", &["DeploymentStrategy.type"]),
    ("v1.FinalizerName", &["NamespaceSpec.finalizers"]),
    ("v1.HostPathType", &["HostPathVolumeSource.type"]),
    ("v1.IPFamily", &["ServiceSpec.ipFamilies"]),
    ("v1.IPFamilyPolicy", &["ServiceSpec.ipFamilyPolicy"]),
    ("v1.LabelSelectorOperator", &["LabelSelectorRequirement.operator"]),
    ("v1.LimitType", &["LimitRangeItem.type"]),
    ("v1.MountPropagationMode", &["VolumeMount.mountPropagation"]),
    ("v1.NodeConditionType", &["NodeCondition.type"]),
    ("v1.NodeSelectorOperator", &["NodeSelectorRequirement.operator"]),
    ("v1.PathType", &["HTTPIngressPath.pathType"]),
    (
        "v1.PersistentVolumeAccessMode",
        &["PersistentVolumeClaimSpec.accessModes", "PersistentVolumeSpec.accessModes"],
    ),
    ("v1.PersistentVolumeMode", &["PersistentVolumeClaimSpec.volumeMode", "PersistentVolumeSpec.volumeMode"]),
    (
        "v1.PersistentVolumeReclaimPolicy",
        &["PersistentVolumeSpec.persistentVolumeReclaimPolicy", "StorageClass.reclaimPolicy"],
    ),
    ("v1.PodConditionType", &["PodCondition.type"]),
    ("v1.PodManagementPolicyType", &["StatefulSetSpec.podManagementPolicy"]),
    ("v1.PodPhase", &["PodStatus.phase"]),
    ("v1.PolicyType", &["NetworkPolicySpec.policyTypes"]),
    ("v1.PreemptionPolicy", &["PodSpec.preemptionPolicy", "PriorityClass.preemptionPolicy"]),
    (
        "v1.Protocol",
        &[
            "ContainerPort.protocol",
            "EndpointPort.protocol",
            "NetworkPolicyPort.protocol",
            "ServicePort.protocol",
        ],
    ),
    (
        "v1.PullPolicy",
        &["Container.imagePullPolicy", "EphemeralContainer.imagePullPolicy", "ImageVolumeSource.pullPolicy"],
    ),
    ("v1.ResourceQuotaScope", &["ResourceQuotaSpec.scopes"]),
    ("v1.RestartPolicy", &["PodSpec.restartPolicy"]),
    ("v1.SeccompProfileType", &["SeccompProfile.type"]),
    ("v1.SecretType", &["Secret.type"]),
    ("v1.ServiceAffinity", &["ServiceSpec.sessionAffinity"]),
    ("v1.ServiceExternalTrafficPolicy", &["ServiceSpec.externalTrafficPolicy"]),
    ("v1.ServiceInternalTrafficPolicy", &["ServiceSpec.internalTrafficPolicy"]),
    ("v1.ServiceType", &["ServiceSpec.type"]),
    ("v1.StatefulSetUpdateStrategyType", &["StatefulSetUpdateStrategy.type"]),
    ("v1.StorageMedium", &["EmptyDirVolumeSource.medium"]),
    ("v1.TaintEffect", &["Taint.effect", "Toleration.effect"]),
    (
        "v1.TerminationMessagePolicy",
        &["Container.terminationMessagePolicy", "EphemeralContainer.terminationMessagePolicy"],
    ),
    ("v1.TolerationOperator", &["Toleration.operator"]),
    ("v1.URIScheme", &["HTTPGetAction.scheme"]),
];

/// Returns the name of the type of a field's texts.
pub fn text_type(message: &Message, field: &Field) -> &'static str {
    let is_it = |place: &&str| place.split_once('.') == Some((&*message.name, &*field.name));
    let found = NAMED.iter().find(|(_, places)| places.iter().any(is_it));
    found.map_or("string", |(name, _)| name)
}
