//! Benchmark of requests for one object. The benchmark sends several concurrent requests over one HTTP/2
//! connection, as client-go and kube-rs do. For comparison, the benchmark uses the same number of HTTP/1.1
//! connections with one request at a time. The results are the rate, and the server's CPU time per request.
//! The server has half of the cores, and the client has the other half.

use std::time::{Duration, Instant};

use benches::cluster::{self, CONFIG_MAPS, config_map_creates};
use benches::http2::Streams;
use benches::process::Halves;
use benches::{Runtime, load, process, report, scale};
use tests::{Options, Server};

/// Numbers of concurrent requests.
const AT_ONCE: [u32; 3] = [1, 8, 64];

fn main() {
    let halves = Halves::divide();
    let runtime = Runtime::new();
    let server = halves.on_servers(|| runtime.run(Server::start(Options::default())));
    runtime.run(cluster::create(&server, &config_map_creates("read", 1)));
    let path = format!("{CONFIG_MAPS}/read-000000");
    report::row("GET of a config map", &["per second", "server CPU"]);
    for at_once in AT_ONCE {
        let count = scale(if at_once == 1 { 10_000 } else { 50_000 }, 100);
        for (protocol, is_http2) in [("HTTP/1.1", false), ("HTTP/2", true)] {
            let (mut rates, mut costs) = (Vec::new(), Vec::new());
            for _ in 0..scale(3, 1) {
                let before = process::cpu_time(server.pid());
                let took = if is_http2 {
                    runtime.run(multiplexed(&server, &path, at_once, count))
                } else {
                    runtime.run(separate(&server, &path, at_once, count))
                };
                let spent = process::cpu_time(server.pid()) - before;
                rates.push(f64::from(count) / took.as_secs_f64());
                costs.push(spent.as_secs_f64() * 1e6 / f64::from(count));
            }
            let (rate, cost) = (report::median(rates), report::median(costs));
            report::row(
                &format!("{at_once} at once, {protocol}"),
                &[&format!("{rate:.0}"), &format!("{cost:.1} µs")],
            );
        }
    }
}

/// Returns the time of `count` requests over one connection.
async fn multiplexed(server: &Server, path: &str, at_once: u32, count: u32) -> Duration {
    let mut connection = Streams::open(server.client()).await;
    let began = Instant::now();
    connection.get_in_turn(path, "application/json", at_once, count).await.expect("the server answers");
    began.elapsed()
}

/// Returns the time of `count` requests over `at_once` connections.
async fn separate(server: &Server, path: &str, at_once: u32, count: u32) -> Duration {
    let mut connections = load::connect(server.client(), at_once as usize).await;
    let requests = vec![load::get(path, &[]); count as usize];
    load::run(&mut connections, &requests, 200).await.elapsed
}
