//! Service account tokens: requests for tokens, their use, and their end with the objects that they are bound to
//! (docs/api/authentication.md#service-account-tokens).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::KeyPair;
use serde_json::{Value, json};
use tests::server::Options;
use tests::{Client, Server};

use crate::support::signed;

const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const PODS: &str = "/api/v1/namespaces/default/pods";

async fn request_token(client: &Client, account: &str, spec: Value) -> tests::client::Reply {
    client.post(&format!("{ACCOUNTS}/{account}/token"), &json!({"spec": spec})).await
}

async fn token(client: &Client, account: &str, spec: Value) -> String {
    let reply = request_token(client, account, spec).await;
    assert_eq!(reply.status, 201, "{}", reply.text());
    reply.json()["status"]["token"].as_str().unwrap().to_owned()
}

/// Returns the user as which the server authenticates a token; `None` if the server refuses the token.
async fn bearer(client: &Client, token: &str) -> Option<Value> {
    let reviews = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let reply = client.with_token(token).post(reviews, &json!({})).await;
    (reply.status == 201).then(|| reply.json()["status"]["userInfo"].clone())
}

async fn make(client: &Client, path: &str, object: Value) -> Value {
    let reply = client.post(path, &object).await;
    assert_eq!(reply.status, 201, "{}", reply.text());
    reply.json()
}

