//! Allocation of service IPs and ports, and the server's own service (docs/api/validation.md#services,
//! docs/api/operations.md#service-of-the-server).

use std::collections::HashSet;

use serde_json::{Value, json};
use tests::server::Options;
use tests::{Client, Server};

const SERVICES: &str = "/api/v1/namespaces/default/services";

fn small() -> Options {
    let flags = ["--service-cluster-ip-range=10.9.0.0/26", "--service-node-port-range=31000-31099"];
    Options { flags: flags.map(str::to_owned).to_vec(), ..Options::default() }
}

fn service(name: &str, spec: Value) -> Value {
    let mut spec = spec;
    if spec.get("ports").is_none() {
        spec["ports"] = json!([{"port": 80}]);
    }
    json!({"metadata": {"name": name}, "spec": spec})
}

async fn create_service(client: &Client, name: &str, spec: Value) -> Value {
    let reply = client.post(SERVICES, &service(name, spec)).await;
    assert_eq!(reply.status, 201, "{}", reply.text());
    reply.json()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn service_addresses_and_ports_are_allocated_and_released() {
    let mut server = Server::start(small()).await;
    let client = server.client().clone();
    let first = create_service(&client, "a", json!({"type": "NodePort"})).await;
    let address = first["spec"]["clusterIP"].as_str().unwrap().to_owned();
    let port = first["spec"]["ports"][0]["nodePort"].as_i64().unwrap();
    assert!(address.starts_with("10.9.0.") && (31000..31100).contains(&port), "{first}");
    assert_eq!(first["spec"]["clusterIPs"], json!([address]));
    assert_eq!(first["spec"]["ipFamilies"], json!(["IPv4"]));
    assert_eq!(first["spec"]["ipFamilyPolicy"], "SingleStack");
    let refused = |reply: tests::client::Reply, want: &str| {
        assert_eq!((reply.status, reply.json()["message"].as_str()), (422, Some(want)));
    };
    for (spec, want) in [
        (
            json!({"clusterIP": address}),
            format!("Service \"b\" is invalid: spec.clusterIPs: Invalid value: [\"{address}\"]: failed to allocate IP {address}: provided IP is already allocated"),
        ),
        (
            json!({"clusterIP": "10.8.0.1"}),
            "Service \"b\" is invalid: spec.clusterIPs: Invalid value: [\"10.8.0.1\"]: failed to allocate IP 10.8.0.1: the provided network does not match the current range".to_owned(),
        ),
        (
            json!({"type": "NodePort", "ports": [{"port": 1, "nodePort": port}]}),
            format!("Service \"b\" is invalid: spec.ports[0].nodePort: Invalid value: {port}: provided port is already allocated"),
        ),
        (
            json!({"type": "NodePort", "ports": [{"port": 1, "nodePort": 30999}]}),
            "Service \"b\" is invalid: spec.ports[0].nodePort: Invalid value: 30999: provided port is not in the valid range. The range of valid ports is 31000-31099".to_owned(),
        ),
    ] {
        refused(client.post(SERVICES, &service("b", spec)).await, &want);
    }
    // A dry run allocates values but does not keep them. A request that is refused later does not keep allocated
    // values either.
    let dry = client
        .post(&format!("{SERVICES}?dryRun=All"), &service("dry", json!({"clusterIP": "10.9.0.9"})))
        .await;
    assert_eq!(dry.status, 201, "{}", dry.text());
    let invalid = json!({"clusterIP": "10.9.0.9", "ports": [{"port": 0}]});
    assert_eq!(client.post(SERVICES, &service("bad", invalid)).await.status, 422);
    create_service(&client, "c", json!({"clusterIP": "10.9.0.9"})).await;

    // A PUT without the allocated values keeps them; a change to ExternalName releases all of them.
    let replaced = client.put(&format!("{SERVICES}/a"), &service("a", json!({"type": "NodePort"}))).await;
    assert_eq!(replaced.status, 200, "{}", replaced.text());
    assert_eq!(replaced.json()["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
    let name = json!({"spec": {"type": "ExternalName", "externalName": "example.com"}});
    let named = client.patch(&format!("{SERVICES}/c"), "merge", &name).await.json();
    assert_eq!(named["spec"].get("clusterIP"), None, "{named}");
    assert_eq!(named["spec"].get("ipFamilies"), None, "{named}");
    create_service(&client, "d", json!({"clusterIP": "10.9.0.9"})).await;

    // The values of a deleted service are free immediately, even if the process is killed after the deletion.
    for again in [false, true] {
        assert_eq!(client.delete(&format!("{SERVICES}/a")).await.status, 200);
        let spec =
            json!({"type": "NodePort", "clusterIP": address, "ports": [{"port": 1, "nodePort": port}]});
        create_service(&client, "a", spec).await;
        if again {
            server.kill();
            server.restart().await;
        }
    }
    let client = server.client();
    let taken = client.post(SERVICES, &service("e", json!({"clusterIP": address}))).await;
    assert_eq!(taken.status, 422, "{}", taken.text());
    client.delete(&format!("{SERVICES}/a")).await;
    create_service(client, "e", json!({"clusterIP": address})).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_concurrent_creates_get_sixty_four_addresses() {
    let server = Server::start(Options {
        flags: vec!["--service-cluster-ip-range=10.9.0.0/25".to_owned()],
        ..Options::default()
    })
    .await;
    let tasks = (0..64).map(|n| {
        let client = server.client().another();
        tokio::spawn(async move {
            let object = create_service(&client, &format!("s-{n}"), json!({"type": "NodePort"})).await;
            let address = object["spec"]["clusterIP"].as_str().unwrap().to_owned();
            (address, object["spec"]["ports"][0]["nodePort"].as_i64().unwrap())
        })
    });
    let (mut addresses, mut ports) = (HashSet::new(), HashSet::new());
    for task in tasks.collect::<Vec<_>>() {
        let (address, port) = task.await.unwrap();
        assert!(addresses.insert(address.clone()) && ports.insert(port), "{address} {port}");
    }
    assert!(!addresses.contains("10.9.0.1"), "the first address belongs to the server's own service");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_creates_and_restores_its_own_service() {
    let mut options = small();
    options.flags.push("--advertise-address=192.0.2.9".to_owned());
    let server = Server::start(options).await;
    let client = server.client();
    let port: i64 = client.identity().address.rsplit_once(':').unwrap().1.parse().unwrap();
    let paths = [
        format!("{SERVICES}/kubernetes"),
        "/api/v1/namespaces/default/endpoints/kubernetes".to_owned(),
        "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes".to_owned(),
    ];
    let [own, endpoints, slice] = [
        client.get(&paths[0]).await.json(),
        client.get(&paths[1]).await.json(),
        client.get(&paths[2]).await.json(),
    ];
    assert_eq!(own["spec"]["clusterIP"], "10.9.0.1");
    assert_eq!(own["metadata"]["labels"], json!({"component": "apiserver", "provider": "kubernetes"}));
    assert_eq!(
        own["spec"]["ports"],
        json!([{"name": "https", "protocol": "TCP", "port": 443, "targetPort": port}])
    );
    let subset = json!([{"addresses": [{"ip": "192.0.2.9"}], "ports": [{"name": "https", "port": port, "protocol": "TCP"}]}]);
    assert_eq!(endpoints["subsets"], subset);
    assert_eq!(endpoints["metadata"]["labels"], json!({"endpointslice.kubernetes.io/skip-mirror": "true"}));
    assert_eq!(slice["endpoints"], json!([{"addresses": ["192.0.2.9"], "conditions": {"ready": true}}]));
    assert_eq!(slice["ports"], json!([{"name": "https", "protocol": "TCP", "port": port}]));
    assert_eq!(slice["metadata"]["labels"], json!({"kubernetes.io/service-name": "kubernetes"}));
    assert_eq!(slice["addressType"], "IPv4");
    // The server reverts every change of these objects, and writes nothing else.
    for (path, before) in paths.iter().zip([&own, &endpoints, &slice]) {
        client.delete(path).await;
        let another = |object: &Value| object["metadata"]["uid"] != before["metadata"]["uid"];
        let back = client.until(path, |object| object.is_some_and(another)).await.unwrap();
        assert_eq!(back["spec"], before["spec"], "{path}");
        assert_eq!(back["subsets"], before["subsets"], "{path}");
        assert_eq!(back["endpoints"], before["endpoints"], "{path}");
    }
    let quiet = client.get(&paths[0]).await.json()["metadata"]["resourceVersion"].clone();
    let note = json!({"metadata": {"annotations": {"a": "b"}}});
    client.patch(&paths[0], "merge", &note).await;
    let noted = client.get(&paths[0]).await.json();
    assert_eq!(noted["metadata"]["annotations"]["a"], "b");
    assert_ne!(noted["metadata"]["resourceVersion"], quiet);
    for name in ["another", "one-more"] {
        create_service(client, name, json!({})).await;
    }
    assert_eq!(client.get(&paths[0]).await.json(), noted);
}

/// Clients look for this object. The server itself creates this object, like its own service, so that the
/// object exists without controllers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_default_service_cidr_exists_and_is_ready() {
    const PATH: &str = "/apis/networking.k8s.io/v1/servicecidrs/kubernetes";
    for flags in [&[][..], &["--controllers="]] {
        let mut options = small();
        options.flags.extend(flags.iter().map(|flag| (*flag).to_owned()));
        let server = Server::start(options).await;
        let client = server.client();
        // The object is ready before the first request.
        let first = client.get(PATH).await.json();
        assert_eq!(first["spec"], json!({"cidrs": ["10.9.0.0/26"]}), "{flags:?}: {first}");
        let condition = &first["status"]["conditions"][0];
        assert_eq!(
            (&condition["type"], &condition["status"]),
            (&json!("Ready"), &json!("True")),
            "{flags:?}"
        );
        assert!(condition["lastTransitionTime"].is_string(), "{flags:?}");
        // The server creates a deleted object again, and also restores a removed condition.
        assert_eq!(client.delete(PATH).await.status, 200);
        let is_ready = |object: &Value| object["status"]["conditions"][0]["type"] == "Ready";
        let is_another =
            |object: &Value| object["metadata"]["uid"] != first["metadata"]["uid"] && is_ready(object);
        client.until(PATH, |object| object.is_some_and(is_another)).await;
        let bare = json!({"status": {"conditions": null}});
        assert_eq!(client.patch(&format!("{PATH}/status"), "merge", &bare).await.status, 200);
        client.until(PATH, |object| object.is_some_and(is_ready)).await;
        // The server does not overwrite a condition whose status a client has changed.
        let busy = json!({"status": {"conditions": [{"type": "Ready", "status": "False", "reason": "Busy", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
        assert_eq!(client.patch(&format!("{PATH}/status"), "merge", &busy).await.status, 200);
        let labelled = json!({"metadata": {"labels": {"a": "b"}}});
        assert_eq!(client.patch(PATH, "merge", &labelled).await.status, 200);
        create_service(client, "later", json!({})).await;
        assert_eq!(client.get(PATH).await.json()["status"]["conditions"][0]["status"], "False", "{flags:?}");
    }
}
