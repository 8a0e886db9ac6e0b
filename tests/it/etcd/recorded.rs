//! A store that kube-apiserver wrote, copied into an etcd: it is served unchanged, and requests change only
//! what they write.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use tests::TempDir;

use super::cluster::Etcd;
use super::moving::migrated;
use crate::support::reference;

/// Keys whose values the reference server does not write back unchanged: an object gets the defaults of a
/// later release when it is read, and raw JSON in an object becomes compact.
const REWRITTEN: [&str; 3] =
    ["/registry/jobs/", "/registry/persistentvolumeclaims/", "/registry/controllerrevisions/"];

/// Prefix of the objects for addresses of services. The server's own log does not contain these objects; the
/// migration to etcd creates new objects.
const ADDRESSES: &str = "/registry/ipaddresses/";

/// Returns the object without the members that depend on the store.
fn plain(mut object: Value) -> Value {
    object["metadata"].as_object_mut().map(|metadata| metadata.remove("resourceVersion"));
    object
}

/// Returns the path of an object, from its own members and the server's discovery.
async fn path(client: &tests::Client, served: &Value) -> Option<String> {
    let api_version = served["apiVersion"].as_str()?;
    let root = if api_version.contains('/') { "/apis" } else { "/api" };
    let resources = client.get(&format!("{root}/{api_version}")).await.json();
    let kind = &served["kind"];
    let resource = resources["resources"].as_array()?.iter().find(|resource| {
        resource["kind"] == *kind && !resource["name"].as_str().is_some_and(|name| name.contains('/'))
    })?;
    let (plural, name) = (resource["name"].as_str()?, served["metadata"]["name"].as_str()?);
    let name = name.replace('%', "%25");
    Some(match served["metadata"]["namespace"].as_str() {
        Some(namespace) => format!("{root}/{api_version}/namespaces/{namespace}/{plural}/{name}"),
        None => format!("{root}/{api_version}/{plural}/{name}"),
    })
}

/// Returns an object as JSON without the label and the managed fields.
fn without_label(mut object: Value) -> Value {
    let Some(metadata) = object["metadata"].as_object_mut() else { return object };
    metadata.remove("managedFields");
    if let Some(labels) = metadata.get_mut("labels").and_then(Value::as_object_mut) {
        labels.remove("etcd-test");
        if labels.is_empty() {
            metadata.remove("labels");
        }
    }
    object
}

/// Returns a value of etcd without the label and the managed fields; otherwise the same bytes in the same
/// order.
fn bare(value: &[u8]) -> Vec<u8> {
    let Some(enveloped) = value.strip_prefix(b"k8s\0") else {
        let object = without_label(serde_json::from_slice(value).expect("the value is JSON"));
        return object.to_string().into_bytes();
    };
    // Unknown{2: raw}, an object{1: metadata}, metadata{11: labels, 17: managedFields}, a label{1: name}.
    rewritten(enveloped, 2, &|raw| {
        Some(rewritten(raw, 1, &|metadata| {
            let labels = rewritten(metadata, 11, &|label| {
                let is_ours =
                    fields(label).iter().any(|(number, _, name)| *number == 1 && *name == b"etcd-test");
                (!is_ours).then(|| label.to_vec())
            });
            Some(rewritten(&labels, 17, &|_| None))
        }))
    })
}

/// Removes the generation, which is field 7 of the metadata, from the result of [`bare`].
fn without_generation(bare: &[u8]) -> Vec<u8> {
    rewritten(bare, 2, &|raw| Some(rewritten(raw, 1, &|metadata| Some(rewritten(metadata, 7, &|_| None)))))
}

/// Returns the fields of a message: number, all bytes of the field, and its content.
fn fields(message: &[u8]) -> Vec<(u64, &[u8], &[u8])> {
    let (mut all, mut rest) = (Vec::new(), message);
    let varint = |bytes: &mut &[u8]| {
        let (mut value, mut shift) = (0_u64, 0);
        loop {
            let (byte, after) = bytes.split_first().expect("the number is complete");
            *bytes = after;
            value |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                return value;
            }
        }
    };
    while !rest.is_empty() {
        let whole = rest;
        let tag = varint(&mut rest);
        let content = match tag & 7 {
            0 => {
                varint(&mut rest);
                &rest[..0]
            }
            1 => rest.split_off(..8).expect("the field is complete"),
            2 => {
                let len = usize::try_from(varint(&mut rest)).expect("the length fits into usize");
                rest.split_off(..len).expect("the field is complete")
            }
            5 => rest.split_off(..4).expect("the field is complete"),
            other => panic!("no wire type {other}"),
        };
        all.push((tag >> 3, &whole[..whole.len() - rest.len()], content));
    }
    all
}

