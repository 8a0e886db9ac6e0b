//! Tests that read back the documents of all built-in types and check the properties that clients rely on.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::*;
use crate::schema::make::{ResourceMaker, Struct};
use crate::schema::published::Published;
use crate::schema::registry::{Priorities, Registry, Resource};
use crate::schema::table::{Ref, Scope};
use values::naming::{self, CLUSTER, KUBERNETES, Naming};

/// Returns the documents of every built-in type and one custom type.
fn everything(naming: &'static Naming) -> OpenApi {
    let registry = Registry::new(naming).with(widgets(naming), Priorities::CUSTOM);
    let other_paths = ["/openid/v1/jwks".to_owned(), "/healthz".to_owned()];
    OpenApi::new(Arc::new(registry), &other_paths, "v1.2.3".into())
}

fn widgets(naming: &Naming) -> Arc<Resource> {
    let text = r#"{"type":"object","properties":{"spec":{"type":"object","required":["size"],
        "properties":{"size":{"type":"integer","minimum":1,"default":1}}}}}"#;
    let schema = json::parse(text.as_bytes()).unwrap();
    let widgets =
        ResourceMaker::new("example.com", "v1", "widgets", Scope::Namespaced, Struct::new("Widget"));
    widgets.unwrap().published(Ref::new(Published::new(&schema))).make(naming)
}

fn get(api: &OpenApi, path: &str, accept: &str) -> Response<Bytes> {
    let mut headers = HeaderMap::new();
    if !accept.is_empty() {
        headers.insert(ACCEPT, HeaderValue::from_str(accept).unwrap());
    }
    let (path, query) = path.split_once('?').map_or((path, None), |(path, query)| (path, Some(query)));
    api.respond(path, query, &headers).unwrap()
}

fn document(api: &OpenApi, path: &str) -> Value {
    let response = get(api, path, "application/json");
    assert_eq!(response.status(), 200, "{path}");
    json::parse(response.body()).unwrap()
}

fn text(value: Option<&Value>) -> String {
    let mut out = Vec::new();
    json::write(value.unwrap(), &mut out);
    String::from_utf8(out).unwrap()
}

/// Calls `each` with every value in the tree.
fn walk(value: &Value, each: &mut dyn FnMut(&Value)) {
    each(value);
    match value {
        Value::Array(items) => items.iter().for_each(|item| walk(item, each)),
        Value::Object(members) => members.iter().for_each(|(_, member)| walk(member, each)),
        _ => {}
    }
}

fn operations(document: &Value) -> Vec<(String, &Value)> {
    let paths = document.get("paths").unwrap().as_object().unwrap();
    paths
        .iter()
        .flat_map(|(path, item)| {
            item.as_object()
                .unwrap()
                .iter()
                .filter(|(name, _)| *name != "parameters")
                .map(move |(method, operation)| (format!("{method} {path}"), operation))
        })
        .collect()
}

/// Returns every document of v3 by its path, and the document of v2.
fn documents(api: &OpenApi) -> BTreeMap<String, Value> {
    let mut all: BTreeMap<String, Value> = api
        .v3
        .keys()
        .map(|path| format!("/openapi/v3/{path}"))
        .map(|path| (path.clone(), document(api, &path)))
        .collect();
    all.insert("/openapi/v2".to_owned(), document(api, "/openapi/v2"));
    all
}

#[test]
fn every_reference_resolves_and_every_operation_has_a_unique_id_in_both_naming_profiles() {
    for naming in [&CLUSTER, &KUBERNETES] {
        let api = everything(naming);
        let mut ids_v3 = BTreeSet::new();
        for (path, document) in documents(&api) {
            let v2 = path == "/openapi/v2";
            walk(&document, &mut |value| {
                let Some(target) = value.get("$ref").and_then(Value::as_str) else { return };
                let steps: Vec<&str> = target.strip_prefix("#/").unwrap().split('/').collect();
                assert!(document.at(&steps).is_some(), "{path}: {target}");
            });
            let mut ids = BTreeSet::new();
            for (place, operation) in operations(&document) {
                let id = operation.str_at(&["operationId"]);
                assert!(!id.is_empty() && ids.insert(id.to_owned()), "{path}: {place} {id}");
                assert!(v2 || ids_v3.insert(id.to_owned()), "{path}: {place} {id}");
            }
            if !v2 {
                let needed = text(document.get("components"));
                assert!(!needed.contains("#/definitions/"), "{path}");
            }
        }
        // The two dialects describe the same operations.
        let v2 = document(&api, "/openapi/v2");
        let ids: BTreeSet<String> =
            operations(&v2).iter().map(|(_, op)| op.str_at(&["operationId"]).to_owned()).collect();
        assert_eq!(ids, ids_v3);
    }
}

