//! Tests of decoding, conforming and encoding together: text in, text out, over the built-in types.

use super::*;
use crate::schema::builtin;
use crate::schema::conform::conform;
use crate::schema::encode::{encode, encode_stamped, prefix_len, resource_version_range};
use values::json::Key;
use values::naming::KUBERNETES;

fn message(name: &str) -> &Message {
    builtin::message(&KUBERNETES, name).unwrap_or_else(|| panic!("no type {name}"))
}

fn text(message: &Message, object: &Object) -> String {
    let mut out = Vec::new();
    encode(message, object, &mut out);
    String::from_utf8(out).unwrap()
}

/// Decodes a document as text and as a tree, checks that both results agree, and returns the encoded result.
fn read(message: &Message, document: &str) -> Result<(String, Vec<String>), DecodeError> {
    let by_text = decode(message, document.as_bytes());
    if let Ok(tree) = json::parse(document.as_bytes()) {
        let by_tree = conform(message, tree);
        match (&by_text, &by_tree) {
            (Ok(a), Ok(b)) => assert_eq!(a.object, b.object, "{document}"),
            (Err(a), Err(b)) => assert_eq!(a, b, "{document}"),
            (a, b) => panic!("{document}: {a:?} by text, {b:?} by tree"),
        }
    }
    let decoded = by_text?;
    let once = text(message, &decoded.object);
    // An empty list that is stored as `null` is read as `null`, but the encoding of both values is the same.
    let again = decode(message, once.as_bytes()).unwrap();
    assert_eq!(
        (text(message, &again.object), again.strict),
        (once.clone(), Vec::new()),
        "reading {once} again"
    );
    Ok((once, decoded.strict))
}

#[test]
fn decoded_objects_are_written_in_schema_order_and_canonical_form() {
    // docs/api/encodings.md#json-and-yaml-output. The members that are written although no client sent them
    // follow from the Go types of the reference server.
    for (kind, document, want) in [
        ("api.core.v1.Pod", r#"{}"#, r#"{"metadata":{},"spec":{"containers":null},"status":{}}"#),
        ("api.core.v1.Pod", "null", r#"{"metadata":{},"spec":{"containers":null},"status":{}}"#),
        (
            "api.core.v1.Pod",
            r#"{"status":null,"spec":{"hostNetwork":false,"securityContext":{},"nodeSelector":{},"containers":[
                {"resources":{"requests":{"memory":"1024Ki","cpu":0.5}},"stdin":false,"name":"a","env":[],"args":[]},
                null]},"metadata":{"labels":{"b":"2","a":null},"name":"x","creationTimestamp":null},
                "apiVersion":"v1","kind":"Pod"}"#,
            r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"x","labels":{"a":"","b":"2"}},"spec":{"containers":[{"name":"a","resources":{"requests":{"cpu":"500m","memory":"1Mi"}}},{"name":"","resources":{}}],"securityContext":{}},"status":{}}"#,
        ),
        (
            "api.apps.v1.Deployment",
            r#"{"spec":{"replicas":0,"template":{"metadata":{"creationTimestamp":null}}}}"#,
            r#"{"metadata":{},"spec":{"replicas":0,"selector":null,"template":{"metadata":{},"spec":{"containers":null}},"strategy":{}},"status":{}}"#,
        ),
        ("api.rbac.v1.ClusterRole", r#"{"rules":[]}"#, r#"{"metadata":{},"rules":null}"#),
        (
            "api.core.v1.Secret",
            r#"{"data":{"b":"aGk=","a":null},"immutable":false}"#,
            r#"{"metadata":{},"immutable":false,"data":{"a":"","b":"aGk="}}"#,
        ),
        ("api.core.v1.Secret", r#"{"data":{"a":[104,105,null]}}"#, r#"{"metadata":{},"data":{"a":"aGkA"}}"#),
        (
            "api.coordination.v1.Lease",
            r#"{"spec":{"renewTime":"2024-05-06T07:08:09.000001+02:00"}}"#,
            r#"{"metadata":{},"spec":{"renewTime":"2024-05-06T05:08:09.000001Z"}}"#,
        ),
        (
            "api.core.v1.Service",
            r#"{"spec":{"ports":[{"port":80,"targetPort":"http"},{"port":81}]}}"#,
            r#"{"metadata":{},"spec":{"ports":[{"port":80,"targetPort":"http"},{"port":81,"targetPort":0}]},"status":{"loadBalancer":{}}}"#,
        ),
        (
            "apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps",
            r#"{"maximum":1.0,"default":{"b":1,"a":[1.5,null]},"items":[{"type":"x"}],"additionalProperties":false}"#,
            r#"{"default":{"b":1,"a":[1.5,null]},"maximum":1,"items":[{"type":"x"}],"additionalProperties":false}"#,
        ),
        (
            "apimachinery.pkg.apis.meta.v1.ManagedFieldsEntry",
            r#"{"fieldsV1":{"f:spec":{".":{}}},"time":"2024-01-01T00:00:00Z"}"#,
            r#"{"time":"2024-01-01T00:00:00Z","fieldsV1":{"f:spec":{".":{}}}}"#,
        ),
        (
            "api.core.v1.PodCondition",
            r#"{"type":"Ready","status":"True"}"#,
            r#"{"type":"Ready","status":"True","lastProbeTime":null,"lastTransitionTime":null}"#,
        ),
        (
            "api.core.v1.ResourceFieldSelector",
            r#"{"resource":"limits.cpu"}"#,
            r#"{"resource":"limits.cpu","divisor":"0"}"#,
        ),
    ] {
        let (got, strict) =
            read(message(kind), document).unwrap_or_else(|error| panic!("{document}: {error}"));
        assert_eq!(got, want);
        assert!(strict.is_empty(), "{strict:?}");
    }
}

