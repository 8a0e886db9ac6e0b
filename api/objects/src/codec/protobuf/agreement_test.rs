//! Tests of the protobuf codec. Every built-in type is compared with the codec itself, with the JSON codec
//! and with another implementation. Further tests use samples that were encoded by hand, and hostile bytes.

use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor, Value as Other};

use super::decode::{NODES_MAX, decode};
use super::encode::{EncodeError, encode};
use super::wire::{write_bytes, write_delimited};
use super::{Transcoder, envelope, transcode};
use testkit::Random;
use types::schema::generate;
use types::schema::registry::Registry;
use types::schema::table::{Message, Ref};
use types::schema::{builtin, conform};
use values::json::{self, Object, Value};
use values::naming::{self, CLUSTER, KUBERNETES, Naming};
use values::testing::object_text as text;

fn message(name: &str) -> &Message {
    builtin::message(&KUBERNETES, name).unwrap_or_else(|| panic!("no type {name}"))
}

fn registry() -> Registry {
    Registry::new(&KUBERNETES)
}

fn encoded(message: &Message, object: &Object) -> Vec<u8> {
    let mut out = Vec::new();
    encode(message, object, &mut out).unwrap_or_else(|error| panic!("{}: {error}", message.name));
    out
}

/// Returns the types that have a protobuf form.
fn messages(naming: &'static Naming) -> impl Iterator<Item = Ref<Message>> {
    let all = builtin::messages(naming).iter().copied().map(Ref::Static);
    all.filter(|message| message.fields.is_empty() || !message.wire.is_empty())
}

#[test]
fn every_type_survives_a_round_trip_through_protobuf() {
    for naming in naming::ALL {
        let registry = Registry::new(naming);
        let mut compared = 0;
        for message in &messages(naming).collect::<Vec<_>>() {
            let mut alike = Transcoder::default();
            for seed in 0..6 {
                let object = generate::object(&mut Random(seed), message, 0);
                let bytes = encoded(message, &object);
                let back = decode(&registry, message, &bytes)
                    .unwrap_or_else(|error| panic!("{} {seed}: {error} at {}", message.name, error.path));
                assert_eq!(text(&back), text(&object), "{} {seed}", message.name);
                assert_eq!(encoded(message, &back), bytes, "{} {seed}", message.name);
                let canonical = conform::conform(message, back.clone().into()).unwrap();
                assert_eq!(canonical.object, back, "{} {seed} is canonical", message.name);
                let mut from_text = Vec::new();
                let mut json = Vec::new();
                types::schema::encode::encode(message, &object, &mut json);
                transcode(message, &json, &mut from_text).unwrap();
                assert_eq!(from_text, bytes, "{} {seed} from JSON", message.name);
                for _ in 0..2 {
                    from_text.clear();
                    alike.transcode(message, &json, &mut from_text).unwrap();
                    assert_eq!(from_text, bytes, "{} {seed} remembered", message.name);
                }
                compared += 1;
            }
        }
        assert!(compared > 3000, "{compared}");
    }
}

/// Returns the descriptors of the schema files for the other implementation.
fn pool() -> DescriptorPool {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../schema");
    let files = std::fs::read_dir(root).unwrap().map(|file| file.unwrap().path());
    let files: Vec<_> = files.filter(|path| path.extension().is_some_and(|end| end == "proto")).collect();
    let mut compiler = protox::Compiler::new([root]).unwrap();
    compiler.include_imports(true).open_files(files).unwrap();
    compiler.descriptor_pool()
}

fn openapi_name(pool: &DescriptorPool, descriptor: &MessageDescriptor) -> String {
    let option = pool.get_extension_by_name("schema.openapi_package").unwrap();
    let file = descriptor.parent_file();
    let package = match file.options().get_extension(&option).as_ref() {
        Other::String(package) if !package.is_empty() => package.clone(),
        _ => file.package_name().to_owned(),
    };
    format!("{}.{}", CLUSTER.fill(&package), descriptor.name())
}

fn has_unknown(value: &DynamicMessage) -> bool {
    fn within(value: &Other) -> bool {
        match value {
            Other::Message(message) => has_unknown(message),
            Other::List(items) => items.iter().any(within),
            Other::Map(members) => members.values().any(within),
            _ => false,
        }
    }
    value.unknown_fields().next().is_some() || value.fields().any(|(_, value)| within(value))
}

