//! Tests that compare documents before and after defaulting, and a comparison with the reference data.

use std::collections::BTreeSet;

use super::*;
use crate::schema::builtin;
use crate::schema::decode::decode;
use crate::schema::encode::encode;
use values::naming::{self, KUBERNETES};

fn message(name: &str) -> &Message {
    builtin::message(&KUBERNETES, name).unwrap_or_else(|| panic!("no type {name}"))
}

/// Returns the document with its defaults. Checks that a second round of defaulting changes nothing.
fn defaulted(kind: &str, document: &str) -> String {
    let message = message(kind);
    let mut object = decode(message, document.as_bytes()).unwrap().object;
    apply(message, &mut object, &KUBERNETES);
    let mut out = Vec::new();
    encode(message, &object, &mut out);
    let once = object.clone();
    apply(message, &mut object, &KUBERNETES);
    assert_eq!(object, once, "{kind}: a second round changes nothing");
    let mut again = Vec::new();
    encode(message, &decode(message, &out).unwrap().object, &mut again);
    assert_eq!(again, out, "{kind}: reading and writing the text does not change it");
    String::from_utf8(out).unwrap()
}

#[test]
fn a_pod_looks_as_after_kubectl_apply() {
    let got = defaulted(
        "api.core.v1.Pod",
        r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a"},"spec":{
            "volumes":[{"name":"c","configMap":{"name":"c"}},{"name":"e"}],
            "containers":[{"name":"web","image":"nginx","ports":[{"containerPort":80}],
                "resources":{"limits":{"cpu":"1","memory":"1Gi"},"requests":{"cpu":"100u"}},
                "readinessProbe":{"httpGet":{"port":80}},
                "env":[{"name":"IP","valueFrom":{"fieldRef":{"fieldPath":"status.podIP"}}}]}]}}"#,
    );
    let want = concat!(
        r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a"},"spec":{"#,
        r#""volumes":[{"name":"c","configMap":{"name":"c","defaultMode":420}},{"name":"e","emptyDir":{}}],"#,
        r#""containers":[{"name":"web","image":"nginx","ports":[{"containerPort":80,"protocol":"TCP"}],"#,
        r#""env":[{"name":"IP","valueFrom":{"fieldRef":{"apiVersion":"v1","fieldPath":"status.podIP"}}}],"#,
        r#""resources":{"limits":{"cpu":"1","memory":"1Gi"},"requests":{"cpu":"1m","memory":"1Gi"}},"#,
        r#""readinessProbe":{"httpGet":{"path":"/","port":80,"scheme":"HTTP"},"timeoutSeconds":1,"periodSeconds":10,"#,
        r#""successThreshold":1,"failureThreshold":3},"terminationMessagePath":"/dev/termination-log","#,
        r#""terminationMessagePolicy":"File","imagePullPolicy":"Always"}],"restartPolicy":"Always","#,
        r#""terminationGracePeriodSeconds":30,"dnsPolicy":"ClusterFirst","securityContext":{},"#,
        r#""schedulerName":"default-scheduler","enableServiceLinks":true},"status":{}}"#,
    );
    assert_eq!(got, want);
}