#[test]
fn every_path_parameter_is_declared_exactly_once() {
    let api = everything(&CLUSTER);
    for (path, document) in documents(&api) {
        if path == "/openapi/v2" {
            continue;
        }
        for (template, item) in document.get("paths").unwrap().as_object().unwrap().iter() {
            let common = item.get("parameters").and_then(Value::as_array).unwrap_or(&[]);
            for (method, operation) in
                item.as_object().unwrap().iter().filter(|(name, _)| *name != "parameters")
            {
                let own = operation.get("parameters").and_then(Value::as_array).unwrap_or(&[]);
                let mut seen = BTreeSet::new();
                for parameter in common.iter().chain(own) {
                    let (place, name) = (parameter.str_at(&["in"]), parameter.str_at(&["name"]));
                    assert!(seen.insert((place, name)), "{method} {template}: {name} twice");
                    assert_eq!(
                        place == "path",
                        template.contains(&format!("{{{name}}}")) && place != "query"
                    );
                }
                for part in template.split('/').filter_map(|part| part.strip_prefix('{')) {
                    assert!(
                        seen.contains(&("path", part.trim_end_matches('}'))),
                        "{method} {template}: {part}"
                    );
                }
            }
        }
    }
}

#[test]
fn every_patch_operation_has_the_field_validation_parameter() {
    // Before kubectl sends an object, it searches the document for a PATCH operation of this kind with the
    // parameter `fieldValidation`.
    let api = everything(&KUBERNETES);
    let mut patches = 0;
    for (path, document) in documents(&api) {
        for (place, operation) in operations(&document) {
            if !place.starts_with("patch ") || operation.str_at(&[&KUBERNETES.extension("action")]) != "patch"
            {
                continue;
            }
            patches += 1;
            let kind = operation.get(&KUBERNETES.extension("group-version-kind")).unwrap();
            assert!(!kind.str_at(&["kind"]).is_empty(), "{path} {place}");
            let parameters = operation.get("parameters").unwrap().as_array().unwrap();
            let found = parameters.iter().any(|parameter| {
                parameter.str_at(&["name"]) == "fieldValidation" && parameter.str_at(&["in"]) == "query"
            });
            assert!(found, "{path} {place}");
        }
    }
    assert!(patches > 100, "{patches}");
}

