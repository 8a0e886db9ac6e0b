//! Values the reference server sets where nothing was given, by type and field (facts: defaults). They hold wherever
//! the type occurs. What depends on more than the field itself is in `defaults_rules`.

/// Types with their fields and values, as JSON text; sorted by type (a package's system prefix
/// left out). `{rbac}` is the full name of the RBAC group.
pub(super) static ASSIGNED: &[(&str, &[(&str, &str)])] = &[
    ("aggregator.pkg.apis.apiregistration.v1.ServiceReference", &[("port", "443")]),
    ("api.admissionregistration.v1.MatchResources", MATCH),
    (
        "api.admissionregistration.v1.MutatingWebhook",
        &[
            ("failurePolicy", r#""Fail""#),
            ("matchPolicy", r#""Equivalent""#),
            ("namespaceSelector", "{}"),
            ("objectSelector", "{}"),
            ("timeoutSeconds", "10"),
            ("reinvocationPolicy", r#""Never""#),
        ],
    ),
    ("api.admissionregistration.v1.NamedRuleWithOperations", &[("scope", r#""*""#)]),
    ("api.admissionregistration.v1.RuleWithOperations", &[("scope", r#""*""#)]),
    ("api.admissionregistration.v1.ServiceReference", &[("port", "443")]),
    ("api.admissionregistration.v1.ValidatingAdmissionPolicySpec", &[("failurePolicy", r#""Fail""#)]),
    (
        "api.admissionregistration.v1.ValidatingWebhook",
        &[
            ("failurePolicy", r#""Fail""#),
            ("matchPolicy", r#""Equivalent""#),
            ("namespaceSelector", "{}"),
            ("objectSelector", "{}"),
            ("timeoutSeconds", "10"),
        ],
    ),
    ("api.apps.v1.DaemonSetSpec", &[("revisionHistoryLimit", "10")]),
    ("api.apps.v1.DaemonSetUpdateStrategy", &[("type", r#""RollingUpdate""#)]),
    (
        "api.apps.v1.DeploymentSpec",
        &[("replicas", "1"), ("revisionHistoryLimit", "10"), ("progressDeadlineSeconds", "600")],
    ),
    ("api.apps.v1.DeploymentStrategy", &[("type", r#""RollingUpdate""#)]),
    ("api.apps.v1.ReplicaSetSpec", &[("replicas", "1")]),
    (
        "api.apps.v1.StatefulSetPersistentVolumeClaimRetentionPolicy",
        &[("whenDeleted", r#""Retain""#), ("whenScaled", r#""Retain""#)],
    ),
    (
        "api.apps.v1.StatefulSetSpec",
        &[
            ("replicas", "1"),
            ("podManagementPolicy", r#""OrderedReady""#),
            ("revisionHistoryLimit", "10"),
            ("persistentVolumeClaimRetentionPolicy", "{}"),
        ],
    ),
    ("api.authentication.v1.TokenRequestSpec", &[("expirationSeconds", "3600")]),
    ("api.autoscaling.v1.HorizontalPodAutoscalerSpec", &[("minReplicas", "1")]),
    (
        "api.autoscaling.v2.HorizontalPodAutoscalerSpec",
        &[
            ("minReplicas", "1"),
            (
                "metrics",
                r#"[{"type":"Resource","resource":{"name":"cpu","target":{"type":"Utilization","averageUtilization":80}}}]"#,
            ),
        ],
    ),
    (
        "api.batch.v1.CronJobSpec",
        &[
            ("concurrencyPolicy", r#""Allow""#),
            ("suspend", "false"),
            ("successfulJobsHistoryLimit", "3"),
            ("failedJobsHistoryLimit", "1"),
        ],
    ),
    ("api.batch.v1.PodFailurePolicyOnPodConditionsPattern", &[("status", r#""True""#)]),
    (
        "api.core.v1.AzureDiskVolumeSource",
        &[
            ("cachingMode", r#""ReadWrite""#),
            ("fsType", r#""ext4""#),
            ("readOnly", "false"),
            ("kind", r#""Shared""#),
        ],
    ),
    ("api.core.v1.ConfigMapVolumeSource", MODE),
    ("api.core.v1.Container", TERMINATION_MESSAGE),
    ("api.core.v1.ContainerPort", PROTOCOL),
    ("api.core.v1.DownwardAPIVolumeSource", MODE),
    ("api.core.v1.EndpointPort", PROTOCOL),
    ("api.core.v1.EphemeralContainer", TERMINATION_MESSAGE),
    ("api.core.v1.FileKeySelector", &[("optional", "false")]),
    ("api.core.v1.GRPCAction", &[("service", r#""""#)]),
    ("api.core.v1.HTTPGetAction", &[("path", r#""/""#), ("scheme", r#""HTTP""#)]),
    ("api.core.v1.HostPathVolumeSource", &[("type", r#""""#)]),
    ("api.core.v1.ISCSIPersistentVolumeSource", &[("iscsiInterface", r#""default""#)]),
    ("api.core.v1.ISCSIVolumeSource", &[("iscsiInterface", r#""default""#)]),
    ("api.core.v1.NamespaceStatus", &[("phase", r#""Active""#)]),
    ("api.core.v1.ObjectFieldSelector", &[("apiVersion", r#""v1""#)]),
    ("api.core.v1.PersistentVolumeClaimSpec", &[("volumeMode", r#""Filesystem""#)]),
    ("api.core.v1.PersistentVolumeClaimStatus", &[("phase", r#""Pending""#)]),
    ("api.core.v1.PersistentVolumeStatus", &[("phase", r#""Pending""#)]),
    (
        "api.core.v1.PodSpec",
        &[
            ("dnsPolicy", r#""ClusterFirst""#),
            ("restartPolicy", r#""Always""#),
            ("securityContext", "{}"),
            ("terminationGracePeriodSeconds", "30"),
            ("schedulerName", r#""default-scheduler""#),
        ],
    ),
    (
        "api.core.v1.Probe",
        &[
            ("timeoutSeconds", "1"),
            ("periodSeconds", "10"),
            ("successThreshold", "1"),
            ("failureThreshold", "3"),
        ],
    ),
    ("api.core.v1.ProjectedVolumeSource", MODE),
    ("api.core.v1.RBDPersistentVolumeSource", RBD),
    ("api.core.v1.RBDVolumeSource", RBD),
    ("api.core.v1.ReplicationControllerSpec", &[("replicas", "1")]),
    ("api.core.v1.ScaleIOPersistentVolumeSource", SCALE_IO),
    ("api.core.v1.ScaleIOVolumeSource", SCALE_IO),
    ("api.core.v1.Secret", &[("type", r#""Opaque""#)]),
    ("api.core.v1.SecretVolumeSource", MODE),
    ("api.core.v1.ServiceAccountTokenProjection", &[("expirationSeconds", "3600")]),
    ("api.core.v1.ServicePort", PROTOCOL),
    ("api.core.v1.ServiceSpec", &[("sessionAffinity", r#""None""#), ("type", r#""ClusterIP""#)]),
    ("api.discovery.v1.EndpointPort", &[("name", r#""""#), ("protocol", r#""TCP""#)]),
    (
        "api.flowcontrol.v1.ExemptPriorityLevelConfiguration",
        &[("nominalConcurrencyShares", "0"), ("lendablePercent", "0")],
    ),
    ("api.flowcontrol.v1.FlowSchemaSpec", &[("matchingPrecedence", "1000")]),
    (
        "api.flowcontrol.v1.LimitedPriorityLevelConfiguration",
        &[("nominalConcurrencyShares", "30"), ("lendablePercent", "0")],
    ),
    (
        "api.flowcontrol.v1.QueuingConfiguration",
        &[("handSize", "8"), ("queues", "64"), ("queueLengthLimit", "50")],
    ),
    ("api.networking.v1.IngressClassParametersReference", &[("scope", r#""Cluster""#)]),
    ("api.networking.v1.NetworkPolicyPort", PROTOCOL),
    ("api.rbac.v1.RoleRef", &[("apiGroup", r#""{rbac}""#)]),
    ("api.resource.v1.DeviceSubRequest", &[("allocationMode", r#""ExactCount""#)]),
    ("api.resource.v1.DeviceToleration", &[("operator", r#""Equal""#)]),
    ("api.resource.v1.ExactDeviceRequest", &[("allocationMode", r#""ExactCount""#)]),
    ("api.resource.v1.NodeAllocatableResourceMapping", &[("allocationMultiplier", r#""1""#)]),
    ("api.scheduling.v1.PriorityClass", &[("preemptionPolicy", r#""PreemptLowerPriority""#)]),
    (
        "api.storage.v1.CSIDriverSpec",
        &[
            ("attachRequired", "true"),
            ("podInfoOnMount", "false"),
            ("storageCapacity", "false"),
            ("fsGroupPolicy", r#""ReadWriteOnceWithFSType""#),
            ("volumeLifecycleModes", r#"["Persistent"]"#),
            ("requiresRepublish", "false"),
            ("seLinuxMount", "false"),
        ],
    ),
    (
        "api.storage.v1.StorageClass",
        &[("reclaimPolicy", r#""Delete""#), ("volumeBindingMode", r#""Immediate""#)],
    ),
    (
        "apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinitionSpec",
        &[("conversion", r#"{"strategy":"None"}"#)],
    ),
    ("apiextensions-apiserver.pkg.apis.apiextensions.v1.ServiceReference", &[("port", "443")]),
];

const MATCH: &[(&str, &str)] =
    &[("matchPolicy", r#""Equivalent""#), ("namespaceSelector", "{}"), ("objectSelector", "{}")];
const MODE: &[(&str, &str)] = &[("defaultMode", "420")];
const PROTOCOL: &[(&str, &str)] = &[("protocol", r#""TCP""#)];
const RBD: &[(&str, &str)] =
    &[("pool", r#""rbd""#), ("user", r#""admin""#), ("keyring", r#""/etc/ceph/keyring""#)];
const SCALE_IO: &[(&str, &str)] = &[("storageMode", r#""ThinProvisioned""#), ("fsType", r#""xfs""#)];
const TERMINATION_MESSAGE: &[(&str, &str)] =
    &[("terminationMessagePath", r#""/dev/termination-log""#), ("terminationMessagePolicy", r#""File""#)];
