//! The permission matrix in `tests/golden/permissions.txt` lists the verbs that each kind of user may use on each
//! resource. The resources come from discovery, and the roles are the roles that every server has
//! (docs/api/authorization.md#rbac).
//!
//! The test takes the rows from discovery, so it fails for a new route that the page does not have yet.
//! `UPDATE_GOLDEN=1` writes the page again, and a reviewer reads the change. Letters: g get, l list, w watch, c create,
//! u update, p patch, d delete, D deletecollection; `-` means no permission.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use tests::{Client, Options, Server};

/// Verbs and their letters.
const VERBS: [(&str, char); 8] = [
    ("get", 'g'),
    ("list", 'l'),
    ("watch", 'w'),
    ("create", 'c'),
    ("update", 'u'),
    ("patch", 'p'),
    ("delete", 'd'),
    ("deletecollection", 'D'),
];

/// A kind of user: its column, name, groups, and the namespace of its requests.
type Kind = (&'static str, &'static str, &'static [&'static str], &'static str);

const KINDS: [Kind; 10] = [
    ("anonymous", "system:anonymous", &["system:unauthenticated"], "team"),
    ("user", "joe", &["system:authenticated"], "team"),
    ("viewer", "viewer", &["system:authenticated"], "team"),
    ("editor", "editor", &["system:authenticated"], "team"),
    ("admin", "admin", &["system:authenticated"], "team"),
    ("elsewhere", "admin", &["system:authenticated"], "other"),
    ("reader", "reader", &["system:authenticated"], "team"),
    (
        "account",
        "system:serviceaccount:team:default",
        &["system:serviceaccounts", "system:serviceaccounts:team", "system:authenticated"],
        "team",
    ),
    ("node", "system:node:n1", &["system:nodes", "system:authenticated"], "team"),
    ("masters", "root", &["system:masters", "system:authenticated"], "team"),
];

/// Paths outside the resource API.
const PATHS: [&str; 12] = [
    "/",
    "/api",
    "/apis",
    "/version",
    "/healthz",
    "/livez",
    "/readyz",
    "/metrics",
    "/openapi/v2",
    "/openapi/v3",
    "/.well-known/openid-configuration",
    "/backup",
];

struct Route {
    group: String,
    resource: String,
    is_namespaced: bool,
    verbs: Vec<String>,
}

/// Returns all routes in discovery, in order.
async fn routes(client: &Client) -> Vec<Route> {
    let mut versions = vec![(String::new(), "/api/v1".to_owned())];
    let groups = client.get("/apis").await.json();
    for group in groups["groups"].as_array().unwrap() {
        let version = group["preferredVersion"]["groupVersion"].as_str().unwrap();
        versions.push((group["name"].as_str().unwrap().to_owned(), format!("/apis/{version}")));
    }
    let mut routes = Vec::new();
    for (group, path) in versions {
        let list = client.get(&path).await.json();
        for resource in list["resources"].as_array().unwrap_or_else(|| panic!("{path}: {list}")) {
            let verbs = resource["verbs"].as_array().unwrap().iter();
            routes.push(Route {
                group: group.clone(),
                resource: resource["name"].as_str().unwrap().to_owned(),
                is_namespaced: resource["namespaced"] == true,
                verbs: verbs.map(|verb| verb.as_str().unwrap().to_owned()).collect(),
            });
        }
    }
    routes.sort_by(|a, b| (&a.group, &a.resource).cmp(&(&b.group, &b.resource)));
    routes
}

async fn may(client: &Client, kind: &Kind, attributes: (&str, Value)) -> bool {
    let (_, user, groups, _) = kind;
    let mut review = json!({"spec": {"user": user, "groups": groups}});
    review["spec"][attributes.0] = attributes.1;
    let reply = client.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", &review).await;
    assert_eq!(reply.status, 201, "{}", reply.text());
    reply.json()["status"]["allowed"] == true
}