#[test]
fn the_operations_of_a_resource_have_the_names_that_generated_clients_use() {
    let api = everything(&KUBERNETES);
    let core = document(&api, "/openapi/v3/api/v1");
    let ids: BTreeMap<String, String> = operations(&core)
        .into_iter()
        .map(|(place, operation)| (place, operation.str_at(&["operationId"]).to_owned()))
        .collect();
    for (place, id) in [
        ("get /api/v1/", "getCoreV1APIResources"),
        ("get /api/v1/pods", "listCoreV1PodForAllNamespaces"),
        ("get /api/v1/namespaces/{namespace}/pods", "listCoreV1NamespacedPod"),
        ("post /api/v1/namespaces/{namespace}/pods", "createCoreV1NamespacedPod"),
        ("delete /api/v1/namespaces/{namespace}/pods", "deleteCoreV1CollectionNamespacedPod"),
        ("get /api/v1/namespaces/{namespace}/pods/{name}", "readCoreV1NamespacedPod"),
        ("put /api/v1/namespaces/{namespace}/pods/{name}", "replaceCoreV1NamespacedPod"),
        ("patch /api/v1/namespaces/{namespace}/pods/{name}", "patchCoreV1NamespacedPod"),
        ("delete /api/v1/namespaces/{namespace}/pods/{name}", "deleteCoreV1NamespacedPod"),
        ("patch /api/v1/namespaces/{namespace}/pods/{name}/status", "patchCoreV1NamespacedPodStatus"),
        ("post /api/v1/namespaces/{namespace}/pods/{name}/eviction", "createCoreV1NamespacedPodEviction"),
        ("post /api/v1/namespaces/{namespace}/pods/{name}/exec", "connectCoreV1PostNamespacedPodExec"),
        ("get /api/v1/namespaces/{namespace}/pods/{name}/log", "readCoreV1NamespacedPodLog"),
        (
            "get /api/v1/namespaces/{namespace}/pods/{name}/proxy/{path}",
            "connectCoreV1GetNamespacedPodProxyWithPath",
        ),
        ("put /api/v1/namespaces/{name}/finalize", "replaceCoreV1NamespaceFinalize"),
        ("get /api/v1/watch/namespaces/{namespace}/pods/{name}", "watchCoreV1NamespacedPod"),
        ("get /api/v1/watch/pods", "watchCoreV1PodListForAllNamespaces"),
        ("get /api/v1/watch/nodes", "watchCoreV1NodeList"),
    ] {
        assert_eq!(ids.get(place).map(String::as_str), Some(id), "{place}");
    }
    let group = KUBERNETES.group("rbac.authorization", true);
    let rbac = document(&api, &format!("/openapi/v3/apis/{group}/v1"));
    let id = rbac.str_at(&["paths", &format!("/apis/{group}/v1/clusterroles"), "get", "operationId"]);
    assert_eq!(id, "listRbacAuthorizationV1ClusterRole");
    let log = core.at(&["paths", "/api/v1/namespaces/{namespace}/pods/{name}/log"]).unwrap();
    assert!(text(log.get("parameters")).contains("\"tailLines\""));
    assert!(log.at(&["get", "responses", "200", "content", "text/plain"]).is_some());
}

