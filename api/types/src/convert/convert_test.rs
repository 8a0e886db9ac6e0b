//! Round-trip tests of conversions, on the real types.

use super::*;
use crate::schema::registry::Registry;
use values::naming::{CLUSTER, KUBERNETES};
use values::testing::{object, object_text, text};

fn annotation<'o>(object: &'o Object, name: &str) -> Option<&'o str> {
    object.get("metadata")?.get("annotations")?.get(name)?.as_str()
}

fn v1_resource(registry: &Registry, group: &str, plural: &str) -> std::sync::Arc<Resource> {
    registry.resource(group, "v1", plural).unwrap().clone()
}

/// Returns a v2 autoscaler with these members of spec and status.
fn v2(spec: &str, status: &str) -> Object {
    let resource = v1_resource(&Registry::new(&KUBERNETES), "autoscaling", "horizontalpodautoscalers");
    let text = format!(
        r#"{{"kind":"HorizontalPodAutoscaler","apiVersion":"autoscaling/v2","metadata":{{"name":"h"}},"spec":{{"scaleTargetRef":{{"kind":"Deployment","name":"d","apiVersion":"apps/v1"}},"minReplicas":1,"maxReplicas":5{spec}}},"status":{{"currentReplicas":2,"desiredReplicas":3{status}}}}}"#
    );
    conform(&resource.stored().message, Value::Object(object(&text))).unwrap().object
}

const CPU: &str = r#"{"type":"Resource","resource":{"name":"cpu","target":{"type":"Utilization","averageUtilization":60}}}"#;
const MEMORY: &str = r#"{"type":"Resource","resource":{"name":"memory","target":{"type":"AverageValue","averageValue":"1Gi"}}}"#;
const PODS: &str = r#"{"type":"Pods","pods":{"metric":{"name":"q","selector":{"matchLabels":{"a":"b"}}},"target":{"type":"AverageValue","averageValue":"10"}}}"#;
const OBJECT: &str = r#"{"type":"Object","object":{"describedObject":{"kind":"Ingress","name":"i","apiVersion":"example.com/v1"},"target":{"type":"Value","value":"10k"},"metric":{"name":"r"}}}"#;
const OBJECT_AVERAGE: &str = r#"{"type":"Object","object":{"describedObject":{"kind":"Ingress","name":"i"},"target":{"type":"AverageValue","averageValue":"3"},"metric":{"name":"r"}}}"#;
const EXTERNAL: &str = r#"{"type":"External","external":{"metric":{"name":"x"},"target":{"type":"AverageValue","averageValue":"4"}}}"#;
const CONTAINER: &str = r#"{"type":"ContainerResource","containerResource":{"name":"cpu","target":{"type":"Utilization","averageUtilization":70},"container":"c"}}"#;
const ODD: &str = r#"{"type":"Resource","resource":{"name":"cpu","target":{"type":"Value","value":"3","averageUtilization":9}}}"#;

#[test]
fn every_resource_has_a_conversion_to_its_stored_form() {
    for naming in [&CLUSTER, &KUBERNETES] {
        let registry = Registry::new(naming);
        let mut converted = 0;
        for resource in registry.resources() {
            let step = step(resource).unwrap_or_else(|status| panic!("{}", status.message));
            converted += usize::from(!matches!(step, Step::Identity));
        }
        assert!(converted >= 2);
    }
}

