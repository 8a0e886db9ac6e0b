//! Benchmark of representations on one core, without a server. The benchmark converts pods of 3.5 KiB from
//! their stored form (including managed fields) to every representation that the server offers, and decodes
//! pods from protobuf and JSON. A rate counts the output bytes of a conversion, or the input bytes of a
//! decoding. For comparison, the benchmark copies the stored bytes, as a plain JSON list does.

use benches::{Runtime, cluster, scale};
use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main};
use jiff::Timestamp;
use objects::codec::{cbor, protobuf};
use types::schema::registry::Registry;
use types::schema::{decode, encode};
use types::table::{Headers, IncludeObject, ListMeta, MetaVersion, PartialWriter, TableFormat};
use values::json;
use values::naming::KUBERNETES;
use values::yaml;

/// Number of distinct objects. With many objects, the result does not depend on the bytes of a single object.
const PODS: usize = 64;

fn codec(c: &mut Criterion) {
    let pods = stored_pods();
    let registry = Registry::new(&KUBERNETES);
    let resource = registry.resource("", "v1", "pods").expect("pods are built in");
    let message = &resource.table.message;
    let mut group = c.benchmark_group("codec");

    each(&mut group, "json (memcpy)", &pods, |pod, out| out.extend_from_slice(pod));
    each(&mut group, "json to protobuf", &pods, |pod, out| {
        protobuf::transcode(message, pod, out).expect("a pod has a protobuf form");
    });
    each(&mut group, "json to yaml", &pods, |pod, out| {
        yaml::write(&json::parse(pod).expect("stored objects are JSON"), out);
    });
    each(&mut group, "json to cbor", &pods, |pod, out| {
        let tree = json::parse(pod).expect("stored objects are JSON");
        cbor::encode(message, tree.as_object().expect("a pod is an object"), out);
    });
    let format = TableFormat::for_resource(&resource.table, &KUBERNETES).expect("pods have columns");
    let mut table =
        format.writer(MetaVersion::V1, &KUBERNETES, IncludeObject::Metadata, Timestamp::UNIX_EPOCH);
    table.head(&ListMeta::default(), Headers::Shown, &mut Vec::new());
    each(&mut group, "json to table row", &pods, |pod, out| {
        table.row(pod, pod, out).expect("a pod has a row");
    });
    let partial = PartialWriter::new(MetaVersion::V1, &KUBERNETES);
    each(&mut group, "json to metadata", &pods, |pod, out| assert!(partial.object(pod, out)));

    let bodies: Vec<Vec<u8>> = pods
        .iter()
        .map(|pod| {
            let mut out = Vec::new();
            protobuf::transcode(message, pod, &mut out).expect("a pod has a protobuf form");
            out
        })
        .collect();
    group.throughput(Throughput::Bytes(bodies.iter().map(|body| body.len() as u64).sum()));
    group.bench_function("protobuf to tree", |b| {
        b.iter(|| {
            for body in &bodies {
                std::hint::black_box(
                    protobuf::decode(&registry, message, body).expect("it was written here"),
                );
            }
        });
    });
    group.bench_function("protobuf to json", |b| {
        let mut out = Vec::new();
        b.iter(|| {
            for body in &bodies {
                out.clear();
                let tree = protobuf::decode(&registry, message, body).expect("it was written here");
                encode::encode(message, &tree, &mut out);
            }
            out.len()
        });
    });
    group.throughput(Throughput::Bytes(pods.iter().map(|pod| pod.len() as u64).sum()));
    group.bench_function("json to tree", |b| {
        b.iter(|| {
            for pod in &pods {
                std::hint::black_box(decode::decode(message, pod).expect("it was written here"));
            }
        });
    });
    group.finish();
}

/// Measures `render` on each pod in turn.
fn each(
    group: &mut BenchmarkGroup<WallTime>,
    name: &str,
    pods: &[Vec<u8>],
    mut render: impl FnMut(&[u8], &mut Vec<u8>),
) {
    let mut out = Vec::new();
    pods.iter().for_each(|pod| render(pod, &mut out));
    group.throughput(Throughput::Bytes(out.len() as u64));
    group.bench_function(name, |b| {
        b.iter(|| {
            for pod in pods {
                out.clear();
                render(pod, &mut out);
                std::hint::black_box(&out);
            }
        });
    });
}

/// Returns pods in their stored form, which is also the served form.
fn stored_pods() -> Vec<Vec<u8>> {
    let runtime = Runtime::new();
    let server = cluster::start(&runtime);
    let pods = scale(PODS, 4);
    cluster::fill_pods(&runtime, &server, pods);
    let stored = (0..pods).map(|at| {
        let path = format!("{}/web-{at:06}", cluster::PODS);
        let reply = runtime.run(server.client().get(&path));
        assert_eq!(reply.status, 200);
        reply.body.trim_ascii_end().to_vec()
    });
    stored.collect()
}

criterion_group!(benches, codec);
criterion_main!(benches);