fn claims(token: &str) -> Value {
    use base64::Engine;
    let body = token.split('.').nth(1).unwrap();
    serde_json::from_slice(&base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(body).unwrap()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_account_token_is_valid_until_its_account_is_deleted() {
    let mut server = Server::start_upstream().await;
    let client = server.client().clone();
    make(&client, ACCOUNTS, json!({"metadata": {"name": "robot"}})).await;
    let reply = request_token(&client, "robot", json!({})).await.json();
    assert_eq!(
        (reply["kind"].as_str(), reply["apiVersion"].as_str()),
        (Some("TokenRequest"), Some("authentication.k8s.io/v1"))
    );
    assert_eq!(reply["spec"]["expirationSeconds"], 3600);
    assert_eq!(reply["spec"]["audiences"], json!(["https://kubernetes.default.svc.cluster.local"]));
    let text = reply["status"]["token"].as_str().unwrap();
    let user = bearer(&client, text).await.unwrap();
    assert_eq!(user["username"], "system:serviceaccount:default:robot");
    assert_eq!(
        user["groups"],
        json!(["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"])
    );
    let said = claims(text);
    assert_eq!(said["iss"], "https://kubernetes.default.svc.cluster.local");
    assert_eq!(said["sub"], "system:serviceaccount:default:robot");
    assert_eq!(said["exp"].as_i64().unwrap() - said["iat"].as_i64().unwrap(), 3600);
    assert_eq!(said["kubernetes.io"]["namespace"], "default");
    // A token for another audience is refused here.
    let other = token(&client, "robot", json!({"audiences": ["vault"]})).await;
    assert_eq!(bearer(&client, &other).await, None);
    // The server keeps its key across restarts.
    server.kill();
    server.restart().await;
    let client = server.client().clone();
    assert!(bearer(&client, text).await.is_some());
    // A new account with the same name is another account.
    client.delete(&format!("{ACCOUNTS}/robot")).await;
    assert_eq!(bearer(&client, text).await, None);
    make(&client, ACCOUNTS, json!({"metadata": {"name": "robot"}})).await;
    assert_eq!(bearer(&client, text).await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bound_token_is_valid_until_its_object_is_deleted() {
    let server = Server::start_upstream().await;
    let client = server.client();
    make(client, ACCOUNTS, json!({"metadata": {"name": "robot"}})).await;
    let pod = |name: &str, account: &str| {
        json!({"metadata": {"name": name}, "spec": {
            "serviceAccountName": account, "nodeName": "n", "containers": [{"name": "c", "image": "i"}]}})
    };
    make(client, "/api/v1/nodes", json!({"metadata": {"name": "n"}})).await;
    let uid = make(client, PODS, pod("mine", "robot")).await["metadata"]["uid"].clone();
    make(client, PODS, pod("other", "default")).await;
    make(client, "/api/v1/namespaces/default/secrets", json!({"metadata": {"name": "s"}})).await;
    let to = |kind: &str, name: &str| json!({"kind": kind, "apiVersion": "v1", "name": name});
    let of_pod = token(client, "robot", json!({"boundObjectRef": to("Pod", "mine")})).await;
    let user = bearer(client, &of_pod).await.unwrap();
    assert_eq!(user["extra"]["authentication.kubernetes.io/pod-name"], json!(["mine"]));
    assert_eq!(user["extra"]["authentication.kubernetes.io/node-name"], json!(["n"]));
    let of_secret = token(client, "robot", json!({"boundObjectRef": to("Secret", "s")})).await;
    let of_node = token(client, "robot", json!({"boundObjectRef": to("Node", "n")})).await;
    for (path, ended) in [
        (format!("{PODS}/mine?gracePeriodSeconds=0"), &of_pod),
        ("/api/v1/namespaces/default/secrets/s".to_owned(), &of_secret),
        ("/api/v1/nodes/n".to_owned(), &of_node),
    ] {
        assert!(bearer(client, ended).await.is_some(), "{path}");
        assert_eq!(client.delete(&path).await.status, 200, "{path}");
        assert_eq!(bearer(client, ended).await, None, "{path}");
    }
    // A token cannot be bound to these objects.
    let with_uid = json!({"kind": "Pod", "apiVersion": "v1", "name": "other", "uid": uid});
    make(client, PODS, pod("again", "robot")).await;
    let of_other_life = json!({"kind": "Pod", "apiVersion": "v1", "name": "again", "uid": uid});
    for (reference, status, want) in [
        (
            with_uid,
            400,
            "cannot bind token for serviceaccount \"robot\" to pod running with different serviceaccount name.".to_owned(),
        ),
        (to("Pod", "absent"), 404, "pods \"absent\" not found".to_owned()),
        (to("Secret", ""), 400, "Name parameter required.".to_owned()),
        (to("Node", "a/b"), 400, "Name parameter invalid: \"a/b\": may not contain '/'".to_owned()),
        (
            json!({"kind": "ConfigMap", "apiVersion": "a/b/c", "name": "x"}),
            400,
            "cannot bind token to object of type /, Kind=ConfigMap".to_owned(),
        ),
        (
            json!({"kind": "Pod", "apiVersion": "a/b/c", "name": "absent"}),
            404,
            "pods \"absent\" not found".to_owned(),
        ),
        (to("ConfigMap", "x"), 400, "cannot bind token to object of type /v1, Kind=ConfigMap".to_owned()),
        (
            of_other_life,
            409,
            format!(
                "Operation cannot be fulfilled on Pod \"again\": the UID in the bound object reference ({}) does not match \
                 the UID in record. The object might have been deleted and then recreated",
                uid.as_str().unwrap()
            ),
        ),
    ] {
        let reply = request_token(client, "robot", json!({"boundObjectRef": reference})).await;
        assert_eq!((reply.status, reply.json()["message"].as_str()), (status, Some(want.as_str())));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn token_lifetimes_have_bounds_and_legacy_clients_get_one_year() {
    let flags = [
        "--service-account-max-token-expiration=2h",
        "--service-account-issuer=https://issuer.example",
        "--api-audiences=api,also",
    ];
    let server =
        Server::start(Options { flags: flags.map(str::to_owned).to_vec(), ..Options::default() }).await;
    let client = server.client();
    // A controller creates the account after the start.
    client.until("/api/v1/namespaces/default/serviceaccounts/default", |account| account.is_some()).await;
    for (seconds, want) in [
        (
            5,
            "TokenRequest.authentication.k8s.io \"\" is invalid: spec.expirationSeconds: Invalid value: 5: may not specify a duration less than 10 minutes",
        ),
        (
            (1i64 << 32) + 1,
            "TokenRequest.authentication.k8s.io \"\" is invalid: spec.expirationSeconds: Invalid value: 4294967297: may not specify a duration larger than 2^32 seconds",
        ),
    ] {
        let reply = request_token(client, "default", json!({"expirationSeconds": seconds})).await;
        assert_eq!((reply.status, reply.json()["message"].as_str()), (422, Some(want)));
    }
    assert_eq!(request_token(client, "absent", json!({})).await.status, 404);
    let shortened = request_token(client, "default", json!({"expirationSeconds": 9000})).await;
    assert_eq!(shortened.json()["spec"]["expirationSeconds"], 7200);
    let warning = "299 - \"requested expiration of 9000 seconds shortened to 7200 seconds\"";
    assert_eq!(shortened.header_all("warning"), [warning]);
    let mine = json!({"metadata": {"name": "p"}, "spec": {
        "serviceAccountName": "default", "containers": [{"name": "c", "image": "i"}]}});
    make(client, PODS, mine).await;
    let bound = json!({"kind": "Pod", "apiVersion": "v1", "name": "p"});
    let old = request_token(client, "default", json!({"expirationSeconds": 3607, "boundObjectRef": bound}))
        .await
        .json();
    let said = claims(old["status"]["token"].as_str().unwrap());
    let year = said["exp"].as_i64().unwrap() - said["iat"].as_i64().unwrap();
    assert_eq!(year, 365 * 24 * 3600);
    assert_eq!(said["kubernetes.io"]["warnafter"].as_i64().unwrap() - said["iat"].as_i64().unwrap(), 3607);
    assert_eq!(old["spec"]["expirationSeconds"], 3607);
    assert_eq!(
        (said["iss"].as_str(), &said["aud"]),
        (Some("https://issuer.example"), &json!(["api", "also"]))
    );
    assert!(bearer(client, old["status"]["token"].as_str().unwrap()).await.is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_use_of_a_legacy_token_sets_a_last_used_label_on_its_secret() {
    let key = KeyPair::generate().unwrap();
    let options = Options {
        flags: vec!["--service-account-signing-key-file=$dir/sa.key".to_owned()],
        files: vec![("sa.key", key.serialize_pem())],
        ..Options::default()
    };
    let server = Server::start(options).await;
    let client = server.client();
    let account = make(client, ACCOUNTS, json!({"metadata": {"name": "robot"}})).await;
    let robot = "system:serviceaccount:default:robot";
    let says = json!({"iss": "kubernetes/serviceaccount", "sub": robot,
        "kubernetes.io/serviceaccount/namespace": "default",
        "kubernetes.io/serviceaccount/secret.name": "robot-token",
        "kubernetes.io/serviceaccount/service-account.name": "robot",
        "kubernetes.io/serviceaccount/service-account.uid": account["metadata"]["uid"]});
    let token = signed(&key, &json!({"alg": "ES256"}), &says);
    let secrets = "/api/v1/namespaces/default/secrets";
    let secret = json!({"metadata": {"name": "robot-token", "labels": {"a": "b"},
            "annotations": {"kubernetes.io/service-account.name": "robot"}},
        "type": "kubernetes.io/service-account-token", "data": {"token": STANDARD.encode(&token)}});
    make(client, secrets, secret).await;
    assert_eq!(bearer(client, &token).await.unwrap()["username"], robot);
    let label = |secret: Option<&Value>| {
        secret.unwrap()["metadata"]["labels"]["kubernetes.io/legacy-token-last-used"].clone()
    };
    let path = format!("{secrets}/robot-token");
    let used = client.until(&path, |secret| label(secret).is_string()).await.unwrap();
    assert_eq!(label(Some(&used)).as_str().unwrap().len(), "2000-01-01".len());
    assert_eq!(used["metadata"]["labels"]["a"], "b");
    // An earlier date of last use is replaced; the use of a token that is marked invalid counts as well.
    let over = json!({"metadata": {"labels": {"kubernetes.io/legacy-token-last-used": "2000-01-01",
        "kubernetes.io/legacy-token-invalid-since": "2000-01-02"}}});
    assert_eq!(client.patch(&path, "merge", &over).await.status, 200);
    assert_eq!(bearer(client, &token).await, None);
    client.until(&path, |secret| label(secret) == label(Some(&used))).await;
}
