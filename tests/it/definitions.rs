//! End-to-end tests of custom resource definitions: kills in the middle of long work, and hostile input.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tests::{Options, PATIENCE, Server};

use crate::fixture::{outcome, report};

/// Path of the collection of definitions.
pub const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Default number of objects whose deletion is interrupted by a kill; the environment variable
/// [`OBJECTS_VARIABLE`] sets another number.
const OBJECTS: usize = 2000;

/// Environment variable with the number of objects.
const OBJECTS_VARIABLE: &str = "DEFINITION_OBJECTS";

/// Milliseconds between the start of a deletion and each kill.
const PAUSES: [u64; 3] = [20, 60, 100];

/// Number of definitions that are created at once before a kill.
const DEFINITIONS_AT_ONCE: usize = 8;

/// Number of concurrent requests that create objects.
const WRITERS: usize = 16;

/// Maximum memory of the server after all hostile definitions, in KiB.
const RSS_MAX_KIB: u64 = 900 * 1024;

/// Returns a namespaced definition in the group `g.example.com` with these versions.
pub fn definition(plural: &str, versions: Value) -> Value {
    let mut kind = plural.trim_end_matches('s').to_owned();
    kind[..1].make_ascii_uppercase();
    json!({
        "metadata": {"name": format!("{plural}.g.example.com")},
        "spec": {
            "group": "g.example.com", "scope": "Namespaced", "names": {"plural": plural, "kind": kind},
            "versions": versions,
        },
    })
}

fn version(name: &str, storage: bool, schema: Value) -> Value {
    json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": schema}})
}

fn object_of(properties: Value) -> Value {
    json!({"type": "object", "properties": properties})
}

/// Creates a definition and waits until it is established.
pub async fn establish(server: &Server, definition: &Value) {
    let reply = server.client().post(DEFINITIONS, definition).await;
    assert_eq!(reply.status, 201, "{}", reply.text());
    let path = format!("{DEFINITIONS}/{}", definition["metadata"]["name"].as_str().unwrap());
    let is_established = |object: Option<&Value>| {
        let conditions = object.and_then(|object| object["status"]["conditions"].as_array());
        let mut conditions = conditions.into_iter().flatten();
        conditions.any(|condition| condition["type"] == "Established" && condition["status"] == "True")
    };
    server.client().until(&path, is_established).await;
}

/// Returns whether an outcome matches `want`, in which each `…` stands for any text.
fn fits(got: &str, want: &str) -> bool {
    let mut parts = want.split('…');
    let start = parts.next().unwrap_or_default();
    let rest = got.strip_prefix(start);
    let all = parts.try_fold(rest, |rest, part| {
        let rest = rest?;
        rest.find(part).map(|at| Some(&rest[at + part.len()..]))
    });
    all.flatten().is_some_and(|rest| want.ends_with('…') || rest.is_empty())
}

/// Returns the number of objects to create.
fn objects() -> usize {
    let given = std::env::var(OBJECTS_VARIABLE);
    given.map_or(OBJECTS, |given| given.parse().expect("the variable is a number"))
}

