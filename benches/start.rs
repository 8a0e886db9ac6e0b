//! Benchmark of start-up and idle memory. The benchmark measures the time from the start of the process until
//! /readyz first responds with 200, and then the memory of the idle process. The data directory is empty,
//! used by an earlier start, or filled with 10 000 pods or with a million ConfigMaps. The baseline is a run
//! of the same binary with `--version`.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use benches::process::{Memory, memory};
use benches::{Runtime, cluster, report, scale};
use tests::client::Identity;
use tests::server::{TempDir, binary};
use tests::{Client, Server};

/// Interval between readiness requests. The interval is also the precision of the results.
const ASK_EVERY: Duration = Duration::from_micros(500);

/// Idle time before memory is read. During this time, the server frees the memory that only the start needed.
const SETTLE: Duration = Duration::from_secs(5);

fn main() {
    let runtime = Runtime::new();
    let rounds = scale(7, 1);
    binary();
    line("start", "ready", "VmRSS", "RssAnon");

    let mut first = Vec::new();
    for _ in 0..rounds {
        let directory = TempDir::new();
        first.push(start(&runtime, directory.path()));
    }
    row("empty directory", &first);

    let directory = TempDir::new();
    start(&runtime, directory.path());
    let again: Vec<_> = (0..rounds).map(|_| start(&runtime, directory.path())).collect();
    row("used directory", &again);

    let pods = scale(10_000, 100);
    filled(&runtime, rounds, &format!("{pods} pods"), |server| cluster::fill_pods(&runtime, server, pods));
    let maps = scale(1_000_000, 100);
    filled(&runtime, rounds, &format!("{maps} config maps"), |server| {
        cluster::fill_config_maps(&runtime, server, maps);
    });

    let nothing = (0..rounds).map(|_| {
        let start = Instant::now();
        let ended = Command::new(binary()).arg("--version").stdout(Stdio::null()).status();
        assert!(ended.expect("the server binary runs").success());
        start.elapsed()
    });
    let nothing = nothing.min().unwrap_or_default();
    line("  limit: --version", &format!("{nothing:.1?}"), "", "");
}

/// Measures starts of a server on a store that `fill` has filled.
fn filled(runtime: &Runtime, rounds: usize, what: &str, fill: impl FnOnce(&Server)) {
    let mut server = cluster::start(runtime);
    fill(&server);
    let made = memory(server.pid());
    server.terminate();
    let starts: Vec<_> = (0..rounds).map(|_| start(runtime, server.data_dir())).collect();
    row(what, &starts);
    line("  right after making them", "", &report::mib(made.resident), &report::mib(made.anonymous));
}

/// Measures one start. Returns the time until the server is ready, and the memory of the idle server.
fn start(runtime: &Runtime, directory: &Path) -> (Duration, Memory) {
    let kubeconfig = directory.join("admin.kubeconfig");
    let _ = std::fs::remove_file(&kubeconfig);
    let start = Instant::now();
    let child = Command::new(binary())
        .arg(format!("--data-dir={}", directory.display()))
        .args(["--naming=kubernetes", "--secure-port=free"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let child = Kill(child.expect("the server binary runs"));
    let ready = runtime.run(async {
        loop {
            if let Some(client) = Identity::from_kubeconfig(&kubeconfig).map(Client::new) {
                while client.try_get("/readyz").await.is_none_or(|reply| reply.status != 200) {
                    tokio::time::sleep(ASK_EVERY).await;
                }
                return start.elapsed();
            }
            assert!(start.elapsed() < Duration::from_secs(30), "the server did not become ready");
            tokio::time::sleep(ASK_EVERY).await;
        }
    });
    std::thread::sleep(scale(SETTLE, Duration::ZERO));
    let memory = memory(child.0.id());
    (ready, memory)
}

/// Kills the process when dropped.
struct Kill(Child);

impl Drop for Kill {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Prints the median start time and the largest memory.
fn row(what: &str, starts: &[(Duration, Memory)]) {
    let time = report::median(starts.iter().map(|(time, _)| *time).collect());
    let resident = starts.iter().map(|(_, memory)| memory.resident).max().unwrap_or_default();
    let anonymous = starts.iter().map(|(_, memory)| memory.anonymous).max().unwrap_or_default();
    line(what, &report::time(time), &report::mib(resident), &report::mib(anonymous));
}

#[expect(clippy::print_stdout, reason = "a bench reports on stdout")]
fn line(what: &str, ready: &str, resident: &str, anonymous: &str) {
    println!("{what:30} {ready:>10} {resident:>12} {anonymous:>12}");
}
