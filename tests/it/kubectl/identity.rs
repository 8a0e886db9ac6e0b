//! Tests of kubectl commands about identity: certificates that are requested and approved, tokens,
//! permission checks, impersonation, credential programs, and a node that joins with a bootstrap token
//! (docs/api/authentication.md, docs/api/authorization.md, docs/api/controllers.md#certificates).

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use tests::{Options, Server};

use super::Kubectl;

/// Returns a key and a certificate request that is signed with the key.
fn request(name: &str, groups: &[&str]) -> (KeyPair, String) {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    for group in groups {
        params.distinguished_name.push(DnType::OrganizationName, *group);
    }
    params.distinguished_name.push(DnType::CommonName, name);
    let key = KeyPair::generate().unwrap();
    let request = params.serialize_request(&key).unwrap().pem().unwrap();
    (key, request)
}

fn manifest(name: &str, request: &str, signer: &str, usages: &str) -> String {
    format!(
        "apiVersion: certificates.k8s.io/v1\nkind: CertificateSigningRequest\nmetadata: {{name: {name}}}\nspec: {{request: \
         {}, signerName: kubernetes.io/{signer}, usages: [{usages}]}}\n",
        STANDARD.encode(request)
    )
}

/// Writes a kubeconfig with the server of the kubeconfig `from` and with this user.
fn kubeconfig(from: &Path, to: &Path, user: &str) {
    let text = std::fs::read_to_string(from).unwrap();
    let start = text.find("users:").unwrap();
    let end = text.find("contexts:").unwrap();
    let name = text.lines().find_map(|line| line.strip_prefix("current-context: ")).unwrap();
    let users = format!("users:\n- name: {name}-admin\n  user: {user}\n");
    std::fs::write(to, [&text[..start], &users, &text[end..]].concat()).unwrap();
}

/// Waits until a request has a certificate, and returns it.
async fn certificate(kubectl: &Kubectl, name: &str) -> String {
    let wait = format!("wait '--for=jsonpath={{.status.certificate}}' csr/{name} --timeout=120s");
    kubectl.ok(&wait).await;
    let text = kubectl.ok(&format!("get csr {name} -o 'jsonpath={{.status.certificate}}'")).await;
    String::from_utf8(STANDARD.decode(text).unwrap()).unwrap()
}

fn inline(certificate: &str, key: &KeyPair) -> String {
    let (certificate, key) = (STANDARD.encode(certificate), STANDARD.encode(key.serialize_pem()));
    format!("{{client-certificate-data: {certificate}, client-key-data: {key}}}")
}

