//! The binary in the roles of kube-apiserver, etcd and kubectl in a test control plane. The tests start and stop these
//! programs as envtest and similar tools in other languages do (docs/guides/tests.md#envtest).

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tests::client::Identity;
use tests::server::{TempDir, binary, free_port};
use tests::{Client, PATIENCE};

use crate::hook::Hook;
use crate::support::from_environment;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A CA that signs the certificates of a plane.
struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Authority {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "envtest-environment");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Authority { pem, issuer: Issuer::new(params, key) }
    }

    /// Returns a certificate and its key (PEM) for a server or a user.
    fn sign(
        &self,
        names: &[&str],
        purpose: ExtendedKeyUsagePurpose,
        user: &str,
        groups: &[&str],
    ) -> (String, String) {
        let mut params =
            CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).unwrap();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, user);
        groups.iter().for_each(|group| params.distinguished_name.push(DnType::OrganizationName, *group));
        params.extended_key_usages = vec![purpose];
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }
}

/// Returns a directory with the three programs, as `testing install` creates them.
fn assets() -> TempDir {
    let directory = TempDir::new();
    let installed =
        Command::new(binary()).args(["testing", "install"]).arg(directory.path()).output().unwrap();
    let line = String::from_utf8_lossy(&installed.stdout).into_owned();
    assert_eq!(line, format!("export KUBEBUILDER_ASSETS={}\n", directory.path().display()), "{installed:?}");
    directory
}

/// A test control plane. Dropping it kills the processes.
struct Plane {
    assets: TempDir,
    files: TempDir,
    serving: Authority,
    clients: Authority,
    etcd: Child,
    etcd_url: String,
    server: Option<Child>,
    port: u16,
}

fn started(command: &mut Command) -> Child {
    command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("the program runs")
}

