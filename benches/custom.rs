//! Benchmark of custom types compared with built-in ones. The bench measures:
//!
//! - memory and start time with a thousand definitions;
//! - the time from the response to a new definition until the server serves objects of the new type;
//! - creates and lists of custom objects compared with creates and lists of pods. A custom object has the
//!   size of a pod and fifty validated fields, and its definition has ten rules.
//!
//! The largest of the thousand definitions has four thousand fields with descriptions, as many as the largest
//! definition that users install. The reported memory is the anonymous memory of the idle server, which
//! includes freed memory that the allocator keeps. The bench does not measure conversions, or clients that
//! read OpenAPI documents.

use std::time::{Duration, Instant};

use benches::load::{self, Connection};
use benches::process::{cpu_time, memory};
use benches::report::{mib, percent, row, time};
use benches::{Runtime, cluster, data, scale};
use tests::{Options, Server};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Number of fields of an ordinary definition, and number of fields of the largest definition.
const FIELDS: usize = 50;
const FIELDS_LARGEST: usize = 4000;

/// Number of rules of each definition.
const RULES: usize = 10;

/// Idle time before memory is read.
const SETTLE: Duration = Duration::from_secs(2);

/// Interval between requests while the bench waits. The interval is also the precision of the measured times.
const ASK_EVERY: Duration = Duration::from_micros(500);

/// Number of connections that create objects.
const CONNECTIONS: usize = 16;

fn main() {
    let runtime = Runtime::new();
    definitions(&runtime);
    objects(&runtime);
}

