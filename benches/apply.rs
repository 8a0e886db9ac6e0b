//! Benchmark of server-side apply as a function call. The live object is usually a pod of 3.5 KiB that a
//! manager has created, and another manager applies the same pod. The measurement begins with the text of the
//! configuration and the tree of the live object, and ends with the tree that is stored. The measurement
//! excludes network, store and validation.

use objects::apply::{Reset, Versions, Writer, apply, created};
use objects::known_types::TypeName;
use objects::patch::PatchKind;
use values::json::{Object, Value};
use values::naming::CLUSTER;

use api::requests::verbs::apply::{PatchBody, configuration};
use benches::{data, scale};
use objects::strategy::Endpoint;
use types::schema::decode::decode;
use types::schema::defaults;
use types::schema::registry::{Registry, Resource};

struct Bench {
    registry: Registry,
}

impl Bench {
    fn pods(&self) -> &Resource {
        self.registry.resource("", "v1", "pods").expect("pods are built in")
    }

    fn apply(&self, live: &Object, text: &str, manager: &str) -> Object {
        let pods = self.pods();
        let body = PatchBody { kind: PatchKind::Apply, bytes: text.as_bytes() };
        let config = configuration(body, TypeName::new("Pod", "v1"), &pods.table.message);
        let config = config.expect("the pod is a configuration");
        let versions = Versions::for_resource(&self.registry, pods);
        let reset = Reset::for_endpoint(pods, Endpoint::Main);
        let writer = Writer { manager, subresource: "", now: "2024-01-01T00:00:00Z" };
        let applied = apply(&versions, &writer, &reset, live, config.object(), true).expect("it is forced");
        let mut object = applied.conformed(versions.message(), live).expect("it fits");
        defaults::apply(versions.message(), &mut object, &CLUSTER);
        object
    }

    fn create(&self, text: &str) -> Object {
        let pods = self.pods();
        let mut object = decode(&pods.table.message, text.as_bytes()).expect("the pod is a pod").object;
        defaults::apply(&pods.table.message, &mut object, &CLUSTER);
        let versions = Versions::for_resource(&self.registry, pods);
        let reset = Reset::for_endpoint(pods, Endpoint::Main);
        let writer = Writer { manager: "creator", subresource: "", now: "2024-01-01T00:00:00Z" };
        created(&versions, &writer, &reset, &mut object);
        object
    }
}

fn main() {
    let bench = Bench { registry: Registry::new(&CLUSTER) };
    let one = data::pod("pod", 1);
    let other = data::pod("pod", 2);
    let live = bench.apply(&bench.create(&one), &one, "bench");
    let fewer = one.replace(r#""nodeSelector":{"example.com/pool":"general"}"#, r#""hostname":"a""#);
    let filter = std::env::args().skip(1).find(|argument| !argument.starts_with("--"));
    for (what, live, text, manager) in [
        ("create", None, &one, "bench"),
        ("first apply of a created pod", Some(bench.create(&one)), &one, "bench"),
        ("the same again", Some(live.clone()), &one, "bench"),
        ("one label", Some(live.clone()), &other, "bench"),
        ("one field given up, another new", Some(live.clone()), &fewer, "bench"),
        ("by a third manager", Some(live.clone()), &one, "third"),
    ] {
        if filter.as_ref().is_some_and(|filter| !what.contains(filter)) {
            continue;
        }
        let count = scale(20_000, 10);
        let nothing =
            || types::schema::conform::conform(&bench.pods().table.message, Value::Object(Object::new()));
        let live = live.unwrap_or_else(|| nothing().expect("nothing fits").object);
        let start = std::time::Instant::now();
        for _ in 0..count {
            std::hint::black_box(bench.apply(&live, text, manager));
        }
        let each = start.elapsed() / u32::try_from(count).expect("a small number");
        line(what, &format!("{each:.1?}"));
    }
}

#[expect(clippy::print_stdout, reason = "a bench reports on stdout")]
fn line(what: &str, each: &str) {
    println!("{what:38} {each:>10}");
}