/// Returns a message in which `change` has replaced the fields with one number; `None` removes a field.
fn rewritten(message: &[u8], number: u64, change: &dyn Fn(&[u8]) -> Option<Vec<u8>>) -> Vec<u8> {
    let mut out = Vec::new();
    for (of, whole, content) in fields(message) {
        if of != number {
            out.extend_from_slice(whole);
        } else if let Some(changed) = change(content) {
            for mut varint in [number << 3 | 2, changed.len() as u64] {
                while varint > 0x7f {
                    out.push((varint & 0x7f) as u8 | 0x80);
                    varint >>= 7;
                }
                out.push(varint as u8);
            }
            out.extend_from_slice(&changed);
        }
    }
    out
}

#[test]
fn bare_distinguishes_a_changed_field_from_a_changed_label() {
    // The message is an object with a name, labels, and managed fields, in an envelope.
    let field = |number: u8, content: &[u8]| [&[number << 3 | 2, content.len() as u8], content].concat();
    let owners = |text: &[u8]| [&[0x8a, 1, text.len() as u8], text].concat();
    let object = |name: &[u8], labels: &[&[u8]], owned: &[u8]| {
        let labels = labels.iter().flat_map(|label| field(11, &field(1, label))).collect::<Vec<_>>();
        let metadata = [field(1, name), labels, owners(owned)].concat();
        [b"k8s\0".to_vec(), field(2, &field(1, &metadata))].concat()
    };
    let before = object(b"a", &[b"l"], b"o");
    for (other, same) in [
        (object(b"a", &[b"l"], b"o"), true),
        (object(b"a", &[b"etcd-test", b"l"], b"o"), true),
        (object(b"a", &[b"etcd-test", b"l"], b"others"), true),
        (object(b"a", &[b"m"], b"o"), false),
        (object(b"b", &[b"l"], b"o"), false),
    ] {
        assert_eq!(bare(&before) == bare(&other), same, "{other:?}");
    }
}

/// Puts the recorded store into an etcd. Returns the keys of objects, their values, and the responses of the
/// reference server.
async fn fill(etcd: &Etcd, file: &Path) -> Vec<(String, Vec<u8>, Value)> {
    let mut recorded = Vec::new();
    for line in std::fs::read_to_string(file).unwrap().lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let key = line["key"].as_str().unwrap().to_owned();
        let value = match line["base64"].as_str() {
            Some(text) => STANDARD.decode(text).unwrap(),
            None => line["text"].as_str().unwrap().as_bytes().to_vec(),
        };
        etcd.put(&key, value.clone()).await;
        if line["served"].is_object() {
            recorded.push((key, value, line["served"].clone()));
        }
    }
    recorded
}

/// The opposite direction: this server reads the objects into its own log and writes them to an etcd with the
/// same bytes as the reference server.
#[tokio::test]
async fn a_store_written_by_this_server_equals_that_of_the_reference_server() {
    let Some(file) = reference("etcd/objects.jsonl") else {
        return testkit::skip("a recorded store is not at hand");
    };
    let (Some(theirs), Some(ours)) = (Etcd::start(1).await, Etcd::start(1).await) else { return };
    let recorded = fill(&theirs, &file).await;
    let scratch = TempDir::new();
    let own = scratch.path().join("own").display().to_string();
    migrated(&theirs.urls(), &own, &[]);
    migrated(&own, &ours.urls(), &[]);
    let (mut wrong, mut same) = (Vec::new(), 0);
    for (key, value, _) in &recorded {
        let Some(now) = ours.get(key).await else {
            wrong.push(format!("{key} is not there"));
            continue;
        };
        if now.value == *value {
            same += 1;
        } else if !REWRITTEN.iter().chain(&[ADDRESSES]).any(|start| key.starts_with(start)) {
            wrong.push(format!("{key} is another one"));
        }
    }
    eprintln!("{} objects, {same} with the same bytes, {} differences", recorded.len(), wrong.len());
    assert!(same > 400 && wrong.is_empty(), "{same}: {wrong:#?}");
}

