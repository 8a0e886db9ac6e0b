//! Validation as documents: an object, or two, and everything that is wrong with it.

use super::*;
use crate::naming::{CLUSTER, KUBERNETES};
use crate::schema::builtin;
use crate::schema::decode::decode;
use crate::schema::defaults;
use crate::schema::encode::encode;

/// The resource with this plural, in the group that a stem names.
fn resource(stem: &str, plural: &str) -> &'static ResourceTable {
    let groups = builtin::groups(&KUBERNETES).iter().filter(|group| group.stem == stem);
    let mut resources = groups.flat_map(|group| group.versions).flat_map(|version| version.resources);
    resources.find(|resource| resource.plural == plural).unwrap_or_else(|| panic!("no {plural}"))
}

/// The document as the write path hands it to validation.
fn object(resource: &ResourceTable, document: &str) -> Object {
    let decoded =
        decode(resource.message, document.as_bytes()).unwrap_or_else(|error| panic!("{document}: {error}"));
    assert!(decoded.strict.is_empty(), "{:?}", decoded.strict);
    let mut object = decoded.object;
    defaults::apply(resource.message, &mut object, &KUBERNETES);
    prepare(resource, &mut object, None);
    object
}

fn texts(errors: Vec<FieldError>) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

/// Puts name and namespace in front of the members of a document.
fn named(resource: &ResourceTable, members: &str) -> String {
    let namespace = match resource.scope {
        crate::schema::table::Scope::Namespaced => r#","namespace":"n""#,
        crate::schema::table::Scope::Cluster => "",
    };
    let comma = if members.is_empty() { "" } else { "," };
    format!(r#"{{"metadata":{{"name":"x"{namespace}}}{comma}{members}}}"#)
}

const POD: &str = r#"{"containers":[{"name":"a","image":"b"}],"restartPolicy":"Always"}"#;

#[test]
fn new_objects_are_taken_or_everything_wrong_with_them_is_said() {
    // Semantics §5.7. (group stem, resource, members beside metadata, what is wrong)
    let template = format!(r#"{{"metadata":{{"labels":{{"a":"b"}}}},"spec":{POD}}}"#);
    let other = format!(r#"{{"metadata":{{"labels":{{"a":"c"}}}},"spec":{POD}}}"#);
    let selected = r#""selector":{"matchLabels":{"a":"b"}}"#;
    let cases: Vec<(&str, &str, String, Vec<&str>)> = vec![
        ("", "pods", format!(r#""spec":{POD}"#), vec![]),
        ("", "pods", String::new(), vec!["spec.containers: Required value"]),
        (
            "",
            "pods",
            r#""spec":{"restartPolicy":"Sometimes","containers":[{"image":"b"},{"name":"A","image":"b","imagePullPolicy":"X"},{"name":"c"},{"name":"c","image":"d"}]}"#.into(),
            vec![
                "spec.containers[0].name: Required value",
                r#"spec.containers[1].imagePullPolicy: Unsupported value: "X": supported values: "Always", "IfNotPresent", "Never""#,
                r#"spec.restartPolicy: Unsupported value: "Sometimes": supported values: "Always", "Never", "OnFailure""#,
                "spec.containers[1].name: Invalid value: \"A\": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')",
                "spec.containers[2].image: Required value",
                r#"spec.containers[3].name: Duplicate value: "c""#,
            ],
        ),
        (
            "",
            "pods",
            r#""spec":{"volumes":[{"name":"v","emptyDir":{}},{"name":"v","hostPath":{"path":"/"},"nfs":{"server":"s","path":"/"}}],
                "containers":[{"name":"a","image":"b","volumeMounts":[{"name":"v","mountPath":"/x"},{"name":"w","mountPath":"/x"}]}]}"#.into(),
            vec![
                r#"spec.volumes[1].name: Duplicate value: "v""#,
                "spec.volumes[1].nfs: Forbidden: may not specify more than 1 volume type",
                r#"spec.containers[0].volumeMounts[1].name: Not found: "w""#,
                r#"spec.containers[0].volumeMounts[1].mountPath: Invalid value: "/x": must be unique"#,
            ],
        ),
        (
            "",
            "pods",
            r#""spec":{"containers":[{"name":"a","image":"b","ports":[{"hostPort":70000},{"containerPort":-1}],
                "resources":{"limits":{"cpu":"1","gpu":"1"},"requests":{"cpu":"2","memory":"-1"}},
                "livenessProbe":{"successThreshold":2}}]}"#.into(),
            vec![
                "spec.containers[0].ports[0].containerPort: Required value",
                "spec.containers[0].ports[0].hostPort: Invalid value: 70000: must be between 1 and 65535, inclusive",
                "spec.containers[0].ports[1].containerPort: Invalid value: -1: must be between 1 and 65535, inclusive",
                r#"spec.containers[0].resources.limits[gpu]: Invalid value: "gpu": must be a standard resource type or fully qualified"#,
                r#"spec.containers[0].resources.limits[gpu]: Invalid value: "gpu": must be a standard resource for containers"#,
                r#"spec.containers[0].resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1"#,
                r#"spec.containers[0].resources.requests[gpu]: Invalid value: "gpu": must be a standard resource type or fully qualified"#,
                r#"spec.containers[0].resources.requests[gpu]: Invalid value: "gpu": must be a standard resource for containers"#,
                r#"spec.containers[0].resources.requests[memory]: Invalid value: "-1": must be greater than or equal to 0"#,
                "spec.containers[0].livenessProbe: Required value: must specify a handler type",
                "spec.containers[0].livenessProbe.successThreshold: Invalid value: 2: must be 1",
            ],
        ),
        ("apps", "deployments", format!(r#""spec":{{{selected},"template":{template}}}"#), vec![]),
        (
            "apps",
            "deployments",
            format!(r#""spec":{{"replicas":-1,{selected},"template":{other}}}"#),
            vec![
                r#"spec.template.metadata.labels: Invalid value: {"a":"c"}: `selector` does not match template `labels`"#,
                "spec.replicas: Invalid value: -1: must be greater than or equal to 0",
            ],
        ),
        (
            "apps",
            "deployments",
            format!(r#""spec":{{"selector":{{}},"template":{template},"strategy":{{"rollingUpdate":{{"maxSurge":0,"maxUnavailable":"0%"}}}}}}"#),
            vec![
                "spec.selector: Invalid value: {}: empty selector is invalid for deployment",
                r#"spec.strategy.rollingUpdate.maxUnavailable: Invalid value: "0%": may not be 0 when `maxSurge` is 0"#,
            ],
        ),
        ("apps", "daemonsets", format!(r#""spec":{{"template":{template}}}"#), vec!["spec.selector: Required value"]),
        ("apps", "statefulsets", format!(r#""spec":{{{selected},"template":{template}}}"#), vec![]),
        (
            "apps",
            "statefulsets",
            format!(r#""spec":{{{selected},"template":{{"metadata":{{"labels":{{"a":"b"}}}},"spec":{{"containers":[{{"volumeMounts":[{{"name":"claim"}}]}}]}}}}}}"#),
            vec![],
        ),
        (
            "apps",
            "replicasets",
            format!(r#""spec":{{"selector":{{"matchExpressions":[{{"key":"a","operator":"In"}},{{"key":"b","operator":"Is"}}]}},"template":{template}}}"#),
            vec![
                "spec.selector.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'",
                r#"spec.selector.matchExpressions[1].operator: Invalid value: "Is": not a valid selector operator"#,
                r#"spec.template.metadata.labels: Invalid value: {"a":"b"}: `selector` does not match template `labels`"#,
            ],
        ),
        ("", "replicationcontrollers", format!(r#""spec":{{"template":{template}}}"#), vec![]),
        (
            "",
            "replicationcontrollers",
            r#""spec":{}"#.into(),
            vec!["spec.selector: Required value", "spec.template: Required value"],
        ),
        (
            "batch",
            "jobs",
            format!(r#""spec":{{{selected},"template":{template}}}"#),
            vec![r#"spec.template.spec.restartPolicy: Unsupported value: "Always": supported values: "OnFailure", "Never""#],
        ),
        (
            "batch",
            "cronjobs",
            r#""spec":{"schedule":"* * *","jobTemplate":{"spec":{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"a","image":"b"}]}}}}}"#.into(),
            vec![r#"spec.schedule: Invalid value: "* * *": expected exactly 5 fields, found 3: [* * *]"#],
        ),
        ("", "configmaps", r#""data":{"a":"b"},"binaryData":{"c":"aGk="}"#.into(), vec![]),
        (
            "",
            "configmaps",
            r#""data":{"..":"b","c":"d"},"binaryData":{"c":"aGk="}"#.into(),
            vec![
                r#"data[..]: Invalid value: "..": must not be '..'"#,
                r#"data[c]: Invalid value: "c": duplicate of key present in binaryData"#,
            ],
        ),
        ("", "secrets", r#""stringData":{"a":"b"}"#.into(), vec![]),
        (
            "",
            "secrets",
            r#""type":"kubernetes.io/tls","data":{"tls.crt":""}"#.into(),
            vec!["data[tls.key]: Required value"],
        ),
        (
            "",
            "secrets",
            r#""type":"kubernetes.io/dockerconfigjson","stringData":{".dockerconfigjson":"x"}"#.into(),
            vec![r#"data[.dockerconfigjson]: Invalid value: "<secret contents redacted>": invalid character in JSON"#],
        ),
        (
            "",
            "secrets",
            r#""type":"kubernetes.io/service-account-token""#.into(),
            vec!["metadata.annotations[kubernetes.io/service-account.name]: Required value"],
        ),
        ("", "services", r#""spec":{"ports":[{"port":80}]}"#.into(), vec![]),
        ("", "services", r#""spec":{"clusterIP":"None"}"#.into(), vec![]),
        ("", "services", r#""spec":{}"#.into(), vec!["spec.ports: Required value"]),
        (
            "",
            "services",
            r#""spec":{"ports":[{"port":80},{"name":"b","port":80,"targetPort":"x_"},{"name":"b","port":0,"targetPort":1}]}"#.into(),
            vec![
                "spec.ports[0].name: Required value",
                "spec.ports[1].targetPort: Invalid value: \"x_\": must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)",
                r#"spec.ports[1]: Duplicate value: {"Name":"","Protocol":"TCP","AppProtocol":null,"Port":80,"TargetPort":0,"NodePort":0}"#,
                r#"spec.ports[2].name: Duplicate value: "b""#,
                "spec.ports[2].port: Invalid value: 0: must be between 1 and 65535, inclusive",
            ],
        ),
        ("", "services", r#""spec":{"type":"ExternalName"}"#.into(), vec!["spec.externalName: Required value"]),
        ("rbac.authorization", "clusterroles", String::new(), vec![]),
        (
            "rbac.authorization",
            "roles",
            r#""rules":[{"resources":["pods"]},{"verbs":["get"],"nonResourceURLs":["/x"]}]"#.into(),
            vec![
                "rules[0].verbs: Required value: verbs must contain at least one value",
                "rules[0].apiGroups: Required value: resource rules must supply at least one api group",
                r#"rules[1].nonResourceURLs: Invalid value: ["/x"]: namespaced rules cannot apply to non-resource URLs"#,
            ],
        ),
        (
            "rbac.authorization",
            "clusterrolebindings",
            r#""roleRef":{"kind":"Role","name":"a"},"subjects":[{"kind":"ServiceAccount","name":"b"},{"kind":"X","name":"y"},{"kind":"User"}]"#.into(),
            vec![
                "subjects[2].name: Required value",
                r#"roleRef.kind: Unsupported value: "Role": supported values: "ClusterRole""#,
                "subjects[0].namespace: Required value",
                r#"subjects[1].kind: Unsupported value: "X": supported values: "Group", "ServiceAccount", "User""#,
            ],
        ),
        (
            "",
            "persistentvolumeclaims",
            r#""spec":{}"#.into(),
            vec![
                "spec.accessModes: Required value: at least 1 access mode is required",
                "spec.resources[storage]: Required value",
            ],
        ),
        ("", "limitranges", r#""spec":{"limits":null}"#.into(), vec![]),
        ("storage", "csinodes", r#""spec":{"drivers":[]}"#.into(), vec![]),
        ("storage", "storageclasses", String::new(), vec!["provisioner: Required value"]),
        ("coordination", "leases", r#""spec":{"leaseDurationSeconds":0}"#.into(), vec!["spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0"]),
        ("networking", "ingresses", r#""spec":{}"#.into(), vec!["spec: Invalid value: []: either `defaultBackend` or `rules` must be specified"]),
        (
            "policy",
            "poddisruptionbudgets",
            r#""spec":{"minAvailable":1,"maxUnavailable":1}"#.into(),
            vec![r#"spec: Invalid value: {"minAvailable":1,"maxUnavailable":1}: minAvailable and maxUnavailable cannot be both set"#],
        ),
        ("scheduling", "priorityclasses", r#""value":2000000000"#.into(), vec!["value: Forbidden: maximum allowed value of a user defined priority is 1000000000"]),
        ("", "events", r#""involvedObject":{"namespace":"n"}"#.into(), vec![]),
        ("", "events", r#""involvedObject":{"namespace":"m"}"#.into(), vec![r#"involvedObject.namespace: Invalid value: "m": does not match event.namespace"#]),
        ("", "nodes", String::new(), vec![]),
        ("", "serviceaccounts", String::new(), vec![]),
        ("discovery", "endpointslices", r#""addressType":"IPv4","endpoints":[]"#.into(), vec![]),
    ];
    for (stem, plural, members, want) in &cases {
        let table = resource(stem, plural);
        let document = named(table, members);
        let got = texts(create(table, &KUBERNETES, &object(table, &document)));
        assert_eq!(got, *want, "{plural} {document}");
    }
}

#[test]
fn updates_leave_alone_what_was_decided_at_creation() {
    // Semantics §5.7. (group stem, resource, stored members, new members, what is wrong)
    let template = format!(r#""template":{{"metadata":{{"labels":{{"a":"b","c":"d"}}}},"spec":{POD}}}"#);
    let pod = |members: &str| format!(r#""spec":{{"containers":[{{"name":"a","image":"b"}}],{members}}}"#);
    let cases: Vec<(&str, &str, String, String, Vec<&str>)> = vec![
        ("", "configmaps", r#""data":{"a":"b"}"#.into(), r#""data":{"a":"c"},"immutable":true"#.into(), vec![]),
        (
            "",
            "configmaps",
            r#""data":{"a":"b"},"immutable":true"#.into(),
            r#""data":{"a":"c"},"immutable":false"#.into(),
            vec![
                "immutable: Forbidden: field is immutable when `immutable` is set",
                "data: Forbidden: field is immutable when `immutable` is set",
            ],
        ),
        ("", "secrets", r#""type":"a""#.into(), r#""type":"b""#.into(), vec![r#"type: Invalid value: "b": field is immutable"#]),
        (
            "apps",
            "deployments",
            format!(r#""spec":{{"selector":{{"matchLabels":{{"a":"b"}}}},{template}}}"#),
            format!(r#""spec":{{"selector":{{"matchLabels":{{"c":"d"}}}},{template}}}"#),
            vec![r#"spec.selector: Invalid value: {"matchLabels":{"c":"d"}}: field is immutable"#],
        ),
        (
            "apps",
            "statefulsets",
            format!(r#""spec":{{"selector":{{"matchLabels":{{"a":"b"}}}},"serviceName":"x",{template}}}"#),
            format!(r#""spec":{{"selector":{{"matchLabels":{{"a":"b"}}}},"serviceName":"y","replicas":3,{template}}}"#),
            vec!["spec: Forbidden: updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden"],
        ),
        (
            "rbac.authorization",
            "rolebindings",
            r#""roleRef":{"kind":"Role","name":"a"}"#.into(),
            r#""roleRef":{"kind":"Role","name":"b"}"#.into(),
            vec![r#"roleRef: Invalid value: {"APIGroup":"rbac.authorization.k8s.io","Kind":"Role","Name":"b"}: cannot change roleRef"#],
        ),
        ("storage", "storageclasses", r#""provisioner":"a""#.into(), r#""provisioner":"b""#.into(), vec!["provisioner: Forbidden: updates to provisioner are forbidden."]),
        (
            "",
            "services",
            r#""spec":{"clusterIP":"10.0.0.1","clusterIPs":["10.0.0.1"],"ports":[{"port":1}]}"#.into(),
            r#""spec":{"clusterIP":"10.0.0.2","clusterIPs":["10.0.0.2"],"ports":[{"port":1}]}"#.into(),
            vec![r#"spec.clusterIPs[0]: Invalid value: ["10.0.0.2"]: may not change once set"#],
        ),
        (
            "",
            "persistentvolumeclaims",
            r#""spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}"#.into(),
            r#""spec":{"accessModes":["ReadWriteOnce"],"volumeName":"v","resources":{"requests":{"storage":"2Gi"}}}"#.into(),
            vec!["spec: Forbidden: spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"],
        ),
        ("", "pods", pod(r#""activeDeadlineSeconds":9"#), pod(r#""activeDeadlineSeconds":8,"tolerations":[{"operator":"Exists"}]"#), vec![]),
        (
            "",
            "pods",
            pod(r#""activeDeadlineSeconds":9,"tolerations":[{"operator":"Exists"}]"#),
            pod(r#""activeDeadlineSeconds":10"#),
            vec![
                "spec.activeDeadlineSeconds: Invalid value: 10: must be less than or equal to previous value",
                "spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds",
            ],
        ),
        (
            "",
            "pods",
            pod(r#""nodeName":"a""#),
            pod(r#""nodeName":"b""#),
            vec!["spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)\n  spec.nodeName differs\n"],
        ),
        (
            "",
            "pods",
            r#""spec":{"containers":[{"name":"a","image":"b"}]}"#.into(),
            r#""spec":{"containers":[{"name":"a","image":"c:1","imagePullPolicy":"Always"}]}"#.into(),
            vec![],
        ),
        (
            "",
            "pods",
            r#""spec":{"containers":[{"name":"a","image":"b"}]}"#.into(),
            r#""spec":{"containers":[{"name":"a","image":"b"},{"name":"c","image":"b"}]}"#.into(),
            vec!["spec.containers: Forbidden: pod updates may not add or remove containers"],
        ),
        (
            "",
            "pods",
            pod(r#""schedulingGates":[{"name":"g"}],"nodeSelector":{"a":"b"}"#),
            pod(r#""nodeSelector":{"a":"b","c":"d"}"#),
            vec![],
        ),
        (
            "batch",
            "jobs",
            r#""spec":{"selector":{},"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"a","image":"b"}]}}}"#.into(),
            r#""spec":{"selector":{},"parallelism":2,"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"a","image":"b"}]}}}"#.into(),
            vec!["spec.completions: Invalid value: null: field is immutable"],
        ),
    ];
    for (stem, plural, old, new, want) in &cases {
        let table = resource(stem, plural);
        let (old, new) = (object(table, &named(table, old)), object(table, &named(table, new)));
        assert_eq!(
            texts(update(table, &KUBERNETES, &old, &old)),
            Vec::<String>::new(),
            "{plural}: no change"
        );
        assert_eq!(texts(update(table, &KUBERNETES, &new, &old)), *want, "{plural}");
        assert_eq!(texts(update_through("status", table, &KUBERNETES, &new, &old)), Vec::<String>::new());
    }
}

#[test]
fn string_data_of_secrets_goes_over_data() {
    let table = resource("", "secrets");
    let secret =
        object(table, &named(table, r#""data":{"a":"eA==","b":"eQ=="},"stringData":{"b":"hi","c":"z"}"#));
    let mut out = Vec::new();
    encode(table.message, &secret, &mut out);
    assert_eq!(
        String::from_utf8(out).unwrap(),
        r#"{"metadata":{"name":"x","namespace":"n"},"data":{"a":"eA==","b":"aGk=","c":"eg=="},"type":"Opaque"}"#
    );
}

#[test]
fn sizes_have_limits() {
    for (plural, members, want) in [
        (
            "configmaps",
            format!(r#""data":{{"a":"{}"}}"#, "x".repeat(1024 * 1024 + 1)),
            ": Too long: may not be more than 1048576 bytes",
        ),
        (
            "secrets",
            format!(r#""stringData":{{"a":"{}"}}"#, "x".repeat(1024 * 1024 + 1)),
            "data: Too long: may not be more than 1048576 bytes",
        ),
    ] {
        let table = resource("", plural);
        assert_eq!(texts(create(table, &KUBERNETES, &object(table, &named(table, &members)))), [want]);
    }
}

#[test]
fn nothing_panics_on_objects_of_any_shape() {
    // Trees that no decoder makes: every member of every kind replaced by each other sort of value.
    let values = [Value::Null, Value::Int(-1), "x".into(), Value::Array(vec![Value::Int(1), "y".into()])];
    for naming in [&CLUSTER, &KUBERNETES] {
        let groups = builtin::groups(naming).iter();
        for table in groups.flat_map(|group| group.versions).flat_map(|version| version.resources) {
            let mut wrong = 0;
            for value in &values {
                for deep in [false, true] {
                    let object: Object = table
                        .message
                        .fields
                        .iter()
                        .map(|field| {
                            let inner: Object =
                                ["name", "template", "selector", "ports", "rules", "containers", "limits"]
                                    .into_iter()
                                    .map(|name| (name.into(), value.clone()))
                                    .collect();
                            (field.name.into(), if deep { Value::Object(inner) } else { value.clone() })
                        })
                        .collect();
                    let mut prepared = object.clone();
                    prepare(table, &mut prepared, None);
                    defaults::apply(table.message, &mut prepared, naming);
                    wrong += create(table, naming, &prepared).len();
                    wrong += update(table, naming, &prepared, &object).len();
                }
            }
            assert!(wrong > 0, "{} takes nonsense", table.plural);
        }
    }
}

#[test]
fn large_objects_cost_their_size_and_not_its_square() {
    const MANY: usize = 50_000;
    let map = |value: &str| {
        let members: Vec<String> = (0..MANY).map(|n| format!(r#""k{n}":"{value}""#)).collect();
        format!("{{{}}}", members.join(","))
    };
    let list = |item: &str| format!("[{}]", vec![item; MANY].join(","));
    for (stem, plural, members) in [
        ("", "configmaps", format!(r#""data":{},"binaryData":{}"#, map("v"), map("aGk="))),
        (
            "apps",
            "deployments",
            format!(
                r#""spec":{{"selector":{{"matchLabels":{m}}},"template":{{"metadata":{{"labels":{m}}}}}}}"#,
                m = map("v")
            ),
        ),
        (
            "",
            "replicationcontrollers",
            format!(r#""spec":{{"selector":{m},"template":{{"metadata":{{"labels":{m}}}}}}}"#, m = map("v")),
        ),
        (
            "",
            "pods",
            format!(
                r#""spec":{{"containers":[{{"name":"a","image":"b","resources":{{"limits":{m},"requests":{m}}}}}],"tolerations":{},"schedulingGates":{}}}"#,
                list("{}"),
                list(r#"{"name":"g"}"#),
                m = map("1")
            ),
        ),
        ("", "pods", format!(r#""spec":{{"containers":{}}}"#, list("{}"))),
        ("", "services", format!(r#""spec":{{"ports":{}}}"#, list(r#"{"port":1}"#))),
        ("rbac.authorization", "roles", format!(r#""rules":{}"#, list("{}"))),
    ] {
        let table = resource(stem, plural);
        let new = object(table, &named(table, &members));
        let errors = create(table, &KUBERNETES, &new).len();
        assert!(errors < 2000, "{plural}: {errors} errors");
        let mut old = new.clone();
        old.object_entry("spec").insert("tolerations", Value::Array(Vec::new()));
        assert!(update(table, &KUBERNETES, &new, &old).len() < 2000);
        let owners = list(r#"{"apiVersion":"v1","kind":"Pod","name":"a","uid":"b","controller":true}"#);
        let document = format!(r#"{{"metadata":{{"name":"x","namespace":"n","ownerReferences":{owners}}}}}"#);
        let errors = create(table, &KUBERNETES, &object(table, &document));
        assert!(errors.iter().map(|error| error.to_string().len()).sum::<usize>() < 10 * document.len());
    }
}