#[test]
fn deprecated_and_current_members_with_the_same_meaning_are_kept_equal() {
    // Rows: (type, input, expected part of the result)
    for (kind, given, want) in [
        (
            "core.v1.PodSpec",
            r#"{"serviceAccountName":"a"}"#,
            r#""serviceAccountName":"a","serviceAccount":"a""#,
        ),
        ("core.v1.PodSpec", r#"{"serviceAccount":"b"}"#, r#""serviceAccountName":"b","serviceAccount":"b""#),
        (
            "core.v1.PodSpec",
            r#"{"serviceAccount":"b","serviceAccountName":"a"}"#,
            r#""serviceAccountName":"a","serviceAccount":"a""#,
        ),
        (
            "core.v1.PodStatus",
            r#"{"podIP":"10.0.0.1"}"#,
            r#""podIP":"10.0.0.1","podIPs":[{"ip":"10.0.0.1"}]"#,
        ),
        (
            "core.v1.PodStatus",
            r#"{"podIPs":[{"ip":"10.0.0.1"},{"ip":"fd00::1"}]}"#,
            r#""podIP":"10.0.0.1","podIPs":[{"ip":"10.0.0.1"},{"ip":"fd00::1"}]"#,
        ),
        // The single value takes precedence over the list.
        (
            "core.v1.PodStatus",
            r#"{"podIP":"10.0.0.2","podIPs":[{"ip":"10.0.0.1"},{"ip":"fd00::1"}]}"#,
            r#""podIP":"10.0.0.2","podIPs":[{"ip":"10.0.0.2"}]"#,
        ),
        // `hostIP` is not copied to `hostIPs`: validation compares the two fields.
        ("core.v1.PodStatus", r#"{"hostIP":"10.0.0.2"}"#, r#"{"hostIP":"10.0.0.2"}"#),
        (
            "core.v1.NodeSpec",
            r#"{"podCIDR":"10.0.0.0/24"}"#,
            r#""podCIDR":"10.0.0.0/24","podCIDRs":["10.0.0.0/24"]"#,
        ),
        (
            "core.v1.NodeSpec",
            r#"{"podCIDRs":["10.0.0.0/24"]}"#,
            r#""podCIDR":"10.0.0.0/24","podCIDRs":["10.0.0.0/24"]"#,
        ),
        (
            "apps.v1.StatefulSetSpec",
            r#"{"volumeClaimTemplates":[{"metadata":{"name":"a"}}]}"#,
            r#""volumeClaimTemplates":[{"kind":"PersistentVolumeClaim","apiVersion":"v1","metadata":{"name":"a"}"#,
        ),
        (
            "core.v1.Pod",
            r#"{"metadata":{"annotations":{"a":"b","pod.alpha.kubernetes.io/init-containers":"[]","pod.beta.kubernetes.io/init-container-statuses":"[]"}}}"#,
            r#"{"metadata":{"annotations":{"a":"b"}},"#,
        ),
        (
            "apps.v1.Deployment",
            r#"{"spec":{"template":{"metadata":{"labels":{"x":"y"},"annotations":{"pod.beta.kubernetes.io/init-containers":"[]"}}}}}"#,
            r#""template":{"metadata":{"labels":{"x":"y"}},"#,
        ),
        (
            "apps.v1.DaemonSet",
            r#"{"metadata":{"annotations":{"a":"b","z":"y"}}}"#,
            r#""annotations":{"a":"b","deprecated.daemonset.template.generation":"0","z":"y"}"#,
        ),
        (
            "apps.v1.DaemonSet",
            r#"{"metadata":{"annotations":{"deprecated.daemonset.template.generation":"7"}}}"#,
            r#""annotations":{"deprecated.daemonset.template.generation":"7"}"#,
        ),
        (
            "apps.v1.DaemonSet",
            r#"{"metadata":{"annotations":{"deprecated.daemonset.template.generation":"+07"}}}"#,
            r#""annotations":{"deprecated.daemonset.template.generation":"7"}"#,
        ),
        (
            "apps.v1.Deployment",
            r#"{"metadata":{"annotations":{"deprecated.deployment.rollback.to":"03"}}}"#,
            r#""annotations":{"deprecated.deployment.rollback.to":"3"}"#,
        ),
        (
            "apps.v1.Deployment",
            r#"{"metadata":{"name":"a","annotations":{"deprecated.deployment.rollback.to":""}}}"#,
            r#""metadata":{"name":"a"}"#,
        ),
    ] {
        let (got, want) = (defaulted(&format!("api.{kind}"), given), &*KUBERNETES.fill(want));
        assert!(got.contains(want), "{kind} {given}: {got}");
    }
}

#[test]
fn annotations_that_replace_former_fields_must_be_valid() {
    const GENERATION: &str = "deprecated.daemonset.template.generation";
    const ROLLBACK: &str = "deprecated.deployment.rollback.to";
    for (kind, annotation, text, want) in [
        ("DaemonSet", GENERATION, "7", ""),
        ("DaemonSet", GENERATION, "x", "strconv.ParseInt: parsing \"x\": invalid syntax"),
        ("DaemonSet", GENERATION, "", "strconv.ParseInt: parsing \"\": invalid syntax"),
        ("DaemonSet", ROLLBACK, "x", ""),
        ("Deployment", ROLLBACK, "", ""),
        (
            "Deployment",
            ROLLBACK,
            "9223372036854775808",
            "failed to parse annotation[deprecated.deployment.rollback.to]=9223372036854775808 as int64: \
             strconv.ParseInt: parsing \"9223372036854775808\": value out of range",
        ),
    ] {
        let name = format!("api.apps.v1.{kind}");
        let message = message(&name);
        let text = format!(r#"{{"metadata":{{"annotations":{{"{annotation}":"{text}"}}}}}}"#);
        let object = decode(message, text.as_bytes()).unwrap().object;
        let why = crate::schema::unreadable_annotation(message, &object);
        assert_eq!(why.unwrap_or_default(), want, "{kind} {text}");
    }
}

#[test]
fn defaults_that_depend_on_other_members_are_set() {
    // These cases are the entries with `when` or `rule` in the reference data of defaults. Rows: (type,
    // input, expected part of the result)
    for (kind, given, want) in [
        ("core.v1.Container", r#"{"image":"a:5000/b"}"#, r#""imagePullPolicy":"Always""#),
        ("core.v1.Container", r#"{"image":"a:5000/b:1"}"#, r#""imagePullPolicy":"IfNotPresent""#),
        ("core.v1.Container", r#"{"image":"b:latest"}"#, r#""imagePullPolicy":"Always""#),
        ("core.v1.EphemeralContainer", r#"{"image":"b@sha256:00"}"#, r#""imagePullPolicy":"IfNotPresent""#),
        ("core.v1.Container", r#"{"image":"ko://github.com/a/b"}"#, r#""imagePullPolicy":"IfNotPresent""#),
        ("core.v1.Container", r#"{"image":"${IMAGE}"}"#, r#""imagePullPolicy":"IfNotPresent""#),
        ("core.v1.Volume", r#"{"name":"i","image":{"reference":"a//b"}}"#, r#""pullPolicy":"IfNotPresent""#),
        ("core.v1.Container", r#"{"image":"b","imagePullPolicy":"Never"}"#, r#""imagePullPolicy":"Never""#),
        (
            "core.v1.Volume",
            r#"{"name":"i","image":{"reference":"x"}}"#,
            r#"{"reference":"x","pullPolicy":"Always"}"#,
        ),
        (
            "core.v1.Pod",
            r#"{"spec":{"hostNetwork":true,"containers":[{"ports":[{"containerPort":80}]}]}}"#,
            r#""ports":[{"hostPort":80,"containerPort":80,"protocol":"TCP"}]"#,
        ),
        (
            "core.v1.Pod",
            r#"{"spec":{"containers":[{"resources":{"requests":{"cpu":"1"}}},{"resources":{"requests":{"cpu":"500m"}}}],
                "initContainers":[{"restartPolicy":"Always","resources":{"requests":{"cpu":"1"}}},{"resources":{"requests":{"cpu":"3"}}}],
                "resources":{"limits":{"memory":"1Gi"}}}}"#,
            r#""resources":{"limits":{"memory":"1Gi"},"requests":{"cpu":"4","memory":"1Gi"}}"#,
        ),
        (
            "core.v1.Pod",
            r#"{"spec":{"containers":[{"resources":{"limits":{"hugepages-2Mi":"4Mi"},"requests":{"hugepages-2Mi":"4Mi"}}}],
                "resources":{"requests":{"cpu":"1"}}}}"#,
            r#""resources":{"limits":{"hugepages-2Mi":"4Mi"},"requests":{"cpu":"1","hugepages-2Mi":"4Mi"}}"#,
        ),
        (
            "apps.v1.DaemonSet",
            r#"{}"#,
            r#"{"type":"RollingUpdate","rollingUpdate":{"maxUnavailable":1,"maxSurge":0}}"#,
        ),
        ("apps.v1.DaemonSet", r#"{"spec":{"updateStrategy":{"type":"OnDelete"}}}"#, r#"{"type":"OnDelete"}"#),
        (
            "apps.v1.Deployment",
            r#"{"spec":{"strategy":{"rollingUpdate":{"maxSurge":1}}}}"#,
            r#"{"type":"RollingUpdate","rollingUpdate":{"maxUnavailable":"25%","maxSurge":1}}"#,
        ),
        (
            "apps.v1.Deployment",
            r#"{"spec":{"strategy":{"type":"Recreate"}}}"#,
            r#""strategy":{"type":"Recreate"}"#,
        ),
        (
            "apps.v1.StatefulSet",
            r#"{}"#,
            r#""updateStrategy":{"type":"RollingUpdate","rollingUpdate":{"partition":0}},"revisionHistoryLimit":10,"persistentVolumeClaimRetentionPolicy":{"whenDeleted":"Retain","whenScaled":"Retain"}"#,
        ),
        (
            "apps.v1.StatefulSet",
            r#"{"spec":{"updateStrategy":{"type":"RollingUpdate"}}}"#,
            r#""updateStrategy":{"type":"RollingUpdate"},"#,
        ),
        (
            "autoscaling.v2.HorizontalPodAutoscaler",
            r#"{"spec":{"behavior":{"scaleUp":{"selectPolicy":"Min"}}}}"#,
            r#""behavior":{"scaleUp":{"stabilizationWindowSeconds":0,"selectPolicy":"Min","policies":[{"type":"Pods","value":4,"periodSeconds":15},{"type":"Percent","value":100,"periodSeconds":15}]},"scaleDown":{"selectPolicy":"Max","policies":[{"type":"Percent","value":100,"periodSeconds":15}]}}"#,
        ),
        (
            "autoscaling.v2.HorizontalPodAutoscaler",
            r#"{"spec":{"behavior":{"scaleUp":{"selectPolicy":"Min","policies":[]}}}}"#,
            r#""behavior":{"scaleUp":{"stabilizationWindowSeconds":0,"selectPolicy":"Min","policies":[]},"scaleDown":{"#,
        ),
        ("autoscaling.v2.HorizontalPodAutoscaler", r#"{}"#, r#""averageUtilization":80"#),
        ("batch.v1.Job", r#"{}"#, r#"{"parallelism":1,"completions":1,"backoffLimit":6,"#),
        ("batch.v1.Job", r#"{"spec":{"parallelism":2}}"#, r#"{"parallelism":2,"backoffLimit":6,"#),
        ("batch.v1.Job", r#"{"spec":{"backoffLimitPerIndex":1}}"#, r#""backoffLimit":2147483647"#),
        (
            "batch.v1.Job",
            r#"{"spec":{"podFailurePolicy":{"rules":[]}}}"#,
            r#""podReplacementPolicy":"Failed""#,
        ),
        ("batch.v1.Job", r#"{}"#, r#""podReplacementPolicy":"TerminatingOrFailed""#),
        (
            "batch.v1.Job",
            r#"{"spec":{"template":{"metadata":{"labels":{"a":"b"}}}}}"#,
            r#"{"metadata":{"labels":{"a":"b"}},"spec":"#,
        ),
        (
            "core.v1.ReplicationController",
            r#"{"spec":{"template":{"metadata":{"labels":{"a":"b"}}}}}"#,
            r#"{"metadata":{"labels":{"a":"b"}},"spec":{"replicas":1,"selector":{"a":"b"},"#,
        ),
        (
            "core.v1.LimitRange",
            r#"{"spec":{"limits":[{"type":"Container","max":{"cpu":"2"},"min":{"cpu":"1","memory":"1Mi"}}]}}"#,
            r#""default":{"cpu":"2"},"defaultRequest":{"cpu":"2","memory":"1Mi"}"#,
        ),
        (
            "core.v1.Namespace",
            r#"{"metadata":{"name":"a","labels":{"z":"1"}}}"#,
            r#""labels":{"{domain}/metadata.name":"a","z":"1"}"#,
        ),
        ("core.v1.Node", r#"{"status":{"capacity":{"cpu":"1"}}}"#, r#""allocatable":{"cpu":"1"}"#),
        (
            "core.v1.PersistentVolume",
            r#"{}"#,
            r#"{"persistentVolumeReclaimPolicy":"Retain","volumeMode":"Filesystem"}"#,
        ),
        (
            "core.v1.Service",
            r#"{"spec":{"ports":[{"port":80},{"port":81,"targetPort":"x"}]}}"#,
            r#"{"ports":[{"protocol":"TCP","port":80,"targetPort":80},{"protocol":"TCP","port":81,"targetPort":"x"}],"type":"ClusterIP","sessionAffinity":"None","internalTrafficPolicy":"Cluster"}"#,
        ),
        (
            "core.v1.Service",
            r#"{"spec":{"type":"LoadBalancer","sessionAffinity":"ClientIP"},"status":{"loadBalancer":{"ingress":[{"ip":"1.2.3.4"}]}}}"#,
            r#"{"type":"LoadBalancer","sessionAffinity":"ClientIP","externalTrafficPolicy":"Cluster","sessionAffinityConfig":{"clientIP":{"timeoutSeconds":10800}},"allocateLoadBalancerNodePorts":true,"internalTrafficPolicy":"Cluster"},"status":{"loadBalancer":{"ingress":[{"ip":"1.2.3.4","ipMode":"VIP"}]}}"#,
        ),
        (
            "core.v1.Service",
            r#"{"spec":{"type":"ExternalName"}}"#,
            r#"{"type":"ExternalName","sessionAffinity":"None"}"#,
        ),
        ("networking.v1.NetworkPolicy", r#"{}"#, r#""policyTypes":["Ingress"]"#),
        (
            "networking.v1.NetworkPolicy",
            r#"{"spec":{"egress":[{}]}}"#,
            r#""policyTypes":["Ingress","Egress"]"#,
        ),
        (
            "rbac.v1.RoleBinding",
            r#"{"subjects":[{"kind":"User","name":"a"},{"kind":"ServiceAccount","name":"b"}],"roleRef":{"kind":"Role","name":"c"}}"#,
            r#""subjects":[{"kind":"User","apiGroup":"rbac.authorization{suffix}","name":"a"},{"kind":"ServiceAccount","name":"b"}],"roleRef":{"apiGroup":"rbac.authorization{suffix}","kind":"Role","name":"c"}"#,
        ),
        ("resource.v1.DeviceSubRequest", r#"{"allocationMode":"All"}"#, r#""allocationMode":"All"}"#),
        ("resource.v1.ExactDeviceRequest", r#"{}"#, r#""allocationMode":"ExactCount","count":1"#),
        (
            "resource.v1beta1.DeviceRequest",
            r#"{"name":"a","deviceClassName":"c"}"#,
            r#""allocationMode":"ExactCount","count":1"#,
        ),
        ("resource.v1beta1.DeviceRequest", r#"{"name":"a"}"#, r#"{"name":"a","deviceClassName":""}"#),
        ("core.v1.ResourceQuota", r#"{"spec":{"hard":{"cpu":"1500u"}}}"#, r#""hard":{"cpu":"2m"}"#),
    ] {
        let (got, want) = (defaulted(&format!("api.{kind}"), given), &*KUBERNETES.fill(want));
        assert!(got.contains(want), "{kind} {given}\n   is {got}\n lacks {want}");
    }
    let custom = "apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition";
    let got = defaulted(
        custom,
        r#"{"spec":{"names":{"kind":"CronTab"},"versions":[{"name":"v1"},{"name":"v2","storage":true}]}}"#,
    );
    for want in [
        r#""singular":"crontab","kind":"CronTab","listKind":"CronTabList""#,
        r#""conversion":{"strategy":"None"}"#,
        r#""storedVersions":["v2"]"#,
    ] {
        assert!(got.contains(want), "{got} lacks {want}");
    }
    assert!(defaulted("api.resource.v1.DeviceTaint", "{}").contains(r#""timeAdded":"20"#));
}

/// A write of the status takes the stored spec over unchanged.
#[test]
fn the_status_of_a_service_is_defaulted_according_to_its_spec() {
    let message = message("api.core.v1.Service");
    let text =
        br#"{"spec":{"type":"LoadBalancer"},"status":{"loadBalancer":{"ingress":[{"ip":"1.2.3.4"}]}}}"#;
    let mut service = decode(message, text).unwrap().object;
    let spec = service.get_mut("spec").and_then(Value::as_object_mut).unwrap();
    spec.settle(bytes::Bytes::from_static(br#"{"type":"LoadBalancer"}"#));
    apply(message, &mut service, &KUBERNETES);
    let ingress =
        r#"{"type":"LoadBalancer"},"status":{"loadBalancer":{"ingress":[{"ip":"1.2.3.4","ipMode":"VIP"}]}}}"#;
    let mut out = Vec::new();
    encode(message, &service, &mut out);
    assert!(String::from_utf8(out).unwrap().ends_with(ingress));
}

#[test]
fn every_assigned_value_is_json_that_fits_its_field() {
    for naming in naming::ALL {
        let mut count = 0;
        for message in builtin::messages(naming) {
            for (field, text) in
                message.fields.iter().filter_map(|field| Some((field, field.assigned.as_ref()?)))
            {
                let document = format!("{{\"{}\":{text}}}", field.name);
                let decoded = decode(message, document.as_bytes())
                    .unwrap_or_else(|error| panic!("{}.{}: {error}", message.name, field.name));
                assert!(decoded.strict.is_empty(), "{}.{}: {:?}", message.name, field.name, decoded.strict);
                count += 1;
            }
        }
        assert!(count >= 120, "{count}");
    }
}

/// Splits a path of the reference data into steps: `spec.containers[].ports` → (spec, false, false),
/// (containers, true, false) …
fn steps(path: &str) -> impl Iterator<Item = (&str, bool, bool)> {
    path.split('.')
        .filter(|step| !step.is_empty())
        .map(|step| (step.trim_end_matches(['[', ']', '{', '}']), step.ends_with("[]"), step.ends_with("{}")))
}

/// Returns a document with an empty object at `path`, and the type of this object; `None` if no served type
/// has such a field.
fn document<'m>(message: &'m Message, path: &str) -> Option<(String, &'m Message)> {
    let (mut open, mut close, mut inner) = (String::new(), String::new(), message);
    for (name, list, map) in steps(path) {
        let Kind::Message(next) = inner.field(name)?.element() else { return None };
        let (before, after) = match (list, map) {
            (true, _) => ("[{", "}]}"),
            (_, true) => ("{\"k\":{", "}}}"),
            _ => ("{", "}}"),
        };
        open.push_str(&format!("{{\"{name}\":{}", &before[..before.len() - 1]));
        close.insert_str(0, &after[1..]);
        inner = next;
    }
    Some((format!("{open}{{}}{close}"), inner))
}

fn at_path<'v>(value: &'v Value, path: &str) -> Option<&'v Value> {
    steps(path).try_fold(value, |value, (name, list, map)| {
        let value = value.get(name)?;
        match (list, map) {
            (true, _) => value.as_array()?.first(),
            (_, true) => value.get("k"),
            _ => Some(value),
        }
    })
}

#[test]
fn every_default_of_the_reference_data_is_set() {
    let Some(path) = testkit::reference("facts/defaults.json") else { return };
    let name_label = format!("Namespace metadata.labels[{}]", KUBERNETES.label("metadata.name"));
    // Rules that the table above covers, and a few rules on other subjects.
    let by_hand: BTreeSet<&str> = [
        "DaemonSet spec.updateStrategy.rollingUpdate.maxUnavailable",
        "DaemonSet spec.updateStrategy.rollingUpdate.maxSurge",
        "Deployment spec.strategy.rollingUpdate.maxUnavailable",
        "Deployment spec.strategy.rollingUpdate.maxSurge",
        "StatefulSet spec.updateStrategy.rollingUpdate",
        "StatefulSet spec.updateStrategy.rollingUpdate.partition",
        "StatefulSet spec.updateStrategy.rollingUpdate.maxUnavailable",
        "HorizontalPodAutoscaler spec.behavior.scaleUp",
        "HorizontalPodAutoscaler spec.behavior.scaleDown",
        "Job spec.completions",
        "Job spec.backoffLimit",
        "Job spec.podReplacementPolicy",
        "Job metadata.labels",
        "Container imagePullPolicy",
        "EphemeralContainer .",
        "LimitRangeItem default",
        "LimitRangeItem defaultRequest",
        &name_label,
        "NodeStatus allocatable",
        "Pod spec.containers[].resources.requests",
        "Pod spec.initContainers[].resources.requests",
        "Pod spec.resources.limits[hugepages-*]",
        "Pod spec.resources.requests",
        "Pod spec.containers[].ports[].hostPort",
        "Pod spec.initContainers[].ports[].hostPort",
        "ReplicationController spec.selector",
        "ReplicationController metadata.labels",
        "ResourceList {}",
        "Service spec.sessionAffinityConfig",
        "Service spec.sessionAffinityConfig.clientIP.timeoutSeconds",
        "Service spec.ports[].targetPort",
        "Service spec.externalTrafficPolicy",
        "Service spec.internalTrafficPolicy",
        "Service spec.allocateLoadBalancerNodePorts",
        "Service status.loadBalancer.ingress[].ipMode",
        "Volume emptyDir",
        "Volume image.pullPolicy",
        "NetworkPolicy spec.policyTypes",
        "Subject apiGroup",
        "DeviceTaint timeAdded",
        "DeviceRequest allocationMode",
        "DeviceRequest count",
        "CustomResourceDefinition status.storedVersions",
        "CustomResourceDefinitionSpec names.singular",
        "CustomResourceDefinitionSpec names.listKind",
        "ConfigMap data",                               // an empty map counts as absent
        "PodLogOptions stream",                         // query options, behind a gate that is off
        "CSIDriver spec.preventPodSchedulingIfMissing", // behind a gate that is off
    ]
    .into();
    let facts = json::parse(&std::fs::read(path).unwrap()).unwrap();
    let list = |value: &Value, name: &str| value.get(name).unwrap().as_array().unwrap().to_vec();
    let rules = list(&facts, "type_rules");
    let (mut checked, mut skipped) = (0, BTreeSet::new());
    for kind in list(&facts, "kinds") {
        let kind_name = kind.str_at(&["type"]).trim_start_matches("io.k8s.").to_owned();
        let Some(root) = builtin::message(&KUBERNETES, &kind_name) else { continue };
        for step in list(&kind, "steps") {
            let step = step.as_array().unwrap();
            let (path, second) = (step[0].as_str().unwrap(), step[1].as_str().unwrap());
            let expected: Vec<(String, Value)> = if second == "=" {
                let (parent, field) = path.rsplit_once('.').unwrap();
                vec![(format!("{parent}.{field}"), step[2].clone())]
            } else {
                let rule = rules.iter().find(|rule| rule.str_at(&["type"]) == second).unwrap();
                let short = second.rsplit('.').next().unwrap();
                let rules = list(rule, "rules").into_iter().filter_map(|rule| {
                    let name = format!("{short} {}", rule.str_at(&["path"]));
                    match by_hand.get(name.as_str()) {
                        Some(known) => {
                            skipped.insert(*known);
                            None
                        }
                        None => Some((
                            rule.str_at(&["path"]).to_owned(),
                            rule.get("value").unwrap_or_else(|| panic!("{name}")).clone(),
                        )),
                    }
                });
                let join = |field: String| if path.is_empty() { field } else { format!("{path}.{field}") };
                rules.map(|(field, value)| (join(field), value)).collect()
            };
            for (path, value) in expected {
                let parent = path.rsplit_once('.').map_or("", |(parent, _)| parent);
                let Some((text, holder)) = document(root, parent) else {
                    panic!("{kind_name} has no {parent}");
                };
                let mut object =
                    decode(root, text.as_bytes()).unwrap_or_else(|error| panic!("{text}: {error}")).object;
                apply(root, &mut object, &KUBERNETES);
                let field = path.rsplit('.').next().unwrap();
                let got = Value::Object(object);
                let got = at_path(&got, parent).and_then(|parent| parent.get(field));
                assert_eq!(got, Some(&value), "{kind_name} {path} ({})", holder.name);
                checked += 1;
            }
        }
    }
    assert!(checked > 1000, "only {checked} defaults were compared");
    let unused: Vec<_> = by_hand.difference(&skipped).collect();
    assert!(
        unused.iter().all(|name| name.starts_with("PodLogOptions") || name.starts_with("EphemeralContainer")),
        "{unused:?}"
    );
}