#[tokio::test]
async fn a_store_of_the_reference_server_is_served_and_preserved() {
    let Some(file) = reference("etcd/objects.jsonl") else {
        return testkit::skip("a recorded store is not at hand");
    };
    let Some(etcd) = Etcd::start(1).await else { return };
    let recorded = fill(&etcd, &file).await;
    // No controller changes the records that are compared.
    let server = etcd.server(&["--controllers=", "--service-cluster-ip-range=10.0.0.0/24"]).await;
    let client = server.client();
    let (mut wrong, mut looked_at) = (Vec::new(), 0);
    for (key, value, served) in &recorded {
        // The start writes the server's own objects.
        let now = etcd.get(key).await.map(|kv| kv.value.to_vec());
        if now.as_ref() != Some(value) {
            eprintln!("{key} is written by the start");
            continue;
        }
        let Some(path) = path(client, served).await else {
            wrong.push(format!("{key} is not served"));
            continue;
        };
        looked_at += 1;
        let shown = client.get(&path).await.json();
        if plain(shown.clone()) != plain(served.clone()) {
            wrong.push(format!("{key} is shown as\n  {shown}\n  {served}"));
        }
    }
    assert!(looked_at > 400, "{looked_at} of {}", recorded.len());
    // Setting a label changes only the label and the managed fields, in responses and in the bytes in etcd.
    let mut changed = 0;
    for (key, value, served) in &recorded {
        if etcd.get(key).await.is_none_or(|kv| kv.value != *value) {
            continue;
        }
        let Some(path) = path(client, served).await else { continue };
        // The generation of an EndpointSlice also counts changes of its labels; values that the reference
        // server rewrites are compared after the second write.
        let counts = key.starts_with("/registry/endpointslices/");
        let is_rewritten = REWRITTEN.iter().any(|start| key.starts_with(start));
        let mut known_value = value.clone();
        let mut texts = vec!["x"];
        if is_rewritten || counts {
            texts.insert(0, "first");
        }
        let mut status = 0;
        for text in texts {
            if text == "x" && status != 0 {
                known_value = etcd.get(key).await.expect("the key is in etcd").value.to_vec();
            }
            let label = json!({"metadata": {"labels": {"etcd-test": text}}});
            let reply = client.patch(&path, "merge", &label).await;
            status = reply.status;
            if status != 200 {
                wrong.push(format!("{key}: {}", reply.text()));
            }
        }
        if status != 200 {
            continue;
        }
        changed += 1;
        let after = client.get(&path).await.json();
        let (mut shown, mut known) = (without_label(plain(after)), without_label(plain(served.clone())));
        if counts {
            for object in [&mut shown, &mut known] {
                object["metadata"]["generation"] = 0.into();
            }
        }
        if shown != known {
            wrong.push(format!("{key} became\n  {shown}\n  {known}"));
        }
        let now = etcd.get(key).await.expect("the key is in etcd").value;
        let (mut ours, mut theirs) = (bare(&now), bare(&known_value));
        if counts {
            (ours, theirs) = (without_generation(&ours), without_generation(&theirs));
        }
        if ours != theirs {
            let at = ours.iter().zip(&theirs).take_while(|(a, b)| a == b).count();
            let part = |bytes: &[u8]| {
                String::from_utf8_lossy(&bytes[at.saturating_sub(80)..bytes.len().min(at + 80)]).into_owned()
            };
            wrong.push(format!("{key} is kept as\n  {:?}\n  {:?}", part(&ours), part(&theirs)));
        }
    }
    eprintln!("{looked_at} objects read, {changed} changed, {} differences", wrong.len());
    assert!(changed > 400, "{changed}");
    let shown: Vec<String> = wrong.iter().take(20).map(|text| text.chars().take(1000).collect()).collect();
    assert!(wrong.is_empty(), "{} differences:\n{}", wrong.len(), shown.join("\n"));
}
