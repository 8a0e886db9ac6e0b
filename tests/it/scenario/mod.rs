//! Scenarios of field ownership: the requests of several managers, and the owners after each request
//! (docs/api/apply.md).
//!
//! A scenario is text. The steps of a scenario are separated by empty lines:
//!
//! ```text
//! kubectl applies $core/configmaps/a          manager, operation, path
//!   {"data":{"k":"v"}}                        the body; kind, version and name are filled in
//! = 201                                       the status code; `same` means that the version did not change
//! ! message                                   one line of the message of a refusal
//! ? data.k "v"                                the value at a path after the request; `none` if absent
//! kubectl Apply v1: .data.k                   all managers with all their fields
//! ```
//!
//! `creates` sends a POST to the collection. The other operations have the path of the object: `puts`, `merges` (merge
//! patch), `patches` (JSON patch), `strategic` (strategic merge patch), `applies`, `forces` (apply with force) and
//! `deletes`. The body `{...}` of `puts` is the stored object; `with` and a merge patch change this object first. The
//! subresource of a manager follows the version: `apps/v1/scale`.

mod autoscaler;
mod lists;
mod migration;
mod ownership;
mod resets;
mod subresources;
mod updates;

use serde_json::{Value, json};
use values::field::{FieldSet, display};

use crate::fixture::Fixture;

/// Runs a scenario in its own namespace.
pub async fn run(text: &str) {
    let fixture = Fixture::new("scenario").await;
    for step in text.split("\n\n").filter(|step| !step.trim().is_empty()) {
        take(&fixture, step).await;
    }
}

/// Runs a step and compares the outcome.
async fn take(fixture: &Fixture, step: &str) {
    let mut lines =
        step.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')).peekable();
    let head = lines.next().expect("a step has a first line");
    let mut words = head.splitn(3, ' ');
    let (manager, verb, path) =
        (words.next().unwrap(), words.next().expect("a verb"), words.next().expect("a path"));
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let path = fixture.full(path);
    let mut body = String::new();
    while let Some(line) = lines.next_if(|line| !line.starts_with('=')) {
        body.push_str(line);
        body.push('\n');
    }
    let before = current(fixture, &path).await;
    let (method, kind) = match verb {
        "creates" => ("POST", "application/json"),
        "puts" => ("PUT", "application/json"),
        "merges" => ("PATCH", "application/merge-patch+json"),
        "patches" => ("PATCH", "application/json-patch+json"),
        "strategic" => ("PATCH", "application/strategic-merge-patch+json"),
        "applies" | "forces" => ("PATCH", "application/apply-patch+yaml"),
        "deletes" => ("DELETE", "application/json"),
        other => panic!("no verb {other} in {head}"),
    };
    let body = match verb {
        "creates" | "applies" | "forces" => filled(&path, &body).to_string(),
        "puts" => put_body(fixture, &path, &body, &before).await,
        _ => body,
    };
    let force = if verb == "forces" { "&force=true" } else { "" };
    let target =
        if verb == "creates" { parent(&path).0.rsplit_once('/').unwrap().0.to_owned() } else { path.clone() };
    let url = format!("{target}?fieldManager={manager}{force}&{query}");
    let reply = fixture.client.send(method, &url, &[("content-type", kind)], body.as_bytes()).await;

    let outcome = lines.next().unwrap_or_else(|| panic!("{head} has no expected outcome"));
    let mut outcome = outcome.trim_start_matches('=').split_whitespace();
    let code: u16 = outcome.next().and_then(|code| code.parse().ok()).expect("a status code");
    assert_eq!(reply.status, code, "{head}\n{body}\n{}", reply.text());
    let after = current(fixture, &path).await;
    if outcome.next() == Some("same") {
        assert_eq!(after["metadata"]["resourceVersion"], before["metadata"]["resourceVersion"], "{head}");
        assert_eq!(after, before, "{head}");
    }
    let rest: Vec<&str> = lines.collect();
    let said: Vec<&str> = rest.iter().filter_map(|line| line.strip_prefix("! ")).collect();
    if !said.is_empty() {
        assert_eq!(reply.json()["message"].as_str().unwrap_or_default(), said.join("\n"), "{head}");
    }
    for line in rest.iter().filter_map(|line| line.strip_prefix("? ")) {
        let (path, expected) = line.split_once(' ').expect("an expectation has a path and a value");
        let found = after.pointer(&format!("/{}", path.replace('.', "/"))).cloned().unwrap_or(json!("none"));
        let expected =
            if expected == "none" { json!("none") } else { serde_json::from_str(expected).unwrap() };
        assert_eq!(found, expected, "{head}: {path}");
    }
    let expected: Vec<&str> =
        rest.iter().copied().filter(|line| !line.starts_with(['!', '?']) && *line != "none").collect();
    if !expected.is_empty() || rest.contains(&"none") {
        let found = owners(&after);
        let sorted = |mut lines: Vec<String>| {
            lines.sort();
            lines
        };
        // Entries are sorted by time first. Times have second precision, so the test sorts the entries itself.
        let expected = sorted(expected.into_iter().map(str::to_owned).collect());
        assert_eq!(sorted(found.clone()), expected, "{head}\n{}", found.join("\n"));
    }
}