#[test]
fn properties_match_the_schema_tables() {
    let api = everything(&KUBERNETES);
    let core = document(&api, "/openapi/v3/api/v1");
    let property = |message: &str, name: &str| {
        let mut schema = core
            .at(&["components", "schemas", message, "properties", name])
            .unwrap()
            .as_object()
            .unwrap()
            .clone();
        schema.remove("description");
        text(Some(&schema.into()))
    };
    let pod = "io.k8s.api.core.v1.Pod";
    for (message, name, want) in [
        (
            pod,
            "metadata",
            r##"{"allOf":[{"$ref":"#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}],"default":{}}"##,
        ),
        (pod, "kind", r#"{"type":"string"}"#),
        (
            "io.k8s.api.core.v1.PodSpec",
            "containers",
            r##"{"items":{"$ref":"#/components/schemas/io.k8s.api.core.v1.Container"},"type":"array","{x}list-map-keys":["name"],"{x}list-type":"map","{x}patch-merge-key":"name","{x}patch-strategy":"merge"}"##,
        ),
        (
            "io.k8s.api.core.v1.PodSpec",
            "nodeSelector",
            r#"{"additionalProperties":{"type":"string"},"type":"object","{x}map-type":"atomic"}"#,
        ),
        (
            "io.k8s.api.core.v1.ResourceRequirements",
            "limits",
            r##"{"additionalProperties":{"$ref":"#/components/schemas/io.k8s.apimachinery.pkg.api.resource.Quantity"},"type":"object"}"##,
        ),
        (
            "io.k8s.api.core.v1.Secret",
            "data",
            r#"{"additionalProperties":{"format":"byte","type":"string"},"type":"object"}"#,
        ),
        ("io.k8s.api.core.v1.PodSpec", "priority", r#"{"format":"int32","type":"integer"}"#),
        (
            "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta",
            "generation",
            r#"{"format":"int64","type":"integer"}"#,
        ),
        (
            "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta",
            "finalizers",
            r#"{"items":{"type":"string"},"type":"array","{x}list-type":"set","{x}patch-strategy":"merge"}"#,
        ),
    ] {
        let want = want.replace("{x}", KUBERNETES.extension_prefix);
        assert_eq!(property(message, name), want, "{message}.{name}");
    }
    let schema = |name: &str| core.at(&["components", "schemas", name]).unwrap().clone();
    let gvk = |name: &str| text(schema(name).get(&KUBERNETES.extension("group-version-kind")));
    assert_eq!(gvk(pod), r#"[{"group":"","kind":"Pod","version":"v1"}]"#);
    assert_eq!(gvk("io.k8s.api.core.v1.PodList"), r#"[{"group":"","kind":"PodList","version":"v1"}]"#);
    assert_eq!(
        gvk("io.k8s.api.autoscaling.v1.Scale"),
        r#"[{"group":"autoscaling","kind":"Scale","version":"v1"}]"#
    );
    assert_eq!(text(schema("io.k8s.api.core.v1.ContainerPort").get("required")), r#"["containerPort"]"#);
    let unions = |name: &str| text(schema(name).get(&KUBERNETES.extension("unions")));
    assert_eq!(
        unions("io.k8s.api.core.v1.SeccompProfile"),
        r#"[{"discriminator":"type","fields-to-discriminateBy":{"localhostProfile":"LocalhostProfile"}}]"#
    );
    let statuses = property("io.k8s.api.core.v1.PersistentVolumeClaimStatus", "allocatedResourceStatuses");
    let granular = format!(r#""{}map-type":"granular""#, KUBERNETES.extension_prefix);
    assert!(statuses.contains(&granular), "{statuses}");
    assert_eq!(
        text(schema("io.k8s.apimachinery.pkg.util.intstr.IntOrString").get("oneOf")),
        r#"[{"type":"integer"},{"type":"string"}]"#
    );
    assert_eq!(text(schema("io.k8s.apimachinery.pkg.apis.meta.v1.Time").get("format")), r#""date-time""#);
    let port = property("io.k8s.api.core.v1.ContainerPort", "protocol");
    assert!(port.contains(r#""default":"TCP""#) && port.contains(r#""enum":["SCTP","TCP","UDP"]"#), "{port}");
    // v2 has no defaults, and allows members next to a reference.
    let v2 = document(&api, "/openapi/v2");
    let metadata = v2.at(&["definitions", pod, "properties", "metadata"]).unwrap();
    assert_eq!(metadata.str_at(&["$ref"]), "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta");
    let port = v2.at(&["definitions", "io.k8s.api.core.v1.ContainerPort", "properties", "protocol"]).unwrap();
    assert!(port.get("default").is_none() && port.get("enum").is_some(), "{}", text(Some(port)));
    let quantity = v2.at(&["definitions", "io.k8s.apimachinery.pkg.api.resource.Quantity"]).unwrap();
    assert_eq!((quantity.str_at(&["type"]), quantity.get("oneOf")), ("string", None));
}

#[test]
fn openapi_names_follow_the_naming_profile() {
    for naming in naming::ALL {
        let (root, group) = (naming.openapi_root, naming.group("rbac.authorization", true));
        let api = everything(naming);
        let document = document(&api, &format!("/openapi/v3/apis/{group}/v1"));
        assert!(document.at(&["components", "schemas", &format!("{root}.api.rbac.v1.Role")]).is_some());
        let list = format!("/apis/{group}/v1/clusterroles");
        let operation = document.at(&["paths", &list, "post"]).unwrap();
        assert!(operation.at(&["responses", "201", "content", naming.protobuf_media_type]).is_some());
        assert_eq!(operation.str_at(&[&naming.extension("group-version-kind"), "group"]), group);
        assert_eq!(document.str_at(&["info", "title"]), naming.title);
    }
}

#[test]
fn custom_types_have_operations_and_definitions_of_their_own() {
    let api = everything(&CLUSTER);
    let document = document(&api, "/openapi/v3/apis/example.com/v1");
    let widget = document.at(&["components", "schemas", "com.example.v1.Widget"]).unwrap();
    assert_eq!(text(widget.at(&["properties", "spec", "properties", "size", "minimum"])), "1");
    let patch =
        document.at(&["paths", "/apis/example.com/v1/namespaces/{namespace}/widgets/{name}", "patch"]);
    let media = text(patch.unwrap().at(&["requestBody", "content"]));
    assert!(media.contains("application/merge-patch+json") && !media.contains("strategic"));
    assert!(document.at(&["components", "schemas", "com.example.v1.WidgetList"]).is_some());
}

#[test]
fn custom_types_have_openapi_paths_for_their_resources_only() {
    let api = everything(&CLUSTER);
    assert_eq!(get(&api, "/openapi/v3/apis/example.com", "").status(), 404);
    let document = document(&api, "/openapi/v3/apis/example.com/v1");
    let paths = document.get("paths").unwrap().as_object().unwrap();
    assert!(paths.iter().all(|(path, _)| path.contains("/widgets") && !path.contains("/watch/")));
    let schemas = document.at(&["components", "schemas"]).unwrap().as_object().unwrap();
    for (name, schema) in schemas.iter() {
        let tells_kinds = schema.get(&CLUSTER.extension("group-version-kind")).is_some();
        let is_kind = ["Widget", "WidgetList", "DeleteOptions", "Status"]
            .iter()
            .any(|kind| name.ends_with(&format!(".{kind}")));
        assert_eq!(tells_kinds, is_kind, "{name}");
    }
    let collection = "/apis/example.com/v1/namespaces/{namespace}/widgets";
    let item = format!("{collection}/{{name}}");
    for (path, method, parameters, codes) in [
        (&*item, "get", "resourceVersion", "200,401"),
        (&*item, "patch", "dryRun,fieldManager,fieldValidation", "200,401"),
        (&*item, "put", "dryRun,fieldManager,fieldValidation", "200,201,401"),
        (collection, "post", "dryRun,fieldManager,fieldValidation", "200,201,202,401"),
    ] {
        let operation = document.at(&["paths", path, method]).unwrap();
        let named = operation.get("parameters").and_then(Value::as_array).unwrap();
        let named: Vec<&str> = named.iter().map(|parameter| parameter.str_at(&["name"])).collect();
        assert_eq!(named.join(","), parameters, "{method} {path}");
        let answered = operation.get("responses").unwrap().as_object().unwrap();
        let answered: Vec<&str> = answered.iter().map(|(code, _)| code).collect();
        assert_eq!(answered.join(","), codes, "{method} {path}");
    }
    let delete = document.at(&["paths", collection, "delete"]).unwrap();
    assert!(
        text(delete.get("parameters")).contains("allowWatchBookmarks") && delete.get("requestBody").is_none()
    );
}

#[test]
fn openapi_documents_are_served_with_their_hashes_and_encodings() {
    let api = everything(&CLUSTER);
    let index = document(&api, "/openapi/v3");
    let paths = index.get("paths").unwrap().as_object().unwrap();
    let names: Vec<&str> = paths.iter().map(|(name, _)| name).collect();
    for name in ["api", "api/v1", "apis", "apis/apps", "apis/apps/v1", "openid/v1/jwks", "version"] {
        assert!(names.contains(&name), "{name}");
    }
    assert!(!names.contains(&".well-known/openid-configuration"));
    let keys = document(&api, "/openapi/v3/openid/v1/jwks");
    let content = keys.at(&["paths", "/openid/v1/jwks/", "get", "responses", "200", "content"]).unwrap();
    let media_types: Vec<&str> = content.as_object().unwrap().iter().map(|(name, _)| name).collect();
    assert_eq!(media_types, ["application/jwk-set+json"]);
    let url = index.str_at(&["paths", "apis/apps/v1", "serverRelativeURL"]);
    let (path, hash) = url.split_once("?hash=").unwrap();
    assert_eq!((path, hash.len()), ("/openapi/v3/apis/apps/v1", 128));

    let current = get(&api, url, "");
    assert_eq!(current.status(), 200);
    assert_eq!(current.headers()[CACHE_CONTROL], "public, immutable");
    assert_eq!(current.headers()[VARY], "Accept");
    assert!(current.headers()[EXPIRES].to_str().unwrap().ends_with(" GMT"));
    assert_eq!(current.headers()["etag"], format!("\"{hash}\""));
    assert_eq!(sha512_hex(current.body()), hash);
    let stale = get(&api, &format!("{path}?hash=00"), "");
    assert_eq!((stale.status().as_u16(), stale.headers()[LOCATION].to_str().unwrap()), (301, url));
    let plain = get(&api, path, "");
    assert_eq!(plain.status(), 200);
    assert!(!plain.headers().contains_key(CACHE_CONTROL));

    for (path, accept, code, content_type) in [
        ("/openapi/v2", "", 200, JSON),
        ("/openapi/v2", "*/*", 200, JSON),
        ("/openapi/v2", "text/html", 406, ""),
        ("/openapi/v2", PROTOBUF_V2_OLD, 200, PROTOBUF_V2),
        ("/openapi/v2", "application/com.github.proto-openapi.spec.v2.v1.0+protobuf;q=1.0", 200, PROTOBUF_V2),
        ("/openapi/v3/api/v1", "application/*", 200, JSON),
        ("/openapi/v3/api/v1", PROTOBUF_V3_OLD, 200, PROTOBUF_V3),
        ("/openapi/v3/api/v1", PROTOBUF_V2, 406, ""),
        (
            "/openapi/v3/api/v1",
            "application/json;q=0.5,application/com.github.proto-openapi.spec.v3@v1.0+protobuf",
            200,
            PROTOBUF_V3,
        ),
        ("/openapi/v3/api/v2", "", 404, ""),
        ("/openapi/v3/apis/apps/v1/x", "", 404, ""),
        ("/openapi/v3/apis/apps/v1/", "", 404, ""),
        ("/openapi/v3/", "", 404, ""),
    ] {
        let response = get(&api, path, accept);
        assert_eq!(response.status(), code, "{path} {accept}");
        assert_eq!(response.body().is_empty(), code != 200, "{path} {accept}");
        let got = response.headers().get(CONTENT_TYPE).map_or("", |value| value.to_str().unwrap());
        assert_eq!(got, content_type, "{path} {accept}");
    }
    assert!(api.respond("/openapi/v4", None, &HeaderMap::new()).is_none());
    assert!(api.respond("/openapi/v2/", None, &HeaderMap::new()).is_none());
    assert!(api.respond("/openapi/v3x", None, &HeaderMap::new()).is_none());
}

#[test]
fn openapi_documents_are_deterministic_and_shared_after_a_change_of_another_group() {
    let (one, two) = (everything(&CLUSTER), everything(&CLUSTER));
    for path in ["/openapi/v3", "/openapi/v2", "/openapi/v3/apis/apps/v1"] {
        assert_eq!(get(&one, path, "").body(), get(&two, path, "").body(), "{path}");
    }
    let next = one.with(Arc::new(one.registry.without("example.com", "v1", "widgets")));
    assert!(Arc::ptr_eq(&one.v3["apis/apps/v1"], &next.v3["apis/apps/v1"]));
    assert_eq!(get(&next, "/openapi/v3/apis/example.com/v1", "").status(), 404);
    assert!(!text(document(&next, "/openapi/v2").get("paths")).contains("example.com"));
}

/// Returns the fields of a protobuf message as (number, content); scalars have no content.
fn fields(mut bytes: &[u8]) -> Vec<(u32, &[u8])> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let (number, wire) = prost::encoding::decode_key(&mut bytes).unwrap();
        let len = match wire {
            prost::encoding::WireType::LengthDelimited => {
                prost::encoding::decode_varint(&mut bytes).unwrap() as usize
            }
            prost::encoding::WireType::SixtyFourBit => 8,
            prost::encoding::WireType::Varint => {
                prost::encoding::decode_varint(&mut bytes).unwrap();
                0
            }
            other => panic!("wire type {other:?}"),
        };
        let (content, rest) = bytes.split_at(len);
        found.push((number, content));
        bytes = rest;
    }
    found
}

fn all(bytes: &[u8], number: u32) -> Vec<&[u8]> {
    fields(bytes).into_iter().filter(|field| field.0 == number).map(|field| field.1).collect()
}

/// Follows a path of field numbers through single fields.
fn at<'b>(bytes: &'b [u8], path: &[u32]) -> &'b [u8] {
    path.iter()
        .fold(bytes, |bytes, number| all(bytes, *number).first().unwrap_or_else(|| panic!("no {number}")))
}

fn names(section: &[u8], number: u32) -> Vec<String> {
    all(section, number).iter().map(|entry| String::from_utf8(at(entry, &[1]).to_vec()).unwrap()).collect()
}

fn entry<'b>(section: &'b [u8], number: u32, name: &str) -> &'b [u8] {
    let entries = all(section, number);
    let found = entries.into_iter().find(|entry| at(entry, &[1]) == name.as_bytes());
    at(found.unwrap_or_else(|| panic!("no {name}")), &[2])
}

fn keys(value: &Value, path: &[&str]) -> Vec<String> {
    value.at(path).unwrap().as_object().unwrap().iter().map(|(name, _)| name.to_owned()).collect()
}

#[test]
fn openapi_v3_in_protobuf_has_the_same_paths_schemas_and_parameters() {
    let api = everything(&KUBERNETES);
    let json = document(&api, "/openapi/v3/apis/apps/v1");
    let protobuf = get(&api, "/openapi/v3/apis/apps/v1", PROTOBUF_V3).into_body();
    assert_eq!(at(&protobuf, &[1]), b"3.0.0");
    assert_eq!(names(at(&protobuf, &[4]), 1), keys(&json, &["paths"]));
    let schemas = at(&protobuf, &[5, 1]);
    assert_eq!(names(schemas, 1), keys(&json, &["components", "schemas"]));
    // SchemaOrReference { 1: Schema }, Schema { 31: Properties { 1: entries } }.
    let deployment = entry(schemas, 1, "io.k8s.api.apps.v1.Deployment");
    assert_eq!(names(at(deployment, &[1, 31]), 1), ["apiVersion", "kind", "metadata", "spec", "status"]);
    let extension = entry(at(deployment, &[1]), 36, &KUBERNETES.extension("group-version-kind"));
    assert_eq!(at(extension, &[2]), b"[{\"group\":\"apps\",\"kind\":\"Deployment\",\"version\":\"v1\"}]\n");
    let item = entry(at(&protobuf, &[4]), 1, "/apis/apps/v1/namespaces/{namespace}/deployments/{name}");
    let patch = at(item, &[10]);
    assert_eq!(at(patch, &[5]), b"patchAppsV1NamespacedDeployment");
    let parameters: Vec<&[u8]> = all(patch, 6).iter().map(|parameter| at(parameter, &[1, 1])).collect();
    assert_eq!(parameters, [&b"dryRun"[..], b"fieldManager", b"fieldValidation", b"force"]);
}

#[test]
fn openapi_v2_in_protobuf_has_the_same_paths_definitions_and_parameters() {
    let api = everything(&KUBERNETES);
    let json = document(&api, "/openapi/v2");
    let protobuf = get(&api, "/openapi/v2", PROTOBUF_V2).into_body();
    assert_eq!(at(&protobuf, &[1]), b"2.0");
    assert_eq!(names(at(&protobuf, &[8]), 2), keys(&json, &["paths"]));
    assert_eq!(names(at(&protobuf, &[9]), 1), keys(&json, &["definitions"]));
    assert_eq!(names(at(&protobuf, &[10]), 1), keys(&json, &["parameters"]));
    let pod = entry(at(&protobuf, &[9]), 1, "io.k8s.api.core.v1.Pod");
    assert_eq!(at(pod, &[22, 1]), b"object");
    let metadata = entry(at(pod, &[25]), 1, "metadata");
    assert_eq!(at(metadata, &[1]), b"#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta");
    let item = entry(at(&protobuf, &[8]), 2, "/api/v1/namespaces/{namespace}/pods/{name}");
    // ParametersItem { 1: Parameter { 2: NonBodyParameter { 3: query } } }; the number of the field `name`
    // is 4.
    let patch = all(at(item, &[8]), 8);
    let inline: Vec<&[u8]> = patch
        .iter()
        .filter_map(|parameter| all(parameter, 1).first().copied())
        .filter_map(|parameter| all(parameter, 2).first().map(|query| at(query, &[3, 4])))
        .collect();
    assert_eq!(inline, [b"fieldValidation"]);
}
