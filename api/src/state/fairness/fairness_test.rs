//! Tests of docs/api/fairness.md.

use std::time::Instant;

use auth::User;
use serde_json::json;

use super::demand::{Demand, Observed};
use super::retry_after::RetryAfter;
use super::*;
use values::json::parse;
use values::query::Query;

fn object(value: &serde_json::Value) -> Value {
    parse(value.to_string().as_bytes()).unwrap()
}

fn schema(name: &str, precedence: i64, level: &str, rules: serde_json::Value) -> Value {
    object(&json!({
        "metadata": {"name": name, "uid": format!("uid-of-{name}")},
        "spec": {
            "matchingPrecedence": precedence,
            "priorityLevelConfiguration": {"name": level},
            "distinguisherMethod": {"type": "ByUser"},
            "rules": rules,
        },
    }))
}

fn level(name: &str, shares: i64, lendable: i64) -> Value {
    object(&json!({
        "metadata": {"name": name, "uid": format!("uid-of-{name}")},
        "spec": {"type": "Limited", "limited": {
            "nominalConcurrencyShares": shares,
            "lendablePercent": lendable,
            "limitResponse": {"type": "Reject"},
        }},
    }))
}

fn everything_of(subject: serde_json::Value) -> serde_json::Value {
    json!([{
        "subjects": [subject],
        "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": true}],
        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
    }])
}

fn list<'r>(user: &'r User, namespace: &'r str, resource: &'r str, subresource: &'r str) -> Attributes<'r> {
    Attributes {
        resource_request: true,
        version: "v1",
        namespace,
        resource,
        subresource,
        ..Attributes::path(user, "list", "/")
    }
}

async fn schema_of(fairness: &Fairness, attributes: &Attributes<'_>) -> Option<String> {
    let turn = fairness.turn(attributes, Duration::from_secs(1), || Work::Other).await;
    turn.ids.map(|ids| ids.schema.to_str().unwrap().trim_start_matches("uid-of-").to_owned())
}

#[tokio::test]
async fn the_first_matching_flow_schema_classifies_a_request() {
    let group = |name: &str| json!({"kind": "Group", "group": {"name": name}});
    let user = |name: &str| json!({"kind": "User", "user": {"name": name}});
    let account =
        |name: &str| json!({"kind": "ServiceAccount", "serviceAccount": {"namespace": "n", "name": name}});
    let rule = |subject, resources: &[&str], namespaces: &[&str], cluster| {
        json!([{"subjects": [subject], "resourceRules": [{
            "verbs": ["get", "list"], "apiGroups": [""], "resources": resources, "namespaces": namespaces,
            "clusterScope": cluster,
        }]}])
    };
    let paths = json!([{
        "subjects": [user("*")],
        "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/a/*", "/b"]}],
    }]);
    let fairness = Fairness::new(Settings::default());
    fairness.configure(
        &[
            schema("lost", 1, "no such level", everything_of(user("*"))),
            schema("last", 100, "l", everything_of(group("*"))),
            schema("pods", 5, "l", rule(user("u"), &["pods"], &["n"], false)),
            schema("status", 5, "l", rule(user("u"), &["pods/status"], &["*"], true)),
            schema("nodes", 5, "l", rule(user("u"), &["nodes"], &[], true)),
            schema("accounts", 4, "l", everything_of(account("*"))),
            schema("account", 3, "l", everything_of(account("a"))),
            schema("paths", 6, "l", paths),
        ],
        &[level("l", 10, 0)],
    );
    let [u, other] = ["u", "v"].map(|name| User::new(name, ["g"]));
    let [a, b, elsewhere] = ["n:a", "n:b", "m:a"]
        .map(|name| User::new(format!("system:serviceaccount:{name}"), ["system:serviceaccounts"]));
    let nobody = User::new("nobody", [""; 0]);
    let cases = [
        (list(&u, "n", "pods", ""), Some("pods")),
        (list(&u, "m", "pods", ""), Some("last")),
        (list(&u, "", "pods", ""), Some("last")),
        (list(&u, "n", "pods", "status"), Some("status")),
        (list(&u, "", "pods", "status"), Some("status")),
        (list(&u, "n", "pods", "log"), Some("last")),
        (list(&u, "", "nodes", ""), Some("nodes")),
        (Attributes { verb: "delete", ..list(&u, "", "nodes", "") }, Some("last")),
        (Attributes { group: "x", ..list(&u, "", "nodes", "") }, Some("last")),
        (list(&other, "n", "pods", ""), Some("last")),
        (list(&a, "n", "pods", ""), Some("account")),
        (list(&b, "n", "pods", ""), Some("accounts")),
        (list(&elsewhere, "n", "pods", ""), Some("last")),
        (list(&nobody, "n", "secrets", ""), Some("last")),
        (Attributes::path(&u, "get", "/a/b"), Some("paths")),
        (Attributes::path(&u, "get", "/a"), Some("last")),
        (Attributes::path(&u, "get", "/ab"), Some("last")),
        (Attributes::path(&u, "get", "/b"), Some("paths")),
        (Attributes::path(&u, "get", "/b/c"), Some("paths")),
        (Attributes::path(&u, "post", "/b"), Some("last")),
    ];
    for (attributes, want) in cases {
        let found = schema_of(&fairness, &attributes).await;
        assert_eq!(found.as_deref(), want, "{attributes:?}");
    }
}

