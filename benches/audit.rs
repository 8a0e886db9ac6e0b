//! Benchmark of audit: the cost of a request at each level, in processor time of the server and in bytes of
//! the log.
//!
//! The benchmark creates and reads pods. The server writes the log either directly or in batches. In the
//! results, `None` is a policy that records nothing, and `off` means that the server has no policy.

use benches::cluster::{PODS, pod_creates};
use benches::load;
use benches::process::cpu_time;
use benches::report::row;
use benches::{Runtime, scale};
use tests::{Options, Server};

/// Number of connections, each with one request at a time.
const CONNECTIONS: usize = 4;

fn start(runtime: &Runtime, level: &str, mode: &str) -> Server {
    let policy = format!(
        "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules: [{{level: {level}}}]\n"
    );
    let flags = [
        "--audit-policy-file=$dir/policy".to_owned(),
        "--audit-log-path=$dir/audit.log".to_owned(),
        format!("--audit-log-mode={mode}"),
        "--audit-log-batch-buffer-size=100000".to_owned(),
        // The log must stay a single file, because its size is measured.
        "--audit-log-maxsize=10000".to_owned(),
    ];
    let flags = if level == "off" { Vec::new() } else { flags.to_vec() };
    let flags = flags.into_iter().chain(["--controllers=".to_owned()]).collect();
    let files = if level == "off" { Vec::new() } else { vec![("policy", policy)] };
    runtime.run(Server::start(Options { flags, files, ..Options::default() }))
}

/// Sends requests. Returns the server's processor time in microseconds and the bytes of the log, both for
/// each request.
fn measure(runtime: &Runtime, server: &Server, requests: &[Vec<u8>], status: u16) -> [String; 2] {
    let log = || std::fs::metadata(server.data_dir().join("audit.log")).map_or(0, |log| log.len());
    let mut connections = runtime.run(load::connect(server.client(), CONNECTIONS));
    let (before, written) = (cpu_time(server.pid()), log());
    runtime.run(load::run(&mut connections, requests, status));
    // Queued events are part of the cost, so wait until they are written.
    std::thread::sleep(scale(std::time::Duration::from_secs(2), std::time::Duration::from_millis(100)));
    let busy = cpu_time(server.pid()).saturating_sub(before);
    let count = requests.len() as f64;
    [
        format!("{:.1} µs", busy.as_secs_f64() * 1e6 / count),
        format!("{:.0} B", (log() - written) as f64 / count),
    ]
}

fn main() {
    let runtime = Runtime::new();
    let count = scale(20_000, 50);
    let rounds = scale(2, 1);
    row("level, mode of the log", &["create", "log", "get", "log"]);
    for _ in 0..rounds {
        for (level, mode) in [
            ("off", "-"),
            ("None", "blocking"),
            ("Metadata", "blocking"),
            ("Metadata", "batch"),
            ("Request", "blocking"),
            ("Request", "batch"),
            ("RequestResponse", "blocking"),
            ("RequestResponse", "batch"),
        ] {
            let server = start(&runtime, level, mode);
            let created = measure(&runtime, &server, &pod_creates("web", count), 201);
            let gets: Vec<Vec<u8>> =
                (0..count).map(|at| load::request("GET", &format!("{PODS}/web-{at:06}"), "")).collect();
            let read = measure(&runtime, &server, &gets, 200);
            let cells: Vec<&str> = created.iter().chain(&read).map(String::as_str).collect();
            row(&format!("{level}, {mode}"), &cells);
        }
    }
}
