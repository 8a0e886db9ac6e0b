//! Benchmark of defaulting and validation of a pod of 3.5 KiB. The benchmark excludes the other steps of a
//! write: decoding, storing and the response.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use objects::validation::{self, Settings};
use types::schema::decode::decode;
use types::schema::{builtin, defaults};
use values::naming::CLUSTER;

/// The default settings of a server.
const SETTINGS: Settings = Settings::new(&CLUSTER);

fn validate(c: &mut Criterion) {
    let versions = builtin::groups(&CLUSTER).iter().flat_map(|group| group.versions);
    let mut resources = versions.flat_map(|version| version.resources);
    let pods = resources.find(|resource| resource.plural == "pods").expect("pods are built in");
    let text = benches::data::pod("pod", 0);
    let decoded = || decode(&pods.message, text.as_bytes()).expect("the pod is a pod").object;
    let mut pod = decoded();
    defaults::apply(&pods.message, &mut pod, &CLUSTER);
    let faults = validation::create(pods, SETTINGS, &pod);
    assert!(faults.iter().all(|fault| fault.to_string().starts_with("metadata.")), "{faults:?}");

    let mut group = c.benchmark_group("pod");
    group.throughput(Throughput::Elements(1));
    group.bench_function("decode", |b| b.iter(decoded));
    group.bench_function("default", |b| {
        b.iter_batched_ref(
            decoded,
            |pod| defaults::apply(&pods.message, pod, &CLUSTER),
            criterion::BatchSize::SmallInput,
        );
    });
    group.bench_function("validate: create", |b| b.iter(|| validation::create(pods, SETTINGS, &pod)));
    group.bench_function("validate: update", |b| b.iter(|| validation::update(pods, SETTINGS, &pod, &pod)));
    group.finish();
}

criterion_group!(benches, validate);
criterion_main!(benches);
