//! Commands that run next to a server: status, kubeconfigs of users, tokens, and the renewal and rotation of
//! certificates while the server serves requests (docs/guides/certificates.md).

use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Instant;

use serde_json::{Value, json};
use tests::client::Identity;
use tests::{Client, Options, PATIENCE, Server};

use crate::backups::{flag, report, tool};

const REVIEWS: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Returns the user and groups as which the server authenticates the client; `None` if it refuses the client.
async fn who(client: &Client) -> Option<(String, Vec<String>)> {
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let body = review.to_string();
    let reply = client.try_send("POST", REVIEWS, &[("content-type", "application/json")], body.as_bytes());
    let reply = reply.await.filter(|reply| reply.status == 201)?;
    let review = reply.json();
    let user = &review["status"]["userInfo"];
    let groups = user["groups"].as_array().unwrap().iter().map(|group| group.as_str().unwrap().to_owned());
    Some((user["username"].as_str().unwrap().to_owned(), groups.collect()))
}

/// Runs a command outside of the runtime of the test.
async fn run(arguments: &[&str]) -> Output {
    let arguments: Vec<String> = arguments.iter().map(|&argument| argument.to_owned()).collect();
    let run = move || tool(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    tokio::task::spawn_blocking(run).await.unwrap()
}

async fn json_of(arguments: &[&str]) -> Value {
    let arguments: Vec<String> = arguments.iter().map(|&argument| argument.to_owned()).collect();
    let run = move || report(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    tokio::task::spawn_blocking(run).await.unwrap()
}

/// Creates a kubeconfig of a user and returns its path.
async fn kubeconfig_of(server: &Server, user: &str) -> PathBuf {
    let file = server.data_dir().join(format!("{user}.kubeconfig"));
    let (data_dir, output) = (flag("data-dir", server.data_dir()), flag("output", &file));
    let user = format!("--user={user}");
    let ran = run(&["kubeconfig", "create", &user, "-g=people", "--group=on call", &data_dir, &output]).await;
    assert_eq!(ran.status.code(), Some(0), "{ran:?}");
    file
}

fn client_of(kubeconfig: &Path) -> Client {
    Client::new(Identity::from_kubeconfig(kubeconfig).expect("the kubeconfig is complete"))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_status_command_reports_the_numbers_of_the_server() {
    let server = Server::start_upstream().await;
    let map = json!({"metadata": {"name": "a"}, "data": {"a": "b"}});
    assert_eq!(server.client().post(MAPS, &map).await.status, 201);
    let _watch = server.client().watch(&format!("{MAPS}?watch=true")).await;
    let kubeconfig = flag("kubeconfig", &server.kubeconfig());
    let status = json_of(&["status", &kubeconfig]).await;
    assert_eq!(
        (&status["ready"], &status["store"]["refuses_writes"]),
        (&json!(true), &json!(false)),
        "{status}"
    );
    assert!(status["version"].as_str().unwrap().starts_with("v1."), "{status}");
    assert!(status["requests"]["watches"].as_u64() >= Some(1), "{status}");
    assert!(status["store"]["revision"].as_u64() > Some(1), "{status}");
    let damage = status["store"]["damage"].as_object().unwrap();
    assert!(damage.values().all(|value| *value == json!(0) || *value == json!(false)), "{status}");
    let objects = status["objects"].as_array().unwrap();
    assert!(objects.iter().any(|object| object["resource"] == "configmaps"), "{status}");
    let certificates = status["certificates"].as_array().unwrap();
    let names: Vec<&str> =
        certificates.iter().map(|certificate| certificate["name"].as_str().unwrap()).collect();
    assert!(["serving", "admin", "ca"].iter().all(|name| names.contains(name)), "{status}");

    let text = run(&["status", &kubeconfig]).await;
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(text.contains("health        ready\n") && text.contains("  configmaps\n"), "{text}");
    let yaml = run(&["status", &kubeconfig, "-o", "yaml"]).await;
    assert!(String::from_utf8_lossy(&yaml.stdout).contains("\nready: true\n"), "{yaml:?}");
    let missing = run(&["status", "--data-dir=/nonexistent"]).await;
    let error = String::from_utf8_lossy(&missing.stderr).into_owned();
    assert_eq!(missing.status.code(), Some(1));
    assert!(error.starts_with("error: no kubeconfig of the server: name one with --kubeconfig"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_status_command_reports_the_time_of_the_newest_backup() {
    let mut server = Server::start_upstream().await;
    let kubeconfig = flag("kubeconfig", &server.kubeconfig());
    let backup_of = |status: &Value| status["store"]["last_backup"].as_str().map(str::to_owned);
    let status = json_of(&["status", &kubeconfig]).await;
    assert_eq!(backup_of(&status), None, "{status}");
    let directory = tests::TempDir::new();
    let (data_dir, to) = (flag("data-dir", server.data_dir()), flag("to", &directory.path().join("b")));
    let file = server.data_dir().join("last-backup");
    for source in [&kubeconfig, &data_dir] {
        assert_eq!(run(&["backup", source, &to]).await.status.code(), Some(0));
        // The server records the backup after it has sent the last byte.
        let begun = Instant::now();
        while !file.exists() {
            assert!(begun.elapsed() < PATIENCE, "{source}");
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        let status = json_of(&["status", &kubeconfig]).await;
        assert!(status["store"]["seconds_since_backup"].as_u64().is_some_and(|age| age < 60), "{status}");
        std::fs::remove_file(&file).unwrap();
    }
    assert_eq!(run(&["backup", &kubeconfig, &to]).await.status.code(), Some(0));
    server.terminate();
    server.restart().await;
    let status = json_of(&["status", &kubeconfig]).await;
    assert!(backup_of(&status).is_some(), "the record of the backup remains after a restart: {status}");
    let text = run(&["status", &kubeconfig]).await;
    assert!(String::from_utf8_lossy(&text.stdout).contains("\nbackup        "), "{text:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_created_kubeconfig_identifies_its_user() {
    let server = Server::start_upstream().await;
    let jane = client_of(&kubeconfig_of(&server, "jane").await);
    let (user, groups) = who(&jane).await.expect("the server accepts the certificate");
    assert_eq!((user.as_str(), &groups[..2]), ("jane", &["people".to_owned(), "on call".to_owned()][..]));
    assert_eq!(jane.get(MAPS).await.status, 403);

    let data_dir = flag("data-dir", server.data_dir());
    let printed = run(&["kubeconfig", "create", "--user=joe", "-o=json", &data_dir]).await;
    let printed: Value = serde_json::from_slice(&printed.stdout).unwrap();
    assert_eq!((&printed["kind"], &printed["users"].as_array().unwrap().len()), (&json!("Config"), &1));

    let (from, into) = (server.data_dir().join("jane.kubeconfig"), server.data_dir().join("own/config"));
    let (from, own) = (flag("from", &from), flag("into", &into));
    for (arguments, added) in [(vec![&*from], 3), (vec![&*from], 0), (vec![&*data_dir, "--switch"], 2)] {
        let merged = json_of(&[&["kubeconfig", "merge", &own], &arguments[..]].concat()).await;
        assert_eq!(merged["added"].as_array().unwrap().len(), added, "{arguments:?}: {merged}");
    }
    assert!(std::fs::read_to_string(&into).unwrap().contains("current-context: kubernetes-"));

    for (arguments, want) in [
        (&["--user="][..], "--user \"\" is not accepted"),
        (&["--user=a", "--ttl=1s"], "--ttl 1s is too short"),
        (&["--user=a", "--output=json"], "--output names a file"),
        (&["--user=a", "--server=http://a"], "--server \"http://a\" is not accepted"),
        (&["--usr=a"], "unknown flag: --usr (did you mean --user?)"),
    ] {
        let refused = run(&[&["kubeconfig", "create", &*data_dir], arguments].concat()).await;
        let error = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(error.contains(want) && refused.status.code() == Some(1), "{arguments:?}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_identifies_its_service_account() {
    let server = Server::start_upstream().await;
    let kubeconfig = flag("kubeconfig", &server.kubeconfig());
    let account = json!({"metadata": {"name": "robot"}});
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    assert_eq!(server.client().post(accounts, &account).await.status, 201);
    let token = json_of(&["token", "create", "robot", &kubeconfig]).await;
    assert!(token["expires"].as_str().unwrap().starts_with("20"), "{token}");
    let printed = run(&["token", "create", "robot", "--ttl=30m", &kubeconfig]).await;
    let printed = String::from_utf8_lossy(&printed.stdout).trim().to_owned();
    let (user, _) = who(&server.client().with_token(&printed)).await.expect("the server accepts the token");
    assert_eq!(user, "system:serviceaccount:default:robot");
    for (arguments, want) in [
        (&["nobody"][..], "serviceaccounts \"nobody\" not found (404)"),
        (&["robot", "--ttl=1m"], "--ttl 1m0s is too short"),
        (&["a/b"], "is not the name of a service account"),
    ] {
        let refused = run(&[&["token", "create", &*kubeconfig], arguments].concat()).await;
        let error = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(error.contains(want) && refused.status.code() == Some(1), "{arguments:?}: {error}");
    }
}

/// Waits until the server accepts or refuses the user of a client.
async fn until_accepted(client: &Client, expected: bool) {
    let deadline = Instant::now() + PATIENCE;
    while who(client).await.is_some() != expected {
        assert!(Instant::now() < deadline, "the client is accepted: {}", !expected);
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
}

/// Returns the names of the files that signed the serving and the administrator's certificate.
async fn signers(data_dir: &str) -> [String; 2] {
    let shown = json_of(&["certs", "show", data_dir]).await;
    ["serving.crt", "admin.crt"].map(|file| {
        let certificates = shown["certificates"].as_array().unwrap();
        let found = certificates.iter().find(|certificate| certificate["file"] == file).unwrap();
        found["signed_by"].as_str().unwrap_or_default().to_owned()
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_are_renewed_while_the_server_runs() {
    let server = Server::start_upstream().await;
    let data_dir = flag("data-dir", server.data_dir());
    let read = |name: &str| std::fs::read_to_string(server.data_dir().join(name)).unwrap();
    let before = (read("pki/serving.crt"), read("pki/admin.crt"), read("admin.kubeconfig"));
    let ran = run(&["certs", "renew", &data_dir]).await;
    let text = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert!(text.starts_with("renewed: serving, admin; the running server uses them"), "{ran:?}");
    assert_ne!(before, (read("pki/serving.crt"), read("pki/admin.crt"), read("admin.kubeconfig")));
    assert_eq!(signers(&data_dir).await, ["ca.crt", "ca.crt"]);
    let renewed = client_of(&server.kubeconfig());
    assert_eq!(who(&renewed).await.expect("the new certificate is accepted").0, "cluster-admin");
    let wrong = run(&["certs", "renew", "ca", &data_dir]).await;
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("must be serving or admin"), "{wrong:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ca_rotation_interrupts_no_client_that_trusts_the_new_bundle() {
    let server = Server::start(Options::default()).await;
    let data_dir = flag("data-dir", server.data_dir());
    let old = client_of(&kubeconfig_of(&server, "jane").await);
    assert!(who(&old).await.is_some());

    let begun = run(&["certs", "rotate-ca", &data_dir]).await;
    assert_eq!(begun.status.code(), Some(0), "{begun:?}");
    assert_eq!(signers(&data_dir).await, ["ca-old.crt", "ca.crt"]);
    // The client of the old CA is still accepted, and the client of the new CA is accepted at once.
    assert!(who(&old).await.is_some());
    let admin = client_of(&server.kubeconfig());
    assert_eq!(who(&admin).await.expect("the new CA is trusted").0, "cluster-admin");
    let new = client_of(&kubeconfig_of(&server, "jane").await);
    assert!(who(&new).await.is_some());
    let root = "/api/v1/namespaces/default/configmaps/kube-root-ca.crt";
    let has = |count: usize| {
        move |map: Option<&Value>| {
            let text = map.and_then(|map| map["data"]["ca.crt"].as_str()).unwrap_or_default();
            text.matches("BEGIN CERTIFICATE").count() == count
        }
    };
    server.client().until(root, has(2)).await;

    let ended = run(&["certs", "rotate-ca", "--finish", &data_dir]).await;
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    assert_eq!(signers(&data_dir).await, ["ca.crt", "ca.crt"]);
    until_accepted(&old, false).await;
    assert!(who(&new).await.is_some());
    admin.until(root, has(1)).await;
    // A client that trusts both CAs, or only the new CA, verifies the certificate that the server presents now.
    let after = client_of(&server.kubeconfig());
    until_accepted(&after, true).await;
    assert!(who(&client_of(&server.data_dir().join("jane.kubeconfig"))).await.is_some());
    let again = run(&["certs", "rotate-ca", "--finish", &data_dir]).await;
    assert!(String::from_utf8_lossy(&again.stderr).contains("no rotation of the CA has begun"), "{again:?}");
}
