//! End-to-end tests of authentication and authorization (docs/api/authentication.md,
//! docs/api/authorization.md).

use std::sync::{Arc, LazyLock, Weak};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair,
};
use serde_json::{Value, json};
use tests::client::Identity;
use tests::{Client, Options, Server};
use tokio::sync::Mutex;

use crate::fixture::{Fixture, outcome, shared};

/// Users of the token file; the token is the name with `-token`.
const TOKENS: &str =
    "alice-token,alice,1001,\"devs,ops\"\nbob-token,bob,1002\nroot-token,root,1003,system:masters\n";

/// A CA of the tests, which the server is configured to trust.
static AUTHORITY: LazyLock<(String, Issuer<'static, KeyPair>)> = LazyLock::new(|| {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "clients");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let pem = params.self_signed(&key).unwrap().pem();
    (pem, Issuer::new(params, key))
});

/// Returns a fixture on the server of this file, which has token and certificate users.
async fn fixture(topic: &str) -> Fixture {
    static SLOT: Mutex<Weak<Server>> = Mutex::const_new(Weak::new());
    let options = Options {
        flags: vec![
            "--token-auth-file=$dir/tokens.csv".to_owned(),
            "--client-ca-file=$dir/clients.pem".to_owned(),
        ],
        files: vec![("tokens.csv", TOKENS.to_owned()), ("clients.pem", AUTHORITY.0.clone())],
        ..Options::default()
    };
    Fixture::on(shared(&SLOT, options).await, topic).await
}

fn token(fixture: &Fixture, user: &str) -> Client {
    fixture.client.with_token(&format!("{user}-token"))
}

/// Returns a client with a certificate. The CA of the tests signs the certificate if `trusted` is true.
fn certified(fixture: &Fixture, user: &str, groups: &[&str], trusted: bool) -> Client {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    for group in groups {
        params.distinguished_name.push(DnType::OrganizationName, *group);
    }
    if !user.is_empty() {
        params.distinguished_name.push(DnType::CommonName, user);
    }
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let key = KeyPair::generate().unwrap();
    let signed = if trusted { params.signed_by(&key, &AUTHORITY.1) } else { params.self_signed(&key) };
    let identity = Identity {
        certificate: signed.unwrap().pem().into_bytes(),
        key: key.serialize_pem().into_bytes(),
        ..fixture.client.identity().clone()
    };
    Client::new(identity)
}

