//! Tests quotas with writes to a server.

use futures_util::future::join_all;

use crate::writes::admission::Settings;
use crate::writes::write::server_fixture::TestServer;
use values::json::Value;
use values::testing::text;

/// Starts a server whose namespace `n` has a quota `q` with these limits and this usage.
async fn server(hard: &str, used: &str) -> TestServer {
    let server = TestServer::admitting(Settings::default().without("ServiceAccount"));
    server.send("POST /api/v1/namespaces", r#"{"metadata":{"name":"n"}}"#).await;
    let quota = format!(r#"{{"metadata":{{"name":"q"}},"spec":{{"hard":{hard}}}}}"#);
    assert_eq!(server.send(&format!("POST {QUOTAS}"), &quota).await.0, 201);
    let status = format!(r#"{{"status":{{"hard":{hard},"used":{used}}}}}"#);
    assert_eq!(server.send(&format!("MERGE {QUOTAS}/q/status"), &status).await.0, 200);
    server
}

const QUOTAS: &str = "/api/v1/namespaces/n/resourcequotas";
const MAPS: &str = "/api/v1/namespaces/n/configmaps";

async fn used(server: &TestServer) -> String {
    let (_, _, quota) = server.send(&format!("GET {QUOTAS}/q"), "").await;
    quota.at(&["status", "used"]).map(text).unwrap_or_default()
}

#[tokio::test]
async fn sixty_four_concurrent_writers_use_a_quota_exactly_up_to_its_limit() {
    let server = server(r#"{"configmaps":"40"}"#, r#"{"configmaps":"0"}"#).await;
    let writes = (0..64).map(|at| {
        let server = &server;
        async move {
            let map = format!(r#"{{"metadata":{{"name":"m{at}"}}}}"#);
            server.send(&format!("POST {MAPS}"), &map).await
        }
    });
    let answers = join_all(writes).await;
    let stored = answers.iter().filter(|(code, ..)| *code == 201).count();
    let refused = answers.iter().filter(|(code, ..)| *code == 403).count();
    assert_eq!((stored, refused), (40, 24));
    assert_eq!(used(&server).await, r#"{"configmaps":"40"}"#);
}

#[tokio::test]
async fn a_server_without_controllers_forgets_namespaces_without_quotas() {
    let server = server(r#"{"configmaps":"9"}"#, r#"{"configmaps":"0"}"#).await;
    let quota = r#"{"metadata":{"name":"q"},"spec":{"hard":{"configmaps":"9"}}}"#;
    let status = r#"{"status":{"hard":{"configmaps":"9"},"used":{"configmaps":"0"}}}"#;
    let write = async |namespace: &str| {
        let namespace = format!("/api/v1/namespaces/{namespace}");
        for (request, body) in [
            (format!("POST {namespace}/resourcequotas"), quota),
            (format!("MERGE {namespace}/resourcequotas/q/status"), status),
            (format!("POST {namespace}/configmaps"), r#"{"metadata":{"name":"m"}}"#),
        ] {
            let (code, _, answer) = server.send(&request, body).await;
            assert!(code < 300, "{request}: {}", text(&answer));
        }
    };
    for at in 0..200 {
        let namespace = format!("n{at}");
        let made = format!(r#"{{"metadata":{{"name":"{namespace}"}}}}"#);
        server.send("POST /api/v1/namespaces", &made).await;
        write(&namespace).await;
        if at >= 3 {
            let quota = format!("/api/v1/namespaces/{namespace}/resourcequotas/q");
            assert_eq!(server.send(&format!("DELETE {quota}"), "").await.0, 200);
        }
    }
    let kept = server.quotas.namespaces();
    assert!(kept.len() <= 64, "{}", kept.len());
    assert!(["n0", "n1", "n2"].iter().all(|name| kept.iter().any(|kept| kept == name)), "{kept:?}");
}

#[tokio::test]
async fn a_write_that_is_not_stored_is_not_charged() {
    let server = server(r#"{"configmaps":"2"}"#, r#"{"configmaps":"0"}"#).await;
    let map = |name: &str| format!(r#"{{"metadata":{{"name":"{name}"}}}}"#);
    for (request, name, code) in [
        (format!("POST {MAPS}"), "a", 201),
        (format!("POST {MAPS}"), "a", 409),
        (format!("POST {MAPS}"), "a", 409),
        (format!("POST {MAPS}?dryRun=All"), "b", 201),
        (format!("POST {MAPS}"), "b", 201),
        (format!("POST {MAPS}"), "c", 403),
    ] {
        let (got, _, answer) = server.send(&request, &map(name)).await;
        assert_eq!(got, code, "{request} {name}: {}", text(&answer));
        if code == 403 {
            assert_eq!(
                answer.str_at(&["message"]),
                "configmaps \"c\" is forbidden: exceeded quota: q, requested: configmaps=1, used: configmaps=2, limited: \
                 configmaps=2"
            );
        }
    }
}

#[tokio::test]
async fn pods_must_specify_the_resources_that_a_quota_limits() {
    let server = server(
        r#"{"limits.cpu":"1","requests.memory":"1Gi","pods":"5"}"#,
        r#"{"limits.cpu":"0","requests.memory":"0","pods":"0"}"#,
    )
    .await;
    let pod = |resources: &str| {
        format!(
            r#"{{"metadata":{{"name":"p"}},"spec":{{"containers":[{{"name":"c","image":"i","resources":{resources}}}]}}}}"#
        )
    };
    let pods = "POST /api/v1/namespaces/n/pods";
    let (code, _, answer) = server.send(pods, &pod("{}")).await;
    let why =
        "pods \"p\" is forbidden: failed quota: q: must specify limits.cpu for: c; requests.memory for: c";
    assert_eq!((code, answer.str_at(&["message"])), (403, why));
    let sized = pod(r#"{"limits":{"cpu":"500m"},"requests":{"memory":"1Mi"}}"#);
    assert_eq!(server.send(pods, &sized).await.0, 201);
    assert_eq!(used(&server).await, r#"{"limits.cpu":"500m","pods":"1","requests.memory":"1Mi"}"#);
}

#[tokio::test]
async fn an_update_charges_or_releases_the_difference() {
    let server = server(r#"{"services.nodeports":"1"}"#, r#"{"services.nodeports":"0"}"#).await;
    let services = "/api/v1/namespaces/n/services";
    let service = r#"{"metadata":{"name":"s"},"spec":{"ports":[{"port":1}]}}"#;
    assert_eq!(server.send(&format!("POST {services}"), service).await.0, 201);
    for (kind, want) in [("NodePort", "1"), ("ClusterIP", "0"), ("NodePort", "1")] {
        let change = format!(r#"{{"spec":{{"type":"{kind}"}}}}"#);
        assert_eq!(server.send(&format!("MERGE {services}/s"), &change).await.0, 200);
        assert_eq!(used(&server).await, format!(r#"{{"services.nodeports":"{want}"}}"#), "{kind}");
    }
    let (code, _, answer) = server.send(&format!("POST {QUOTAS}"), r#"{"metadata":{"name":"r"}}"#).await;
    assert_eq!((code, answer.get("spec").map(Value::is_null)), (201, Some(false)));
}

/// Returns the usage of `count/pods` in the status of the quota `name`.
async fn used_pods(server: &TestServer, name: &str) -> String {
    let (_, _, quota) = server.send(&format!("GET {QUOTAS}/{name}"), "").await;
    quota.str_at(&["status", "used", "count/pods"]).to_owned()
}

#[tokio::test]
async fn a_pod_that_enters_a_quota_scope_is_charged_to_the_quotas_with_that_scope() {
    let server = server(r#"{"configmaps":"9"}"#, r#"{"configmaps":"0"}"#).await;
    for (name, scope) in [("with", "Terminating"), ("without", "NotTerminating")] {
        let hard = r#"{"count/pods":"1"}"#;
        let quota =
            format!(r#"{{"metadata":{{"name":"{name}"}},"spec":{{"hard":{hard},"scopes":["{scope}"]}}}}"#);
        assert_eq!(server.send(&format!("POST {QUOTAS}"), &quota).await.0, 201);
        let status = format!(r#"{{"status":{{"hard":{hard},"used":{{"count/pods":"0"}}}}}}"#);
        assert_eq!(server.send(&format!("MERGE {QUOTAS}/{name}/status"), &status).await.0, 200);
    }
    let pods = "/api/v1/namespaces/n/pods";
    let pod = |name: &str, more: &str| {
        format!(
            r#"{{"metadata":{{"name":"{name}"}},"spec":{{{more}"containers":[{{"name":"c","image":"i"}}]}}}}"#
        )
    };
    assert_eq!(server.send(&format!("POST {pods}"), &pod("a", "")).await.0, 201);
    // An update that does not change the scopes of an object is not charged.
    let labels = r#"{"metadata":{"labels":{"a":"b"}}}"#;
    assert_eq!(server.send(&format!("MERGE {pods}/a"), labels).await.0, 200);
    assert_eq!(
        (used_pods(&server, "with").await, used_pods(&server, "without").await),
        ("0".into(), "1".into())
    );
    let deadline = r#"{"spec":{"activeDeadlineSeconds":30}}"#;
    assert_eq!(server.send(&format!("MERGE {pods}/a?dryRun=All"), deadline).await.0, 200);
    assert_eq!(server.send(&format!("MERGE {pods}/a"), deadline).await.0, 200);
    // The next recount corrects the quota whose scope the pod has left.
    assert_eq!(
        (used_pods(&server, "with").await, used_pods(&server, "without").await),
        ("1".into(), "1".into())
    );
    let (code, _, answer) =
        server.send(&format!("POST {pods}"), &pod("b", r#""activeDeadlineSeconds":5,"#)).await;
    let why = "pods \"b\" is forbidden: exceeded quota: with, requested: count/pods=1, used: count/pods=1, limited: \
               count/pods=1";
    assert_eq!((code, answer.str_at(&["message"])), (403, why));
    let controllers =
        crate::system::controllers::start(server.itself(), &crate::system::controllers::Selection::default());
    let counted = async {
        while used_pods(&server, "without").await != "0" {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    let counted = tokio::time::timeout(std::time::Duration::from_secs(60), counted).await;
    assert!(counted.is_ok(), "the quota that the pod has left is not recounted");
    assert_eq!(server.send(&format!("POST {pods}"), &pod("c", "")).await.0, 201);
    // An update is refused if the pod would enter a scope whose quota is used up.
    let (code, _, answer) = server.send(&format!("MERGE {pods}/c"), deadline).await;
    assert_eq!(code, 403, "{}", text(&answer));
    controllers.stop().await;
}

#[tokio::test]
async fn recounted_usage_is_that_of_the_stored_objects() {
    let server = server(r#"{"configmaps":"9"}"#, r#"{"configmaps":"4"}"#).await;
    assert_eq!(server.send(&format!("POST {MAPS}"), r#"{"metadata":{"name":"a"}}"#).await.0, 201);
    assert_eq!(used(&server).await, r#"{"configmaps":"5"}"#);
    let controllers =
        crate::system::controllers::start(server.itself(), &crate::system::controllers::Selection::default());
    // A controller creates the second config map, which contains the root certificates.
    for want in ["2", "1"] {
        let want = format!(r#"{{"configmaps":"{want}"}}"#);
        let reached = async {
            while used(&server).await != want {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        };
        let reached = tokio::time::timeout(std::time::Duration::from_secs(60), reached).await;
        assert!(reached.is_ok(), "{want}, not {}", used(&server).await);
        server.send(&format!("DELETE {MAPS}/a"), "").await;
    }
    // Deleting the last quota of a namespace removes the account of the namespace.
    assert_eq!(server.quotas.namespaces(), ["n"]);
    assert_eq!(server.send(&format!("DELETE {QUOTAS}/q"), "").await.0, 200);
    let forgotten = async {
        while !server.quotas.namespaces().is_empty() {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    let forgotten = tokio::time::timeout(std::time::Duration::from_secs(60), forgotten).await;
    assert!(forgotten.is_ok(), "{:?}", server.quotas.namespaces());
    controllers.stop().await;
}

#[tokio::test]
async fn a_namespace_with_a_full_quota_does_not_block_root_certificates_of_others() {
    let server = server(r#"{"configmaps":"0"}"#, r#"{"configmaps":"0"}"#).await;
    let controllers =
        crate::system::controllers::start(server.itself(), &crate::system::controllers::Selection::default());
    for name in ["o", "p", "q"] {
        let namespace = format!(r#"{{"metadata":{{"name":"{name}"}}}}"#);
        assert_eq!(server.send("POST /api/v1/namespaces", &namespace).await.0, 201);
        let map = format!("GET /api/v1/namespaces/{name}/configmaps/kube-root-ca.crt");
        let reached = async {
            while server.send(&map, "").await.0 != 200 {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        };
        let reached = tokio::time::timeout(std::time::Duration::from_secs(60), reached).await;
        assert!(reached.is_ok(), "{name}");
    }
    controllers.stop().await;
}

#[tokio::test]
async fn a_limited_resource_needs_a_quota_with_its_scope() {
    struct NoFiles;
    impl crate::writes::admission::Files for NoFiles {
        fn read(&self, path: &str) -> Result<Vec<u8>, String> {
            Err(path.to_owned())
        }
    }
    let config = r#"
apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: ResourceQuota
  configuration:
    apiVersion: apiserver.config.k8s.io/v1
    kind: ResourceQuotaConfiguration
    limitedResources:
    - resource: pods
      matchScopes: [{scopeName: PriorityClass, operator: In, values: [high]}]
    - {resource: services, matchContains: [services.loadbalancers]}
"#;
    let disable = ["ServiceAccount".to_owned(), "Priority".to_owned()];
    let wishes = crate::writes::admission::Wishes {
        disable: &disable,
        config: Some(config.as_bytes()),
        ..crate::writes::admission::Wishes::default()
    };
    let server = TestServer::admitting(Settings::parse(&wishes, &NoFiles).unwrap());
    server.send("POST /api/v1/namespaces", r#"{"metadata":{"name":"n"}}"#).await;
    let pod = |class: &str| {
        format!(
            r#"{{"metadata":{{"name":"p"}},"spec":{{"priorityClassName":"{class}","containers":[{{"name":"c","image":"i"}}]}}}}"#
        )
    };
    let pods = "POST /api/v1/namespaces/n/pods?dryRun=All";
    let balancer =
        r#"{"metadata":{"name":"s"},"spec":{"type":"LoadBalancer","ports":[{"port":80}]}}"#.to_owned();
    let services = "POST /api/v1/namespaces/n/services?dryRun=All";
    let scopes =
        r#"pods "p" is forbidden: insufficient quota to match these scopes: [{PriorityClass In [high]}]"#;
    let consumed = r#"services "s" is forbidden: insufficient quota to consume: services.loadbalancers"#;
    for (request, body, code, why) in [
        (pods, pod("low"), 201, ""),
        (pods, pod("high"), 403, scopes),
        (services, balancer.clone(), 403, consumed),
    ] {
        let (got, _, answer) = server.send(request, &body).await;
        assert_eq!((got, answer.str_at(&["message"])), (code, why), "{body}");
    }
    assert!(server.quotas.namespaces().is_empty(), "there is no quota");
    let quota = r#"{"metadata":{"name":"q"},"spec":{"hard":{"pods":"1"},
        "scopeSelector":{"matchExpressions":[{"scopeName":"PriorityClass","operator":"In","values":["high"]}]}}}"#;
    assert_eq!(server.send(&format!("POST {QUOTAS}"), quota).await.0, 201);
    let status = r#"{"status":{"hard":{"pods":"1"},"used":{"pods":"0"}}}"#;
    assert_eq!(server.send(&format!("MERGE {QUOTAS}/q/status"), status).await.0, 200);
    assert_eq!(server.send(pods, &pod("high")).await.0, 201);
}
