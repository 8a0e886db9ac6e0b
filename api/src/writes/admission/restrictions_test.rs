//! Tests small plugins with requests to a server.

use super::{Files, Settings, Wishes};
use crate::writes::write::server_fixture::TestServer;

struct NoFiles;

impl Files for NoFiles {
    fn read(&self, _: &str) -> Result<Vec<u8>, String> {
        Err("no files".to_owned())
    }
}

/// Starts a server with one additional plugin, and creates a namespace.
async fn server(plugin: &str, config: &str) -> TestServer {
    let (enable, disable) = ([plugin.to_owned()], ["ServiceAccount".to_owned()]);
    let config =
        format!("apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins: [{config}]");
    let wishes =
        Wishes { enable: &enable, disable: &disable, config: Some(config.as_bytes()), ..Wishes::default() };
    let server = TestServer::admitting(Settings::parse(&wishes, &NoFiles).unwrap());
    server.send("POST /api/v1/namespaces", r#"{"metadata":{"name":"n"}}"#).await;
    server
}

#[tokio::test]
async fn services_get_no_new_external_addresses() {
    let server = server("DenyServiceExternalIPs", "").await;
    let services = "/api/v1/namespaces/n/services";
    let body = |addresses: &str| {
        format!(
            r#"{{"metadata":{{"name":"s"}},"spec":{{"clusterIP":"None","ports":[{{"port":1}}],"externalIPs":[{addresses}]}}}}"#
        )
    };
    let (code, _, refused) = server.send(&format!("POST {services}"), &body("\"1.2.3.4\"")).await;
    assert_eq!(code, 403);
    assert_eq!(
        refused.str_at(&["message"]),
        "services \"s\" is forbidden: Use of external IPs is denied by admission control"
    );
    let (code, ..) = server.send(&format!("POST {services}"), &body("")).await;
    assert_eq!(code, 201);
    let (code, ..) =
        server.send(&format!("MERGE {services}/s"), r#"{"spec":{"externalIPs":["1.2.3.4"]}}"#).await;
    assert_eq!(code, 403);
    let (code, ..) =
        server.send(&format!("MERGE {services}/s"), r#"{"metadata":{"labels":{"a":"b"}}}"#).await;
    assert_eq!(code, 200);
}

#[tokio::test]
async fn pods_have_the_topology_labels_of_their_node() {
    let server = server("AlwaysAdmit", "").await;
    let node = r#"{"metadata":{"name":"x","labels":{"topology.kubernetes.io/zone":"z","other":"o"}}}"#;
    server.send("POST /api/v1/nodes", node).await;
    let pods = "/api/v1/namespaces/n/pods";
    for (name, placed) in [("placed", r#","nodeName":"x""#), ("bound", "")] {
        let pod = format!(
            r#"{{"metadata":{{"name":"{name}"}},"spec":{{"containers":[{{"name":"c","image":"i"}}]{placed}}}}}"#
        );
        let (code, _, body) = server.send(&format!("POST {pods}"), &pod).await;
        assert_eq!(code, 201, "{body:?}");
        if placed.is_empty() {
            let binding = r#"{"metadata":{"name":"bound"},"target":{"kind":"Node","name":"x"}}"#;
            let (code, _, body) = server.send(&format!("POST {pods}/bound/binding"), binding).await;
            assert_eq!(code, 201, "{body:?}");
        }
        let (_, _, pod) = server.send(&format!("GET {pods}/{name}"), "").await;
        let labels = pod.at(&["metadata", "labels"]).map(values::testing::text).unwrap_or_default();
        assert_eq!(labels, r#"{"topology.kubernetes.io/zone":"z"}"#, "{name}");
    }
}

#[tokio::test]
async fn events_are_rate_limited() {
    let config = "{name: EventRateLimit, configuration: {apiVersion: eventratelimit.admission.k8s.io/v1alpha1, \
                  kind: Configuration, limits: [{type: Namespace, qps: 1, burst: 2}]}}";
    let began = std::time::Instant::now();
    let server = server("EventRateLimit", config).await;
    let mut admitted = 0;
    let message = loop {
        let event = format!(
            r#"{{"metadata":{{"name":"e{admitted}"}},"involvedObject":{{"kind":"Pod","namespace":"n","name":"p"}}}}"#
        );
        let (code, _, body) = server.send("POST /api/v1/namespaces/n/events", &event).await;
        if code == 429 {
            break body.str_at(&["message"]).to_owned();
        }
        assert_eq!(code, 201, "{body:?}");
        admitted += 1;
        // On a busy machine the bucket may get further events of its rate, one per second.
        assert!(admitted <= 2 + began.elapsed().as_secs(), "{admitted} events in {:?}", began.elapsed());
    };
    assert!(admitted >= 2, "{admitted}");
    assert_eq!(message, "Too many requests: Too many requests: limit reached on type Namespace for key n");
}

#[tokio::test]
async fn certificate_requests_for_the_administrator_group_are_refused() {
    let server = server("AlwaysAdmit", "").await;
    let body = r#"{"metadata":{"name":"r"},"spec":{"signerName":"kubernetes.io/kube-apiserver-client","usages":["client auth"],
        "request":"LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlIZk1JR0hBZ0VBTUNVeEZ6QVZCZ05WQkFvTURuTjVjM1JsYlRwdFlYTjBaWEp6TVFvd0NBWURWUVFEREFGaApNRmt3RXdZSEtvWkl6ajBDQVFZSUtvWkl6ajBEQVFjRFFnQUV4QVI4WWU5YW56cGlHTjREMExCcXRIV1JoR2pMCjZZZFB4SXBQWTcybm9acEVsK1Vxem1iQmUyL2hmallXMFV1VDMzN2tKazg0RTBlU2hIQ2IxY3ZzVEtBQU1Bb0cKQ0NxR1NNNDlCQU1DQTBjQU1FUUNJRE5taFFmQkxMQjZGZEtyWVhLRmxlVVc4REZKVnpUUi90ZzVBSFhKa0JnNwpBaUJSRFNxM3BTZy82RnlMbWltMXRnZTNsMTRXc24xK29kYk05Y0NhUmZCVEVRPT0KLS0tLS1FTkQgQ0VSVElGSUNBVEUgUkVRVUVTVC0tLS0tCg=="}}"#;
    let requests = "POST /apis/certificates.k8s.io/v1/certificatesigningrequests";
    let (code, _, refused) = server.send(requests, body).await;
    assert_eq!(code, 403, "{refused:?}");
    assert!(refused.str_at(&["message"]).contains("system:masters group is not allowed"), "{refused:?}");
    let other = body.replace("kubernetes.io/kube-apiserver-client", "example.com/s");
    assert_eq!(server.send(requests, &other).await.0, 201);
}