/// Returns the definition `things.<group>`. The field `spec` has `fields` fields, each with a limit and a
/// description, and `rules` rules.
fn definition(group: &str, fields: usize, rules: usize) -> String {
    let property = |at: usize| {
        let description =
            format!("The part {at} of a thing: what it is good for, and what happens without it.");
        let bound = match at % 5 {
            0 => r#""type":"string","maxLength":64"#,
            1 => r#""type":"string","pattern":"^[a-z0-9-]+$","maxLength":64"#,
            2 => r#""type":"integer","minimum":0,"maximum":1000"#,
            3 => r#""type":"string","enum":["never","seldom","always"]"#,
            _ => r#""type":"array","maxItems":8,"items":{"type":"string","maxLength":64}"#,
        };
        format!(r#""f{at:05}":{{"description":"{description}",{bound}}}"#)
    };
    let properties: Vec<_> = (0..fields).map(property).collect();
    let rule = |at: usize| {
        let (text, number) = (at * 5, at * 5 + 2);
        format!(
            r#"{{"rule":"self.f{text:05}.size() > 0 && self.f{number:05} < 1000","message":"part {at} is wrong"}}"#
        )
    };
    let rules: Vec<_> = (0..rules).map(rule).collect();
    format!(
        r#"{{"metadata":{{"name":"things.{group}"}},"spec":{{"group":"{group}","scope":"Namespaced","names":{{"plural":"things","kind":"Thing"}},"versions":[{{"name":"v1","served":true,"storage":true,"schema":{{"openAPIV3Schema":{{"type":"object","properties":{{"spec":{{"type":"object","properties":{{{}}},"x-kubernetes-validations":[{}]}}}}}}}}}}]}}}}"#,
        properties.join(","),
        rules.join(",")
    )
}

/// Returns an object of [`data::POD_BYTES`] bytes that has all [`FIELDS`] fields of its definition.
fn thing(group: &str, name: &str) -> String {
    let value = |at: usize, padding: usize| match at % 5 {
        2 => (at * 7 % 1000).to_string(),
        3 => r#""seldom""#.to_owned(),
        4 => format!(r#"["{}","second"]"#, "x".repeat(padding)),
        _ => format!(r#""{}""#, "x".repeat(padding)),
    };
    let text = |padding: usize| {
        let fields: Vec<_> = (0..FIELDS).map(|at| format!(r#""f{at:05}":{}"#, value(at, padding))).collect();
        format!(
            r#"{{"apiVersion":"{group}/v1","kind":"Thing","metadata":{{"name":"{name}"}},"spec":{{{}}}}}"#,
            fields.join(",")
        )
    };
    // Three of five fields have a value that can be padded. The limit of a field also limits the padding.
    let padding = data::POD_BYTES.saturating_sub(text(1).len()) / (FIELDS * 3 / 5) + 1;
    let mut made = text(padding.min(64));
    // Spaces fill the object up to its size. The parser skips these spaces, as it skips the indentation of a
    // document.
    let missing = data::POD_BYTES.saturating_sub(made.len());
    made.insert_str(1, &" ".repeat(missing));
    made
}

/// Creates a definition. Returns the duration of the POST, and the time from the response of the POST to the
/// first successful list of the new type.
fn establish(runtime: &Runtime, server: &Server, group: &str, text: &str) -> (Duration, Duration) {
    let list = load::get(&format!("/apis/{group}/v1/things"), &[]);
    let post = load::request("POST", DEFINITIONS, text);
    runtime.run(async {
        let mut connection = Connection::open(server.client()).await;
        let begun = Instant::now();
        connection.expect(201, &post).await;
        let answered = begun.elapsed();
        loop {
            let answer = connection.exchange(&list, |_| {}).await.expect("the server answers");
            if answer.status == 200 {
                return (answered, begun.elapsed() - answered);
            }
            tokio::time::sleep(ASK_EVERY).await;
        }
    })
}

/// Measures a thousand definitions: the memory, the time until the server serves a new type, and the start
/// time.
fn definitions(runtime: &Runtime) {
    let count = scale(1000, 5);
    let settle = || std::thread::sleep(scale(SETTLE, Duration::ZERO));
    let mut server = cluster::start(runtime);
    settle();
    let before = memory(server.pid()).anonymous;
    row("definitions", &["POST", "served after", "CPU", "memory"]);
    let first = |server: &Server, what: &str, group: &str, fields: usize| {
        let (was, cpu) = (memory(server.pid()).anonymous, cpu_time(server.pid()));
        let text = definition(group, fields, RULES);
        let (answered, served) = establish(runtime, server, group, &text);
        settle();
        let spent = cpu_time(server.pid()) - cpu;
        let grown = memory(server.pid()).anonymous.saturating_sub(was);
        row(what, &[&time(answered), &time(served), &time(spent), &mib(grown)]);
    };
    first(&server, &format!("the first, {FIELDS} fields"), "first.example.com", FIELDS);
    first(
        &server,
        &format!("the largest, {FIELDS_LARGEST} fields"),
        "largest.example.com",
        scale(FIELDS_LARGEST, 100),
    );
    let texts: Vec<_> = (2..count)
        .map(|at| definition(&format!("g{at:04}.example.com"), FIELDS, RULES))
        .map(|text| load::request("POST", DEFINITIONS, &text))
        .collect();
    let spent = cpu_time(server.pid());
    let outcome = runtime.run(async {
        let mut connection = [Connection::open(server.client()).await];
        load::run(&mut connection, &texts, 201).await
    });
    settle();
    let spent = cpu_time(server.pid()) - spent;
    let others = u32::try_from(texts.len()).expect("there are not so many");
    row(
        &format!("each of the others up to {count}"),
        &[&time(outcome.quantile(0.5)), "", &time(spent / others), ""],
    );
    first(&server, "one more", "more.example.com", FIELDS);
    let grown = memory(server.pid()).anonymous.saturating_sub(before);
    row(&format!("all {count}, for each"), &["", "", "", &format!("{} KiB", grown / count as u64)]);

    server.terminate();
    let begun = Instant::now();
    runtime.run(server.restart());
    let ready = begun.elapsed();
    let spent = cpu_time(server.pid());
    settle();
    let after = memory(server.pid()).anonymous;
    row("start with all of them", &[&time(ready), "", &time(spent), &mib(after)]);
}

/// Measures creates and lists of custom objects and of pods.
fn objects(runtime: &Runtime) {
    let server = runtime.run(Server::start(Options::default()));
    let group = "things.example.com";
    establish(runtime, &server, group, &definition(group, FIELDS, RULES));
    let (count, rounds) = (scale(50_000, 50), scale(7, 1));
    let things = format!("/apis/{group}/v1/namespaces/default/things");
    let creates = (0..count).map(|at| load::request("POST", &things, &thing(group, &format!("t-{at:06}"))));
    let creates: Vec<_> = creates.collect();
    let pods = cluster::pod_creates("web", count);
    row("creates", &["per second", "CPU each", "of a pod's"]);
    let mut pods_cpu = 0.0;
    for (what, requests) in [("pods", &pods), ("custom objects", &creates)] {
        let before = cpu_time(server.pid());
        let outcome = runtime.run(async {
            let mut connections = load::connect(server.client(), CONNECTIONS).await;
            load::run(&mut connections, requests, 201).await
        });
        let each = (cpu_time(server.pid()) - before).as_secs_f64() * 1e6 / count as f64;
        if what == "pods" {
            pods_cpu = each;
        }
        let cells = [format!("{:.0}", outcome.rate()), format!("{each:.0} us"), percent(each, pods_cpu)];
        row(what, &cells.each_ref().map(String::as_str));
    }
    row(&format!("JSON list of {count}"), &["bytes", "time", "CPU", "CPU per MB"]);
    for (what, path) in [("pods", cluster::PODS), ("custom objects", &*things)] {
        let list = load::get(path, &[]);
        let mut best: Option<(Duration, Duration, u64)> = None;
        for _ in 0..rounds {
            let before = cpu_time(server.pid());
            let begun = Instant::now();
            let answer = runtime.run(async {
                let mut connection = Connection::open(server.client()).await;
                connection.expect(200, &list).await
            });
            let took = (cpu_time(server.pid()) - before, begun.elapsed(), answer.body_bytes);
            if best.is_none_or(|best| took < best) {
                best = Some(took);
            }
        }
        let (spent, took, bytes) = best.expect("there was a round");
        let each = spent.as_secs_f64() * 1e6 / (bytes as f64 / 1e6);
        row(what, &[&bytes.to_string(), &time(took), &time(spent), &format!("{each:.0} us")]);
    }
}