#[test]
fn unknown_and_duplicate_fields_are_reported_in_document_order() {
    // docs/api/encodings.md#strict-decoding.
    let document = r#"{"foo":{"x":1},"spec":{"containers":[{"bar":1,"name":"a"},{"name":"b","name":"c","image":"d"}],
        "nodeSelector":{"b":"1","a":"1","b":"2"},"hostnetwork":true},
        "metadata":{"labels":{}},"metadata":{"name":"last"},"foo":2}"#;
    let decoded = decode(message("api.core.v1.Pod"), document.as_bytes()).unwrap();
    assert_eq!(
        decoded.strict,
        [
            r#"unknown field "foo""#,
            r#"unknown field "spec.containers[0].bar""#,
            r#"duplicate field "spec.containers[1].name""#,
            r#"duplicate field "spec.nodeSelector.b""#,
            r#"unknown field "spec.hostnetwork""#,
            r#"duplicate field "metadata""#,
        ]
    );
    let got = text(message("api.core.v1.Pod"), &decoded.object);
    let want = r#"{"metadata":{"name":"last"},"spec":{"containers":[{"name":"a","resources":{}},{"name":"c","image":"d","resources":{}}],"nodeSelector":{"a":"1","b":"2"}},"status":{}}"#;
    assert_eq!(got, want);

    let many: Vec<String> = (0..1000).map(|n| format!("\"u{n}\":0")).collect();
    let decoded = decode(message("api.core.v1.Pod"), format!("{{{}}}", many.join(",")).as_bytes()).unwrap();
    assert_eq!(decoded.strict.len(), 100);
}

