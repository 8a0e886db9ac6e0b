//! A computation ends with its request: at the deadline, and when the client disconnects. Meanwhile the
//! server serves other requests.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tests::{Options, Server};

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Returns a policy whose evaluation takes minutes on a config map with some thousand keys, although its
/// estimated cost is low: the estimate does not charge nested lists, and the expression creates a million of
/// them.
fn policy() -> [Value; 2] {
    let mut variables = vec![json!({"name": "v0", "expression": format!("[{}]", vec!["[]"; 64].join(","))})];
    for at in 0..14 {
        let sum = format!("variables.v{at} + variables.v{at}");
        variables.push(json!({"name": format!("v{}", at + 1), "expression": sum}));
    }
    let policy = json!({"metadata": {"name": "slow"}, "spec": {
        "matchConstraints": {"resourceRules": [
            {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}]},
        "matchConditions": [{"name": "slow", "expression": "object.metadata.name.startsWith('slow')"}],
        "variables": variables,
        // The failure policy ignores errors, but an interruption still refuses the request.
        "failurePolicy": "Ignore",
        "validations": [{"expression": "object.data.all(k, variables.v14.indexOf([1]) < 0)"}],
    }});
    let binding =
        json!({"metadata": {"name": "slow"}, "spec": {"policyName": "slow", "validationActions": ["Deny"]}});
    [policy, binding]
}

fn config_map(name: &str, keys: usize) -> Value {
    let data: serde_json::Map<String, Value> = (0..keys).map(|at| (format!("k{at}"), json!("v"))).collect();
    json!({"metadata": {"name": name}, "data": data})
}

/// Returns the processor time that the server has used.
fn processor_time(server: &Server) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", server.pid())).unwrap();
    let (_, rest) = stat.rsplit_once(')').unwrap();
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    Duration::from_millis(ticks * 10)
}

/// Waits until the server no longer computes; unrelated work may delay this at first.
async fn is_idle_soon(server: &Server) -> bool {
    for _ in 0..60 {
        let before = processor_time(server);
        tokio::time::sleep(Duration::from_secs(1)).await;
        if processor_time(server) - before < Duration::from_millis(400) {
            return true;
        }
    }
    false
}

#[tokio::test]
async fn a_computation_ends_with_its_request_and_blocks_no_other() {
    let flags = vec!["--disable-admission-plugins=ServiceAccount".to_owned()];
    let server = Server::start(Options { flags, ..Options::default() }).await;
    for (plural, object) in
        ["validatingadmissionpolicies", "validatingadmissionpolicybindings"].iter().zip(policy())
    {
        let made = server.client().post(&format!("{GROUP}/{plural}"), &object).await;
        assert_eq!(made.status, 201, "{}", made.text());
    }
    // Retry until the policy takes effect. The request then fails because of its deadline.
    let mut attempts = 0;
    loop {
        attempts += 1;
        let late = server
            .client()
            .post(&format!("{MAPS}?timeout=2s"), &config_map(&format!("slow-{attempts}"), 5000))
            .await;
        if late.status == 504 {
            let refusal = late.json();
            assert_eq!(
                (refusal["reason"].as_str(), refusal["code"].as_u64()),
                (Some("Timeout"), Some(504)),
                "{refusal}"
            );
            break;
        }
        assert!(late.status == 201 && attempts < 200, "{}", late.text());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(server.client().get(&format!("{MAPS}/slow-{attempts}")).await.status, 404);
    assert!(is_idle_soon(&server).await, "the computation goes on after the deadline");

    // Start more computations than the runtime has threads, from clients that do not wait for them.
    let threads = std::thread::available_parallelism().map_or(2, usize::from) + 2;
    let waiting: Vec<_> = (0..threads)
        .map(|at| {
            let client = server.client().another();
            tokio::spawn(async move {
                client
                    .post(&format!("{MAPS}?timeout=55s"), &config_map(&format!("slow-gone-{at}"), 5000))
                    .await
                    .status
            })
        })
        .collect();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let began = Instant::now();
    let small = server.client().another().post(MAPS, &config_map("quick", 1)).await;
    assert_eq!(small.status, 201, "{}", small.text());
    // Without cancellation, the threads would be busy until the deadline of the other requests.
    assert!(began.elapsed() < Duration::from_secs(40), "{:?}", began.elapsed());
    for request in waiting {
        assert!(!request.is_finished(), "the computation is too short");
        request.abort();
    }
    assert!(is_idle_soon(&server).await, "computations go on after their clients are gone");
    for at in 0..threads {
        assert_eq!(server.client().get(&format!("{MAPS}/slow-gone-{at}")).await.status, 404);
    }
}