/// Returns the user as which the server authenticates the client.
async fn who(client: &Client) -> Value {
    let review = client.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", &json!({})).await;
    assert_eq!(review.status, 201, "{}", review.text());
    review.json()["status"]["userInfo"].clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn anonymous_requests_can_read_only_health_and_version() {
    let fixture = fixture("anonymous").await;
    let anonymous = fixture.client.anonymous();
    for path in ["/healthz", "/livez", "/readyz", "/version"] {
        assert_eq!(anonymous.get(path).await.status, 200, "rbac {path}");
    }
    fixture
        .check_as(
            &anonymous,
            &[
                ("authorizers", "GET $core/pods", "", "403 Forbidden: pods is forbidden: User \"system:anonymous\" cannot list resource \"pods\" in API group \"\" in the namespace \"$ns\""),
                ("authorizers", "GET $core/pods?watch=1", "", "403 Forbidden: pods is forbidden: User \"system:anonymous\" cannot watch resource \"pods\" in API group \"\" in the namespace \"$ns\""),
                ("authorizers", "GET $core/pods/p", "", "403 Forbidden: pods \"p\" is forbidden: User \"system:anonymous\" cannot get resource \"pods\" in API group \"\" in the namespace \"$ns\""),
                ("authorizers", "GET /apis/apps/v1/deployments", "", "403 Forbidden: deployments.apps is forbidden: User \"system:anonymous\" cannot list resource \"deployments\" in API group \"apps\" at the cluster scope"),
                ("authorizers", "PATCH $apps/deployments/d/scale", "{}", "403 Forbidden: deployments.apps \"d\" is forbidden: User \"system:anonymous\" cannot patch resource \"deployments/scale\" in API group \"apps\" in the namespace \"$ns\""),
                ("authorizers", "DELETE $core/pods", "", "403 Forbidden: pods is forbidden: User \"system:anonymous\" cannot deletecollection resource \"pods\" in API group \"\" in the namespace \"$ns\""),
                ("authorizers", "POST $core/pods", "{}", "403 Forbidden: pods is forbidden: User \"system:anonymous\" cannot create resource \"pods\" in API group \"\" in the namespace \"$ns\""),
                ("authorizers", "GET /", "", "403 Forbidden: forbidden: User \"system:anonymous\" cannot get path \"/\""),
                ("authorizers", "GET /api", "", "403 Forbidden: forbidden: User \"system:anonymous\" cannot get path \"/api\""),
                ("authorizers", "GET /openapi/v2", "", "403 Forbidden: forbidden: User \"system:anonymous\" cannot get path \"/openapi/v2\""),
                ("authorizers", "POST /version", "", "403 Forbidden: forbidden: User \"system:anonymous\" cannot post path \"/version\""),
                ("authorizers", "GET /a%3Cb%3E&c", "", "403 Forbidden: forbidden: User \"system:anonymous\" cannot get path \"/a&lt;b&gt;&amp;c\""),
                // Absent objects are refused too: a refusal reveals nothing.
                ("stages", "GET /api/v1/nothing", "", "403 Forbidden: nothing is forbidden: User \"system:anonymous\" cannot list resource \"nothing\" in API group \"\" at the cluster scope"),
                ("stages", "GET /apis/nothing.example.com/v1/things", "", "403 Forbidden: things.nothing.example.com is forbidden: …"),
                ("identity-reviews", "POST /apis/authentication.k8s.io/v1/selfsubjectreviews", "{}", "403 Forbidden: selfsubjectreviews.authentication.k8s.io is forbidden: …"),
            ],
        )
        .await;
    let refused = fixture.send_as(&anonymous, "GET $apps/deployments/d", "").await;
    assert_eq!(
        refused.json()["details"],
        json!({"name": "d", "group": "apps", "kind": "deployments"}),
        "authorizers"
    );
    assert_eq!(refused.header_all("x-content-type-options"), ["nosniff"], "encoding-of-errors");
    assert_eq!(fixture.send_as(&anonymous, "GET /", "").await.json()["details"], json!({}), "messages");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_and_certificates_authenticate_users() {
    let fixture = fixture("identity").await;
    let groups = |own: &[&str]| {
        own.iter().chain(&["system:authenticated"]).map(|group| json!(group)).collect::<Vec<_>>()
    };
    let alice = who(&token(&fixture, "alice")).await;
    assert_eq!(
        alice,
        json!({"username": "alice", "uid": "1001", "groups": groups(&["devs", "ops"])}),
        "authenticators"
    );
    let bob = who(&token(&fixture, "bob")).await;
    assert_eq!(bob, json!({"username": "bob", "uid": "1002", "groups": groups(&[])}), "authenticators");
    let admin = who(&fixture.client).await;
    assert!(admin["groups"].as_array().unwrap().contains(&json!("system:masters")), "{admin}");
    let carol = who(&certified(&fixture, "carol", &["qa"], true)).await;
    assert_eq!(
        (&carol["username"], &carol["groups"]),
        (&json!("carol"), &json!(groups(&["qa"]))),
        "client-certificates"
    );
    let credential = carol["extra"]["authentication.kubernetes.io/credential-id"][0].as_str().unwrap();
    assert!(
        credential.starts_with("X509SHA256=") && credential.len() == 11 + 64,
        "client-certificates {credential}"
    );

    let path = "/api/v1/namespaces";
    let anonymous = fixture.client.anonymous();
    let mut wrong = Vec::new();
    for (section, header, client, want) in [
        // An unknown token is refused, although anonymous requests are allowed.
        ("bearer-tokens", "Bearer nonsense", &anonymous, 401),
        ("bearer-tokens", "bearer nonsense", &anonymous, 401),
        ("authenticators", "BEARER root-token", &anonymous, 200),
        // A header without a bearer token is ignored.
        ("bearer-tokens", "Basic YTpi", &anonymous, 403),
        ("bearer-tokens", "Bearer  root-token", &anonymous, 403),
        ("bearer-tokens", "Bearer", &anonymous, 403),
        ("bearer-tokens", "", &anonymous, 403),
        // Certificates are checked before tokens.
        ("authenticators", "Bearer nonsense", &fixture.client, 200),
        // A certificate of an unknown CA is an error, unless the token is valid.
        ("client-certificates", "", &certified(&fixture, "mallory", &["system:masters"], false), 401),
        ("authenticators", "Bearer root-token", &certified(&fixture, "mallory", &[], false), 200),
        // A certificate without a common name is ignored.
        ("client-certificates", "", &certified(&fixture, "", &["system:masters"], true), 403),
    ] {
        let headers: &[(&str, &str)] = if header.is_empty() { &[] } else { &[("authorization", header)] };
        let reply = client.send("GET", path, headers, b"").await;
        if reply.status != want {
            wrong.push(format!("{section} {header:?}: want {want}, got {}", outcome(&reply)));
        }
    }
    crate::fixture::report(&wrong);
    let refused = fixture.client.with_token("nonsense").get("/healthz").await;
    let want = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": "Unauthorized", "reason": "Unauthorized", "code": 401});
    assert_eq!(refused.json(), want, "messages");
    assert!(refused.header_all("www-authenticate").is_empty(), "encoding-of-errors");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn roles_grant_their_rules_in_the_scope_of_their_bindings() {
    let fixture = fixture("rbac").await;
    let other = self::fixture("rbac").await;
    let ns = &fixture.ns;
    let (reader, scaler) = (format!("{ns}-reader"), format!("{ns}-scaler"));
    let user = |name: &str| json!([{"kind": "User", "name": name}]);
    let role = |name: &str| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name});
    let cluster_role =
        |name: &str| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name});
    fixture
        .make(
            "$rbac/roles",
            &[
                json!({"metadata": {"name": "maps"}, "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch"]}]}),
                json!({"metadata": {"name": "only"}, "rules": [
                    {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["only"], "verbs": ["get", "list", "watch", "update", "delete", "deletecollection", "create"]},
                    {"apiGroups": [""], "resources": ["pods/*"], "verbs": ["*"]},
                    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]},
                    {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get"]},
                    {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["update"]},
                ]}),
            ],
        )
        .await;
    fixture
        .make(
            "/apis/rbac.authorization.k8s.io/v1/clusterroles",
            &[
                json!({"metadata": {"name": reader}, "rules": [{"apiGroups": ["apps"], "resources": ["*"], "verbs": ["get", "list"]}, {"nonResourceURLs": ["/metrics", "/debug/*"], "verbs": ["get"]}]}),
                json!({"metadata": {"name": scaler}, "rules": [{"apiGroups": ["*"], "resources": ["*/scale"], "verbs": ["get", "patch"]}]}),
            ],
        )
        .await;
    fixture
        .make(
            "$rbac/rolebindings",
            &[
                json!({"metadata": {"name": "devs"}, "subjects": [{"kind": "Group", "name": "devs"}], "roleRef": role("maps")}),
                json!({"metadata": {"name": "bob"}, "subjects": user("bob"), "roleRef": role("only")}),
                json!({"metadata": {"name": "apps"}, "subjects": user("bob"), "roleRef": cluster_role(&reader)}),
                json!({"metadata": {"name": "scale"}, "subjects": user("alice"), "roleRef": cluster_role(&scaler)}),
            ],
        )
        .await;
    fixture
        .make(
            "$core/secrets",
            &[json!({"metadata": {"name": "only"}}), json!({"metadata": {"name": "more"}})],
        )
        .await;
    let refused = |name: &str, user: &str, verb: &str, resource: &str| {
        let subject = if name.is_empty() { resource.to_owned() } else { format!("{resource} \"{name}\"") };
        format!(
            "403 Forbidden: {subject} is forbidden: User \"{user}\" cannot {verb} resource \"{resource}\" in API group \"\" in the namespace \"$ns\""
        )
    };
    let (alice, bob) = (token(&fixture, "alice"), token(&fixture, "bob"));
    fixture
        .check_as(
            &alice,
            &[
                ("rbac", "GET $core/configmaps", "", "200 ConfigMapList"),
                ("rbac", "GET $core/configmaps?watch=1&timeoutSeconds=-1&resourceVersion=1000000", "", "200"),
                ("rbac", "GET $core/secrets", "", &refused("", "alice", "list", "secrets")),
                ("rbac", "POST $core/configmaps", "{}", &refused("", "alice", "create", "configmaps")),
                ("rbac", "GET /api/v1/configmaps", "", "403 Forbidden: configmaps is forbidden: User \"alice\" cannot list resource \"configmaps\" in API group \"\" at the cluster scope"),
                ("rbac", &format!("GET /api/v1/namespaces/{}/configmaps", other.ns), "", "403 Forbidden: …"),
                ("rbac", "GET $apps/deployments/none/scale", "", "404 NotFound: deployments.apps \"none\" not found"),
                ("rbac", "GET $core/replicationcontrollers/none/scale", "", "404 NotFound: replicationcontrollers \"none\" not found"),
                ("rbac", "GET $apps/deployments/none", "", "403 Forbidden: …"),
                ("rbac", "GET /api/v1/namespaces/$ns", "", "403 Forbidden: namespaces \"$ns\" is forbidden: User \"alice\" cannot get resource \"namespaces\" in API group \"\" in the namespace \"$ns\""),
                // Discovery is open to every authenticated user.
                ("rbac", "GET /api", "", "200 APIVersions"),
                ("rbac", "GET /apis/apps/v1", "", "200 APIResourceList"),
                ("rbac", "GET /metrics", "", "403 Forbidden: forbidden: User \"alice\" cannot get path \"/metrics\""),
            ],
        )
        .await;
    fixture
        .check_as(
            &bob,
            &[
                // A rule with resource names applies only to a request with a name in its path or field selector.
                ("rbac", "GET $core/secrets/only", "", "200 Secret"),
                ("rbac", "GET $core/secrets/more", "", &refused("more", "bob", "get", "secrets")),
                ("rbac", "GET $core/secrets", "", &refused("", "bob", "list", "secrets")),
                ("rbac", "GET $core/secrets?fieldSelector=metadata.name%3Donly", "", "200 SecretList"),
                ("rbac", "GET $core/secrets?fieldSelector=metadata.name%3Dmore", "", &refused("more", "bob", "list", "secrets")),
                ("rbac", "GET $core/secrets?fieldSelector=metadata.name!%3Donly", "", &refused("", "bob", "list", "secrets")),
                ("rbac", "GET $core/secrets?watch=1&fieldSelector=metadata.name%3Donly&timeoutSeconds=-1&resourceVersion=1000000", "", "200"),
                ("rbac", "GET $core/secrets?watch=1&timeoutSeconds=-1", "", &refused("", "bob", "watch", "secrets")),
                ("rbac", "GET /api/v1/watch/namespaces/$ns/secrets/only?timeoutSeconds=-1&resourceVersion=1000000", "", "200"),
                ("rbac", "DELETE $core/secrets?fieldSelector=metadata.name%3Donly", "", &refused("", "bob", "deletecollection", "secrets")),
                ("rbac", "POST $core/secrets", r#"{"metadata":{"name":"only"}}"#, &refused("", "bob", "create", "secrets")),
                // `pods/*` is not a pattern, and `pods` does not cover its subresources.
                ("rbac", "GET $core/pods/none", "", "404 NotFound: pods \"none\" not found"),
                ("rbac", "GET $core/pods/none/status", "", "403 Forbidden: pods \"none\" is forbidden: User \"bob\" cannot get resource \"pods/status\" in API group \"\" in the namespace \"$ns\""),
                ("rbac", "GET $core/pods/none/log", "", "403 Forbidden: pods \"none\" is forbidden: User \"bob\" cannot get resource \"pods/log\" in API group \"\" in the namespace \"$ns\""),
                // The request for a namespace object belongs to that namespace.
                ("rbac", "GET /api/v1/namespaces/$ns", "", "200 Namespace"),
                ("rbac", "GET /api/v1/namespaces", "", "403 Forbidden: namespaces is forbidden: User \"bob\" cannot list resource \"namespaces\" in API group \"\" at the cluster scope"),
                // A ClusterRole that is bound in a namespace applies there, and its non-resource URLs do not
                // apply at all.
                ("rbac", "GET $apps/deployments", "", "200 DeploymentList"),
                ("rbac", "GET $apps/deployments/none/status", "", "404 NotFound: …"),
                ("rbac", "GET /apis/apps/v1/deployments", "", "403 Forbidden: deployments.apps is forbidden: User \"bob\" cannot list resource \"deployments\" in API group \"apps\" at the cluster scope"),
                ("rbac", "GET /metrics", "", "403 Forbidden: forbidden: User \"bob\" cannot get path \"/metrics\""),
                // A PUT that creates needs the permission to create.
                ("authentication", "PUT $lease/leases/new", r#"{"metadata":{"name":"new"}}"#, "403 Forbidden: leases.coordination.k8s.io \"new\" is forbidden: User \"bob\" cannot create resource \"leases\" in API group \"coordination.k8s.io\" in the namespace \"$ns\""),
            ],
        )
        .await;
    // A binding to an absent role grants nothing and reports it.
    fixture
        .make(
            "$rbac/rolebindings",
            &[json!({"metadata": {"name": "ghost"}, "subjects": user("bob"), "roleRef": role("ghost")})],
        )
        .await;
    fixture
        .check_as(
            &bob,
            &[(
                "authorizers",
                "GET $core/pods",
                "",
                &format!(
                    "{}: RBAC: role.rbac.authorization.k8s.io \"ghost\" not found",
                    refused("", "bob", "list", "pods")
                ),
            )],
        )
        .await;
    // A role that is bound cluster-wide applies in all namespaces and to its non-resource URLs. Removing the
    // binding takes effect immediately.
    let binding =
        json!({"metadata": {"name": reader}, "subjects": user("bob"), "roleRef": cluster_role(&reader)});
    fixture.make("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &[binding]).await;
    fixture
        .check_as(
            &bob,
            &[
                ("rbac", "GET /apis/apps/v1/deployments", "", "200 DeploymentList"),
                (
                    "rbac",
                    &format!("GET /apis/apps/v1/namespaces/{}/deployments", other.ns),
                    "",
                    "200 DeploymentList",
                ),
                ("rbac", "GET /debug/anything", "", "404 text: 404 page not found\n"),
            ],
        )
        .await;
    fixture.send("DELETE /apis/rbac.authorization.k8s.io/v1/clusterrolebindings/$ns-reader", "").await;
    fixture.check_as(&bob, &[("rbac", "GET /apis/apps/v1/deployments", "", "403 Forbidden: …")]).await;
    // Members of system:masters pass without a check.
    fixture
        .check_as(
            &token(&fixture, "root"),
            &[
                ("authorizers", "DELETE $core/secrets", "", "200 SecretList"),
                ("authorizers", "GET /metrics-of-none", "", "404 text: 404 page not found\n"),
                ("metrics", "GET /metrics/", "", "404 text: 404 page not found\n"),
            ],
        )
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_impersonating_request_runs_as_the_impersonated_user_or_is_refused() {
    let fixture = fixture("impersonation").await;
    let root = token(&fixture, "root");
    let path = "/api/v1/namespaces/default/configmaps";
    for (headers, status, message) in [
        (&[("Impersonate-User", "alice")][..], 403, "User \"alice\" cannot list resource \"configmaps\""),
        (&[("Impersonate-User", "alice"), ("impersonate-group", "system:masters")], 200, ""),
        (&[("impersonate-group", "system:masters")], 400, "without impersonating a user name"),
        (&[("Impersonate-Uid", "1")], 400, "without impersonating a user name"),
        (&[("Impersonate-Extra-scopes", "view")], 400, "without impersonating a user name"),
    ] {
        let reply = root.send("GET", path, headers, b"").await;
        assert_eq!(reply.status, status, "{headers:?}: {}", reply.text());
        assert!(reply.text().contains(&message.replace('"', "\\\"")), "{headers:?}: {}", reply.text());
    }
    // The server authenticates the user before it evaluates the impersonation headers.
    let reply =
        fixture.client.with_token("x").send("GET", "/version", &[("Impersonate-User", "alice")], b"").await;
    assert_eq!(reply.status, 401);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn labelling_a_role_for_aggregation_needs_the_permissions_of_its_rules() {
    let fixture = fixture("aggregate").await;
    let manager = json!({"metadata": {"name": "labeller"}, "rules": [
        {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"], "verbs": ["get", "create", "update", "patch"]},
    ]});
    fixture.send("POST /apis/rbac.authorization.k8s.io/v1/clusterroles", &manager.to_string()).await;
    for role in ["labeller", "view"] {
        let binding = json!({"metadata": {"name": format!("labeller-{role}")},
            "subjects": [{"kind": "User", "name": "labeller"}],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}});
        let made = fixture
            .send("POST /apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &binding.to_string())
            .await;
        assert_eq!(outcome(&made), "201 ClusterRoleBinding");
    }
    let labeller = certified(&fixture, "labeller", &[], true);
    let path = "/apis/rbac.authorization.k8s.io/v1/clusterroles/cluster-admin";
    let label = r#"{"metadata":{"labels":{"rbac.authorization.k8s.io/aggregate-to-view":"true"}}}"#;
    let mut whole = fixture.client.get(path).await.json();
    whole["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-view"] = json!("true");
    let config = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {
        "name": "cluster-admin", "labels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"}}});
    let pointer = "/metadata/labels/rbac.authorization.k8s.io~1aggregate-to-view";
    let added = json!([{"op": "add", "path": pointer, "value": "true"}]);
    for (verb, query, content, body) in [
        ("PUT", "", "json", whole.to_string()),
        ("PATCH", "", "merge-patch+json", label.to_owned()),
        ("PATCH", "", "strategic-merge-patch+json", label.to_owned()),
        ("PATCH", "", "json-patch+json", added.to_string()),
        ("PATCH", "?fieldManager=m", "apply-patch+yaml", config.to_string()),
    ] {
        let content = format!("application/{content}");
        let (path, headers) = (format!("{path}{query}"), [("content-type", content.as_str())]);
        let reply = labeller.send(verb, &path, &headers, body.as_bytes()).await;
        assert_eq!(reply.status, 403, "{verb} {content}: {}", reply.text());
    }
    assert_eq!(labeller.get("/api/v1/secrets").await.status, 403);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writers_cannot_grant_permissions_they_do_not_hold() {
    let fixture = fixture("escalation").await;
    let manager = json!({"metadata": {"name": "manager"}, "rules": [
        {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles", "rolebindings"], "verbs": ["get", "create", "update", "patch"]},
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]},
    ]});
    let secrets = json!({"metadata": {"name": "secrets"}, "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]});
    let maps = json!({"metadata": {"name": "maps"}, "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]});
    fixture.make("$rbac/roles", &[manager, secrets, maps]).await;
    let reference =
        |name: &str| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name});
    let bind = |name: &str, role: &str| {
        json!({"metadata": {"name": name}, "subjects": [{"kind": "User", "name": "bob"}], "roleRef": reference(role)}).to_string()
    };
    fixture.send("POST $rbac/rolebindings", &bind("manager", "manager")).await;
    let bob = token(&fixture, "bob");
    let held = r#"{"metadata":{"name":"held"},"rules":[{"apiGroups":[""],"resources":["configmaps"],"verbs":["get"]}]}"#;
    let not_held = r#"{"metadata":{"name":"held"},"rules":[{"apiGroups":[""],"resources":["pods"],"verbs":["get","list"]}]}"#;
    let why = "is attempting to grant RBAC permissions not currently held:\n";
    fixture
        .check_as(
            &bob,
            &[
                ("rbac", "POST $rbac/roles", held, "201 Role"),
                ("rbac", "POST $rbac/roles", &not_held.replace("held", "more"), &format!("403 Forbidden: roles.rbac.authorization.k8s.io \"more\" is forbidden: user \"bob\" (groups=[\"system:authenticated\"]) {why}{{APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"get\" \"list\"]}}")),
                ("rbac", "PUT $rbac/roles/held", not_held, &format!("403 Forbidden: roles.rbac.authorization.k8s.io \"held\" is forbidden: user \"bob\" (groups=[\"system:authenticated\"]) {why}…")),
                ("rbac", "PATCH $rbac/roles/held", r#"{"rules":[{"apiGroups":["*"],"resources":["*"],"verbs":["*"]}]}"#, &format!("403 Forbidden: roles.rbac.authorization.k8s.io \"held\" is forbidden: user \"bob\" (groups=[\"system:authenticated\"]) {why}…")),
                ("rbac", "PATCH $rbac/roles/maps", r#"{"metadata":{"labels":{"a":"b"}}}"#, "200 Role"),
                // A change of labels is checked, because a label can add the rules to an aggregated role.
                ("rbac", "PATCH $rbac/roles/secrets", r#"{"metadata":{"labels":{"a":"b"}}}"#, &format!("403 Forbidden: roles.rbac.authorization.k8s.io \"secrets\" is forbidden: user \"bob\" (groups=[\"system:authenticated\"]) {why}…")),
                ("rbac", "PATCH $rbac/roles/secrets", r#"{"metadata":{"annotations":{"a":"b"}}}"#, &format!("403 Forbidden: roles.rbac.authorization.k8s.io \"secrets\" is forbidden: user \"bob\" (groups=[\"system:authenticated\"]) {why}…")),
                ("rbac", "PATCH $rbac/roles/secrets", r#"{"metadata":{"finalizers":["example.com/f"]}}"#, "200 Role"),
                ("rbac", "PATCH $rbac/roles/secrets", r#"{"metadata":{"finalizers":null}}"#, "200 Role"),
                ("rbac", "POST $rbac/rolebindings", &bind("maps", "maps"), "201 RoleBinding"),
                ("rbac", "POST $rbac/rolebindings", &bind("secrets", "secrets"), &format!("403 Forbidden: rolebindings.rbac.authorization.k8s.io \"secrets\" is forbidden: user \"bob\" (groups=[\"system:authenticated\"]) {why}…")),
                ("rbac", "POST $rbac/rolebindings", &bind("ghost", "ghost"), "404 NotFound: rolebindings.rbac.authorization.k8s.io \"ghost\" not found"),
                ("rbac", "POST $rbac/rolebindings", &bind("nobody", ""), "400 BadRequest: Name parameter required."),
                ("rbac", "POST $rbac/rolebindings", &bind("nobody", "a/b"), "400 BadRequest: Name parameter invalid: \"a/b\": may not contain '/'"),
                ("rbac", "PUT $rbac/roles/other", &held.replace("held", "other"), "201 Role"),
            ],
        )
        .await;
    // The verbs `escalate` and `bind` exempt from the check.
    let lifted = r#"{"rules":[{"apiGroups":["rbac.authorization.k8s.io"],"resources":["roles"],"verbs":["get","create","escalate","bind","patch"]},{"apiGroups":["rbac.authorization.k8s.io"],"resources":["rolebindings"],"verbs":["create"]}]}"#;
    assert_eq!(outcome(&fixture.send("PATCH $rbac/roles/manager", lifted).await), "200 Role");
    fixture
        .check_as(
            &bob,
            &[
                ("rbac", "POST $rbac/roles", &not_held.replace("held", "more"), "201 Role"),
                ("rbac", "POST $rbac/rolebindings", &bind("secrets", "secrets"), "201 RoleBinding"),
            ],
        )
        .await;
    fixture
        .check(&[
            ("rbac", "PATCH $rbac/rolebindings/maps", &json!({"roleRef": reference("secrets")}).to_string(), "422 Invalid: RoleBinding.rbac.authorization.k8s.io \"maps\" is invalid: roleRef: Invalid value: …"),
            ("rbac", "POST $rbac/roles", r#"{"metadata":{"name":"bad"},"rules":[{"apiGroups":[""],"resources":["pods"]}]}"#, "422 Invalid: Role.rbac.authorization.k8s.io \"bad\" is invalid: rules[0].verbs: Required value: …"),
        ])
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn access_and_identity_reviews_answer_for_the_caller_and_for_others() {
    let fixture = fixture("reviews").await;
    let ns = &fixture.ns;
    fixture.make("$rbac/roles", &[json!({"metadata": {"name": "maps"}, "rules": [{"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["a"], "verbs": ["get"]}]})]).await;
    let subjects = json!([{"kind": "User", "name": "alice"}, {"kind": "ServiceAccount", "name": "robot"}]);
    fixture.make("$rbac/rolebindings", &[json!({"metadata": {"name": "b"}, "subjects": subjects, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "maps"}})]).await;
    let alice = token(&fixture, "alice");
    let group = "/apis/authorization.k8s.io/v1";
    let get = |name: &str| json!({"namespace": ns, "verb": "get", "resource": "configmaps", "name": name});
    let allowed = |kind: &str, subject: &str| json!({"allowed": true, "reason": format!("RBAC: allowed by {kind} of Role \"maps\" to {subject}")});
    for (section, client, path, spec, want) in [
        (
            "access-reviews",
            &fixture.client,
            "subjectaccessreviews",
            json!({"user": "alice", "resourceAttributes": get("a")}),
            allowed(&format!("RoleBinding \"b/{ns}\""), "User \"alice\""),
        ),
        (
            "access-reviews",
            &fixture.client,
            "subjectaccessreviews",
            json!({"user": "alice", "resourceAttributes": get("z")}),
            json!({"allowed": false}),
        ),
        (
            "access-reviews",
            &fixture.client,
            "subjectaccessreviews",
            json!({"user": format!("system:serviceaccount:{ns}:robot"), "resourceAttributes": get("a")}),
            allowed(&format!("RoleBinding \"b/{ns}\""), &format!("ServiceAccount \"robot/{ns}\"")),
        ),
        (
            "authorizers",
            &fixture.client,
            "subjectaccessreviews",
            json!({"groups": ["system:masters"], "resourceAttributes": get("z")}),
            json!({"allowed": true}),
        ),
        (
            "access-reviews",
            &fixture.client,
            "subjectaccessreviews",
            json!({"user": "x", "groups": ["system:unauthenticated"], "nonResourceAttributes": {"path": "/healthz", "verb": "get"}}),
            json!({"allowed": true, "reason": "RBAC: allowed by ClusterRoleBinding \"system:public-info-viewer\" of ClusterRole \"system:public-info-viewer\" to Group \"system:unauthenticated\""}),
        ),
        (
            "access-reviews",
            &alice,
            "selfsubjectaccessreviews",
            json!({"resourceAttributes": get("a")}),
            allowed(&format!("RoleBinding \"b/{ns}\""), "User \"alice\""),
        ),
        (
            "access-reviews",
            &alice,
            "selfsubjectaccessreviews",
            json!({"resourceAttributes": {"verb": "*", "resource": "*"}}),
            json!({"allowed": false}),
        ),
    ] {
        let reply = client.post(&format!("{group}/{path}"), &json!({"spec": spec})).await;
        assert_eq!(reply.status, 201, "identity-reviews {}", reply.text());
        assert_eq!(reply.json()["status"], want, "{section} {path} {spec}");
    }
    let local = |namespace: &str| json!({"metadata": {"namespace": ns}, "spec": {"user": "alice", "resourceAttributes": {"namespace": namespace, "verb": "get", "resource": "configmaps", "name": "a"}}});
    let path = format!("{group}/namespaces/{ns}/localsubjectaccessreviews");
    let reply = fixture.client.post(&path, &local(ns)).await;
    assert_eq!((reply.status, &reply.json()["status"]["allowed"]), (201, &json!(true)), "access-reviews");
    let start = "422 Invalid: .authorization.k8s.io \"\" is invalid: ";
    fixture
        .check(&[
            ("access-reviews", "POST /apis/authorization.k8s.io/v1/subjectaccessreviews", r#"{"spec":{"user":"x"}}"#, &format!("{start}spec.resourceAttributes: Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified")),
            ("access-reviews", "POST /apis/authorization.k8s.io/v1/subjectaccessreviews", r#"{"spec":{"resourceAttributes":{"verb":"get"}}}"#, &format!("{start}spec.user: Invalid value: \"\": at least one of user or group must be specified")),
            ("access-reviews", "POST /apis/authorization.k8s.io/v1/subjectaccessreviews", r#"{"spec":{"user":"x","resourceAttributes":{"verb":"get"},"nonResourceAttributes":{"path":"/"}}}"#, &format!("{start}spec.nonResourceAttributes: Invalid value: {{\"Path\":\"/\",\"Verb\":\"\"}}: cannot be specified in combination with resourceAttributes")),
            ("access-reviews", "POST /apis/authorization.k8s.io/v1/namespaces/$ns/localsubjectaccessreviews", r#"{"metadata":{"namespace":"$ns"},"spec":{"user":"x","nonResourceAttributes":{"path":"/"}}}"#, &format!("{start}spec.nonResourceAttributes: Invalid value: {{\"Path\":\"/\",\"Verb\":\"\"}}: disallowed on this kind of request")),
            ("access-reviews", "POST /apis/authorization.k8s.io/v1/namespaces/$ns/localsubjectaccessreviews", r#"{"metadata":{"namespace":"$ns"},"spec":{"user":"x"}}"#, &format!("{start}spec.resourceAttributes: Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified")),
            ("access-reviews", "POST /apis/authorization.k8s.io/v1/namespaces/$ns/localsubjectaccessreviews", &local("other").to_string(), "422 Invalid: .authorization.k8s.io \"\" is invalid: spec.resourceAttributes.namespace: Invalid value: \"other\": must match metadata.namespace"),
            ("access-reviews", "POST /apis/authorization.k8s.io/v1/selfsubjectrulesreviews", r#"{"spec":{}}"#, "400 BadRequest: no namespace on request"),
            ("identity-reviews", "POST /apis/authentication.k8s.io/v1/tokenreviews", r#"{"spec":{}}"#, "400 BadRequest: token is required for TokenReview in authentication"),
        ])
        .await;

    let mut named = local(ns);
    named["metadata"]["name"] = json!("n");
    let reply = fixture.client.post(&path, &named).await;
    assert!(
        reply.text().contains("}]}: must be empty except for namespace"),
        "access-reviews {}",
        reply.text()
    );

    let rules = alice
        .post(&format!("{group}/selfsubjectrulesreviews"), &json!({"spec": {"namespace": ns}}))
        .await
        .json();
    let held = rules["status"]["resourceRules"].as_array().unwrap();
    assert!(
        held.contains(
            &json!({"verbs": ["get"], "apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["a"]})
        ),
        "access-reviews {rules}"
    );
    assert_eq!(rules["status"]["incomplete"], false, "access-reviews");
    assert_eq!((&rules["metadata"], &rules["spec"]), (&json!({}), &json!({})), "access-reviews");
    let urls = rules["status"]["nonResourceRules"].to_string();
    assert!(urls.contains("\"/healthz\"") && urls.contains("\"/api\""), "access-reviews {urls}");

    let review = |token: &str| json!({"spec": {"token": token}});
    let path = "/apis/authentication.k8s.io/v1/tokenreviews";
    let known = fixture.client.post(path, &review("alice-token")).await.json();
    assert_eq!(
        known["status"],
        json!({"authenticated": true, "audiences": ["https://kubernetes.default.svc.cluster.local"], "user": {"username": "alice", "uid": "1001", "groups": ["devs", "ops", "system:authenticated"]}}),
        "identity-reviews"
    );
    assert_eq!(known["spec"]["token"], "alice-token", "identity-reviews");
    let unknown = fixture.client.post(path, &review("nonsense")).await.json();
    assert_ne!(unknown["status"]["authenticated"], true, "identity-reviews");
    assert!(
        unknown["status"]["error"].as_str().unwrap().contains("invalid bearer token"),
        "identity-reviews {unknown}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn authorization_modes_are_evaluated_in_order() {
    let start = |mode: &str| {
        let flags =
            vec!["--token-auth-file=$dir/tokens.csv".to_owned(), format!("--authorization-mode={mode}")];
        Server::start(Options { flags, files: vec![("tokens.csv", TOKENS.to_owned())], ..Options::default() })
    };
    let denied = Fixture::on(Arc::new(start("AlwaysDeny").await), "modes").await;
    let refused = |client: &str| {
        format!(
            "403 Forbidden: pods is forbidden: User \"{client}\" cannot list resource \"pods\" in API group \"\" in the namespace \"$ns\": Everything is forbidden."
        )
    };
    denied.check_as(&token(&denied, "alice"), &[("authorizers", "GET $core/pods", "", &refused("alice")), ("authorizers", "GET /healthz", "", "403 Forbidden: forbidden: User \"alice\" cannot get path \"/healthz\": Everything is forbidden.")]).await;
    denied
        .check_as(
            &denied.client.anonymous(),
            &[("authorizers", "GET $core/pods", "", &refused("system:anonymous"))],
        )
        .await;
    denied.check_as(&token(&denied, "root"), &[("authorizers", "GET $core/pods", "", "200 PodList")]).await;
    drop(denied);

    // With AlwaysAllow, anonymous requests are refused unless a flag enables them.
    let allowed = Fixture::on(Arc::new(start("AlwaysAllow").await), "modes").await;
    allowed
        .check_as(
            &token(&allowed, "alice"),
            &[
                ("authorizers", "GET $core/pods", "", "200 PodList"),
                ("authorizers", "DELETE $core/pods", "", "200 PodList"),
            ],
        )
        .await;
    allowed
        .check_as(
            &allowed.client.anonymous(),
            &[("authorizers", "GET $core/pods", "", "401 Unauthorized: Unauthorized")],
        )
        .await;
    drop(allowed);

    let both = Fixture::on(Arc::new(start("RBAC,AlwaysAllow").await), "modes").await;
    both.check_as(&token(&both, "bob"), &[("authorizers", "GET $core/pods", "", "200 PodList")]).await;
}