#[test]
fn prost_reads_and_writes_the_same_bytes_for_every_type() {
    use prost_reflect::prost::Message as _;
    let (pool, registry) = (pool(), Registry::new(&CLUSTER));
    let mut compared = 0;
    for descriptor in pool.all_messages().filter(|descriptor| !descriptor.is_map_entry()) {
        let Some(message) = builtin::message(&CLUSTER, &openapi_name(&pool, &descriptor)) else { continue };
        if message.wire.is_empty() {
            continue;
        }
        for seed in 10..13 {
            let object = generate::object(&mut Random(seed), message, 0);
            let bytes = encoded(message, &object);
            let theirs = DynamicMessage::decode(descriptor.clone(), &bytes[..])
                .unwrap_or_else(|error| panic!("{} {seed}: {error}", message.name));
            assert!(!has_unknown(&theirs), "{} {seed}", message.name);
            // The other implementation omits zeros and does not sort maps, so an absent field must be decoded
            // as zero.
            let back = decode(&registry, message, &theirs.encode_to_vec())
                .unwrap_or_else(|error| panic!("{} {seed}: {error} at {}", message.name, error.path));
            assert_eq!(text(&back), text(&object), "{} {seed}", message.name);
            compared += 1;
        }
    }
    assert!(compared > 1500, "{compared}");
}

#[test]
fn damaged_bytes_are_an_error_or_an_object_that_can_be_stored() {
    let registry = registry();
    let mut random = Random(99);
    let (mut refused, mut read) = (0, 0);
    for message in &messages(&KUBERNETES).collect::<Vec<_>>() {
        let whole = encoded(message, &generate::object(&mut random, message, 0));
        for _ in 0..40 {
            let mut bytes = whole.clone();
            match random.index(4) {
                0 => bytes.truncate(random.index(bytes.len() + 1)),
                1 => bytes.extend_from_slice(&whole),
                _ if bytes.is_empty() => {}
                _ => {
                    for _ in 0..=random.index(4) {
                        let at = random.index(bytes.len());
                        bytes[at] = random.index(256) as u8;
                    }
                }
            }
            match decode(&registry, message, &bytes) {
                Err(error) => {
                    assert!(!error.message.is_empty());
                    refused += 1;
                }
                Ok(object) => {
                    let mut stored = Vec::new();
                    types::schema::encode::encode(message, &object, &mut stored);
                    let again = types::schema::decode::decode(message, &stored).unwrap();
                    let (again, object) = (text(&again.object), text(&object));
                    let differ = again.bytes().zip(object.bytes()).position(|(a, b)| a != b).unwrap_or(0);
                    let around = |text: &str| {
                        text.chars().skip(differ.saturating_sub(60)).take(90).collect::<String>()
                    };
                    assert!(
                        again == object,
                        "{}: {} is not {}",
                        message.name,
                        around(&again),
                        around(&object)
                    );
                    read += 1;
                    read += 1;
                }
            }
        }
    }
    assert!(refused > 1000 && read > 1000, "{refused} {read}");
}