#[test]
fn repeated_members_of_built_in_types_are_merged() {
    // Go's `encoding/json` behaves this way: it reads the second value into the result of the first value.
    for (kind, document, want) in [
        (
            "api.core.v1.PodSpec",
            r#"{"securityContext":{"runAsUser":1,"fsGroup":1},"securityContext":{"runAsGroup":2,"fsGroup":3}}"#,
            r#"{"containers":null,"securityContext":{"runAsUser":1,"runAsGroup":2,"fsGroup":3}}"#,
        ),
        (
            "api.core.v1.PodSpec",
            r#"{"containers":[{"name":"a","image":"i"},{"name":"b"}],"containers":[{"name":"c","tty":true}]}"#,
            r#"{"containers":[{"name":"c","image":"i","resources":{},"tty":true}]}"#,
        ),
        (
            "api.core.v1.ConfigMap",
            r#"{"data":{"a":"1","b":"1"},"data":{"b":"2","c":"2"}}"#,
            r#"{"metadata":{},"data":{"a":"1","b":"2","c":"2"}}"#,
        ),
        (
            "api.core.v1.PodSpec",
            r#"{"nodeName":"a","nodeName":null}"#,
            r#"{"nodeName":"a","containers":null}"#,
        ),
        ("api.core.v1.PodSpec", r#"{"securityContext":{},"securityContext":null}"#, r#"{"containers":null}"#),
        (
            "api.core.v1.PodSpec",
            r#"{"securityContext":{"sysctls":[{"name":"a","value":"b"}]},"hostNetwork":true,"securityContext":{"runAsUser":0},"hostNetwork":false}"#,
            r#"{"containers":null,"securityContext":{"runAsUser":0,"sysctls":[{"name":"a","value":"b"}]}}"#,
        ),
    ] {
        let decoded = decode(message(kind), document.as_bytes()).unwrap();
        let want = decode(message(kind), want.as_bytes()).unwrap().object;
        assert_eq!(text(message(kind), &decoded.object), text(message(kind), &want), "{document}");
        assert!(!decoded.strict.is_empty(), "{document}");
    }
}

#[test]
fn a_quantity_given_as_a_number_keeps_its_digits() {
    for (number, want) in [
        ("5", "5"),
        ("9223372036854775807", "9223372036854775807"),
        ("9223372036854775808", "9223372036854775808"),
        ("18446744073709551615", "18446744073709551615"),
        ("100000000000000000001", "100000000000000000001"),
        ("1e3", "1e3"),
        ("1E3", "1E3"),
        ("1.5e9", "1500e6"),
        ("1e21", "1e21"),
        ("1.10", "1100m"),
        ("-0", "0"),
        ("0.0001", "100u"),
    ] {
        let spec = message("api.core.v1.ResourceQuotaSpec");
        let document = format!(r#"{{"hard":{{"cpu":{number}}}}}"#);
        let kept = |object: &Object| Value::from(object.clone()).str_at(&["hard", "cpu"]).to_owned();
        let decoded = decode(spec, document.as_bytes()).unwrap();
        assert_eq!(kept(&decoded.object), want, "{number}");
        // A patch produces a tree with the same number texts.
        let tree = json::parse_exact(document.as_bytes()).unwrap();
        assert_eq!(kept(&conform(spec, tree).unwrap().object), want, "{number}");
    }
    // Code that first parses a configuration to a tree gets doubles.
    let tree = json::parse(br#"{"hard":{"cpu":18446744073709551615,"memory":1e21}}"#).unwrap();
    let object = conform(message("api.core.v1.ResourceQuotaSpec"), tree).unwrap().object;
    let hard = Value::from(object);
    assert_eq!(hard.str_at(&["hard", "cpu"]), "18446744073709552k");
    assert_eq!(hard.str_at(&["hard", "memory"]), "1e+21");
}

#[test]
fn numbers_beyond_a_double_are_errors_of_their_field() {
    for (kind, document, want) in [
        (
            "api.core.v1.PodSpec",
            r#"{"priority":1e400}"#,
            "json: cannot unmarshal number 1e400 into Go struct field PodSpec.priority of type int32",
        ),
        (
            "api.core.v1.PodSpec",
            r#"{"nodeName":1e400}"#,
            "json: cannot unmarshal number into Go struct field PodSpec.nodeName of type string",
        ),
        (
            "apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps",
            r#"{"maximum":1e400}"#,
            "json: cannot unmarshal number 1e400 into Go struct field JSONSchemaProps.maximum of type float64",
        ),
    ] {
        let error = decode(message(kind), document.as_bytes()).unwrap_err();
        assert_eq!(error.message, want, "{document}");
        let tree = json::parse_exact(document.as_bytes()).unwrap();
        assert_eq!(conform(message(kind), tree).unwrap_err().message, want, "{document}");
    }
    // An unknown field is skipped.
    let decoded = decode(message("api.core.v1.PodSpec"), br#"{"x":[1e400]}"#).unwrap();
    assert_eq!(decoded.strict, [r#"unknown field "x""#]);
}

#[test]
fn values_of_the_wrong_type_are_refused_with_field_and_type() {
    // docs/api/writes.md#request-body: the text after "cannot be handled as a Pod: ".
    for (kind, document, want, path) in [
        (
            "api.core.v1.Pod",
            r#"{"spec":{"containers":"x"}}"#,
            "json: cannot unmarshal string into Go struct field PodSpec.spec.containers of type []v1.Container",
            "spec.containers",
        ),
        (
            "api.core.v1.Pod",
            r#"{"spec":{"containers":[{"name":"a"},{"ports":[{"containerPort":"http"}]}]}}"#,
            "json: cannot unmarshal string into Go struct field ContainerPort.spec.containers.ports.containerPort of type int32",
            "spec.containers[1].ports[0].containerPort",
        ),
        (
            "api.core.v1.Pod",
            r#"{"metadata":{"labels":{"a":1}}}"#,
            "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type string",
            "metadata.labels.a",
        ),
        (
            "api.core.v1.Pod",
            r#"{"spec":{"priority":1.5}}"#,
            "json: cannot unmarshal number 1.5 into Go struct field PodSpec.spec.priority of type int32",
            "spec.priority",
        ),
        (
            "api.core.v1.Pod",
            r#"{"spec":{"priority":3000000000}}"#,
            "json: cannot unmarshal number 3000000000 into Go struct field PodSpec.spec.priority of type int32",
            "spec.priority",
        ),
        // Embedded structs are steps of the path.
        (
            "api.core.v1.Pod",
            r#"{"spec":{"volumes":[{"name":"v","fc":{"lun":"x"}}]}}"#,
            "json: cannot unmarshal string into Go struct field FCVolumeSource.spec.volumes.VolumeSource.fc.lun of type int32",
            "spec.volumes[0].fc.lun",
        ),
        (
            "api.core.v1.Pod",
            r#"{"spec":{"containers":[{"livenessProbe":{"httpGet":5}}]}}"#,
            "json: cannot unmarshal number into Go struct field Probe.spec.containers.livenessProbe.ProbeHandler.httpGet of type v1.HTTPGetAction",
            "spec.containers[0].livenessProbe.httpGet",
        ),
        (
            "api.core.v1.Pod",
            r#"{"spec":{"ephemeralContainers":[{"image":5}]}}"#,
            "json: cannot unmarshal number into Go struct field EphemeralContainer.spec.ephemeralContainers.EphemeralContainerCommon.image of type string",
            "spec.ephemeralContainers[0].image",
        ),
        ("api.core.v1.Pod", "[]", "json: cannot unmarshal array into Go value of type v1.Pod", ""),
        ("api.core.v1.Secret", r#"{"data":{"a":"***"}}"#, "illegal base64 data at input byte 0", "data.a"),
        (
            "api.core.v1.Secret",
            r#"{"data":{"a":[1,256]}}"#,
            "json: cannot unmarshal number 256 into Go struct field Secret.data of type uint8",
            "data.a",
        ),
        (
            "api.core.v1.Pod",
            r#"{"spec":{"overhead":{"cpu":"lots"}}}"#,
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
            "spec.overhead.cpu",
        ),
        // Types that parse their own text.
        (
            "api.core.v1.Pod",
            r#"{"spec":{"overhead":{"cpu":true}}}"#,
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
            "spec.overhead.cpu",
        ),
        (
            "api.core.v1.Pod",
            r#"{"spec":{"overhead":{"cpu":{},"memory":[1]}}}"#,
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
            "spec.overhead.cpu",
        ),
        (
            "api.core.v1.Service",
            r#"{"spec":{"ports":[{"targetPort":1.5}]}}"#,
            "json: cannot unmarshal number 1.5 into Go struct field ServicePort.spec.ports.targetPort of type int32",
            "spec.ports[0].targetPort",
        ),
        (
            "api.core.v1.ConfigMap",
            r#"{"metadata":{"creationTimestamp":1}}"#,
            "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.creationTimestamp of type string",
            "metadata.creationTimestamp",
        ),
        (
            "apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps",
            r#"{"properties":{"a":{"additionalProperties":5}}}"#,
            "boolean or JSON schema expected",
            "properties.a.additionalProperties",
        ),
        (
            "apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps",
            r#"{"properties":{"a":{"items":{"type":5}}}}"#,
            "json: cannot unmarshal number into Go struct field JSONSchemaProps.type of type string",
            "properties.a.items",
        ),
        // The first of several errors counts, unless a type that parses its own text has an error.
        (
            "api.core.v1.ConfigMap",
            r#"{"data":{"k":1},"immutable":[{"a":1}],"metadata":{"name":3}}"#,
            "json: cannot unmarshal number into Go struct field ConfigMap.data of type string",
            "data.k",
        ),
        (
            "api.core.v1.ConfigMap",
            r#"{"data":[{}],"metadata":{"name":1,"creationTimestamp":"nope"}}"#,
            r#"parsing time "nope" as "2006-01-02T15:04:05Z07:00": cannot parse "nope" as "2006""#,
            "metadata.creationTimestamp",
        ),
        (
            "api.core.v1.Pod",
            r#"{"metadata":{"uid":1}}"#,
            "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.uid of type types.UID",
            "metadata.uid",
        ),
        (
            "api.core.v1.ConfigMap",
            r#"{"data":["a"]}"#,
            "json: cannot unmarshal array into Go struct field ConfigMap.data of type map[string]string",
            "data",
        ),
        (
            "api.core.v1.ConfigMap",
            r#"{"immutable":"yes"}"#,
            "json: cannot unmarshal string into Go struct field ConfigMap.immutable of type bool",
            "immutable",
        ),
    ] {
        let error = read(message(kind), document).unwrap_err();
        assert_eq!((error.message.as_str(), error.path.as_str()), (want, path), "{document}");
    }
}

#[test]
fn integers_are_read_by_their_source_text() {
    let pod = message("api.core.v1.Pod");
    for number in ["1e2", "1E2", "1.0", "-0.0", "3000000000"] {
        let document = format!(r#"{{"spec":{{"priority": {number}}}}}"#);
        let want = format!(
            "json: cannot unmarshal number {number} into Go struct field PodSpec.spec.priority of type int32"
        );
        assert_eq!(decode(pod, document.as_bytes()).unwrap_err().message, want);
    }
    let (zero, _) = read(pod, r#"{"spec":{"priority":-0}}"#).unwrap();
    assert_eq!(zero, r#"{"metadata":{},"spec":{"containers":null,"priority":0},"status":{}}"#);
}

#[test]
fn recursive_schemas_are_decoded_without_strict_errors() {
    let schema = message("apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps");
    for (document, written, strict) in [
        (r#"{"items":{"type":"a","type":"b","foo":1}}"#, r#"{"items":{"type":"b"}}"#, ""),
        (r#"{"additionalProperties":{"foo":1}}"#, r#"{"additionalProperties":{}}"#, ""),
        (r#"{"dependencies":{"a":{"foo":1}}}"#, r#"{"dependencies":{"a":{}}}"#, ""),
        (r#"{"not":{"foo":1}}"#, r#"{"not":{}}"#, r#"unknown field "not.foo""#),
        (r#"{"items":"x"}"#, r#"{"items":[]}"#, ""),
        (r#"{"items":true}"#, r#"{"items":[]}"#, ""),
    ] {
        let (got, noted) = read(schema, document).unwrap_or_else(|error| panic!("{document}: {error}"));
        assert_eq!((got.as_str(), noted.join(",").as_str()), (written, strict), "{document}");
    }
}

#[test]
fn malformed_documents_are_errors_and_large_ones_take_linear_time() {
    let pod = message("api.core.v1.Pod");
    assert_eq!(decode(pod, b"{").unwrap_err().message, "unexpected end of JSON input");
    for bad in [&b"{} {}"[..], b"", b"{\"a\":}", b"{\xff}"] {
        assert!(decode(pod, bad).is_err());
    }
    let repaired = decode(pod, b"{\"kind\":\"\xff\\ud800\"}").unwrap().object;
    assert_eq!(repaired.get("kind"), Some(&"\u{fffd}\u{fffd}".into()));
    let open = r#"{"properties":{"a":"#;
    let schema = message("apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps");
    let deep = format!("{}{{}}{}", open.repeat(200), "}}".repeat(200));
    assert!(decode(schema, deep.as_bytes()).is_err());
    let mut tree = Value::Object(Object::new());
    for _ in 0..200 {
        let properties: Object = [(Key::from("a"), tree)].into_iter().collect();
        tree = Value::Object([(Key::from("properties"), Value::Object(properties))].into_iter().collect());
    }
    assert_eq!(conform(schema, tree).unwrap_err().message, "exceeded max depth");

    let members: Vec<String> = (0..500_000).rev().map(|n| format!("\"k{}\":\"v\"", n % 400_000)).collect();
    let text = format!("{{\"data\":{{{}}},{}}}", members.join(","), members.join(","));
    let decoded = decode(message("api.core.v1.ConfigMap"), text.as_bytes()).unwrap();
    assert_eq!(decoded.object.get("data").unwrap().as_object().unwrap().len(), 400_000);
    assert_eq!(decoded.strict.len(), 100);
}

#[test]
fn the_stored_form_has_a_slot_for_the_resource_version() {
    let pod = message("api.core.v1.Pod");
    for document in [
        r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","resourceVersion":"7","generation":2}}"#,
        r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","generation":2}}"#,
    ] {
        let object = decode(pod, document.as_bytes()).unwrap().object;
        let (bytes, at) = encode_stamped(pod, &object);
        let want = r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","resourceVersion":"","generation":2},"spec":{"containers":null},"status":{}}"#;
        assert_eq!(String::from_utf8(bytes.clone()).unwrap(), want);
        assert_eq!(&bytes[at as usize - 19..at as usize], br#""resourceVersion":""#);
        assert_eq!(&bytes[prefix_len(&bytes)..][..11], br#""metadata":"#);
        let metadata = &bytes[prefix_len(&bytes) + 11..];
        assert_eq!(resource_version_range(metadata).unwrap().start + prefix_len(&bytes) + 11, at as usize);
    }
    // Members that are out of order, and a member that the type does not declare.
    let mut object = Object::new();
    object.push("metadata", Value::Object([(Key::from("generation"), Value::Int(1))].into_iter().collect()));
    object.object_entry("metadata").push("name", "b".into());
    object.push("nonsense", Value::Int(1));
    object.push("apiVersion", "v1".into());
    object.push("kind", "Pod".into());
    let (bytes, at) = encode_stamped(pod, &object);
    assert_eq!(
        String::from_utf8(bytes.clone()).unwrap(),
        r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"b","resourceVersion":"","generation":1},"spec":{"containers":null},"status":{}}"#
    );
    assert_eq!(&bytes[at as usize - 19..at as usize], br#""resourceVersion":""#);
    assert_eq!(prefix_len(b"{\"metadata\":{}}"), 1);
    assert_eq!(prefix_len(b""), 1);
}

#[test]
fn the_zero_object_of_every_built_in_type_survives_a_round_trip() {
    for message in builtin::messages(&KUBERNETES) {
        let nothing = zero_object(message);
        let written = text(message, &nothing);
        let decoded = decode(message, written.as_bytes()).unwrap();
        assert_eq!(decoded, Decoded { object: nothing, strict: Vec::new() }, "{}", message.name);
    }
}

#[test]
fn a_field_set_is_kept_as_text_and_other_values_are_refused() {
    let entry = message("apimachinery.pkg.apis.meta.v1.ManagedFieldsEntry");
    for (given, kept) in [
        ("{}", Some("{}")),
        (r#"{ "f:a": {} }"#, Some(r#"{"f:a":{}}"#)),
        (r#""{\"f:a\":{}}""#, Some(r#"{"f:a":{}}"#)),
        (r#""{ \"f:a\": {} }""#, Some(r#"{"f:a":{}}"#)),
        // Strings that resemble parts of a document. A string that is not a field set is kept, so that the string does
        // not count as an empty set.
        (r#""{\"f:a\":{}},\"x\":{""#, Some(r#""{\"f:a\":{}},\"x\":{""#)),
        (r#""{bad}""#, Some(r#""{bad}""#)),
        (r#""""#, Some(r#""""#)),
        ("[]", Some("[]")),
        ("[ 1 ]", Some("[1]")),
        ("-1", Some("-1")),
        ("null", None),
    ] {
        let document = format!(r#"{{"manager":"m","fieldsV1":{given}}}"#);
        let expected = kept.map_or_else(
            || r#"{"manager":"m"}"#.to_owned(),
            |kept| format!(r#"{{"manager":"m","fieldsV1":{kept}}}"#),
        );
        assert_eq!(read(entry, &document).unwrap(), (expected, vec![]), "{document}");
    }
}
