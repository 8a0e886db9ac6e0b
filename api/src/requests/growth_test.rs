//! Tests how the work of a request grows with the size of the request body, and that the work ends when the
//! request is cancelled.
//!
//! Each shape is a request with `n` elements of one kind. Processor time (of this thread) and allocated bytes
//! may grow in proportion to `n`; a nested loop over the same elements would make them grow with the square of
//! `n`. Each request must also check its cancellation token frequently. A deadline or a lost connection can
//! then end the request at any point, and no object is stored.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashSet;

use crate::system::controllers;
use crate::writes::write::server_fixture::TestServer;
use testkit::processor_time;
use types::schema::registry::Resource;
use types::schema::table::{Field, Kind, Message, Scope};
use values::cancellation::{CancellationToken, observed};
use values::json::Value;

/// Counts the bytes that each thread allocates.
struct Counting;

thread_local! {
    static ALLOCATED: Cell<u64> = const { Cell::new(0) };
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: the system's allocator does the work, with unchanged arguments.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATED.try_with(|bytes| bytes.set(bytes.get() + layout.size() as u64));
        // SAFETY: the caller guarantees that the layout is valid.
        unsafe { System.alloc(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let more = size.saturating_sub(layout.size()) as u64;
        let _ = ALLOCATED.try_with(|bytes| bytes.set(bytes.get() + more));
        // SAFETY: the pointer came from the system's allocator, with this layout.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the pointer came from the system's allocator, with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// The processor time and the memory that a request used, and the status code of the response.
#[derive(Clone, Copy, Debug)]
struct Taken {
    time: Duration,
    bytes: u64,
    #[expect(dead_code, reason = "shown where the growth is too fast")]
    code: u16,
}

async fn taken(server: &TestServer, request: &str, body: &str) -> Taken {
    let (time, bytes) = (processor_time(), ALLOCATED.get());
    let (code, _, _) = server.send(request, body).await;
    Taken { time: processor_time().saturating_sub(time), bytes: ALLOCATED.get() - bytes, code }
}

/// Maximum growth of time and memory from `n` to `4 n` that counts as linear. Quadratic work grows by a
/// factor of 16.
const TIME_GROWTH_MAX: f64 = 8.0;
const BYTES_GROWTH_MAX: f64 = 6.0;

/// Shorter times count as this time, because the kernel counts processor time in ticks of 4 ms.
const TIME_MIN: Duration = Duration::from_millis(12);

/// Requests whose work grows faster than linearly, up to a limit.
const BOUNDED: &[&str] = &[
    // The error message contains a diff of the pod. The diff compares texts of more than 4000 lines only at the
    // beginning and the end.
    "pods: update",
    "pods: apply again",
    "pods: strategic patch",
    // Each error message contains the whole list. The number and the size of error messages are limited.
    "spec.scopes",
    // Each variable is declared in the environments of all variables after it. The cancellation token of the
    // request ends this work.
    "spec.variables",
];

/// Returns an error text if the work on `n`, `2 n` and `4 n` elements grows faster than linearly.
fn fault(taken: [Taken; 3]) -> Option<String> {
    let [few, _, many] = taken;
    let time = many.time.as_secs_f64() / few.time.max(TIME_MIN).as_secs_f64();
    let bytes = many.bytes as f64 / few.bytes.max(64 * 1024) as f64;
    (time > TIME_GROWTH_MAX || bytes > BYTES_GROWTH_MAX)
        .then(|| format!("time × {time:.1}, memory × {bytes:.1}: {taken:?}"))
}

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const THINGS: &str = "/apis/g.example/v1/namespaces/here/things";

/// Custom types with a list or a map `v`. Each entry has a name, the schema of `v`, and one element (for a map:
/// one member). The test replaces `{n}` by the number of the element, and `{w}` by a word that varies.
const CUSTOM: &[(&str, &str, &str)] = &[
    ("map", r#"{"type":"object","additionalProperties":{"type":"string"}}"#, r#""k{n}":"{w}""#),
    (
        "map-of-maps",
        r#"{"type":"object","additionalProperties":{"type":"object","additionalProperties":{"type":"string"}}}"#,
        r#""k{n}":{"a":"{w}"}"#,
    ),
    ("open", r#"{"type":"object","x-kubernetes-preserve-unknown-fields":true}"#, r#""k{n}":{"a":["{w}"]}"#),
    ("atomic", r#"{"type":"array","items":{"type":"string"}}"#, r#""{w}{n}""#),
    ("set", r#"{"type":"array","x-kubernetes-list-type":"set","items":{"type":"string"}}"#, r#""{w}{n}""#),
    (
        "keyed",
        r#"{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["name"],"items":{"type":"object",
            "required":["name"],"properties":{"name":{"type":"string"},"v":{"type":"string"},"d":{"type":"integer",
            "default":7},"l":{"type":"array","items":{"type":"integer"}}}}}"#,
        r#"{"name":"e{n}","v":"{w}","l":[1,2]}"#,
    ),
    (
        "limits",
        r#"{"type":"array","items":{"type":"string","maxLength":20,"pattern":"^[a-z0-9]+$","format":"hostname"}}"#,
        r#""{w}{n}""#,
    ),
    ("enum", r#"{"type":"array","items":{"type":"string","enum":["a","b","x","y"]}}"#, r#""{w}""#),
    (
        "any-of",
        r#"{"type":"array","items":{"type":"object","properties":{"a":{"type":"string"}},"anyOf":[{"required":["b"]},
            {"properties":{"a":{"maxLength":30}}}],"not":{"required":["c"]},"oneOf":[{"required":["a"]},{"required":["z"]}]}}"#,
        r#"{"a":"{w}"}"#,
    ),
    ("int-or-string", r#"{"type":"array","items":{"x-kubernetes-int-or-string":true}}"#, r#""{w}{n}""#),
    ("wrong", r#"{"type":"array","items":{"type":"integer","maximum":3}}"#, r#""{w}{n}""#),
    (
        "ruled",
        r#"{"type":"object","maxProperties":20000,"additionalProperties":{"type":"string","maxLength":20},
            "x-kubernetes-validations":[{"rule":"self.all(k, self[k] != '' && k in self)"}]}"#,
        r#""k{n}":"{w}""#,
    ),
    (
        "transition",
        r#"{"type":"object","maxProperties":20000,"additionalProperties":{"type":"string","maxLength":20},
            "x-kubernetes-validations":[{"rule":"self == oldSelf || self.all(k, k in oldSelf)"}]}"#,
        r#""k{n}":"{w}""#,
    ),
    (
        "ruled-elements",
        r#"{"type":"array","maxItems":20000,"items":{"type":"string","maxLength":20,
            "x-kubernetes-validations":[{"rule":"self.size() > 0"}]}}"#,
        r#""{w}{n}""#,
    ),
];

/// Returns `count` elements in the brackets of a list or the braces of a map.
fn elements(element: &str, count: usize, word: &str) -> String {
    let is_map = element.starts_with('"') && element.contains("\":");
    let mut out = String::from(if is_map { "{" } else { "[" });
    for at in 0..count {
        out.push_str(if at > 0 { "," } else { "" });
        out.push_str(&element.replace("{n}", &at.to_string()).replace("{w}", word));
    }
    out.push(if is_map { '}' } else { ']' });
    out
}

/// Objects of built-in types. Each entry has the path of the collection, the fields of the object with `{e}` at
/// the position of the elements, and one element.
const BUILT_IN: &[(&str, &str, &str)] = &[
    ("/api/v1/namespaces/here/configmaps", r#""data":{e}"#, r#""k{n}":"{w}""#),
    (
        "/api/v1/namespaces/here/pods",
        r#""spec":{"containers":[{"name":"c","image":"i","env":{e}}]}"#,
        r#"{"name":"E{n}","value":"{w}"}"#,
    ),
    (
        "/apis/rbac.authorization.k8s.io/v1/namespaces/here/roles",
        r#""rules":{e}"#,
        r#"{"apiGroups":[""],"resources":["r{n}"],"verbs":["{w}"]}"#,
    ),
    (
        "/apis/networking.k8s.io/v1/namespaces/here/networkpolicies",
        r#""spec":{"podSelector":{},"policyTypes":["Ingress"],"ingress":{e}}"#,
        r#"{"ports":[{"port":"p{n}"}],"from":[{"podSelector":{"matchLabels":{"a":"{w}"}}}]}"#,
    ),
];

/// A request to measure. The request may need an object that an earlier request created.
struct Shape {
    what: String,
    request: String,
    body: String,
}

/// Returns the request body of a shape. The body of an update contains the resourceVersion of the stored
/// object.
async fn body_of(server: &TestServer, object: &str, shape: &Shape) -> String {
    if !shape.request.starts_with("PUT") {
        return shape.body.clone();
    }
    let (_, _, stored) = server.send(&format!("GET {object}"), "").await;
    let revision = stored.str_at(&["metadata", "resourceVersion"]);
    shape.body.replacen(r#""metadata":{"#, &format!(r#""metadata":{{"resourceVersion":"{revision}","#), 1)
}

/// Returns the requests for an object at `path` with `count` elements: one request for each verb, and a create
/// request with a YAML body. The first request creates the object that the other requests use.
fn shapes(path: &str, what: &str, name: &str, rest: &str, element: &str, count: usize) -> Vec<Shape> {
    let whole = |word: &str| {
        let rest = rest.replace("{e}", &elements(element, count, word));
        let kind = if path == THINGS { r#""apiVersion":"g.example/v1","kind":"Thing","# } else { "" };
        format!(r#"{{{kind}"metadata":{{"name":"{name}"}},{rest}}}"#)
    };
    let applied = |word: &str| {
        let kind = match path.rsplit('/').next() {
            Some("configmaps") => r#""apiVersion":"v1","kind":"ConfigMap","#,
            Some("pods") => r#""apiVersion":"v1","kind":"Pod","#,
            Some("roles") => r#""apiVersion":"rbac.authorization.k8s.io/v1","kind":"Role","#,
            Some("networkpolicies") => r#""apiVersion":"networking.k8s.io/v1","kind":"NetworkPolicy","#,
            _ => r#""apiVersion":"g.example/v1","kind":"Thing","#,
        };
        let body = whole(word);
        let body = body
            .strip_prefix(r#"{"apiVersion":"g.example/v1","kind":"Thing","#)
            .map_or(&body[1..], |rest| rest);
        format!("{{{kind}{body}")
    };
    let operations: Vec<String> = (0..count / 4)
        .map(|at| format!(r#"{{"op":"add","path":"/metadata/annotations/k{at}","value":"x"}}"#))
        .collect();
    let operations =
        format!(r#"[{{"op":"add","path":"/metadata/annotations","value":{{}}}},{}]"#, operations.join(","));
    let shape =
        |verb: &str, request: String, body: String| Shape { what: format!("{what}: {verb}"), request, body };
    let object = format!("{path}/{name}");
    let mut shapes = vec![
        shape("create", format!("POST {path}"), whole("x")),
        shape("create from YAML", format!("YAML {path}?dryRun=All"), whole("x").replace(name, "yaml")),
        shape("update", format!("PUT {object}"), whole("y")),
        shape("apply", format!("APPLY {object}?fieldManager=m&force=true"), applied("x")),
        shape("apply again", format!("APPLY {object}?fieldManager=m&force=true"), applied("y")),
        shape("merge patch", format!("MERGE {object}"), whole("x")),
        shape("JSON patch", format!("JSON {object}"), operations),
    ];
    if path != THINGS {
        shapes.push(shape("strategic patch", format!("STRATEGIC {object}"), whole("y")));
    }
    shapes.push(shape("get", format!("GET {object}"), String::new()));
    shapes.push(shape("delete", format!("DELETE {object}"), String::new()));
    shapes
}

async fn start() -> (Arc<TestServer>, controllers::Controllers) {
    let server = Arc::new(TestServer::start());
    let controllers = controllers::start(server.itself(), &controllers::Selection::default());
    assert_eq!(server.send("POST /api/v1/namespaces", r#"{"metadata":{"name":"here"}}"#).await.0, 201);
    let mut properties = String::new();
    for (name, schema, _) in CUSTOM {
        let comma = if properties.is_empty() { "" } else { "," };
        let _ = write!(properties, r#"{comma}"{name}":{{"type":"object","properties":{{"v":{schema}}}}}"#);
    }
    let definition = format!(
        r#"{{"metadata":{{"name":"things.g.example"}},"spec":{{"group":"g.example","scope":"Namespaced",
            "names":{{"plural":"things","kind":"Thing"}},"versions":[{{"name":"v1","served":true,"storage":true,
            "schema":{{"openAPIV3Schema":{{"type":"object","properties":{{"spec":{{"type":"object",
            "properties":{{{properties}}}}}}}}}}}}}]}}}}"#
    );
    let (code, _, answer) = server.send(&format!("POST {DEFINITIONS}"), &definition).await;
    assert_eq!(code, 201, "{answer:?}");
    let served = r#"{"apiVersion":"g.example/v1","kind":"Thing","metadata":{"name":"first"}}"#;
    for _ in 0..10_000 {
        if server.send(&format!("POST {THINGS}"), served).await.0 == 201 {
            return (server, controllers);
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    panic!("the type is not served");
}

/// Returns all kinds of objects. Each entry has a name, the path, the text around the elements, and one
/// element.
fn kinds() -> Vec<(String, &'static str, String, &'static str)> {
    let custom = CUSTOM.iter().map(|(name, _, element)| {
        ((*name).to_owned(), THINGS, format!(r#""spec":{{"{name}":{{"v":{{e}}}}}}"#), *element)
    });
    let built_in = BUILT_IN.iter().map(|(path, rest, element)| {
        (path.rsplit('/').next().unwrap_or_default().to_owned(), *path, (*rest).to_owned(), *element)
    });
    custom.chain(built_in).collect()
}

/// Number of elements of the smallest request. Debug builds use fewer elements: an element takes twenty times
/// as long there, so the test would take minutes.
const COUNT: usize = if cfg!(debug_assertions) { 150 } else { 3000 };

#[tokio::test]
async fn the_work_of_each_verb_grows_linearly_for_every_kind_of_schema() {
    let (server, controllers) = start().await;
    let mut faults = Vec::new();
    for (what, path, rest, element) in kinds() {
        let mut measured: Vec<(String, [Option<Taken>; 3])> = Vec::new();
        // Each size is measured twice, and the better result counts.
        for (size, count) in [COUNT, 2 * COUNT, 4 * COUNT].into_iter().enumerate() {
            for round in 0..2 {
                let name = format!("o{size}{round}");
                for (at, shape) in shapes(path, &what, &name, &rest, element, count).into_iter().enumerate() {
                    let body = body_of(&server, &format!("{path}/{name}"), &shape).await;
                    let now = taken(&server, &shape.request, &body).await;
                    if measured.len() <= at {
                        measured.push((shape.what, [None; 3]));
                    }
                    let best = &mut measured[at].1[size];
                    *best = Some(match *best {
                        Some(best) => {
                            Taken { time: best.time.min(now.time), bytes: best.bytes.min(now.bytes), ..now }
                        }
                        None => now,
                    });
                }
            }
        }
        for (shape, taken) in measured {
            let Some(taken) = taken.into_iter().collect::<Option<Vec<_>>>() else { continue };
            if let Some(fault) = fault([taken[0], taken[1], taken[2]])
                && !BOUNDED.contains(&&*shape)
            {
                faults.push(format!("{shape}: {fault}"));
            }
        }
    }
    controllers.stop().await;
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[tokio::test]
async fn a_request_past_its_deadline_ends_in_every_phase_and_stores_nothing() {
    const COUNT: usize = 1500;
    let (server, controllers) = start().await;
    let mut faults = Vec::new();
    for (what, path, rest, element) in kinds() {
        let first = shapes(path, &what, "subject", &rest, element, COUNT).remove(0);
        let (made, _, _) = server.send(&first.request, &first.body).await;
        assert!(made == 201 || what == "wrong" && made == 422, "{what}: {made}");
        for shape in shapes(path, &what, "subject", &rest, element, COUNT) {
            if shape.what.ends_with("create") || shape.what.ends_with("delete") || shape.what.ends_with("get")
            {
                continue;
            }
            if made == 422 && !shape.request.starts_with("YAML") {
                continue;
            }
            // A dry run passes all steps, and leaves the object unchanged for the next request.
            let ask = if shape.request.contains('?') {
                format!("{}&dryRun=All", shape.request.replace("?dryRun=All", "?pretty=false"))
            } else {
                format!("{}?dryRun=All", shape.request)
            };
            let body = body_of(&server, &format!("{path}/subject"), &shape).await;
            let token = CancellationToken::default();
            observed::begin(&token, u64::MAX);
            let (code, _, _) = server.send_within(&token, &ask, &body).await;
            let looks = observed::end();
            if looks < 2 {
                faults.push(format!("{}: {code} after {looks} looks", shape.what));
            }
            for cancel_at in [1, looks / 3, looks / 2, looks.saturating_sub(1)] {
                let before = server.send(&format!("GET {path}/subject"), "").await.2;
                let token = CancellationToken::default();
                observed::begin(&token, cancel_at.max(1));
                // Send the request without a dry run, to check that no object is stored.
                let (code, _, _) = server.send_within(&token, &shape.request, &body).await;
                let after_looks = observed::end();
                let after = server.send(&format!("GET {path}/subject"), "").await.2;
                let revision = |object: &Value| object.str_at(&["metadata", "resourceVersion"]).to_owned();
                // An expression checks the token, and then the caller of the expression checks the token again.
                let is_late = after_looks > cancel_at.max(1) + 1;
                if code != 504 || is_late || revision(&before) != revision(&after) {
                    faults.push(format!(
                        "{}: cancelled at {cancel_at} of {looks} looks: {code} after {after_looks}, {} → {}",
                        shape.what,
                        revision(&before),
                        revision(&after)
                    ));
                }
            }
        }
        server.send(&format!("DELETE {path}/subject"), "").await;
    }
    controllers.stop().await;
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Writes an object in which the list or map at the end of `path` has `count` elements. Every other list on the
/// path has one element.
fn write_to(out: &mut String, path: &[&Field], count: usize) {
    let [field, below @ ..] = path else { return };
    let _ = write!(out, r#""{}":"#, field.name);
    let one = |out: &mut String, kind: &Kind, at: usize| match kind {
        Kind::Message(message) if !below.is_empty() => {
            out.push('{');
            write_scalars(out, message, at, below.first().map(|field| &*field.name));
            write_to(out, below, count);
            out.push('}');
        }
        kind => write_value(out, kind, at),
    };
    match &field.kind {
        Kind::List(list) => {
            out.push('[');
            for at in 0..if below.is_empty() { count } else { 1 } {
                out.push_str(if at > 0 { "," } else { "" });
                one(out, &list.item.kind, at);
            }
            out.push(']');
        }
        Kind::Map(map) => {
            out.push('{');
            for at in 0..if below.is_empty() { count } else { 1 } {
                let _ = write!(out, r#"{}"k{at}":"#, if at > 0 { "," } else { "" });
                one(out, &map.value.kind, at);
            }
            out.push('}');
        }
        kind => one(out, kind, 0),
    }
}

/// Writes the strings and numbers of a struct except the field `but`, each followed by a comma.
fn write_scalars(out: &mut String, message: &Message, at: usize, but: Option<&str>) {
    for field in message.fields.iter() {
        if matches!(field.kind, Kind::String | Kind::Int32 | Kind::Int64) && but != Some(&*field.name) {
            let _ = write!(out, r#""{}":"#, field.name);
            write_value(out, &field.kind, at);
            out.push(',');
        }
    }
}

fn write_value(out: &mut String, kind: &Kind, at: usize) {
    let _ = match kind {
        Kind::Bool => write!(out, "true"),
        Kind::Int32 | Kind::Int64 | Kind::Double => write!(out, "{}", at + 1),
        Kind::Message(message) => {
            out.push('{');
            write_scalars(out, message, at, None);
            if out.ends_with(',') {
                out.pop();
            }
            write!(out, "}}")
        }
        Kind::List(_) => write!(out, "[]"),
        Kind::Map(_) | Kind::RawExtension | Kind::FieldsV1 => write!(out, "{{}}"),
        Kind::Time => write!(out, r#""2020-01-01T00:00:00Z""#),
        Kind::MicroTime => write!(out, r#""2020-01-01T00:00:00.000000Z""#),
        Kind::Quantity | Kind::IntOrString => write!(out, r#""{}""#, at + 1),
        _ => write!(out, r#""x{at}""#),
    };
}

/// Collects the paths to the lists and maps below a struct. Each type of struct is visited once.
fn collect<'m>(
    message: &'m Message,
    way: &mut Vec<&'m Field>,
    seen: &mut HashSet<*const Message>,
    ways: &mut Vec<Vec<&'m Field>>,
) {
    if way.len() > 8 || !seen.insert(std::ptr::from_ref(message)) {
        return;
    }
    for field in message.fields.iter() {
        way.push(field);
        let inner = match &field.kind {
            Kind::List(list) => Some(&list.item.kind),
            Kind::Map(map) => Some(&map.value.kind),
            _ => None,
        };
        if inner.is_some() {
            ways.push(way.clone());
        }
        if let Kind::Message(below) = inner.unwrap_or(&field.kind) {
            collect(below, way, seen, ways);
        }
        way.pop();
    }
}

#[tokio::test]
async fn the_work_of_creating_each_built_in_type_is_linear_in_each_of_its_lists() {
    let server = TestServer::start();
    assert_eq!(server.send("POST /api/v1/namespaces", r#"{"metadata":{"name":"here"}}"#).await.0, 201);
    let types = server.types.now();
    let mut seen = HashSet::new();
    let mut faults = Vec::new();
    let mut count = 0;
    for resource in types.registry().resources() {
        let resource: &Resource = resource;
        if !resource.table.verbs.contains(&"create") {
            continue;
        }
        let mut ways = Vec::new();
        collect(&resource.table.message, &mut Vec::new(), &mut seen, &mut ways);
        let root =
            if resource.group.is_empty() { "/api".to_owned() } else { format!("/apis/{}", resource.group) };
        let namespace = if resource.table.scope == Scope::Namespaced { "/namespaces/here" } else { "" };
        let request =
            format!("POST {root}/{}{namespace}/{}?dryRun=All", resource.version, resource.table.plural);
        for way in ways {
            count += 1;
            let body = |count: usize| {
                let mut body = String::from("{");
                let named = way.first().is_some_and(|field| &*field.name == "metadata");
                body.push_str(if named { "" } else { r#""metadata":{"name":"a"},"# });
                write_to(&mut body, &way, count);
                body.push('}');
                body
            };
            let mut best: Option<[Taken; 3]> = None;
            // A measurement with linear growth is not repeated.
            for _ in 0..3 {
                let mut now = Vec::new();
                for factor in [1, 2, 4] {
                    now.push(taken(&server, &request, &body(factor * COUNT)).await);
                }
                let now = [now[0], now[1], now[2]];
                let better = |best: Taken, now: Taken| Taken { time: best.time.min(now.time), ..now };
                let kept = best.map_or(now, |best| std::array::from_fn(|at| better(best[at], now[at])));
                best = Some(kept);
                if fault(kept).is_none() {
                    break;
                }
            }
            let names: Vec<&str> = way.iter().map(|field| &*field.name).collect();
            let names = names.join(".");
            if let Some(fault) = best.and_then(fault)
                && !BOUNDED.contains(&&*names)
            {
                faults.push(format!("{request} {names}: {fault}"));
            }
        }
    }
    assert!(count > 300, "{count}");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