/// Returns a kubectl whose kubeconfig has this user.
fn as_user(kubectl: &Kubectl, name: &str, user: &str) -> Kubectl {
    let path = kubectl.home.path().join(name);
    kubeconfig(&kubectl.kubeconfig, &path, user);
    Kubectl { program: "kubectl".into(), kubeconfig: path, home: tests::server::TempDir::new() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_approved_certificate_request_gives_a_certificate_that_authenticates() {
    let server = Server::start_upstream().await;
    let Some(kubectl) = Kubectl::find(&server).await else { return };
    let (key, text) = request("jane", &["dev"]);
    let usages = "client auth, digital signature";
    kubectl.ok_with("create -f -", &manifest("jane", &text, "kube-apiserver-client", usages)).await;
    let said = kubectl.ok("certificate approve jane").await;
    assert_eq!(said, "certificatesigningrequest.certificates.k8s.io/jane approved\n");
    let jane = as_user(&kubectl, "jane", &inline(&certificate(&kubectl, "jane").await, &key));
    let who =
        jane.ok("auth whoami -o 'jsonpath={.status.userInfo.username} {.status.userInfo.groups}'").await;
    assert_eq!(who, "jane [\"dev\",\"system:authenticated\"]");

    // A request that violates the rules of its signer fails with the reason; a denied request stays unsigned.
    kubectl.ok_with("create -f -", &manifest("odd", &text, "kube-apiserver-client", "server auth")).await;
    kubectl.ok("certificate approve odd").await;
    kubectl.ok("wait --for=condition=Failed csr/odd --timeout=120s").await;
    let why = kubectl
        .ok("get csr odd -o 'jsonpath={.status.conditions[1].reason}: {.status.conditions[1].message}'")
        .await;
    assert_eq!(why, "SignerValidationFailure: invalid usage for client certificate: server auth");
    kubectl.ok_with("create -f -", &manifest("denied", &text, "kube-apiserver-client", usages)).await;
    kubectl.ok("certificate deny denied").await;
    assert_eq!(kubectl.ok("get csr denied -o 'jsonpath={.status.certificate}'").await, "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_joins_with_a_bootstrap_token() {
    let options = Options {
        flags: vec![
            "--enable-bootstrap-token-auth".to_owned(),
            "--authorization-mode=Node,RBAC".to_owned(),
            "--enable-admission-plugins=NodeRestriction".to_owned(),
        ],
        ..Options::default()
    };
    let server = Server::start(options).await;
    let Some(kubectl) = Kubectl::find(&server).await else { return };
    // Create the objects that kubeadm creates: the token, and the permissions to request a certificate and to get it
    // approved.
    kubectl
        .ok("create secret generic bootstrap-token-abcdef -n kube-system --type=bootstrap.kubernetes.io/token \
             --from-literal=token-id=abcdef --from-literal=token-secret=0123456789abcdef \
             --from-literal=usage-bootstrap-authentication=true")
        .await;
    for (name, role) in [
        ("bootstrap", "system:node-bootstrapper"),
        ("approve", "system:certificates.k8s.io:certificatesigningrequests:nodeclient"),
    ] {
        kubectl
            .ok(&format!(
                "create clusterrolebinding {name} --clusterrole={role} --group=system:bootstrappers"
            ))
            .await;
    }
    let joining = as_user(&kubectl, "joining", "{token: abcdef.0123456789abcdef}");
    let (key, text) = request("system:node:n1", &["system:nodes"]);
    let csr = manifest("n1", &text, "kube-apiserver-client-kubelet", "client auth, digital signature");
    joining.ok_with("create -f -", &csr).await;
    let node = as_user(&kubectl, "node", &inline(&certificate(&kubectl, "n1").await, &key));
    assert_eq!(
        kubectl.ok("get csr n1 -o 'jsonpath={.status.conditions[0].reason}'").await,
        "AutoApproved",
        "the controller approves the request"
    );
    let object = "apiVersion: v1\nkind: Node\nmetadata: {name: NAME}\n";
    node.ok_with("create -f -", &object.replace("NAME", "n1")).await;
    let refused = node.run("create -f -", &object.replace("NAME", "n2")).await;
    assert!(refused.err.contains("node \"n1\" is not allowed to modify node \"n2\""), "{}", refused.err);

    // The node renews its certificate by itself, and gets a serving certificate once the request for it is approved.
    kubectl
        .ok("create clusterrolebinding renew --group=system:nodes \
             --clusterrole=system:certificates.k8s.io:certificatesigningrequests:selfnodeclient")
        .await;
    let csr = manifest("again", &text, "kube-apiserver-client-kubelet", "client auth, digital signature");
    node.ok_with("create -f -", &csr).await;
    certificate(&kubectl, "again").await;
    let mut params = CertificateParams::new(["n1.example".to_owned()]).unwrap();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
    params.distinguished_name.push(DnType::CommonName, "system:node:n1");
    let text = params.serialize_request(&key).unwrap().pem().unwrap();
    node.ok_with(
        "create -f -",
        &manifest("serving", &text, "kubelet-serving", "server auth, digital signature"),
    )
    .await;
    kubectl.ok("certificate approve serving").await;
    assert!(certificate(&kubectl, "serving").await.starts_with("-----BEGIN CERTIFICATE-----"));
    // A node cannot request a certificate for another node's name.
    let (_, text) = request("system:node:n2", &["system:nodes"]);
    let csr = manifest("stolen", &text, "kube-apiserver-client-kubelet", "client auth, digital signature");
    let refused = node.run("create -f -", &csr).await;
    assert!(refused.err.contains("can only create a node CSR with CN=system:node:n1"), "{}", refused.err);
}

const ROLES: &str = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: reading}
rules: [{apiGroups: [""], resources: [configmaps], verbs: [get, list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: reading}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: reading}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: readers}]
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_auth_reconciles_lists_and_tests_permissions() {
    let server = Server::start_upstream().await;
    let Some(kubectl) = Kubectl::find(&server).await else { return };
    let said = kubectl.ok_with("auth reconcile -f -", ROLES).await;
    assert!(said.contains("clusterrole.rbac.authorization.k8s.io/reading reconciled"), "{said}");
    kubectl.ok_with("auth reconcile -f -", ROLES).await;
    kubectl
        .says(&[
            ("auth can-i get configmaps", "yes"),
            ("auth can-i get configmaps --as=joe", "no"),
            ("auth can-i get configmaps --as=joe --as-group=readers", "yes"),
            ("auth can-i delete configmaps --as=joe --as-group=readers", "no"),
            ("auth can-i get /metrics --as=joe", "no"),
            (
                "get secrets --as=joe --as-group=readers",
                "Error from server (Forbidden): secrets is forbidden: User \"joe\" cannot list resource \"secrets\" in API \
                 group \"\" in the namespace \"default\"",
            ),
            (
                "auth whoami --as=joe --as-group=readers --as-uid=7 -o 'jsonpath={.status.userInfo}'",
                "{\"groups\":[\"readers\",\"system:authenticated\"],\"uid\":\"7\",\"username\":\"joe\"}",
            ),
        ])
        .await;
    let list = kubectl.ok("auth can-i --list --as=joe --as-group=readers").await;
    let configmaps = list.lines().find(|line| line.starts_with("configmaps")).unwrap_or_default();
    assert!(configmaps.ends_with("[get list]"), "{list}");
    assert!(list.contains("selfsubjectaccessreviews.authorization.k8s.io"), "{list}");

    let account = "/api/v1/namespaces/default/serviceaccounts/default";
    server.client().until(account, |account| account.is_some()).await;
    let token = kubectl
        .ok("create token default --duration=10m --audience=https://kubernetes.default.svc.cluster.local")
        .await;
    let account = as_user(&kubectl, "account", &format!("{{token: {}}}", token.trim()));
    let who = account.ok("auth whoami -o 'jsonpath={.status.userInfo.username}'").await;
    assert_eq!(who, "system:serviceaccount:default:default");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_exec_plugin_gives_kubectl_its_credentials() {
    let options = Options {
        flags: vec!["--token-auth-file=$dir/tokens.csv".to_owned()],
        files: vec![("tokens.csv", "program-token,robot,1,system:masters\n".to_owned())],
        ..Options::default()
    };
    let server = Server::start(options).await;
    let Some(kubectl) = Kubectl::find(&server).await else { return };
    let program = kubectl.home.path().join("program");
    for version in ["v1", "v1beta1"] {
        let script = format!(
            "#!/bin/sh\nprintf '{{\"kind\":\"ExecCredential\",\"apiVersion\":\"client.authentication.k8s.io/{version}\",\
             \"status\":{{\"token\":\"program-token\"}}}}'\n"
        );
        std::fs::write(&program, script).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700)).unwrap();
        let user = format!(
            "{{exec: {{apiVersion: client.authentication.k8s.io/{version}, command: {}, interactiveMode: Never}}}}",
            program.display()
        );
        let robot = as_user(&kubectl, "robot", &user);
        let who = robot.ok("auth whoami -o 'jsonpath={.status.userInfo.username}'").await;
        assert_eq!(who, "robot", "{version}");
        // The server's own commands read the same kubeconfig.
        let target = robot.home.path().join("backup");
        let ran = tokio::process::Command::new(tests::server::binary())
            .args(["backup", "--kubeconfig"])
            .arg(&robot.kubeconfig)
            .arg("--to")
            .arg(&target)
            .output()
            .await
            .unwrap();
        assert!(ran.status.success(), "{version}: {}", String::from_utf8_lossy(&ran.stderr));
    }
}