async fn make_objects(server: &Server, collection: &str, kind: &str) {
    let writers = (0..WRITERS).map(|writer| {
        let (client, collection) = (server.client().another(), collection.to_owned());
        let kind = kind.to_owned();
        tokio::spawn(async move {
            for at in (writer..objects()).step_by(WRITERS) {
                let object = json!({
                    "apiVersion": "g.example.com/v1", "kind": kind, "metadata": {"name": format!("o{at}")},
                    "spec": {"n": at},
                });
                let reply = client.post(&collection, &object).await;
                assert_eq!(reply.status, 201, "{}", reply.text());
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_deletion_of_a_definition_continues_after_the_server_is_killed() {
    let mut server = Server::start_upstream().await;
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let things = definition("things", json!([version("v1", true, schema)]));
    establish(&server, &things).await;
    let collection = "/apis/g.example.com/v1/namespaces/default/things";
    make_objects(&server, collection, "Thing").await;
    // An object waits for a finalizer, so that every kill happens in the middle of the deletion.
    let held = format!("{collection}/held");
    let object = json!({
        "apiVersion": "g.example.com/v1", "kind": "Thing",
        "metadata": {"name": "held", "finalizers": ["g.example.com/hold"]},
    });
    let reply = server.client().post(collection, &object).await;
    assert_eq!(reply.status, 201, "{}", reply.text());
    let path = format!("{DEFINITIONS}/things.g.example.com");
    let reply = server.client().delete(&path).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    for pause in PAUSES {
        tokio::time::sleep(Duration::from_millis(pause)).await;
        server.kill();
        server.restart().await;
        let definition = server.client().get(&path).await.json();
        assert!(definition["metadata"]["deletionTimestamp"].is_string(), "after {pause} ms: {definition}");
        assert_eq!(server.client().get(&held).await.status, 200, "after {pause} ms");
    }
    let alone = |list: Option<&Value>| list.is_some_and(|list| crate::fixture::names(list) == ["held"]);
    assert!(server.client().until(collection, alone).await.is_some(), "the others are deleted");
    let released = server.client().patch(&held, "merge", &json!({"metadata": {"finalizers": null}})).await;
    assert_eq!(released.status, 200, "{}", released.text());
    server.client().until_gone(&path).await;
    assert_eq!(server.client().get(collection).await.status, 404);
    // A new definition of the same name starts without the objects of the deleted one.
    establish(&server, &things).await;
    assert_eq!(server.client().get(collection).await.json()["items"], json!([]));
}

/// Returns types, states and reasons of the conditions of a definition, and its stored versions.
fn state(definition: &Value) -> Value {
    let conditions = definition["status"]["conditions"].as_array().into_iter().flatten();
    let shown = |condition: &Value| json!([condition["type"], condition["status"], condition["reason"]]);
    json!([conditions.map(shown).collect::<Vec<_>>(), definition["status"]["storedVersions"]])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_establishment_of_definitions_continues_after_the_server_is_killed() {
    let mut server = Server::start_upstream().await;
    let schema = object_of(json!({"spec": object_of(json!({"n": {"type": "integer"}}))}));
    establish(&server, &definition("calms", json!([version("v1", true, schema.clone())]))).await;
    let expected = state(&server.client().get(&format!("{DEFINITIONS}/calms.g.example.com")).await.json());
    let mut acknowledged = Vec::new();
    for pause in [0, 2, 4, 8, 12, 16, 24, 40] {
        let posts = (0..DEFINITIONS_AT_ONCE).map(|at| {
            let (client, plural) = (server.client().another(), format!("after{pause}x{at}s"));
            let body = definition(&plural, json!([version("v1", true, schema.clone())])).to_string();
            tokio::spawn(async move {
                let json_type = [("content-type", "application/json")];
                let reply = client.try_send("POST", DEFINITIONS, &json_type, body.as_bytes()).await?;
                assert_eq!(reply.status, 201, "{}", reply.text());
                Some(plural)
            })
        });
        let posts: Vec<_> = posts.collect();
        // Connecting takes time: the pause begins with the first definition that exists.
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE && !posts.iter().any(tokio::task::JoinHandle::is_finished) {
            tokio::task::yield_now().await;
        }
        tokio::time::sleep(Duration::from_millis(pause)).await;
        server.kill();
        for post in posts {
            acknowledged.extend(post.await.unwrap());
        }
        server.start_and_kill(Duration::from_millis(100 + 10 * pause));
        server.restart().await;
    }
    assert!(acknowledged.len() >= 8, "{acknowledged:?}");
    let list = server.client().get(DEFINITIONS).await.json();
    let names = crate::fixture::names(&list);
    let lost = acknowledged.iter().filter(|plural| !names.contains(&format!("{plural}.g.example.com")));
    assert_eq!(lost.collect::<Vec<_>>(), Vec::<&String>::new(), "some acknowledged definitions are lost");
    // Definitions that were not acknowledged may exist; then they are established as well.
    for name in names {
        let path = format!("{DEFINITIONS}/{name}");
        server.client().until(&path, |object| object.is_some_and(|object| state(object) == expected)).await;
        let (plural, kind) = (name.split('.').next().unwrap(), |plural: &str| {
            let singular = plural.trim_end_matches('s');
            format!("{}{}", singular[..1].to_uppercase(), &singular[1..])
        });
        let collection = format!("/apis/g.example.com/v1/namespaces/default/{plural}");
        let object = json!({
            "apiVersion": "g.example.com/v1", "kind": kind(plural), "metadata": {"name": "o"},
            "spec": {"n": 1, "gone": 1},
        });
        let reply = server.client().post(&collection, &object).await;
        assert_eq!((reply.status, &reply.json()["spec"]), (201, &json!({"n": 1})), "{}", reply.text());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storage_migration_continues_after_the_server_is_killed() {
    let flags = vec!["--controllers=*,storage-version-migrator".to_owned()];
    let mut server = Server::start(Options { flags, ..Options::default() }).await;
    let old = object_of(json!({"spec": object_of(json!({"n": {"type": "integer"}}))}));
    let with_default = json!({"n": {"type": "integer"}, "d": {"type": "string", "default": "x"}});
    let new = object_of(json!({"spec": object_of(with_default)}));
    let versions = |first| json!([version("v1", first, old.clone()), version("v2", !first, new.clone())]);
    establish(&server, &definition("movers", versions(true))).await;
    make_objects(&server, "/apis/g.example.com/v1/namespaces/default/movers", "Mover").await;
    let path = format!("{DEFINITIONS}/movers.g.example.com");
    let mut stored = server.client().get(&path).await.json();
    let before: u64 = stored["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
    stored["spec"]["versions"] = versions(false);
    let reply = server.client().put(&path, &stored).await;
    assert_eq!(reply.json()["status"]["storedVersions"], json!(["v1", "v2"]));
    for pause in [10, 50] {
        tokio::time::sleep(Duration::from_millis(pause)).await;
        server.kill();
        server.restart().await;
    }
    let is_over = |object: Option<&Value>| {
        object.is_some_and(|object| object["status"]["storedVersions"] == json!(["v2"]))
    };
    server.client().until(&path, is_over).await;
    let list = server.client().get("/apis/g.example.com/v2/namespaces/default/movers").await.json();
    let items = list["items"].as_array().unwrap();
    assert_eq!(items.len(), objects());
    for item in items {
        let version: u64 = item["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
        assert!(version > before && item["spec"]["d"] == "x", "{item}");
        assert_eq!(item["metadata"]["generation"], 1, "{item}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_definitions_have_precise_errors_and_bounded_costs() {
    let server = Server::start_upstream().await;
    let client = server.client();
    let nested = |depth: usize| {
        format!(
            "{}{}{}",
            r#"{"type":"object","properties":{"a":"#.repeat(depth),
            r#"{"type":"string"}"#,
            "}}".repeat(depth)
        )
    };
    let with = |plural: &str, schema: &str| {
        definition(plural, json!([version("v1", true, json!("HERE"))]))
            .to_string()
            .replace("\"HERE\"", schema)
    };
    let field = |schema: Value| object_of(json!({"a": schema})).to_string();
    let pattern = |pattern: &str| field(json!({"type": "string", "pattern": pattern}));
    let rules = |of: Value, rules: Vec<String>| {
        let rules: Vec<Value> = rules.into_iter().map(|rule| json!({"rule": rule})).collect();
        let mut of = of;
        of["x-kubernetes-validations"] = rules.into();
        field(of)
    };
    let texts = json!({"type": "array", "items": {"type": "string"}});
    let wide: String = (0..60_000).map(|at| format!(r#""field{at:06}":{{"type":"string"}},"#)).collect();
    let wide = format!(r#"{{"type":"object","properties":{{{}}}}}"#, wide.trim_end_matches(','));
    let many = |count: usize| {
        Value::Array(
            (0..count)
                .map(|at| version(&format!("v{}", at + 1), at == 0, json!({"type": "object"})))
                .collect(),
        )
    };
    let of_group =
        |plural: &str, group: &str| definition(plural, many(1)).to_string().replace("g.example.com", group);
    let cases = [
        ("deep", with("deeps", &nested(50)), "201 CustomResourceDefinition"),
        ("too deep", with("deepers", &nested(90)), "400 BadRequest: …recursion limit exceeded…"),
        ("far too deep", with("deepests", &nested(20_000)), "400 BadRequest: …exceeded max depth…"),
        ("wide", with("wides", &wide), "201 CustomResourceDefinition"),
        ("too large", with("larges", &format!(r#"{{"description":"{}"}}"#, "x".repeat(3_200_000))), "413 RequestEntityTooLarge: …"),
        ("reference", with("refs", &field(json!({"$ref": "#"}))), "422 Invalid: …$ref: Forbidden: $ref is not supported…"),
        ("pattern that repeats repetitions", with("bombs", &pattern("(a{1000}){1000}")), "422 Invalid: …pattern: Invalid value…"),
        ("pattern that would backtrack", with("backs", &pattern("^(a+)+$")), "201 CustomResourceDefinition"),
        ("pattern that looks ahead", with("looks", &pattern("(?=a)b")), "422 Invalid: …pattern: Invalid value…"),
        (
            "rule beyond the budget",
            with("cubes", &rules(texts.clone(), vec!["self.all(a, self.all(b, self.all(c, a == b)))".to_owned()])),
            "422 Invalid: …estimated rule cost exceeds budget by factor of more than 100x…",
        ),
        (
            "many rules",
            with("manyrules", &rules(json!({"type": "integer"}), (0..1000).map(|at| format!("self > {at}")).collect())),
            "201 CustomResourceDefinition",
        ),
        (
            "deep rule",
            with(
                "deeprules",
                &rules(json!({"type": "integer"}), vec![format!("{}self > 0{}", "(".repeat(5000), ")".repeat(5000))]),
            ),
            "422 Invalid: …expression recursion limit exceeded: 250…",
        ),
        ("built-in group", of_group("deployments", "apps"), "422 Invalid: …should be a domain with at least one dot…"),
        ("protected group", of_group("things", "x.k8s.io"), "422 Invalid: …protected groups must have approval annotation…"),
        ("many versions", definition("manys", many(1000)).to_string(), "201 CustomResourceDefinition"),
        (
            "large defaults",
            with(
                "amps",
                &object_of(json!({"l": {"type": "array", "items": {
                    "type": "object", "properties": {"x": {"type": "string", "default": "y".repeat(100_000)}},
                }}}))
                .to_string(),
            ),
            "201 CustomResourceDefinition",
        ),
        (
            "set with a rule",
            with(
                "sets",
                &object_of(json!({"l": {
                    "type": "array", "maxItems": 300_000, "items": {"type": "string", "maxLength": 8},
                    "x-kubernetes-list-type": "set", "x-kubernetes-validations": [{"rule": "self == oldSelf"}],
                }}))
                .to_string(),
            ),
            "201 CustomResourceDefinition",
        ),
    ];
    let json_type = [("content-type", "application/json")];
    let mut wrong = Vec::new();
    for (what, body, want) in cases {
        let began = Instant::now();
        let reply = client.another().send("POST", DEFINITIONS, &json_type, body.as_bytes()).await;
        let got = outcome(&reply);
        if !fits(&got, want) || began.elapsed() > PATIENCE {
            let got: String = got.chars().take(300).collect();
            wrong.push(format!("{what}: {got} after {:?}, not {want}", began.elapsed()));
        }
    }
    report(&wrong);

    let path = |plural: &str| format!("/apis/g.example.com/v1/namespaces/default/{plural}");
    for plural in ["amps", "sets", "backs"] {
        client.until(&path(plural), |list| list.is_some_and(|list| list["kind"].is_string())).await;
    }
    let object = |kind: &str, name: &str, value: Value| json!({"apiVersion": "g.example.com/v1", "kind": kind, "metadata": {"name": name}, "l": value});
    let list = |count: usize| Value::Array(vec![json!({}); count]);
    let reply = client.post(&path("amps"), &object("Amp", "few", list(10))).await;
    assert_eq!((reply.status, reply.json()["l"][9]["x"].as_str().map(str::len)), (201, Some(100_000)));
    let reply = client.post(&path("amps"), &object("Amp", "many", list(100_000))).await;
    assert_eq!(reply.status, 413, "{}", reply.text());
    // An update of a set compares the new set with the old set, in time proportional to the length of the set.
    let members: Vec<Value> = (0..100_000).map(|at| format!("{at}").into()).collect();
    let reply = client.post(&path("sets"), &object("Set", "large", members.into())).await;
    assert_eq!(reply.status, 201, "{}", reply.text());
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    let reply = client.patch(&format!("{}/large", path("sets")), "merge", &label).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let mut back = object("Back", "slow", Value::Null);
    back["a"] = format!("{}!", "a".repeat(200_000)).into();
    assert_eq!(client.post(&path("backs"), &back).await.status, 422);

    let log = server.log();
    assert!(!log.contains("panic"), "{log}");
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let rss = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let rss: u64 = rss.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(rss < RSS_MAX_KIB, "{rss} KiB");
}

/// Returns a schema of `depth` nested `not` around a string type.
fn negations(depth: usize) -> Value {
    (0..depth).fold(json!({"maxLength": 9}), |below, _| json!({"not": below}))
}

/// Returns a schema that nests in each way that a client can choose, as deep as a request may.
fn deep() -> Value {
    let mut trees = json!({"maxLength": 9});
    for _ in 0..14 {
        trees = json!({"anyOf": [trees.clone(), trees]});
    }
    let chain = |link: &dyn Fn(Value) -> Value, leaf: Value| (0..45).fold(leaf, |below, _| link(below));
    let text = || json!({"type": "string", "maxLength": 9});
    let typed = |logic: Value| json!({"type": "string", "allOf": [logic]});
    object_of(json!({
        "not": typed(negations(90)),
        "anyOf": typed(trees),
        "allOf": typed(chain(&|below| json!({"allOf": [below]}), json!({"maxLength": 9}))),
        "oneOf": typed(chain(&|below| json!({"oneOf": [below]}), json!({"maxLength": 9}))),
        "items": chain(&|below| json!({"type": "array", "items": below}), text()),
        "values": chain(&|below| json!({"type": "object", "additionalProperties": below}), text()),
        "defaults": chain(&|below| json!({"type": "object", "default": {}, "properties": {"p": below}}), text()),
        "rules": chain(
            &|below| json!({
                "type": "object", "properties": {"p": below},
                "x-kubernetes-validations": [{"rule": "has(self.p)"}],
            }),
            text(),
        ),
    }))
}

/// In an earlier version, the work of the server doubled with each level of `not`. A definition with 40 levels was
/// never finished, no other definition was served any more, and the next start did not become ready.
#[tokio::test(flavor = "multi_thread")]
async fn definitions_with_deep_schemas_can_be_served_changed_and_deleted_after_a_restart() {
    let mut server = Server::start(Options::default()).await;
    let began = Instant::now();
    establish(
        &server,
        &definition(
            "bombs",
            json!([version(
                "v1",
                true,
                object_of(json!({"v": {"type": "string", "allOf": [negations(40)]}}))
            )]),
        ),
    )
    .await;
    establish(&server, &definition("deeps", json!([version("v1", true, deep())]))).await;
    establish(&server, &definition("others", json!([version("v1", true, object_of(json!({})))]))).await;
    assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
    let path = |plural: &str| format!("/apis/g.example.com/v1/namespaces/default/{plural}");
    let object =
        |kind: &str| json!({"apiVersion": "g.example.com/v1", "kind": kind, "metadata": {"name": "a"}});
    // The schema also arrives in an update of a type that is served already.
    let changed = definition(
        "others",
        json!([version("v1", true, object_of(json!({"v": {"type": "string", "allOf": [negations(40)]}})))]),
    );
    let reply =
        server.client().patch(&format!("{DEFINITIONS}/others.g.example.com"), "merge", &changed).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    for stop in ["kill", "terminate"] {
        for (plural, kind) in [("bombs", "Bomb"), ("deeps", "Deep"), ("others", "Other")] {
            let reply = server.client().post(&path(plural), &object(kind)).await;
            assert_eq!(reply.status, 201, "{plural} before {stop}: {}", reply.text());
            let reply = server.client().delete(&format!("{}/a", path(plural))).await;
            assert_eq!(reply.status, 200, "{plural} before {stop}: {}", reply.text());
        }
        if stop == "kill" {
            server.kill();
        } else {
            server.terminate();
        }
        server.restart().await;
    }
    for plural in ["bombs", "deeps", "others"] {
        let path = format!("{DEFINITIONS}/{plural}.g.example.com");
        let reply = server.client().delete(&path).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        server.client().until(&path, |definition| definition.is_none()).await;
    }
}

/// Errors contain the permitted values and patterns of the schema. In an earlier version, many elements with one
/// error each caused a response of gigabytes.
#[tokio::test(flavor = "multi_thread")]
async fn an_error_response_is_not_larger_than_the_refused_object() {
    let server = Server::start(Options::default()).await;
    let words: Vec<Value> = (0..5000).map(|at| format!("a word {at}").into()).collect();
    let list = |item: Value| json!({"type": "array", "items": item});
    let schema = object_of(json!({
        "set": list(json!({"type": "string", "enum": words})),
        "pattern": list(json!({"type": "string", "pattern": format!("^{}$", "a".repeat(10_000))})),
        "number": list(json!({"type": "integer"})),
        "any": list(json!({"type": "string", "anyOf": [{"enum": words}, {"maxLength": 0}]})),
    }));
    establish(&server, &definition("lists", json!([version("v1", true, schema)]))).await;
    let path = "/apis/g.example.com/v1/namespaces/default/lists";
    let mut wrong = Vec::new();
    for (field, element, count) in [
        ("set", json!("x"), 20_000),
        ("pattern", json!("x"), 20_000),
        ("number", json!("x"), 100_000),
        ("any", json!("x"), 2_000),
    ] {
        let mut object = json!({"apiVersion": "g.example.com/v1", "kind": "List", "metadata": {"name": "a"}});
        object[field] = vec![element; count].into();
        let began = Instant::now();
        for (verb, reply) in [
            ("create", server.client().post(path, &object).await),
            ("apply", {
                let media_type = [("content-type", "application/apply-patch+yaml")];
                let (path, body) = (format!("{path}/a?fieldManager=m"), object.to_string());
                server.client().send("PATCH", &path, &media_type, body.as_bytes()).await
            }),
        ] {
            // A list of wrong scalars is not a valid configuration.
            let is_refused =
                reply.status == 422 || (verb == "apply" && field == "number" && reply.status == 500);
            let bytes = reply.text().len();
            // A refused value appears in the message and among the causes, with escapes.
            if !is_refused || bytes > 16 * 1024 * 1024 {
                wrong.push(format!(
                    "{verb} {field}: {} with {bytes} bytes after {:?}",
                    reply.status,
                    began.elapsed()
                ));
            }
        }
    }
    report(&wrong);
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(peak < RSS_MAX_KIB, "{peak} KiB");
}