#[tokio::test]
async fn a_priority_level_keeps_its_requests_when_its_object_changes() {
    let user = User::new("u", ["g"]);
    let attributes = list(&user, "n", "pods", "");
    let fairness = Fairness::new(Settings { is_shared: true, reading: 1, writing: 0 });
    let schemas = [schema("s", 1, "l", everything_of(json!({"kind": "User", "user": {"name": "u"}})))];
    fairness.configure(&schemas, &[level("l", 10, 0)]);
    let turn =
        |fairness: &'static Fairness| fairness.turn(&attributes, Duration::from_secs(1), || Work::Other);
    let fairness: &'static Fairness = Box::leak(Box::new(fairness));
    let held = turn(fairness).await;
    assert!(held.permit.is_ok());
    assert_eq!(turn(fairness).await.permit.unwrap_err(), 1);
    fairness.configure(&schemas, &[level("l", 20, 0)]);
    assert_eq!(turn(fairness).await.permit.unwrap_err(), 1);
    drop(held);
    assert!(turn(fairness).await.permit.is_ok());
}

#[tokio::test]
async fn limits_of_concurrent_requests_apply_to_all_users_except_administrators() {
    let fairness = Fairness::new(Settings { is_shared: false, reading: 1, writing: 1 });
    let (user, admin) = (User::new("u", ["g"]), User::new("a", [identity::MASTERS]));
    let (ours, theirs) = (list(&user, "n", "pods", ""), list(&admin, "n", "pods", ""));
    let long = Duration::from_secs(1);
    let held = fairness.turn(&ours, long, || Work::Other).await;
    assert_eq!(fairness.turn(&ours, long, || Work::List(5)).await.permit.unwrap_err(), 1);
    assert!(fairness.turn(&theirs, long, || Work::Other).await.permit.is_ok());
    let writes = fairness.turn(&ours, long, || Work::Write).await;
    assert!(writes.permit.is_ok());
    drop(held);
    assert!(fairness.turn(&ours, long, || Work::Other).await.permit.is_ok());
}

#[test]
fn a_list_takes_seats_in_proportion_to_its_bytes() {
    let cases = [(0, 1), (100_000, 1), (100_001, 2), (1_000_000, 10), (u64::MAX, 20)];
    for (bytes, seats) in cases {
        assert_eq!(Work::List(bytes).seats(20), seats, "{bytes}");
    }
    assert_eq!(Work::List(u64::MAX).seats(1_000), 100);
    assert_eq!(Work::Write.seats(20), 1);
}

#[test]
fn seats_are_divided_among_levels_by_demand_within_their_bounds() {
    let entitled = |nominal, least, most| Entitlement { nominal, least, most };
    type Case<'c> = (f64, &'c [(Entitlement, f64, f64)], &'c [u32]);
    let cases: &[Case<'_>] = &[
        // No level demands seats: the seats are divided in proportion to the minimum of each level.
        (
            100.0,
            &[(entitled(50.0, 50.0, 100.0), 0.0, 0.0), (entitled(50.0, 50.0, 100.0), 0.0, 0.0)],
            &[50, 50],
        ),
        // The first level demands all seats, and the other level lends half of its seats.
        (
            100.0,
            &[(entitled(50.0, 50.0, 100.0), 500.0, 500.0), (entitled(50.0, 25.0, 100.0), 0.0, 0.0)],
            &[75, 25],
        ),
        // The first level may borrow at most 10.
        (
            100.0,
            &[(entitled(50.0, 50.0, 60.0), 500.0, 500.0), (entitled(50.0, 25.0, 100.0), 0.0, 0.0)],
            &[60, 40],
        ),
        // Both levels demand all seats.
        (
            100.0,
            &[(entitled(80.0, 40.0, 100.0), 500.0, 500.0), (entitled(20.0, 10.0, 100.0), 500.0, 500.0)],
            &[80, 20],
        ),
        // The minimums exceed the total.
        (10.0, &[(entitled(8.0, 8.0, 8.0), 9.0, 9.0), (entitled(8.0, 8.0, 8.0), 9.0, 9.0)], &[8, 8]),
        (0.0, &[], &[]),
    ];
    for (total, levels, want) in cases {
        assert_eq!(demand::divide(*total, levels), *want, "{total} {levels:?}");
    }
}