async fn row(client: &Client, route: &Route) -> String {
    let (resource, subresource) = route.resource.split_once('/').unwrap_or((&route.resource, ""));
    let full = [&*route.group, &*route.resource].join("/");
    let full = full.strip_prefix('/').unwrap_or(&full);
    let scope = if route.is_namespaced { "namespace" } else { "cluster" };
    let mut line = format!("{full:74} {scope:10}");
    for kind in &KINDS {
        let mut letters = String::new();
        for (verb, letter) in VERBS.iter().filter(|(verb, _)| route.verbs.iter().any(|served| served == verb))
        {
            let namespace = if route.is_namespaced { kind.3 } else { "" };
            let attributes = json!({"group": route.group, "resource": resource, "subresource": subresource, "verb": verb,
                               "namespace": namespace, "name": "x"});
            if may(client, kind, ("resourceAttributes", attributes)).await {
                letters.push(*letter);
            }
        }
        line.push_str(&format!(" {:10}", if letters.is_empty() { "-" } else { &letters }));
    }
    line.trim_end().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_kind_of_user_has_the_documented_permissions() {
    let options = Options { flags: vec!["--authorization-mode=Node,RBAC".to_owned()], ..Options::default() };
    let server = Arc::new(Server::start(options).await);
    let client = server.client();
    for namespace in ["team", "other"] {
        client.post("/api/v1/namespaces", &json!({"metadata": {"name": namespace}})).await;
    }
    let bindings = "/apis/rbac.authorization.k8s.io/v1/namespaces/team/rolebindings";
    for (user, role) in [("viewer", "view"), ("editor", "edit"), ("admin", "admin")] {
        let binding = json!({"metadata": {"name": user}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind":
            "ClusterRole", "name": role}, "subjects": [{"kind": "User", "name": user}]});
        assert_eq!(client.post(bindings, &binding).await.status, 201);
    }
    let binding = json!({"metadata": {"name": "reader"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind":
        "ClusterRole", "name": "view"}, "subjects": [{"kind": "User", "name": "reader"}]});
    let path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    assert_eq!(client.post(path, &binding).await.status, 201);
    // Wait until the controller has written the rules of the aggregated roles.
    let view = "/apis/rbac.authorization.k8s.io/v1/clusterroles/admin";
    client
        .until(view, |role| role.is_some_and(|role| !role["rules"].as_array().is_none_or(Vec::is_empty)))
        .await;

    let routes = Arc::new(routes(client).await);
    let mut page = format!("{:74} {:10}", "resource", "scope");
    KINDS.iter().for_each(|(column, ..)| page.push_str(&format!(" {column:10}")));
    let mut lines = vec![page.trim_end().to_owned()];
    // Several connections share the requests.
    let mut tasks = Vec::new();
    for start in 0..4 {
        let (routes, client) = (routes.clone(), client.another());
        tasks.push(tokio::spawn(async move {
            let mut rows = Vec::new();
            for (at, route) in routes.iter().enumerate().skip(start).step_by(4) {
                rows.push((at, row(&client, route).await));
            }
            rows
        }));
    }
    let mut rows = Vec::new();
    for task in tasks {
        rows.extend(task.await.unwrap());
    }
    rows.sort();
    lines.extend(rows.into_iter().map(|(_, row)| row));
    for path in PATHS {
        let mut line = format!("{path:74} {:10}", "path");
        for kind in &KINDS {
            let allowed =
                may(client, kind, ("nonResourceAttributes", json!({"path": path, "verb": "get"}))).await;
            line.push_str(&format!(" {:10}", if allowed { "g" } else { "-" }));
        }
        lines.push(line.trim_end().to_owned());
    }
    let got = lines.join("\n") + "\n";
    let golden = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/golden/permissions.txt"));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(golden, &got).unwrap();
    }
    let want = std::fs::read_to_string(golden).unwrap_or_default();
    let odd = |here: &str, there: &str| -> Vec<String> {
        here.lines().filter(|line| !there.lines().any(|other| other == *line)).map(str::to_owned).collect()
    };
    let (new, gone) = (odd(&got, &want), odd(&want, &got));
    assert!(got == want, "new or other:\n{}\ngone or other:\n{}", new.join("\n"), gone.join("\n"));
}

/// Sends many requests to all discovered resources, as a user without permissions and as a user who may do
/// everything but is subject to flow control, unlike the members of `system:masters`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_of_any_user_makes_the_server_panic() {
    let server = Server::start(Options::default()).await;
    let client = server.client();
    let binding = json!({"metadata": {"name": "all"}, "subjects": [{"kind": "User", "name": "all"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}});
    let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    assert_eq!(client.post(bindings, &binding).await.status, 201);
    let anonymous = client.anonymous();
    let as_all = [("Impersonate-User", "all")];
    for route in routes(client).await {
        let versions = client.get(&format!("/apis/{}", route.group)).await.json();
        let base = match versions["preferredVersion"]["groupVersion"].as_str() {
            Some(version) if !route.group.is_empty() => format!("/apis/{version}"),
            _ => "/api/v1".to_owned(),
        };
        let (resource, sub) = route.resource.split_once('/').unwrap_or((&route.resource, ""));
        let mut collections = vec![format!("{base}/{resource}")];
        if route.is_namespaced {
            collections.push(format!("{base}/namespaces/default/{resource}"));
        }
        let mut requests = Vec::new();
        for collection in collections {
            let item = format!("{collection}/x");
            if sub.is_empty() {
                for query in
                    ["", "?watch=1&sendInitialEvents=true&resourceVersion=x", "?limit=1&labelSelector=a"]
                {
                    requests.push(("GET", format!("{collection}{query}")));
                }
                requests.push(("HEAD", collection.clone()));
                requests.push(("POST", format!("{collection}?dryRun=All")));
                requests.push(("DELETE", format!("{collection}?dryRun=All&labelSelector=a")));
            }
            let item = if sub.is_empty() { item } else { format!("{item}/{sub}") };
            for method in ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"] {
                requests.push((method, format!("{item}?dryRun=All")));
            }
        }
        for (method, path) in requests {
            let json = [("Content-Type", "application/json"), as_all[0]];
            for (who, client, headers) in [("anonymous", &anonymous, &json[..1]), ("all", client, &json[..])]
            {
                let reply = client.send(method, &path, headers, b"{}").await;
                let text = reply.text();
                assert!(!text.contains("caused apiserver to panic"), "{who}: {method} {path}: {text}");
            }
        }
    }
}
