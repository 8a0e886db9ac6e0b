//! Connections to nodes that cannot be reached (docs/api/nodes.md#names-and-addresses).

use serde_json::json;
use tests::Server;
use tests::server::Options;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_for_a_node_agent_without_an_agent_fail_as_if_the_node_were_unreachable() {
    let flags = vec!["--token-auth-file=$dir/tokens.csv".to_owned()];
    let files = vec![("tokens.csv", "viewer-token,viewer,1\n".to_owned())];
    let server = Server::start(Options { flags, files, ..Options::default() }).await;
    let client = server.client();
    let pods = "/api/v1/namespaces/default/pods";
    for (name, node, containers) in
        [("new", "", 1), ("lost", "nowhere", 1), ("bare", "bare", 1), ("two", "", 2), ("run", "known", 1)]
    {
        let containers: Vec<_> =
            (0..containers).map(|n| json!({"name": format!("c{n}"), "image": "i"})).collect();
        let pod = json!({"metadata": {"name": name}, "spec": {"nodeName": node, "containers": containers}});
        let made = client.post(pods, &pod).await;
        assert_eq!(made.status, 201, "{}", made.text());
    }
    for (name, addresses) in
        [("bare", json!([])), ("known", json!([{"type": "InternalIP", "address": "127.0.0.1"}]))]
    {
        // No process listens on the port of this agent.
        let node = json!({"metadata": {"name": name}, "status": {"addresses": addresses,
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 1}}}});
        assert_eq!(client.post("/api/v1/nodes", &node).await.status, 201);
    }
    let lonely = json!({"metadata": {"name": "lonely"}, "spec": {"ports": [{"port": 80}]}});
    assert_eq!(client.post("/api/v1/namespaces/default/services", &lonely).await.status, 201);
    let get = "Get \"https://127.0.0.1:1/containerLogs/default/run/c0\": dial tcp 127.0.0.1:1: connect: connection refused";
    let dial = "error dialing backend: dial tcp 127.0.0.1:1: connect: connection refused";
    let required = "Upgrade request required";
    for (method, path, status, want) in [
        ("GET", "pods/new/log", 204, ""),
        ("GET", "pods/absent/log", 404, "pods \"absent\" not found"),
        ("GET", "pods/new/log?container=x", 400, "container x is not valid for pod new"),
        (
            "GET",
            "pods/two/log",
            400,
            "a container name must be specified for pod two, choose one of: [c0 c1]",
        ),
        ("GET", "pods/two/log?container=c1", 204, ""),
        ("GET", "pods/lost/log", 404, "pods \"lost\" not found"),
        ("POST", "pods/lost/exec?command=true", 404, "pods \"lost\" not found"),
        ("GET", "pods/bare/log", 500, "no preferred addresses found; known addresses: []"),
        ("GET", "pods/run/log", 500, get),
        ("POST", "pods/new/exec?command=true", 400, "pod new does not have a host assigned"),
        ("POST", "pods/run/exec?command=true", 400, required),
        ("GET", "pods/run/attach", 400, required),
        ("POST", "pods/run/portforward", 400, required),
        ("GET", "pods/new/proxy", 400, "address not allowed"),
        ("GET", "services/kubernetes/proxy", 503, "no endpoints available for service \"kubernetes\""),
        ("GET", "services/lonely/proxy", 404, "services \"lonely\" not found"),
    ] {
        let reply = client.send(method, &format!("/api/v1/namespaces/default/{path}"), &[], b"").await;
        assert_eq!(reply.status, status, "{path}: {}", reply.text());
        let said = if reply.body.is_empty() {
            String::new()
        } else {
            reply.json()["message"].as_str().unwrap().to_owned()
        };
        assert_eq!(said, want, "{path}");
    }
    let proxied = client.get("/api/v1/nodes/known/proxy/").await.json()["message"].clone();
    assert_eq!(proxied, "error trying to reach service: dial tcp 127.0.0.1:1: connect: connection refused");
    let upgrade = [("connection", "upgrade"), ("upgrade", "SPDY/3.1")];
    for path in ["pods/run/exec?command=true", "pods/run/attach", "pods/run/portforward"] {
        let reply = client.send("POST", &format!("/api/v1/namespaces/default/{path}"), &upgrade, b"").await;
        assert_eq!((reply.status, &reply.json()["message"]), (500, &dial.into()), "{path}");
    }
    // A GET that opens a shell requires the permission to create.
    let roles = "/apis/rbac.authorization.k8s.io/v1";
    let role = json!({"metadata": {"name": "viewer"}, "rules": [
        {"apiGroups": [""], "resources": ["pods/exec", "pods/log"], "verbs": ["get"]}]});
    assert_eq!(client.post(&format!("{roles}/clusterroles"), &role).await.status, 201);
    let binding = json!({"metadata": {"name": "viewer"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "viewer"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "viewer"}]});
    assert_eq!(client.post(&format!("{roles}/clusterrolebindings"), &binding).await.status, 201);
    let viewer = client.with_token("viewer-token");
    assert_eq!(viewer.get(&format!("{pods}/new/log")).await.status, 204);
    assert_eq!(viewer.get(&format!("{pods}/run/exec?command=true")).await.status, 403);
}
