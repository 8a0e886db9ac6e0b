//! Test cases of validation as documents: one object, or two objects for an update, with all expected
//! failures.

use super::*;
use types::schema::builtin;
use types::schema::decode::decode;
use types::schema::defaults;
use types::schema::encode::encode;
use values::naming::{CLUSTER, KUBERNETES};

/// The default settings of a server.
const SETTINGS: Settings = Settings::new(&KUBERNETES);

/// Returns the resource with this plural in the group with this stem.
fn resource(stem: &str, plural: &str) -> &'static ResourceTable {
    let groups = builtin::groups(&KUBERNETES).iter().filter(|group| group.stem == stem);
    let mut resources = groups.flat_map(|group| group.versions).flat_map(|version| version.resources);
    resources.find(|resource| resource.plural == plural).unwrap_or_else(|| panic!("no {plural}"))
}

/// Returns the document in the form that the write path passes to validation.
fn object(resource: &ResourceTable, document: &str) -> Object {
    let decoded =
        decode(&resource.message, document.as_bytes()).unwrap_or_else(|error| panic!("{document}: {error}"));
    assert!(decoded.strict.is_empty(), "{:?}", decoded.strict);
    let mut object = decoded.object;
    defaults::apply(&resource.message, &mut object, &KUBERNETES);
    prepare(resource, &mut object);
    object
}

fn texts(errors: Vec<FieldError>) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