/// Decodes the hexadecimal text of a sample; spaces and comments after `#` are ignored.
fn sample(lines: &str) -> Vec<u8> {
    let digits: String =
        lines.lines().flat_map(|line| line.split('#').next().unwrap().split_whitespace()).collect();
    let pairs = digits.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

/// Metadata of an object that has only a name. Every scalar is present, and the creation time is empty.
const METADATA_A: &str = "
    0a 01 61   # name: a
    12 00      # generateName
    1a 00      # namespace
    22 00      # selfLink
    2a 00      # uid
    32 00      # resourceVersion
    38 00      # generation
    42 00      # creationTimestamp
";

#[test]
fn protobuf_bytes_equal_those_of_the_reference_server() {
    let cases = [
        (
            "api.core.v1.ConfigMap",
            r#"{"metadata":{"name":"a"},"data":{"b":"2","a":"1"},"binaryData":{"c":"AP8="}}"#,
            format!(
                "0a 11 {METADATA_A}
                 12 06 0a 01 61 12 01 31   # data, by key
                 12 06 0a 01 62 12 01 32
                 1a 07 0a 01 63 12 02 00 ff"
            ),
        ),
        (
            "apimachinery.pkg.apis.meta.v1.ObjectMeta",
            r#"{"name":"a","generation":-1,"creationTimestamp":"2024-01-02T03:04:05Z",
                "deletionTimestamp":"1970-01-01T00:00:00Z","deletionGracePeriodSeconds":0,
                "ownerReferences":[{"apiVersion":"v1","kind":"K","name":"n","uid":"u","controller":false}],
                "managedFields":[{"manager":"m","fieldsV1":{"f:a":{}}}]}"#,
            "0a 01 61 12 00 1a 00 22 00 2a 00 32 00
             38 ff ff ff ff ff ff ff ff ff 01
             42 08 08 a5 fa cd ac 06 10 00
             4a 04 08 00 10 00                       # a pointer, set: the epoch
             50 00                                   # a pointer, set: zero
             6a 0f 0a 01 4b 1a 01 6e 22 01 75 2a 02 76 31 30 00
             8a 01 19 0a 01 6d 12 00 1a 00 32 00 3a 0c 0a 0a 7b 22 66 3a 61 22 3a 7b 7d 7d 42 00"
                .to_owned(),
        ),
        (
            "api.core.v1.ContainerPort",
            r#"{"containerPort":80,"protocol":"TCP"}"#,
            "0a 00 10 00 18 50 22 03 54 43 50 2a 00".to_owned(),
        ),
        (
            "api.core.v1.ResourceRequirements",
            r#"{"limits":{"cpu":"500m","memory":"1Gi"}}"#,
            "0a 0d 0a 03 63 70 75 12 06 0a 04 35 30 30 6d
             0a 0f 0a 06 6d 65 6d 6f 72 79 12 05 0a 03 31 47 69"
                .to_owned(),
        ),
        (
            "api.core.v1.HTTPGetAction",
            r#"{"path":"/","port":"web"}"#,
            "0a 01 2f 12 09 08 01 10 00 1a 03 77 65 62 1a 00 22 00".to_owned(),
        ),
        (
            // A struct that JSON inlines into its parent is a separate message.
            "api.core.v1.Volume",
            r#"{"name":"v","emptyDir":{}}"#,
            "0a 01 76 12 04 12 02 0a 00".to_owned(),
        ),
        (
            // The same struct occurs inside another inlined struct.
            "api.admissionregistration.v1.NamedRuleWithOperations",
            r#"{"resourceNames":["r"],"operations":["*"],"apiGroups":[""],"resources":["pods"]}"#,
            "0a 01 72 12 0d 0a 01 2a 12 08 0a 00 1a 04 70 6f 64 73".to_owned(),
        ),
        (
            "apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps",
            r#"{"items":{"type":"x"},"additionalProperties":false,"default":{"a":1}}"#,
            SCHEMA.to_owned(),
        ),
        (
            "apimachinery.pkg.apis.meta.v1.WatchEvent",
            r#"{"type":"ADDED","object":{"a":1}}"#,
            "0a 05 41 44 44 45 44 12 09 0a 07 7b 22 61 22 3a 31 7d".to_owned(),
        ),
        (
            "api.coordination.v1.LeaseSpec",
            r#"{"holderIdentity":"","renewTime":"1969-12-31T23:59:59.500000Z"}"#,
            "0a 00 22 11 08 ff ff ff ff ff ff ff ff ff 01 10 80 ca b5 ee 01".to_owned(),
        ),
        (
            "api.authentication.v1.UserInfo",
            r#"{"username":"u","extra":{"k":["v","w"],"l":[]}}"#,
            "0a 01 75 12 00
             22 0b 0a 01 6b 12 06 0a 01 76 0a 01 77
             22 05 0a 01 6c 12 00"
                .to_owned(),
        ),
    ];
    for (name, given, bytes) in &cases {
        let message = message(name);
        let mut out = Vec::new();
        transcode(message, given.as_bytes(), &mut out).unwrap_or_else(|error| panic!("{name}: {error}"));
        let want = sample(bytes);
        assert_eq!(hex(&out), hex(&want), "{name}");
        let canonical = types::schema::decode::decode(message, given.as_bytes()).unwrap().object;
        assert_eq!(text(&decode(&registry(), message, &want).unwrap()), text(&canonical), "{name}");
    }
}

