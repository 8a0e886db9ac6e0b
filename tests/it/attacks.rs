//! Attacks on authentication and authorization. Each row of the tables must be refused, without revealing the reason
//! (docs/api/authentication.md#authenticators, docs/api/authorization.md#privilege-escalation).
//!
//! The server logs and audits everything it can; no line may contain a credential.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::LazyLock;
use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use rcgen::{CertificateParams, DnType, KeyPair};
use serde_json::{Value, json};
use tests::server::TempDir;
use tests::{Client, Options, Server};

use crate::support::{CERTIFICATE, encoded, signed};

/// The signing key of service account tokens.
static KEY: LazyLock<KeyPair> = LazyLock::new(|| KeyPair::generate().unwrap());

const ISSUER: &str = "https://issuer.example";
const TOKENS: &str = "alice-secret-token,alice,1\nroot-secret-token,root,2,system:masters\n";

async fn server() -> Server {
    // As in real clusters, the bodies of requests for secrets are not audited.
    let policy = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: Metadata\n  resources:\n  - {group: \"\", \
                  resources: [secrets, serviceaccounts/token]}\n  - {group: authentication.k8s.io, resources: \
                  [tokenreviews]}\n- level: RequestResponse\n";
    let options = Options {
        flags: vec![
            "-v=10".to_owned(),
            "--token-auth-file=$dir/tokens.csv".to_owned(),
            "--service-account-signing-key-file=$dir/sa.key".to_owned(),
            format!("--service-account-issuer={ISSUER}"),
            "--audit-policy-file=$dir/policy.yaml".to_owned(),
            "--audit-log-path=$dir/audit.log".to_owned(),
            "--enable-bootstrap-token-auth".to_owned(),
        ],
        files: vec![
            ("tokens.csv", TOKENS.to_owned()),
            ("sa.key", KEY.serialize_pem()),
            ("policy.yaml", policy.to_owned()),
        ],
        ..Options::default()
    };
    Server::start(options).await
}

/// Returns a copy of an object with changed members. A null value removes the member.
fn with(base: &Value, changes: Value) -> Value {
    let mut object = base.clone();
    for (name, value) in changes.as_object().unwrap() {
        match value {
            Value::Null => _ = object.as_object_mut().unwrap().remove(name),
            value => object[name] = value.clone(),
        }
    }
    object
}

/// Returns the user of a token, or the status code of the refusal. Checks that a refusal reveals nothing else.
async fn who(client: &Client, token: &str) -> Result<String, u16> {
    let bearer = client.with_token(token);
    let reply = bearer.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", &json!({})).await;
    if reply.status != 201 {
        let message = reply.json()["message"].clone();
        assert!(reply.status != 401 || message == "Unauthorized", "{}", reply.text());
        return Err(reply.status);
    }
    Ok(reply.json()["status"]["userInfo"]["username"].as_str().unwrap().to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forged_tokens_are_refused_and_no_credential_is_written_to_logs_or_files() {
    let server = server().await;
    let client = server.client();
    let account = json!({"metadata": {"name": "robot"}});
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    assert_eq!(client.post(accounts, &account).await.status, 201);
    let request = json!({"spec": {"audiences": []}});
    let real = client.post(&format!("{accounts}/robot/token"), &request).await.json();
    let real = real["status"]["token"].as_str().unwrap().to_owned();
    let robot = "system:serviceaccount:default:robot";
    assert_eq!(who(client, &real).await, Ok(robot.to_owned()));

    let parts: Vec<&str> = real.split('.').collect();
    let decoded = |part: &str| serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap();
    let (header, claims): (Value, Value) = (decoded(parts[0]), decoded(parts[1]));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    assert_eq!(who(client, &signed(&KEY, &header, &claims)).await, Ok(robot.to_owned()), "the key is valid");

    let other = KeyPair::generate().unwrap();
    let hs256 = {
        let text = format!("{}.{}", encoded(&with(&header, json!({"alg": "HS256"}))), parts[1]);
        let key = hmac::Key::new(hmac::HMAC_SHA256, KEY.public_key_pem().as_bytes());
        format!("{text}.{}", URL_SAFE_NO_PAD.encode(hmac::sign(&key, text.as_bytes()).as_ref()))
    };
    let none = encoded(&with(&header, json!({"alg": "none"})));
    let jwk = json!({"kty": "EC", "crv": "P-256"});
    let forged = [
        ("alg none", format!("{none}.{}.", parts[1])),
        ("alg none with the signature", format!("{none}.{}.{}", parts[1], parts[2])),
        ("HMAC with the public key", hs256),
        ("another key", signed(&other, &header, &claims)),
        ("another key and no kid", signed(&other, &with(&header, json!({"kid": null})), &claims)),
        ("a path as kid", signed(&other, &with(&header, json!({"kid": "../../dev/null"})), &claims)),
        ("a statement as kid", signed(&other, &with(&header, json!({"kid": "' OR 1=1 --"})), &claims)),
        ("jku", signed(&other, &with(&header, json!({"jku": "https://evil.example/jwks"})), &claims)),
        ("jwk", signed(&other, &with(&header, json!({"jwk": jwk})), &claims)),
        ("no issuer", signed(&KEY, &header, &with(&claims, json!({"iss": null})))),
        ("another issuer", signed(&KEY, &header, &with(&claims, json!({"iss": "https://evil.example"})))),
        ("another audience", signed(&KEY, &header, &with(&claims, json!({"aud": ["other"]})))),
        ("past exp", signed(&KEY, &header, &with(&claims, json!({"exp": now - 120})))),
        ("future nbf", signed(&KEY, &header, &with(&claims, json!({"nbf": now + 3600})))),
        ("future iat", signed(&KEY, &header, &with(&claims, json!({"iat": now + 3600})))),
        ("exp as text", signed(&KEY, &header, &with(&claims, json!({"exp": "never"})))),
        (
            "another account",
            signed(
                &KEY,
                &header,
                &with(
                    &claims,
                    json!({"kubernetes.io": {
            "namespace": "default", "serviceaccount": {"name": "robot", "uid": "another"}}}),
                ),
            ),
        ),
        ("no account", signed(&KEY, &header, &with(&claims, json!({"kubernetes.io": {}})))),
        (
            "claims of another token",
            format!("{}.{}.{}", parts[0], encoded(&with(&claims, json!({"sub": "root"}))), parts[2]),
        ),
        ("a cut signature", real[..real.len() - 4].to_owned()),
        ("two parts", format!("{}.{}", parts[0], parts[1])),
        ("four parts", format!("{real}.{}", parts[2])),
        ("a static token and more", "root-secret-token2".to_owned()),
        ("a part of a static token", "root-secret-toke".to_owned()),
        ("a static token in capitals", "ROOT-SECRET-TOKEN".to_owned()),
        ("a bootstrap token that is not there", "abcdef.0123456789abcdef".to_owned()),
        ("a token of 20 000 bytes", "a".repeat(20_000)),
    ];
    let mut wrong = Vec::new();
    for (what, token) in &forged {
        let got = who(client, token).await;
        if got != Err(401) {
            wrong.push(format!("{what}: {got:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let huge = client.with_token(&"a".repeat(2 << 20));
    let reply = huge.try_send("GET", "/api", &[], b"").await;
    assert!(reply.is_none_or(|reply| [400, 401, 431].contains(&reply.status)), "headers have a limit");

    // A token that ended with its account remains invalid when a new account with the same name exists.
    client.delete(&format!("{accounts}/robot")).await;
    client.post(accounts, &account).await;
    assert_eq!(who(client, &real).await, Err(401), "the account is re-created");

    nothing_leaked(&server, &[&real, &forged[3].1, "alice-secret-token", "root-secret-token"]);
}

/// Checks that the server wrote no credentials, and that its files are readable only by their owner.
fn nothing_leaked(server: &Server, tokens: &[&str]) {
    let written = [server.log(), std::fs::read_to_string(server.data_dir().join("audit.log")).unwrap()];
    assert!(written[1].contains("RequestResponse"), "the audit log has request and response bodies");
    for text in &written {
        for token in tokens {
            let secret = token.rsplit('.').next().unwrap();
            assert!(!text.contains(secret), "a token was written: {}…", &secret[..8]);
        }
        assert!(!text.contains("PRIVATE KEY"), "a key was written");
        let admin = STANDARD.encode(std::fs::read(server.data_dir().join("pki/admin.key")).unwrap());
        assert!(!text.contains(&admin), "a key was written");
    }
    let mut files = Vec::new();
    let mut pending = vec![server.data_dir().join("pki"), server.data_dir().join("log")];
    while let Some(directory) = pending.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { pending.push(path) } else { files.push(path) }
        }
    }
    files.push(server.kubeconfig());
    for path in files {
        assert_eq!(mode(&path) & 0o077, 0, "{} can be read by others", path.display());
    }
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn headers_and_path_spellings_cannot_bypass_authorization() {
    let server = server().await;
    let root = server.client();
    let made = root
        .post(
            "/api/v1/namespaces/default/secrets",
            &json!({"metadata": {"name": "gold"},
        "stringData": {"k": "the-gold"}}),
        )
        .await;
    assert_eq!(made.status, 201);
    let alice = root.with_token("alice-secret-token");
    // Identity headers of a client are ignored or refused.
    for (headers, want) in [
        (vec![("x-remote-user", "root"), ("x-remote-group", "system:masters")], 403),
        (vec![("X-Remote-User", "root"), ("X-Remote-Extra-Scopes", "all")], 403),
        (vec![("impersonate-user", "root"), ("impersonate-group", "system:masters")], 403),
        (vec![("Impersonate-User", "system:apiserver")], 403),
        (vec![("impersonate-group", "system:masters")], 400),
        (vec![("impersonate-uid", "2")], 400),
        (vec![("impersonate-extra-scopes", "all")], 400),
        (vec![("x-forwarded-for", "127.0.0.1"), ("x-original-url", "/healthz")], 403),
        (vec![("x-http-method-override", "GET")], 403),
    ] {
        let reply = alice.send("GET", "/api/v1/namespaces/default/secrets/gold", &headers, b"").await;
        assert_eq!(reply.status, want, "{headers:?}: {}", reply.text());
    }
    for path in [
        "//api/v1/namespaces/default/secrets/gold",
        "/api//v1/namespaces/default/secrets/gold",
        "/api/v1/namespaces/default//secrets/gold",
        "/api/v1/namespaces/default/secrets/gold/",
        "/api/v1/namespaces/default/secrets//gold",
        "/api/v1/namespaces/default/configmaps/../secrets/gold",
        "/api/v1/namespaces/default/configmaps/%2e%2e/secrets/gold",
        "/healthz/../api/v1/namespaces/default/secrets/gold",
        "/healthz%2f..%2fapi%2fv1%2fnamespaces%2fdefault%2fsecrets%2fgold",
        "/api/v1/namespaces/default%2fsecrets/gold",
        "/api/v1/namespaces/default/secrets%2fgold",
        "/api/v1/namespaces/default/%73ecrets/gold",
        "/api/v1/namespaces/default/secrets;a=b/gold",
        "/api/v1/namespaces/default/secrets/gold;a=b",
        "/api/v1/namespaces/default/Secrets/gold",
        "/API/v1/namespaces/default/secrets/gold",
        "/api/V1/namespaces/default/secrets/gold",
        "/api/v1/watch/namespaces/default/secrets/gold",
        "/api/v1/proxy/namespaces/default/secrets/gold",
        "/api/v1/secrets?fieldSelector=metadata.name%3Dgold",
        "/api/v1/namespaces/default/secrets?fieldSelector=metadata.name%3Dgold&watch=1",
        "/healthz?/api/v1/namespaces/default/secrets/gold",
        "/version/../api/v1/namespaces/default/secrets",
        "/openapi/v3/../../api/v1/secrets",
    ] {
        for client in [&alice, &root.anonymous()] {
            let reply = client.send("GET", path, &[], b"").await;
            let text = reply.text();
            let is_open = reply.status == 200 && (text == "ok" || text.contains("gitVersion"));
            assert!(is_open || reply.status >= 300, "{path}: {} {text}", reply.status);
            assert!(!text.contains(&STANDARD.encode("the-gold")), "{path}: {text}");
        }
    }
}

/// Returns a base64 certificate request for the spec of an object.
fn certificate_request(name: &str, groups: &[&str]) -> String {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    for group in groups {
        params.distinguished_name.push(DnType::OrganizationName, *group);
    }
    params.distinguished_name.push(DnType::CommonName, name);
    let request = params.serialize_request(&KeyPair::generate().unwrap()).unwrap();
    STANDARD.encode(request.pem().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_user_can_grant_more_permissions_than_it_has() {
    let server = server().await;
    let root = server.client();
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let requests = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    // Alice manages roles, bindings, tokens and certificate requests, and has no other permissions.
    let role = json!({"metadata": {"name": "clerk"}, "rules": [
        {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["*"], "verbs": ["*"]},
        {"apiGroups": ["certificates.k8s.io"], "resources": ["certificatesigningrequests",
            "certificatesigningrequests/approval", "certificatesigningrequests/status"], "verbs": ["*"]}]});
    // Alice has all verbs on roles except the two that lift the escalation check.
    let mut role = role;
    role["rules"][0]["verbs"] = json!(["get", "list", "create", "update", "patch", "delete"]);
    assert_eq!(root.post(&format!("{rbac}/clusterroles"), &role).await.status, 201);
    let bound = |name: &str, role: &str, user: &str| {
        json!({"metadata": {"name": name}, "subjects": [{"kind": "User", "name": user}],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}})
    };
    let bindings = format!("{rbac}/clusterrolebindings");
    assert_eq!(root.post(&bindings, &bound("clerk", "clerk", "alice")).await.status, 201);
    let csr = |name: &str, groups: &[&str], signer: &str| {
        json!({"metadata": {"name": name}, "spec": {"request": certificate_request("mallory", groups),
            "signerName": signer, "usages": ["client auth"]}})
    };
    let client_signer = "kubernetes.io/kube-apiserver-client";
    let all = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
    let alice = root.with_token("alice-secret-token");
    let kube = "/api/v1/namespaces/kube-system";
    let attempts = [
        (
            "a role",
            "POST",
            format!("{rbac}/clusterroles"),
            json!({"metadata": {"name": "all"}, "rules": all}),
            403,
        ),
        (
            "a role in a namespace",
            "POST",
            format!("{rbac}/namespaces/default/roles"),
            json!({"metadata": {"name": "all"}, "rules": all}),
            403,
        ),
        ("a binding", "POST", bindings.clone(), bound("mine", "cluster-admin", "alice"), 403),
        (
            "a binding in a namespace",
            "POST",
            format!("{rbac}/namespaces/default/rolebindings"),
            bound("mine", "admin", "alice"),
            403,
        ),
        (
            "more rules for a role that she has",
            "PUT",
            format!("{rbac}/clusterroles/clerk"),
            json!({"metadata": {"name": "clerk"}, "rules": all}),
            403,
        ),
        (
            "a role that others flow into",
            "POST",
            format!("{rbac}/clusterroles"),
            json!({"metadata": {"name": "sum"}, "aggregationRule": {"clusterRoleSelectors": [{}]}}),
            403,
        ),
        (
            "a label by which a role flows into another",
            "PATCH",
            format!("{rbac}/clusterroles/cluster-admin"),
            json!({"metadata": {"labels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"}}}),
            403,
        ),
        (
            "another role in a binding",
            "PATCH",
            format!("{bindings}/clerk"),
            json!({"roleRef": {"name": "cluster-admin"}}),
            403,
        ),
        (
            "the group of masters in a certificate",
            "POST",
            requests.to_owned(),
            csr("m", &["system:masters"], client_signer),
            403,
        ),
        ("a request of another user", "POST", requests.to_owned(), csr("own", &["x"], client_signer), 201),
        (
            "an approval without the signer's permission",
            "PATCH",
            format!("{requests}/own/approval"),
            json!({"status": {"conditions": [{"type": "Approved", "status": "True", "reason": "r"}]}}),
            403,
        ),
        (
            "a certificate without the signer's permission",
            "PATCH",
            format!("{requests}/own/status"),
            json!({"status": {"certificate": CERTIFICATE}}),
            403,
        ),
        (
            "a token of a mighty account",
            "POST",
            format!("{kube}/serviceaccounts/default/token"),
            json!({"spec": {"audiences": []}}),
            403,
        ),
        (
            "a secret that becomes a token",
            "POST",
            format!("{kube}/secrets"),
            json!({"metadata": {"name": "t", "annotations": {"kubernetes.io/service-account.name": "default"}},
                "type": "kubernetes.io/service-account-token"}),
            403,
        ),
        (
            "a bootstrap token",
            "POST",
            format!("{kube}/secrets"),
            json!({"metadata": {"name": "bootstrap-token-abcdef"}, "type": "bootstrap.kubernetes.io/token"}),
            403,
        ),
    ];
    let mut wrong = Vec::new();
    for (what, method, path, body, want) in attempts {
        let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let reply = alice.send(method, &path, &[("content-type", kind)], body.to_string().as_bytes()).await;
        if reply.status != want {
            wrong.push(format!("{what}: {} {}", reply.status, reply.text()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let seen = root.get(&format!("{requests}/own")).await.json();
    assert_eq!(seen["spec"]["username"], "alice", "the request names its sender as user");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_with_invented_drivers_causes_no_authorizer_requests_for_them() {
    let server = server().await;
    let root = server.client();
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let role = json!({"metadata": {"name": "driver"}, "rules": [
        {"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims/status"], "verbs": ["patch"]}]});
    let binding = json!({"metadata": {"name": "driver"}, "subjects": [{"kind": "User", "name": "alice"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "driver"}});
    let claims = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";
    let claim = json!({"metadata": {"name": "c"}, "spec": {"devices": {"requests": [
        {"name": "r", "exactly": {"deviceClassName": "d"}}]}}});
    for (path, object) in [
        (format!("{rbac}/clusterroles"), role),
        (format!("{rbac}/clusterrolebindings"), binding),
        (claims.to_owned(), claim),
    ] {
        assert_eq!(root.post(&path, &object).await.status, 201, "{path}");
    }
    let alice = root.with_token("alice-secret-token");
    let device = |driver: String| json!({"driver": driver, "pool": "p", "device": "d", "conditions": []});
    let result = |driver: &str| json!({"request": "r", "driver": driver, "pool": "p", "device": "d"});
    for (given, drivers, is_asked) in [("a.b", 500, false), ("driver0", 1, true)] {
        let devices: Vec<Value> = (0..drivers).map(|at| device(format!("driver{at}"))).collect();
        let status =
            json!({"status": {"allocation": {"devices": {"results": [result(given)]}}, "devices": devices}});
        let kind = [("content-type", "application/merge-patch+json")];
        let path = format!("{claims}/c/status");
        let reply = alice.send("PATCH", &path, &kind, status.to_string().as_bytes()).await;
        let text = reply.text();
        assert_eq!(reply.status, 422, "{text}");
        assert_eq!(text.contains("must be an allocated device"), !is_asked, "{text}");
        assert_eq!(text.contains("changing status.devices requires"), is_asked, "{text}");
        assert_eq!(text.contains("changing status.allocation"), is_asked, "{text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_issuer_that_hangs_or_never_ends_delays_no_other_request() {
    use tokio::io::AsyncWriteExt;
    let scratch = TempDir::new();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap().self_signed(&key).unwrap();
    let ca = scratch.path().join("ca.pem");
    std::fs::write(&ca, certificate.pem()).unwrap();
    let tls = rustls::ServerConfig::builder().with_no_client_auth().with_single_cert(
        vec![certificate.der().clone()],
        rustls_pki_types::PrivateKeyDer::Pkcs8(key.serialize_der().into()),
    );
    let acceptor = tokio_rustls::TlsAcceptor::from(std::sync::Arc::new(tls.unwrap()));
    let lying = tokio::spawn(async move {
        for turn in 0.. {
            let Ok((stream, _)) = listener.accept().await else { return };
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let mut stream = acceptor.accept(stream).await?;
                // The first response never ends, and the later responses never begin.
                if turn == 0 {
                    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n").await?;
                    while stream.write_all(&[b' '; 65_536]).await.is_ok() {}
                }
                std::future::pending::<std::io::Result<()>>().await
            });
        }
    });
    let options = Options {
        flags: vec![
            format!("--oidc-issuer-url=https://{address}"),
            "--oidc-client-id=me".to_owned(),
            format!("--oidc-ca-file={}", ca.display()),
        ],
        ..Options::default()
    };
    let server = Server::start(options).await;
    let claims =
        json!({"iss": format!("https://{address}"), "aud": "me", "sub": "x", "exp": 4_000_000_000_u64});
    let token = signed(&KEY, &json!({"alg": "ES256", "kid": "k"}), &claims);
    for _ in 0..20 {
        assert_eq!(who(server.client(), &token).await, Err(401));
    }
    assert_eq!(server.client().get("/api/v1/namespaces").await.status, 200);
    lying.abort();
}