/// Adds a name and a namespace before the members of a document.
fn named(resource: &ResourceTable, members: &str) -> String {
    let namespace = match resource.scope {
        types::schema::table::Scope::Namespaced => r#","namespace":"n""#,
        types::schema::table::Scope::Cluster => "",
    };
    let comma = if members.is_empty() { "" } else { "," };
    format!(r#"{{"metadata":{{"name":"x"{namespace}}}{comma}{members}}}"#)
}

/// A case in a file in `cases/`: an object and its expected failures (format: `cases/README.md`).
struct Case {
    place: String,
    table: &'static ResourceTable,
    /// Subresource of the update; empty for the resource itself.
    through: String,
    old: Option<String>,
    new: String,
    expected: Vec<String>,
}

/// Returns the cases in a file.
fn cases(file: &std::path::Path) -> Vec<Case> {
    let text = std::fs::read_to_string(file).unwrap();
    let mut words: Vec<(String, String)> = Vec::new();
    let mut cases: Vec<Case> = Vec::new();
    let mut documents: Vec<String> = Vec::new();
    let mut title = None;
    let mut through = String::new();
    let mut expected = Vec::new();
    let mut finish = |title: Option<(usize, String)>,
                      documents: &mut Vec<String>,
                      through: &mut String,
                      expected: &mut Vec<String>| {
        let Some((line, title)) = title else { return };
        let table = match title.split_once('/') {
            Some((stem, plural)) => resource(stem, plural),
            None => resource("", &title),
        };
        let new = documents.pop().unwrap();
        let place = format!("{}:{line}", file.file_name().unwrap().to_string_lossy());
        let (through, expected) = (std::mem::take(through), std::mem::take(expected));
        cases.push(Case { place, table, through, old: documents.pop(), new, expected });
    };
    for (at, line) in text.lines().enumerate() {
        if let Some(new_title) = line.strip_prefix("== ") {
            finish(
                title.replace((at + 1, new_title.to_owned())),
                &mut documents,
                &mut through,
                &mut expected,
            );
            documents.push(String::new());
        } else if let Some((word, text)) = line.strip_prefix("let ").and_then(|line| line.split_once(" = ")) {
            words.push((format!("${word}"), replaced(text, &words)));
        } else if let Some(subresource) = line.strip_prefix("->") {
            subresource.trim().clone_into(&mut through);
            documents.push(String::new());
        } else if let Some(error) = line.strip_prefix("! ") {
            expected.push(error.replace("\\n", "\n"));
        } else if let Some(document) = documents.last_mut().filter(|_| !line.starts_with('#')) {
            document.push_str(&replaced(line.trim(), &words));
        }
    }
    finish(title, &mut documents, &mut through, &mut expected);
    cases
}

fn replaced(text: &str, words: &[(String, String)]) -> String {
    words.iter().rev().fold(text.to_owned(), |text, (word, value)| text.replace(word, value))
}

/// Returns the whole object for the members of a case.
fn case_object(table: &'static ResourceTable, members: &str) -> Object {
    if members.starts_with(r#"{"metadata""#) {
        return object(table, members);
    }
    object(table, &named(table, members.trim_start_matches('{').strip_suffix('}').unwrap_or_default()))
}

#[test]
fn each_validation_case_reports_exactly_its_expected_failures() {
    // Source: docs/api/validation.md. With `BLESS=1`, the test writes the actual failures into the files for
    // review.
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/validation/cases");
    let mut files: Vec<_> = std::fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "txt"));
    files.sort();
    let mut faults = Vec::new();
    let mut count = 0;
    for file in &files {
        let mut said = Vec::new();
        for Case { place, table, through, old, new, expected } in cases(file) {
            let new = case_object(table, &new);
            let got = match &old {
                None => texts(create(table, SETTINGS, &new)),
                Some(old) => {
                    let old = case_object(table, old);
                    let unchanged = texts(update_through(&through, table, SETTINGS, &old, &old).errors);
                    assert_eq!(unchanged, Vec::<String>::new(), "{place}: no change");
                    if through.is_empty() {
                        let status = update_through("status", table, SETTINGS, &new, &old).errors;
                        let is_elsewhere =
                            |error: &FieldError| !error.path.starts_with("metadata.finalizers");
                        let elsewhere = status.into_iter().filter(is_elsewhere).collect();
                        assert_eq!(texts(elsewhere), Vec::<String>::new(), "{place}: through status");
                    }
                    texts(update_through(&through, table, SETTINGS, &new, &old).errors)
                }
            };
            if got != expected {
                faults.push(format!("{place} {}\n  is    {got:#?}\n  wants {expected:#?}", table.plural));
            }
            said.push(got);
            count += 1;
        }
        if std::env::var_os("BLESS").is_some() {
            bless(file, &said);
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(count > 100, "only {count} cases were found");
}

fn bless(file: &std::path::Path, said: &[Vec<String>]) {
    let text = std::fs::read_to_string(file).unwrap();
    let mut said = said.iter();
    let mut out: Vec<String> = Vec::new();
    let mut pending: Option<&Vec<String>> = None;
    let end = |out: &mut Vec<String>, pending: Option<&Vec<String>>| {
        while out.last().is_some_and(String::is_empty) {
            out.pop();
        }
        out.extend(pending.into_iter().flatten().map(|error| format!("! {}", error.replace('\n', "\\n"))));
    };
    for line in text.lines().filter(|line| !line.starts_with("! ")) {
        if line.starts_with("== ") || (line.starts_with('#') && pending.is_some()) {
            end(&mut out, pending.take());
            if !out.is_empty() {
                out.push(String::new());
            }
        }
        if line.starts_with("== ") {
            if out.iter().rev().nth(1).is_some_and(|line| line.starts_with('#'))
                && out.last().is_some_and(String::is_empty)
            {
                out.pop();
            }
            pending = said.next();
        }
        out.push(line.to_owned());
    }
    end(&mut out, pending);
    std::fs::write(file, out.join("\n") + "\n").unwrap();
}

#[test]
fn string_data_of_a_secret_overrides_its_data() {
    let table = resource("", "secrets");
    let secret =
        object(table, &named(table, r#""data":{"a":"eA==","b":"eQ=="},"stringData":{"b":"hi","c":"z"}"#));
    let mut out = Vec::new();
    encode(&table.message, &secret, &mut out);
    assert_eq!(
        String::from_utf8(out).unwrap(),
        r#"{"metadata":{"name":"x","namespace":"n"},"data":{"a":"eA==","b":"aGk=","c":"eg=="},"type":"Opaque"}"#
    );
}

#[test]
fn autoscaler_metrics_are_not_repeated_in_annotations() {
    let groups = builtin::groups(&KUBERNETES).iter().filter(|group| group.stem == "autoscaling");
    let newest = groups.flat_map(|group| group.versions).find(|version| version.version == "v2").unwrap();
    let table = newest.resources.iter().find(|it| it.plural == "horizontalpodautoscalers").unwrap();
    for (annotations, want) in [
        (r#""autoscaling.alpha.kubernetes.io/metrics":"[]""#, None),
        (
            r#""autoscaling.alpha.kubernetes.io/behavior":"","a":"b","autoscaling.alpha.kubernetes.io/mine":"c""#,
            Some(r#"{"a":"b","autoscaling.alpha.kubernetes.io/mine":"c"}"#),
        ),
        (
            r#""autoscaling.alpha.acme.example/metrics":"[]""#,
            Some(r#"{"autoscaling.alpha.acme.example/metrics":"[]"}"#),
        ),
    ] {
        let autoscaler = object(
            table,
            &format!(
                r#"{{"metadata":{{"name":"x","annotations":{{{annotations}}}}},"spec":{{"maxReplicas":1,"scaleTargetRef":{{"kind":"K","name":"n"}}}}}}"#
            ),
        );
        let left = autoscaler.get("metadata").and_then(|metadata| metadata.get("annotations"));
        assert_eq!(left.map(values::testing::text).as_deref(), want, "{annotations}");
    }
}

#[test]
fn events_of_the_newer_group_may_change_only_their_series() {
    let table = resource("", "events");
    let event = |members: &str| {
        let members = format!(
            r#""involvedObject":{{"kind":"Pod","namespace":"n"}},"eventTime":"2020-01-01T00:00:00.000000Z","reportingComponent":"c","reportingInstance":"i","action":"A","type":"Normal",{members}"#
        );
        object(table, &named(table, &members))
    };
    let old = event(r#""reason":"R""#);
    let said = |group: &str, new: &Object| texts(update_in(group, "", table, SETTINGS, [new, &old]).errors);
    for (members, want) in [
        (r#""reason":"R","series":{"count":2,"lastObservedTime":"2020-01-01T00:00:00.000000Z"}"#, vec![]),
        (
            r#""reason":"R","series":{"count":1}"#,
            vec![
                r#"series.count: Invalid value: "": should be at least 2"#,
                "series.lastObservedTime: Required value",
            ],
        ),
        (
            r#""reason":"S","count":3,"source":{"host":"h"}"#,
            vec![
                r#"reason: Invalid value: "S": field is immutable"#,
                r#"source: Invalid value: {"Component":"","Host":"h"}: field is immutable"#,
                "count: Invalid value: 3: field is immutable",
                r#"reason: Invalid value: "S": field is immutable"#,
            ],
        ),
    ] {
        let new = event(members);
        assert_eq!(said("events.k8s.io", &new), want, "{members}");
        assert_eq!(said("", &new), Vec::<String>::new(), "{members}");
    }
}

#[test]
fn oversized_objects_are_refused() {
    for (stem, plural, members, want) in [
        (
            "",
            "configmaps",
            format!(r#""data":{{"a":"{}"}}"#, "x".repeat(1024 * 1024 + 1)),
            "[]: Too long: may not be more than 1048576 bytes",
        ),
        (
            "certificates",
            "clustertrustbundles",
            format!(r#""spec":{{"trustBundle":"{}"}}"#, "x".repeat(1024 * 1024 + 1)),
            "spec.trustBundle: Too long: may not be more than 1048576 bytes",
        ),
        (
            "",
            "secrets",
            format!(r#""stringData":{{"a":"{}"}}"#, "x".repeat(1024 * 1024 + 1)),
            "data: Too long: may not be more than 1048576 bytes",
        ),
    ] {
        let table = resource(stem, plural);
        assert_eq!(texts(create(table, SETTINGS, &object(table, &named(table, &members)))), [want]);
    }
}

#[test]
fn validation_does_not_panic_on_trees_of_any_shape() {
    // These trees cannot come from a decoder: every member of every kind is replaced by each other type of
    // value.
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
                            (field.name.clone(), if deep { Value::Object(inner) } else { value.clone() })
                        })
                        .collect();
                    let mut prepared = object.clone();
                    prepare(table, &mut prepared);
                    defaults::apply(&table.message, &mut prepared, naming);
                    wrong += create(table, Settings::new(naming), &prepared).len();
                    wrong += update(table, Settings::new(naming), &prepared, &object).len();
                }
            }
            assert!(wrong > 0, "{} accepts invalid objects", table.plural);
        }
    }
}

#[test]
fn validation_of_large_objects_takes_time_linear_in_their_size() {
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
        let errors = create(table, SETTINGS, &new).len();
        assert!(errors < 2000, "{plural}: {errors} errors");
        let mut old = new.clone();
        old.object_entry("spec").insert("tolerations", Value::Array(Vec::new()));
        assert!(update(table, SETTINGS, &new, &old).len() < 2000);
        let owners = list(r#"{"apiVersion":"v1","kind":"Pod","name":"a","uid":"b","controller":true}"#);
        let document = format!(r#"{{"metadata":{{"name":"x","namespace":"n","ownerReferences":{owners}}}}}"#);
        let errors = create(table, SETTINGS, &object(table, &document));
        assert!(errors.iter().map(|error| error.to_string().len()).sum::<usize>() < 10 * document.len());
    }
}

/// Returns the text files below a directory, in order.
fn files_below(directory: &std::path::Path) -> Vec<std::path::PathBuf> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.into_iter().flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] }).collect()
}

/// Tests that real-world manifests are valid, keep their content, and can be written again unchanged.
///
/// The manifests are not in the repository. If they are absent, the test prints a note and passes.
#[test]
fn manifests_of_users_are_valid_and_round_trip() {
    let Some(directory) = testkit::reference("manifests/workloads") else { return };
    let files = files_below(&directory);
    assert!(files.len() > 10, "{}", directory.display());
    let mut faults = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        for (at, document) in text.split("\n---").enumerate() {
            let place = format!("{} ({at})", file.display());
            let document = document.strip_prefix("---").unwrap_or(document);
            let value = values::yaml::parse(document.as_bytes()).unwrap().value;
            let Value::Object(_) = value else { continue };
            let (version, kind) =
                (value.str_at(&["apiVersion"]).to_owned(), value.str_at(&["kind"]).to_owned());
            let Some(table) = resource_of(&version, &kind) else {
                faults.push(format!("{place}: no resource of {version} {kind}"));
                continue;
            };
            let mut document = Vec::new();
            values::json::write(&value, &mut document);
            let mut new = object(table, std::str::from_utf8(&document).unwrap());
            if let Some(Value::Object(metadata)) = new.get_mut("metadata")
                && table.scope == types::schema::table::Scope::Namespaced
                && metadata.get("namespace").is_none()
            {
                metadata.insert("namespace", Value::from("n"));
            }
            let mut said = texts(create(table, SETTINGS, &new));
            said.extend(texts(update(table, SETTINGS, &new, &new)));
            // The server sets the selector and the selected labels of a job from its uid when the job is
            // stored.
            const MADE: [&str; 2] = ["spec.selector: Required value", "spec.template.metadata.labels: "];
            said.retain(|fault| kind != "Job" || !MADE.iter().any(|made| fault.starts_with(made)));
            faults.extend(said.into_iter().map(|fault| format!("{place}: {fault}")));
            let mut stored = Vec::new();
            encode(&table.message, &new, &mut stored);
            let mut again = decode(&table.message, &stored).unwrap().object;
            defaults::apply(&table.message, &mut again, &KUBERNETES);
            let mut stored_again = Vec::new();
            encode(&table.message, &again, &mut stored_again);
            assert_eq!(String::from_utf8_lossy(&stored_again), String::from_utf8_lossy(&stored), "{place}");
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Returns the resource whose objects have this kind.
fn resource_of(version: &str, kind: &str) -> Option<&'static ResourceTable> {
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let groups = builtin::groups(&KUBERNETES).iter().filter(|one| one.stem == group);
    let versions = groups.flat_map(|one| one.versions).filter(|one| one.version == version);
    versions.flat_map(|one| one.resources).copied().find(|resource| resource.message.name == kind)
}

#[test]
fn metadata_failures_are_reported_by_the_generic_rules_and_again_by_the_kind() {
    const DELETED: &str =
        r#"{"metadata":{"name":"x","namespace":"n","deletionTimestamp":"2024-01-01T00:00:00Z"}}"#;
    const LABELS: &str = r#"{"metadata":{"name":"x","namespace":"n","labels":{"a b":""}}}"#;
    for (stem, plural, through, new, causes) in [
        ("", "configmaps", "", DELETED, 2),
        ("", "configmaps", "", LABELS, 4),
        ("apps", "deployments", "status", LABELS, 3),
        ("coordination", "leases", "", LABELS, 3),
        ("apps", "replicasets", "", LABELS, 4),
    ] {
        let table = resource(stem, plural);
        let (old, new) = (object(table, &named(table, "")), object(table, new));
        let errors = update_through(through, table, SETTINGS, &new, &old).errors;
        let of_metadata = errors.iter().filter(|error| error.path.starts_with("metadata")).count();
        assert_eq!(of_metadata, causes, "{plural} {through}");
    }
}

#[test]
fn validation_of_a_long_list_stops_after_about_a_thousand_failures() {
    let values = |value: &str| vec![format!("{value:?}"); 3000].join(",");
    let slice = |devices: &str| {
        format!(
            r#""spec":{{"driver":"d.example.com","allNodes":true,"pool":{{"name":"p","resourceSliceCount":1}},"devices":[{{"name":"d",{devices}}}]}}"#
        )
    };
    let selector = |requirements: &str| {
        format!(r#""spec":{{"nodeSelector":{{"nodeSelectorTerms":[{{{requirements}}}]}}}}"#)
    };
    let long = values(&"x".repeat(65));
    let wrong = values("-");
    for spec in [
        slice(&format!(r#""attributes":{{"a":{{"strings":[{long}]}}}}"#)),
        slice(&format!(r#""attributes":{{"a":{{"versions":[{long}]}}}}"#)),
        selector(&format!(r#""matchExpressions":[{{"key":"k","operator":"In","values":[{wrong}]}}]"#)),
        selector(&format!(r#""matchFields":[{{"key":"metadata.name","operator":"In","values":[{wrong}]}}]"#)),
    ] {
        let table = resource("resource", "resourceslices");
        let found = create(table, SETTINGS, &object(table, &named(table, &spec))).len();
        assert!((1000..1100).contains(&found), "{found}: {}", &spec[..100]);
    }
}

#[test]
fn failures_that_print_a_long_list_are_limited_in_number_and_size() {
    let scopes = vec![r#""a-scope-that-no-server-knows""#; 10_000].join(",");
    let counted: Vec<String> = (0..5000).map(|at| format!(r#""hugepages-{at}Mi":"1""#)).collect();
    let counted = counted.join(",");
    let long = "x".repeat(100_000);
    let odd = vec![r#"{"scopeName":"PriorityClass","operator":"x"}"#; 1000].join(",");
    for spec in [
        // Each long failure is followed by a short failure.
        format!(
            r#""spec":{{"hard":{{"services":"1"}},"scopeSelector":{{"matchExpressions":[{{"scopeName":"PriorityClass","operator":"In","values":["{long}"]}},{odd}]}}}}"#
        ),
        format!(r#""spec":{{"hard":{{"pods":"1"}},"scopes":[{scopes}]}}"#),
        format!(r#""spec":{{"hard":{{{counted}}},"scopes":["BestEffort",{scopes}]}}"#),
        format!(
            r#""spec":{{"hard":{{{counted}}},"scopeSelector":{{"matchExpressions":[{{"scopeName":"BestEffort","operator":"Exists","values":["{long}"]}}]}}}}"#
        ),
    ] {
        let table = resource("", "resourcequotas");
        let errors = create(table, SETTINGS, &object(table, &named(table, &spec)));
        let bytes: usize = errors.iter().filter_map(|error| error.value.as_ref()).map(String::len).sum();
        assert!((1..1000).contains(&errors.len()), "{}: {}", errors.len(), &spec[..60]);
        assert!(bytes < 64 << 20, "{bytes}: {}", &spec[..60]);
    }
}