/// The encoded schema of a sample: the given fields, and all fields that are not pointers.
const SCHEMA: &str = "
    0a 00 12 00 22 00 2a 00 32 00 3a 00         # id $schema description type format title
    42 09 0a 07 7b 22 61 22 3a 31 7d            # default
    50 00 60 00 7a 00 90 01 00                  # exclusiveMaximum exclusiveMinimum pattern uniqueItems
    c2 01 21 0a 1f                              # items: schema
       0a 00 12 00 22 00 2a 01 78 32 00 3a 00
       50 00 60 00 7a 00 90 01 00 a8 02 00 b8 02 00 c0 02 00
    f2 01 02 08 00                              # additionalProperties: allows
    a8 02 00 b8 02 00 c0 02 00                  # nullable and two extensions
";

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x} ")).collect()
}

#[test]
fn a_realistic_pod_is_read_and_written() {
    let given = br#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web","labels":{"app":"web"}},"spec":{"containers":[
        {"name":"c","image":"i:1","ports":[{"containerPort":8080,"protocol":"TCP"}],
         "resources":{"requests":{"cpu":"100m"}},"livenessProbe":{"httpGet":{"path":"/","port":8080}}}],
        "nodeSelector":{"b":"2","a":"1"}},"status":{"startTime":"2024-01-02T03:04:05Z"}}"#;
    let pod = message("api.core.v1.Pod");
    let tree = types::schema::decode::decode(pod, given).unwrap().object;
    let mut out = Vec::new();
    envelope::wrap_object(pod, &tree, &mut out).unwrap();
    let unknown = envelope::Unknown::read(&out).unwrap();
    assert_eq!((unknown.api_version, unknown.kind), ("v1", "Pod"));
    let mut back = decode(&registry(), pod, unknown.raw).unwrap();
    unknown.name(&mut back);
    assert_eq!(back, tree);
}