/// Sends a plain HTTP request, and returns the response.
fn plain(address: &str, path: &str) -> Option<String> {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(address).ok()?;
    stream
        .write_all(format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").as_bytes())
        .ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

impl Plane {
    /// Writes the files that envtest writes, and starts both programs with its flags.
    async fn start(flags: &[&str], environment: &[(&str, &str)]) -> Plane {
        let (assets, files) = (assets(), TempDir::new());
        let (serving, clients) = (Authority::new(), Authority::new());
        let names = ["localhost", "127.0.0.1"];
        let (crt, key) = serving.sign(&names, ExtendedKeyUsagePurpose::ServerAuth, "server", &[]);
        let (signer_crt, signer_key) =
            clients.sign(&[], ExtendedKeyUsagePurpose::ClientAuth, "sa-signer", &[]);
        for (name, text) in [
            ("apiserver.crt", &crt),
            ("apiserver.key", &key),
            ("sa-signer.crt", &signer_crt),
            ("sa-signer.key", &signer_key),
            ("client-cert-auth-ca.crt", &clients.pem),
        ] {
            std::fs::write(files.path().join(name), text).unwrap();
        }
        let etcd_url = format!("127.0.0.1:{}", free_port());
        let data_dir = files.path().join("etcd");
        let mut command = Command::new(assets.path().join("etcd"));
        command.arg(format!("--data-dir={}", data_dir.display()));
        command.args(
            ["listen-client", "advertise-client"].map(|name| format!("--{name}-urls=http://{etcd_url}")),
        );
        command
            .arg(format!("--listen-peer-urls=http://127.0.0.1:{}", free_port()))
            .arg("--unsafe-no-fsync=true");
        let etcd = started(&mut command);
        let deadline = Instant::now() + PATIENCE;
        while !plain(&etcd_url, "/health").is_some_and(|answer| answer.starts_with("HTTP/1.1 200")) {
            assert!(Instant::now() < deadline, "etcd is not healthy");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let mut plane = Plane { assets, files, serving, clients, etcd, etcd_url, server: None, port: 0 };
        plane.start_server(flags, environment).await;
        plane
    }

    /// Starts kube-apiserver on a free port and waits until it is healthy.
    async fn start_server(&mut self, flags: &[&str], environment: &[(&str, &str)]) {
        self.port = free_port();
        let (port, dir) = (self.port, self.files.path().display());
        let mut command = Command::new(self.assets.path().join("kube-apiserver"));
        command.envs(environment.iter().copied());
        command.args(["--allow-privileged=true", "--authorization-mode=RBAC", "--bind-address=127.0.0.1"]);
        command
            .arg(format!("--cert-dir={dir}"))
            .arg(format!("--client-ca-file={dir}/client-cert-auth-ca.crt"));
        command
            .args(["--disable-admission-plugins=ServiceAccount", "--service-cluster-ip-range=10.0.0.0/24"]);
        command.arg(format!("--etcd-servers=http://{}", self.etcd_url)).arg(format!("--secure-port={port}"));
        command.arg(format!("--service-account-issuer=https://127.0.0.1:{port}/"));
        command.arg(format!("--service-account-key-file={dir}/sa-signer.crt"));
        command.arg(format!("--service-account-signing-key-file={dir}/sa-signer.key")).args(flags);
        self.server = Some(started(&mut command));
        let client = self.user("admin", &["system:masters"]);
        let deadline = Instant::now() + PATIENCE;
        while client.try_get("/healthz").await.is_none_or(|reply| reply.status != 200) {
            assert!(Instant::now() < deadline, "the server is not healthy");
            let ended = self.server.as_mut().unwrap().try_wait().unwrap();
            assert!(ended.is_none(), "the server ended: {ended:?}");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Returns a client with a certificate for this user, signed by the client CA.
    fn user(&self, name: &str, groups: &[&str]) -> Client {
        let (certificate, key) = self.clients.sign(&[], ExtendedKeyUsagePurpose::ClientAuth, name, groups);
        Client::new(Identity {
            address: format!("127.0.0.1:{}", self.port),
            authority: self.serving.pem.clone().into_bytes(),
            certificate: certificate.into_bytes(),
            key: key.into_bytes(),
        })
    }

    fn admin(&self) -> Client {
        self.user("admin", &["system:masters"])
    }

    /// Stops kube-apiserver, which must succeed within its own time limit.
    async fn stop_server(&mut self) {
        stop(self.server.take().expect("the server runs")).await;
    }
}

/// Ends a process with SIGTERM. On a busy machine the time limit of the shutdown may pass; the exit code is then 3.
async fn stop(mut child: Child) {
    kill_process(pid(&child), Signal::TERM).unwrap();
    let waited = tokio::task::spawn_blocking(move || child.wait().unwrap()).await.unwrap();
    assert!(matches!(waited.code(), Some(0 | 3)), "{waited:?}");
}

fn pid(child: &Child) -> Pid {
    Pid::from_raw(child.id().cast_signed()).expect("a child has a pid")
}

impl Drop for Plane {
    fn drop(&mut self) {
        for child in self.server.iter_mut().chain([&mut self.etcd]) {
            // The process may have ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn envtest_starts_uses_and_stops_the_server_with_its_certificates_and_users() {
    let mut plane = Plane::start(&[], &[]).await;
    let admin = plane.admin();
    let map = json!({"metadata": {"name": "a"}});
    assert_eq!(admin.post(MAPS, &map).await.status, 201);
    // A user without groups has no permission to read; only the certificate identifies the user.
    let nobody = plane.user("nobody", &["people"]);
    let refused = nobody.get(MAPS).await;
    assert_eq!(refused.status, 403, "{}", refused.text());
    assert!(refused.text().contains(r#"User \"nobody\" cannot list"#), "{}", refused.text());
    // Only the API server is restarted, on another port. The objects are still stored, as with a separate etcd.
    plane.stop_server().await;
    plane.start_server(&[], &[]).await;
    let admin = plane.admin();
    assert_eq!(admin.get(&format!("{MAPS}/a")).await.status, 200);
    // All files are below the directories that the test removes.
    assert!(plane.files.path().join("etcd/cluster-apiserver/log").is_dir());
    plane.stop_server().await;
    let etcd = std::mem::replace(&mut plane.etcd, started(&mut Command::new("true")));
    stop(etcd).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn controllers_run_only_in_full_mode_and_not_in_exact_mode() {
    let namespace = json!({"metadata": {"name": "n"}});
    for (mode, is_full) in [("", false), ("exact", false), ("full", true)] {
        let plane = Plane::start(&[], &[("CLUSTER_APISERVER_ENVTEST_MODE", mode)]).await;
        let admin = plane.admin();
        assert_eq!(admin.post("/api/v1/namespaces", &namespace).await.status, 201);
        if is_full {
            admin.until("/api/v1/namespaces/n/serviceaccounts/default", |found| found.is_some()).await;
            admin.delete("/api/v1/namespaces/n").await;
            admin.until_gone("/api/v1/namespaces/n").await;
            continue;
        }
        admin.delete("/api/v1/namespaces/n").await;
        // A controller would change the namespace after a short time.
        for _ in 0..50 {
            let found = admin.get("/api/v1/namespaces/n").await.json();
            assert_eq!(found["status"]["phase"], "Terminating", "{mode}");
        }
        for list in ["serviceaccounts", "secrets", "pods", "events"] {
            let all = admin.get(&format!("/api/v1/{list}")).await.json();
            assert_eq!(all["items"].as_array().unwrap().len(), 0, "{list}: {all}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn open_watches_end_when_the_server_stops() {
    let mut plane = Plane::start(&[], &[]).await;
    let admin = plane.admin();
    let mut watches = Vec::new();
    for _ in 0..100 {
        watches.push(admin.watch(&format!("{MAPS}?watch=true")).await);
    }
    plane.stop_server().await;
    for mut watch in watches {
        assert!(watch.next().await.is_none_or(|event| event["type"] == "BOOKMARK"), "the watch ends");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_path_of_a_webhook_url_is_cleaned_before_the_call() {
    let plane = Plane::start(&[], &[]).await;
    let hook = Hook::start(|review| async move {
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
               "response": {"uid": review["request"]["uid"], "allowed": false, "status": {"message": "by the hook"}}})
    })
    .await;
    let configuration = json!({"metadata": {"name": "w"}, "webhooks": [{
        "name": "w.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": hook.url("//validate"), "caBundle": hook.ca_bundle()},
        "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["secrets"]}]}]});
    let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    let admin = plane.admin();
    assert_eq!(admin.post(path, &configuration).await.status, 201);
    let refused = admin.post("/api/v1/namespaces/default/secrets", &json!({"metadata": {"name": "a"}})).await;
    assert!(refused.text().contains("by the hook"), "{}", refused.text());
}

/// Runs a program of the directory to its end.
fn run(assets: &Path, program: &str, arguments: &str) -> Output {
    let mut command = Command::new(assets.join(program));
    command.args(arguments.split_whitespace()).env_remove("ENVTEST_REAL_ETCD").stdin(Stdio::null());
    command.output().expect("the program runs")
}

#[test]
fn help_version_and_wrong_flags_are_answered_as_test_suites_expect() {
    let assets = assets();
    for (program, arguments, code, output, error) in [
        ("kube-apiserver", "--help", 0, "--secure-port", ""),
        ("kube-apiserver", "--version", 0, "Kubernetes v1.36.", ""),
        (
            "kube-apiserver",
            "--no-such-flag=1 --etcd-servers=http://127.0.0.1:1",
            1,
            "",
            "unknown flag: --no-such-flag",
        ),
        (
            "kube-apiserver",
            "--insecure-port=1 --etcd-servers=http://127.0.0.1:1",
            1,
            "",
            "unknown flag: --insecure-port",
        ),
        ("kube-apiserver", "--cert-dir=/none", 1, "", "--etcd-servers must be specified"),
        ("kube-apiserver", "verify --etcd-servers=http://127.0.0.1:1", 1, "", "does not take any arguments"),
        ("etcd", "--help", 0, "\n  --unsafe-no-fsync ", ""),
        ("etcd", "--version", 0, "etcd Version: 3.", ""),
        ("etcd", "--listen-client-urls=https://127.0.0.1:1", 1, "", "ENVTEST_REAL_ETCD"),
    ] {
        let ran = run(assets.path(), program, arguments);
        let case = format!("{program} {arguments}: {ran:?}");
        assert_eq!(ran.status.code(), Some(code), "{case}");
        assert!(String::from_utf8_lossy(&ran.stdout).contains(output), "{case}");
        assert!(String::from_utf8_lossy(&ran.stderr).contains(error), "{case}");
    }
    let help = run(assets.path(), "kube-apiserver", "--help-all --insecure-port=0");
    assert!(!String::from_utf8_lossy(&help.stdout).contains("--insecure-port"));
}

#[test]
fn a_port_in_use_is_reported_immediately() {
    let (assets, files) = (assets(), TempDir::new());
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let dir = files.path().display();
    for (program, arguments) in [
        ("etcd", format!("--data-dir={dir}/etcd --listen-client-urls=http://127.0.0.1:{port}")),
        (
            "kube-apiserver",
            format!("--cert-dir={dir} --etcd-servers=http://127.0.0.1:{port} --secure-port={port}"),
        ),
    ] {
        let ran = run(assets.path(), program, &arguments);
        let error = String::from_utf8_lossy(&ran.stderr);
        assert_eq!(ran.status.code(), Some(1), "{error}");
        assert!(error.contains(&format!("127.0.0.1:{port}")), "{program}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_etcd_stand_in_answers_health_and_refuses_store_requests() {
    let plane = Plane::start(&[], &[]).await;
    for (path, status, body) in [
        ("/health", 200, "{\"health\":\"true\",\"reason\":\"\"}"),
        ("/readyz", 200, "ok\n"),
        ("/version", 200, "\"etcdserver\":\"3."),
        ("/v2/keys", 404, "404 page not found\n"),
    ] {
        let answer = plain(&plane.etcd_url, path).unwrap();
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")) && answer.contains(body),
            "{path}: {answer}"
        );
    }
    let stream = tokio::net::TcpStream::connect(&plane.etcd_url).await.unwrap();
    let io = hyper_util::rt::TokioIo::new(stream);
    let executor = hyper_util::rt::TokioExecutor::new();
    let (mut sender, connection) = hyper::client::conn::http2::handshake(executor, io).await.unwrap();
    tokio::spawn(connection);
    let request = http::Request::post(format!("http://{}/etcdserverpb.KV/Range", plane.etcd_url))
        .header("content-type", "application/grpc")
        .body(http_body_util::Empty::<bytes::Bytes>::new())
        .unwrap();
    let response = sender.send_request(request).await.unwrap();
    assert_eq!(
        (response.status().as_u16(), &response.headers()["grpc-status"]),
        (200, &"12".parse().unwrap())
    );
}

#[test]
fn the_kubectl_link_runs_the_next_kubectl_in_the_path() {
    let (assets, other) = (assets(), TempDir::new());
    let script = other.path().join("kubectl");
    std::fs::write(&script, "#!/bin/sh\necho \"the other kubectl: $*\"\nexit 7\n").unwrap();
    std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).unwrap();
    let path = |directories: &[&Path]| std::env::join_paths(directories).unwrap();
    for (path, code, output) in [
        (path(&[assets.path(), other.path()]), 7, "the other kubectl: get pods\n"),
        (path(&[assets.path()]), 127, ""),
    ] {
        let mut command = Command::new(assets.path().join("kubectl"));
        let ran = command.args(["get", "pods"]).env("PATH", path).output().unwrap();
        assert_eq!(
            (ran.status.code(), &*String::from_utf8_lossy(&ran.stdout)),
            (Some(code), output),
            "{ran:?}"
        );
    }
}

/// Returns the processes whose command line contains `text`.
fn processes(text: &str) -> Vec<PathBuf> {
    let all = std::fs::read_dir("/proc").unwrap().filter_map(|entry| Some(entry.ok()?.path()));
    all.filter(|process| {
        std::fs::read(process.join("cmdline")).is_ok_and(|line| String::from_utf8_lossy(&line).contains(text))
    })
    .collect()
}

#[test]
fn a_killed_test_leaves_no_server_process() {
    // compat/figures uses more rounds.
    let rounds = from_environment("ENVTEST_ORPHANS", 8);
    let (assets, files) = (assets(), TempDir::new());
    let dir = files.path().display().to_string();
    let certificates = files.path().join("certificates");
    std::fs::create_dir(&certificates).unwrap();
    for round in 0..rounds {
        let (etcd, server) = (free_port(), free_port());
        let script = format!(
            "{assets}/etcd --data-dir={dir}/{round} --listen-client-urls=http://127.0.0.1:{etcd} &\n\
             {assets}/kube-apiserver --cert-dir={certificates} --etcd-servers=http://127.0.0.1:{etcd} \
             --secure-port={server} &\nwait",
            assets = assets.path().display(),
            certificates = certificates.display(),
        );
        // The process that adopts the children of the test has another session than the test.
        let mut shell = Command::new("setsid");
        let mut test = started(shell.args(["sh", "-c", &script]).stderr(Stdio::null()));
        // In the different rounds, the kill happens before the programs run, while they start, or
        // after they are ready.
        std::thread::sleep(Duration::from_millis(round as u64 * 37 % 400));
        test.kill().unwrap();
        test.wait().unwrap();
    }
    // With the slash, the text is not the begin of another test's directory.
    let dir = format!("{dir}/");
    let deadline = Instant::now() + PATIENCE;
    loop {
        let left = processes(&dir);
        if left.is_empty() {
            return;
        }
        assert!(Instant::now() < deadline, "{left:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