/// Returns the path and the subresource of an object's path.
fn parent(path: &str) -> (String, String) {
    let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    // /api/v1/namespaces/<ns>/<plural>/<name>[/<subresource>], with one more segment outside of the core
    // group.
    let item = if parts[0] == "api" { 6 } else { 7 };
    (format!("/{}", parts[..item.min(parts.len())].join("/")), parts[item.min(parts.len())..].join("/"))
}

async fn current(fixture: &Fixture, path: &str) -> Value {
    let reply = fixture.client.get(&parent(path).0).await;
    if reply.status == 200 { reply.json() } else { Value::Null }
}

/// Returns a body with kind, version and name from the path.
fn filled(path: &str, body: &str) -> Value {
    let mut body: Value = serde_json::from_str(body).unwrap_or_else(|error| panic!("{error} in {body}"));
    let (item, subresource) = parent(path);
    let parts: Vec<&str> = item.trim_start_matches('/').split('/').collect();
    let (version, plural) = if parts[0] == "api" {
        (parts[1].to_owned(), parts[4])
    } else {
        (format!("{}/{}", parts[1], parts[2]), parts[5])
    };
    let kind = match plural {
        "configmaps" => "ConfigMap",
        "secrets" => "Secret",
        "services" => "Service",
        "pods" => "Pod",
        "events" => "Event",
        "deployments" => "Deployment",
        "statefulsets" => "StatefulSet",
        "cronjobs" => "CronJob",
        "horizontalpodautoscalers" => "HorizontalPodAutoscaler",
        "replicationcontrollers" => "ReplicationController",
        "persistentvolumeclaims" => "PersistentVolumeClaim",
        other => panic!("no kind for {other}"),
    };
    let (kind, version) =
        if subresource == "scale" { ("Scale", "autoscaling/v1".to_owned()) } else { (kind, version) };
    for (name, value) in [("kind", kind), ("apiVersion", version.as_str())] {
        if body.get(name).is_none() {
            body[name] = json!(value);
        }
    }
    if body["metadata"].get("name").is_none() {
        body["metadata"]["name"] = json!(item.rsplit('/').next().unwrap());
    }
    body
}

/// Returns the body of a PUT. If the text begins with `with`, the body is the stored object without its resource
/// version, changed by the merge patch that follows; otherwise the body is the text.
async fn put_body(fixture: &Fixture, path: &str, body: &str, before: &Value) -> String {
    let Some(change) = body.trim().strip_prefix("with ") else { return filled(path, body).to_string() };
    let mut object = match parent(path).1.as_str() {
        "scale" => fixture.client.get(path).await.json(),
        _ => before.clone(),
    };
    merge(&mut object, &serde_json::from_str(change).unwrap());
    object["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    object.to_string()
}

fn merge(target: &mut Value, change: &Value) {
    let Value::Object(change) = change else {
        *target = change.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (name, value) in change {
        if value.is_null() {
            target.as_object_mut().unwrap().remove(name);
        } else {
            merge(&mut target[name], value);
        }
    }
}

/// Returns all managers with all their fields: `manager operation version: path path`.
fn owners(object: &Value) -> Vec<String> {
    let entries = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    let shown = entries.iter().map(|entry| {
        let text = |name: &str| entry[name].as_str().unwrap_or_default();
        let fields = entry["fieldsV1"].to_string();
        let set = FieldSet::parse(&fields).unwrap();
        let mut paths = Vec::new();
        set.for_each(&mut |path| paths.push(display(path)));
        paths.sort();
        assert_eq!(text("fieldsType"), "FieldsV1");
        assert_eq!(
            serde_json::from_str::<Value>(&set.text()).unwrap(),
            entry["fieldsV1"],
            "the field set is written in canonical form"
        );
        let subresource = match text("subresource") {
            "" => String::new(),
            name => format!("/{name}"),
        };
        let time = if text("time").is_empty() { " (no time)" } else { "" };
        let (manager, operation, version) = (text("manager"), text("operation"), text("apiVersion"));
        format!("{manager} {operation} {version}{subresource}{time}: {}", paths.join(" "))
    });
    shown.collect()
}

/// Defines a test for each named scenario.
macro_rules! scenarios {
    ($($name:ident: $text:expr;)*) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            crate::scenario::run($text).await;
        }
    )*};
}
pub(crate) use scenarios;