#[test]
fn repeated_fields_merge_and_unknown_fields_are_dropped() {
    let pod = message("api.core.v1.Pod");
    let metadata =
        |field: &str| encoded(pod, &json::parse(field.as_bytes()).unwrap().as_object().unwrap().clone());
    let mut bytes = metadata(r#"{"metadata":{"name":"a","labels":{"x":"1","y":"2"}}}"#);
    bytes.extend(metadata(r#"{"metadata":{"name":"b","labels":{"y":"3"}},"spec":{"nodeName":"n"}}"#));
    write_bytes(999, b"unknown", &mut bytes);
    let object: Value = decode(&registry(), pod, &bytes).unwrap().into();
    assert_eq!(object.str_at(&["metadata", "name"]), "b", "the last scalar wins");
    assert_eq!(object.str_at(&["metadata", "labels", "x"]), "1", "structs are merged");
    assert_eq!(object.str_at(&["metadata", "labels", "y"]), "3", "the last entry with a key wins");
    assert_eq!(object.str_at(&["spec", "nodeName"]), "n");
    assert!(!text(object.as_object().unwrap()).contains("unknown"));
}

#[test]
fn embedded_objects_may_be_json_or_enveloped() {
    let revision = message("api.apps.v1.ControllerRevision");
    let inside = message("api.core.v1.ConfigMap");
    let map = types::schema::decode::decode(inside, br#"{"data":{"k":"v"}}"#).unwrap().object;
    let with_data = |raw: &[u8]| {
        let mut bytes = Vec::new();
        write_delimited(2, &mut bytes, |out| {
            write_bytes(1, raw, out);
            Ok::<_, EncodeError>(())
        })
        .unwrap();
        decode(&registry(), revision, &bytes).map(|object| object.get("data").cloned().unwrap_or_default())
    };
    let envelope = |api_version: &str, kind: &str| {
        let mut raw = Vec::new();
        envelope::wrap(api_version, kind, &mut raw, |out| encode(inside, &map, out)).unwrap();
        raw
    };
    let data = with_data(&envelope("v1", "ConfigMap")).unwrap();
    assert_eq!(
        text(data.as_object().unwrap()),
        r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{},"data":{"k":"v"}}"#
    );
    assert_eq!(with_data(br#"{"a":1}"#).unwrap().get("a"), Some(&Value::Int(1)));
    assert_eq!(with_data(b"").unwrap(), Value::Null);
    for (raw, want) in [
        (envelope("v1", "Nothing"), r#"no kind "Nothing" is registered for version "v1""#),
        (b"{".to_vec(), "raw value is not JSON: unexpected end of JSON input"),
    ] {
        let error = with_data(&raw).unwrap_err();
        assert_eq!((error.message.as_str(), error.path.as_str()), (want, "data"));
    }
}

#[test]
fn protobuf_errors_name_the_cause_and_the_field() {
    let pod = message("api.core.v1.Pod");
    for (bytes, message, path) in [
        ("08 01", "proto: wrong wireType = 0 for field ObjectMeta", "metadata"),
        ("0a 02 08 01", "proto: wrong wireType = 0 for field Name", "metadata.name"),
        ("12 04 12 02 0a 05", "unexpected EOF", "spec.containers[0]"),
        (
            "12 05 12 03 0a 01 ff",
            "proto: string field contains invalid UTF-8 for field Name",
            "spec.containers[0].name",
        ),
        (
            "0a 0c 42 0a 08 ff ff ff ff ff ff ff ff 7f",
            "year outside of range [0,9999]",
            "metadata.creationTimestamp",
        ),
        ("0a 05", "unexpected EOF", ""),
        ("00", "proto: Pod: illegal tag 0 (wire type 0)", ""),
        ("0c", "proto: Pod: wiretype end group for non-group", ""),
        ("0a ff ff ff ff ff ff ff ff ff 01", "proto: negative length found during unmarshaling", ""),
        ("0a 02 28 01", "proto: wrong wireType = 0 for field UID", "metadata.uid"),
    ] {
        let error = decode(&registry(), pod, &sample(bytes)).unwrap_err();
        assert_eq!((error.message.as_str(), error.path.as_str()), (message, path), "{bytes}");
    }
    let requirements = message_error("api.core.v1.ResourceRequirements", "0a 08 0a 01 63 12 03 0a 01 78");
    assert_eq!(requirements.1, "limits.c");
    let probe = message_error("api.core.v1.HTTPGetAction", "12 02 08 02");
    assert_eq!(probe, ("impossible type 2 of an integer or string".to_owned(), "port".to_owned()));
}

fn message_error(name: &str, bytes: &str) -> (String, String) {
    let error = decode(&registry(), message(name), &sample(bytes)).unwrap_err();
    (error.message, error.path)
}

#[test]
fn protobuf_decoding_limits_depth_and_number_of_members() {
    // {"not":{"not":…}}: each level contains the previous level.
    let schema = message("apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps");
    let not = schema.field("not").unwrap().number;
    let nested = |levels: usize| {
        let mut bytes = Vec::new();
        for _ in 1..levels {
            let inner = std::mem::take(&mut bytes);
            write_bytes(not, &inner, &mut bytes);
        }
        decode(&registry(), schema, &bytes)
    };
    let deepest = nested(json::DEPTH_MAX - 1).unwrap();
    types::schema::decode::decode(schema, text(&deepest).as_bytes()).unwrap();
    assert_eq!(nested(json::DEPTH_MAX).unwrap_err().message, "exceeded max depth");
    assert_eq!(nested(100_000).unwrap_err().message, "exceeded max depth");

    // The nesting of raw JSON is added to the depth of the message that contains it.
    let revision = message("api.apps.v1.ControllerRevision");
    let raw = |levels: usize| {
        let text = format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        let mut data = Vec::new();
        write_bytes(1, text.as_bytes(), &mut data);
        let mut bytes = Vec::new();
        write_bytes(2, &data, &mut bytes);
        decode(&registry(), revision, &bytes)
    };
    let deepest = raw(json::DEPTH_MAX - 2).unwrap();
    types::schema::decode::decode(revision, text(&deepest).as_bytes()).unwrap();
    assert_eq!(raw(json::DEPTH_MAX - 1).unwrap_err().message, "exceeded max depth");

    // Two bytes encode a container, but its JSON form has many members that are always present.
    let spec = message("api.core.v1.PodSpec");
    let containers = [0x12, 0].repeat(NODES_MAX / 2);
    assert_eq!(
        decode(&registry(), spec, &containers).unwrap_err().message,
        format!("object has more than {NODES_MAX} members")
    );
}

#[test]
fn types_without_a_protobuf_form_are_refused() {
    let table = builtin::TABLE;
    assert_eq!(encode(table, &Object::new(), &mut Vec::new()), Err(EncodeError::NoForm("Table".into())));
    let mut out = vec![1];
    let wrong = json::parse(br#"{"data":{"a":1}}"#).unwrap();
    let error = encode(message("api.core.v1.ConfigMap"), wrong.as_object().unwrap(), &mut out);
    assert_eq!((error, out), (Err(EncodeError::Mismatch { field: "data".into() }), vec![1]));
}