#[test]
fn seat_demand_is_measured_over_time_and_decreases_slowly() {
    let begin = Instant::now();
    let at = |seconds| begin + Duration::from_secs(seconds);
    let mut demand = Demand::new(begin);
    demand.set(10, at(5));
    let observed = demand.take(at(10));
    assert_eq!(observed, Observed { average: 5.0, deviation: 5.0, highest: 10.0 });
    assert_eq!(demand.take(at(20)), Observed { average: 10.0, deviation: 0.0, highest: 10.0 });
    demand.set(0, at(20));
    assert_eq!(demand.take(at(30)), Observed { average: 0.0, deviation: 0.0, highest: 10.0 });

    let smoothed = demand::smooth(0.0, &observed);
    assert_eq!(smoothed, 10.0);
    let later = demand::smooth(smoothed, &Observed::default());
    assert!((later - 9.77).abs() < 1e-9, "{later}");
}

#[test]
fn retry_after_grows_with_the_number_of_refused_requests() {
    let begin = Instant::now();
    let at = |seconds| begin + Duration::from_secs(seconds);
    let mut retry = RetryAfter::new(begin);
    let many = |retry: &mut RetryAfter, time| (0..200).map(|_| retry.dropped(time)).last().unwrap();
    let mut time = 0;
    let mut seen = Vec::new();
    for _ in 0..8 {
        let wait = many(&mut retry, at(time));
        seen.push(wait);
        time += u64::from(wait);
    }
    assert_eq!(seen, [1, 2, 4, 8, 16, 32, 32, 32]);
    assert_eq!(retry.dropped(at(time)), 32);
    time += 32;
    assert_eq!(retry.dropped(at(time)), 31);
}

#[tokio::test]
async fn flow_control_tables_list_levels_queues_and_waiting_requests() {
    let fairness = Fairness::new(Settings { is_shared: true, reading: 1, writing: 0 });
    let subject = json!({"kind": "User", "user": {"name": "*"}});
    let level = object(&json!({
        "metadata": {"name": "l", "uid": "1"},
        "spec": {"type": "Limited", "limited": {
            "nominalConcurrencyShares": 1,
            "limitResponse": {"type": "Queue", "queuing": {"queues": 1, "handSize": 1, "queueLengthLimit": 5}},
        }},
    }));
    fairness.configure(&[schema("s", 1, "l", everything_of(subject))], &[level]);
    let fairness: &'static Fairness = Box::leak(Box::new(fairness));
    let user: &'static User = Box::leak(Box::new(User::new("u", ["g"])));
    let turn = || {
        fairness
            .turn(Box::leak(Box::new(list(user, "n", "pods", ""))), Duration::from_secs(60), || Work::Other)
    };
    let _held = turn().await;
    let waiting = tokio::spawn(turn());
    while fairness.plan.load().levels["l"].level.report().waiting == 0 {
        tokio::task::yield_now().await;
    }
    let lines = async |table: &str| {
        let (path, query) = table.split_once('?').unwrap_or((table, ""));
        let path = format!("/debug/api_priority_and_fairness/{path}");
        let response = respond(fairness, &path, &Query::parse(query)).unwrap();
        let bytes = http_body_util::BodyExt::collect(response.into_body()).await.unwrap().to_bytes();
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        let squeezed = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        text.lines().map(squeezed).collect::<Vec<_>>()
    };
    assert_eq!(lines("dump_priority_levels").await[1], "l, 1, false, false, 1, 1, 1, 0, 0, 0");
    assert!(lines("dump_queues").await[1].starts_with("l, 0, 1, 1, 1, "));
    let requests = lines("dump_requests").await;
    assert!(
        requests[1].starts_with("l, s, 0, 0, u, ")
            && requests[1].ends_with(", 1, 0, 0s, 0001-01-01T00:00:00Z")
    );
    assert!(requests[2].starts_with("l, s, 0, -1, u, ") && requests[2].ends_with('Z'), "{requests:?}");
    assert_eq!(requests.len(), 3);
    let requests = lines("dump_requests?includeRequestDetails=1").await;
    assert!(requests[0].ends_with(", APIVersion, Resource, SubResource"), "{requests:?}");
    for row in &requests[1..] {
        assert!(row.ends_with("Z, u, list, /, n, , v1, pods,"), "{row}");
    }
    let none = Query::parse("");
    assert!(respond(fairness, "/debug/api_priority_and_fairness/", &none).is_none());
    let unshared = Fairness::new(Settings { is_shared: false, ..Settings::default() });
    assert!(respond(&unshared, "/x", &none).is_none());
    waiting.abort();
}