#[test]
fn the_stored_version_is_served_unchanged() {
    let registry = Registry::new(&CLUSTER);
    let pods = v1_resource(&registry, "", "pods");
    let given = object(r#"{"z":1,"a":2}"#);
    assert_eq!(to_served(&pods, given.clone(), &CLUSTER).unwrap(), given);
    assert_eq!(to_stored(&pods, given.clone(), &CLUSTER).unwrap(), given);
}

#[test]
fn autoscalers_survive_a_round_trip_through_v1() {
    let registry = Registry::new(&KUBERNETES);
    let v1 = v1_resource(&registry, "autoscaling", "horizontalpodautoscalers");
    let behavior = r#","behavior":{"scaleUp":{"stabilizationWindowSeconds":0,"selectPolicy":"Max","policies":[{"type":"Pods","value":4,"periodSeconds":15}]},"scaleDown":{"policies":[{"type":"Percent","value":100,"periodSeconds":15}],"tolerance":"50m"}}"#;
    let status = r#","observedGeneration":3,"lastScaleTime":"2026-01-01T00:00:00Z","currentMetrics":[{"type":"Resource","resource":{"name":"cpu","current":{"averageValue":"12m","averageUtilization":33}}},{"type":"Pods","pods":{"metric":{"name":"q"},"current":{"averageValue":"1"}}},{"type":"Object","object":{"metric":{"name":"r"},"current":{"value":"7"},"describedObject":{"kind":"Ingress","name":"i"}}},{"type":"External","external":{"metric":{"name":"x"},"current":{"value":"0","averageValue":"0"}}},{"type":"ContainerResource","containerResource":{"name":"cpu","current":{"averageValue":"3m","averageUtilization":5},"container":"c"}}],"conditions":[{"type":"AbleToScale","status":"True","lastTransitionTime":"2026-01-01T00:00:00Z","reason":"R","message":"<m>"}]"#;
    for (metrics, back) in [
        (vec![CPU], None),
        (vec![MEMORY, CPU], None),
        (vec![PODS, OBJECT, OBJECT_AVERAGE, EXTERNAL, CONTAINER, MEMORY, CPU], None),
        (vec![PODS], None),
        // The first CPU target becomes the number of v1, and the second CPU target stays a metric. v1 does
        // not store the position of the number, so the number comes last.
        (vec![CPU, MEMORY, CPU], Some(vec![MEMORY, CPU, CPU])),
        (vec![CPU, MEMORY], Some(vec![MEMORY, CPU])),
        // A metric without a flat form stays unchanged.
        (vec![ODD], None),
    ] {
        let spec = |metrics: &[&str]| format!(r#","metrics":[{}]{behavior}"#, metrics.join(","));
        let stored = v2(&spec(&metrics), status);
        let shown = to_served(&v1, stored.clone(), &KUBERNETES).unwrap();
        assert_eq!(shown.get("apiVersion").and_then(Value::as_str), Some("autoscaling/v1"));
        let returned = to_stored(&v1, shown, &KUBERNETES).unwrap();
        assert_eq!(object_text(&returned), object_text(&v2(&spec(&back.unwrap_or(metrics)), status)));
    }
}

#[test]
fn v1_autoscalers_keep_v2_fields_in_annotations() {
    let registry = Registry::new(&KUBERNETES);
    let v1 = v1_resource(&registry, "autoscaling", "horizontalpodautoscalers");
    let stored = v2(
        &format!(
            r#","metrics":[{CPU},{MEMORY},{OBJECT_AVERAGE}],"behavior":{{"scaleDown":{{"selectPolicy":"Disabled"}}}}"#
        ),
        r#","currentMetrics":[{"type":"Resource","resource":{"name":"cpu","current":{"averageUtilization":33}}},{"type":"External","external":{"metric":{"name":"x"},"current":{"averageValue":"4"}}}],"conditions":[{"type":"A","status":"True"}]"#,
    );
    let shown = to_served(&v1, stored, &KUBERNETES).unwrap();
    assert_eq!(
        text(shown.get("spec").unwrap()),
        r#"{"scaleTargetRef":{"kind":"Deployment","name":"d","apiVersion":"apps/v1"},"minReplicas":1,"maxReplicas":5,"targetCPUUtilizationPercentage":60}"#
    );
    assert_eq!(
        text(shown.get("status").unwrap()),
        r#"{"currentReplicas":2,"desiredReplicas":3,"currentCPUUtilizationPercentage":33}"#
    );
    for (name, want) in [
        (
            "metrics",
            r#"[{"type":"Resource","resource":{"name":"memory","targetAverageValue":"1Gi"}},{"type":"Object","object":{"target":{"kind":"Ingress","name":"i"},"metricName":"r","targetValue":"0","averageValue":"3"}}]"#,
        ),
        // Numbers that v1 always writes are 0.
        (
            "current-metrics",
            r#"[{"type":"Resource","resource":{"name":"cpu","currentAverageUtilization":33,"currentAverageValue":"0"}},{"type":"External","external":{"metricName":"x","currentValue":"0","currentAverageValue":"4"}}]"#,
        ),
        ("conditions", r#"[{"type":"A","status":"True","lastTransitionTime":null}]"#),
        (
            "behavior",
            r#"{"ScaleUp":null,"ScaleDown":{"StabilizationWindowSeconds":null,"SelectPolicy":"Disabled","Policies":null,"Tolerance":null}}"#,
        ),
    ] {
        let name = format!("autoscaling.alpha.{}", KUBERNETES.label(name));
        assert_eq!(annotation(&shown, &name), Some(want), "{name}");
    }
}

#[test]
fn v1_autoscaler_annotations_become_metrics_once() {
    let registry = Registry::new(&CLUSTER);
    let v1 = v1_resource(&registry, "autoscaling", "horizontalpodautoscalers");
    let key = format!("autoscaling.alpha.{}", CLUSTER.domain);
    let cpu = |percent: i64| {
        format!(
            r#"{{"type":"Resource","resource":{{"name":"cpu","target":{{"type":"Utilization","averageUtilization":{percent}}}}}}}"#
        )
    };
    for (annotations, spec, want) in [
        (String::new(), "", format!("[{}]", cpu(80))),
        (String::new(), r#","targetCPUUtilizationPercentage":50"#, format!("[{}]", cpu(50))),
        // Malformed annotations count as absent.
        (format!(r#""{key}/metrics":"[{{""#), "", format!("[{}]", cpu(80))),
        (format!(r#""{key}/metrics":"{{}}""#), "", format!("[{}]", cpu(80))),
        (format!(r#""{key}/metrics":"[{{\"type\":3}}]""#), "", format!("[{}]", cpu(80))),
        (
            format!(
                r#""{key}/metrics":"[{{\"type\":\"Object\",\"object\":{{\"target\":{{\"kind\":\"K\",\"name\":\"n\"}},\"metricName\":\"m\",\"targetValue\":\"0\",\"averageValue\":\"5\"}}}}]""#
            ),
            "",
            r#"[{"type":"Object","object":{"describedObject":{"kind":"K","name":"n"},"target":{"type":"AverageValue","averageValue":"5"},"metric":{"name":"m"}}}]"#.to_owned(),
        ),
    ] {
        let given = object(&format!(
            r#"{{"kind":"HorizontalPodAutoscaler","apiVersion":"autoscaling/v1","metadata":{{"name":"h","annotations":{{"own":"1","{key}/scale-up-tolerance":"1"{}{annotations}}}}},"spec":{{"scaleTargetRef":{{"kind":"D","name":"d"}},"maxReplicas":5{spec}}},"status":{{"currentReplicas":0,"desiredReplicas":0,"currentCPUUtilizationPercentage":7}}}}"#,
            if annotations.is_empty() { "" } else { "," }
        ));
        let stored = to_stored(&v1, given, &CLUSTER).unwrap();
        let metrics = stored.get("spec").and_then(|spec| spec.get("metrics")).unwrap();
        assert_eq!(text(metrics), want);
        assert_eq!(annotation(&stored, "own"), Some("1"));
        for kept in ["metrics", "scale-up-tolerance"] {
            assert_eq!(annotation(&stored, &format!("{key}/{kept}")), None, "kept in v1 only");
        }
        let current = stored.get("status").and_then(|status| status.get("currentMetrics")).unwrap();
        assert_eq!(
            text(current),
            r#"[{"type":"Resource","resource":{"name":"cpu","current":{"averageUtilization":7}}}]"#
        );
    }
}

#[test]
fn events_have_other_field_names_in_the_events_group_and_lose_nothing() {
    for naming in [&CLUSTER, &KUBERNETES] {
        let registry = Registry::new(naming);
        let events = v1_resource(&registry, &naming.group("events", true), "events");
        let core = r#"{"kind":"Event","apiVersion":"v1","metadata":{"name":"e","namespace":"n"},"involvedObject":{"kind":"Pod","name":"p"},"reason":"R","message":"m","source":{"component":"c","host":"h"},"firstTimestamp":"2026-01-01T00:00:00Z","lastTimestamp":"2026-01-02T00:00:00Z","count":3,"type":"Normal","eventTime":"2026-01-01T00:00:00.000001Z","series":{"count":2,"lastObservedTime":"2026-01-03T00:00:00.000002Z"},"action":"A","related":{"kind":"Node","name":"x"},"reportingComponent":"rc","reportingInstance":"ri"}"#;
        let stored = conform(&events.stored().message, Value::Object(object(core))).unwrap().object;
        let shown = to_served(&events, stored.clone(), naming).unwrap();
        let want = format!(
            r#"{{"kind":"Event","apiVersion":"{}/v1","metadata":{{"name":"e","namespace":"n"}},"eventTime":"2026-01-01T00:00:00.000001Z","series":{{"count":2,"lastObservedTime":"2026-01-03T00:00:00.000002Z"}},"reportingController":"rc","reportingInstance":"ri","action":"A","reason":"R","regarding":{{"kind":"Pod","name":"p"}},"related":{{"kind":"Node","name":"x"}},"note":"m","type":"Normal","deprecatedSource":{{"component":"c","host":"h"}},"deprecatedFirstTimestamp":"2026-01-01T00:00:00Z","deprecatedLastTimestamp":"2026-01-02T00:00:00Z","deprecatedCount":3}}"#,
            naming.group("events", true)
        );
        assert_eq!(object_text(&shown), want);
        assert_eq!(object_text(&to_stored(&events, shown, naming).unwrap()), object_text(&stored));

        let little = format!(
            r#"{{"kind":"Event","apiVersion":"{}/v1","metadata":{{"name":"e"}},"eventTime":null}}"#,
            naming.group("events", true)
        );
        let little = conform(&events.table.message, Value::Object(object(&little))).unwrap().object;
        let stored = to_stored(&events, little.clone(), naming).unwrap();
        assert_eq!(stored.get("apiVersion").and_then(Value::as_str), Some("v1"));
        assert_eq!(object_text(&to_served(&events, stored, naming).unwrap()), object_text(&little));
    }
}

#[test]
fn converting_an_object_with_fields_of_a_wrong_type_is_an_error() {
    let registry = Registry::new(&CLUSTER);
    let events = v1_resource(&registry, &CLUSTER.group("events", true), "events");
    let bad = object(r#"{"kind":"Event","apiVersion":"v1","count":"many"}"#);
    assert_eq!(to_served(&events, bad, &CLUSTER).unwrap_err().code, 500);
}

/// Checks that `beta` in v1beta1 and `stable` in v1 convert to each other.
fn is_one_object(plural: &str, beta: &str, stable: &str) {
    let registry = Registry::new(&KUBERNETES);
    let resource = registry.resource("resource.k8s.io", "v1beta1", plural).unwrap();
    let form = |message: &Message, text: &str| conform(message, Value::Object(object(text))).unwrap().object;
    let (beta, stable) = (form(&resource.table.message, beta), form(&resource.stored().message, stable));
    let stored = to_stored(resource, beta.clone(), &KUBERNETES).unwrap();
    assert_eq!(object_text(&stored), object_text(&stable));
    assert_eq!(object_text(&to_served(resource, stable, &KUBERNETES).unwrap()), object_text(&beta));
}

#[test]
fn v1beta1_claims_and_slices_convert_to_and_from_v1() {
    let head = |kind: &str, version: &str| {
        format!(r#""kind":"{kind}","apiVersion":"resource.k8s.io/{version}","metadata":{{"name":"a"}}"#)
    };
    let flat =
        r#"{"name":"r","deviceClassName":"c","allocationMode":"ExactCount","count":2,"adminAccess":false}"#;
    let nested = r#"{"name":"r","exactly":{"deviceClassName":"c","allocationMode":"ExactCount","count":2,"adminAccess":false}}"#;
    let either = r#"{"name":"s","firstAvailable":[{"name":"x","deviceClassName":"c","tolerations":[{"key":"k","operator":"Exists"}]}]}"#;
    for (beta, stable) in [(flat, nested), (either, either)] {
        let spec = |request: &str| format!(r#""spec":{{"devices":{{"requests":[{request}]}}}}"#);
        let claim = |version: &str, request: &str| {
            format!("{{{},{}}}", head("ResourceClaim", version), spec(request))
        };
        is_one_object("resourceclaims", &claim("v1beta1", beta), &claim("v1", stable));
        let template = |version: &str, request: &str| {
            let head = head("ResourceClaimTemplate", version);
            format!(r#"{{{head},"spec":{{{}}}}}"#, spec(request))
        };
        is_one_object("resourceclaimtemplates", &template("v1beta1", beta), &template("v1", stable));
    }
    let slice = |version: &str, devices: &str| {
        let head = head("ResourceSlice", version);
        let pool = r#"{"name":"p","generation":1,"resourceSliceCount":1}"#;
        format!(
            r#"{{{head},"spec":{{"driver":"d.example.com","pool":{pool},"nodeName":"n","devices":{devices}}}}}"#
        )
    };
    is_one_object(
        "resourceslices",
        &slice("v1beta1", r#"[{"name":"x","basic":{"attributes":{"a":{"int":0}}}},{"name":"y","basic":{}}]"#),
        &slice("v1", r#"[{"name":"x","attributes":{"a":{"int":0}}},{"name":"y"}]"#),
    );
}
