//! Backups over the network: permissions, transferred bytes, and the effect of broken connections, stalled
//! clients, a server that stops and a full disk.

use std::path::Path;
use std::process::{Command, Output};

use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::{Value, json};
use tests::server::{TempDir, binary};
use tests::{Client, Options, Server};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::backups::{MAPS, flag, report, tool};

/// Creates `count` objects of 300 kB.
async fn fill(client: &Client, name: &str, count: usize) {
    for n in 0..count {
        let object =
            json!({"metadata": {"name": format!("{name}-{n}")}, "data": {"fill": "x".repeat(300_000)}});
        let reply = client.post(MAPS, &object).await;
        assert_eq!(reply.status, 201, "{}", reply.text());
    }
}

/// Runs the command on a thread outside of this runtime, because the runtime may forward the connection of the command.
async fn run(arguments: &[String]) -> Output {
    let arguments = arguments.to_vec();
    let run = move || tool(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    tokio::task::spawn_blocking(run).await.unwrap()
}

async fn back_up(kubeconfig: &Path, to: &Path, flags: &[&str]) -> Output {
    let mut arguments = vec!["backup".to_owned(), flag("kubeconfig", kubeconfig), flag("to", to)];
    arguments.extend(flags.iter().map(|&flag| flag.to_owned()));
    run(&arguments).await
}

#[track_caller]
fn json_of(output: &Output) -> Value {
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// Returns the error line of a failed command.
#[track_caller]
fn error_of(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(text.lines().count(), 1, "{text}");
    text.trim_end().trim_start_matches("error: ").to_owned()
}

/// Returns the revision of the backup, after checking that it is complete.
#[track_caller]
fn revision_of(backup: &Path) -> u64 {
    let verified = report(&["verify", &flag("data-dir", backup)]);
    assert_eq!(verified["damages"], 0, "{verified}");
    assert!(!backup.join("log.next").exists());
    verified["revision"].as_u64().unwrap()
}

/// Requests a backup and does not read the response.
async fn request_backup(client: &Client, held: &[u8]) -> http::Response<Incoming> {
    client.another().open("POST", "/backup", &[], held).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_transfers_only_new_segments_and_survives_a_broken_connection() {
    let server = Server::start_upstream().await;
    let (client, backups) = (server.client(), TempDir::new());
    let (kubeconfig, fixture) = (server.kubeconfig(), backups.path().join("b"));
    // The store must be larger than a segment.
    fill(client, "first", 230).await;
    let first = json_of(&back_up(&kubeconfig, &fixture, &["-o=json"]).await);
    assert_eq!((&first["copied_segments"], &first["kept_segments"]), (&json!(2), &json!(0)));
    assert_eq!(first["pki"], false);
    assert_eq!(std::fs::read_to_string(fixture.join("profile")).unwrap(), "kubernetes\n");
    assert_eq!(revision_of(&fixture), first["revision"]);
    fill(client, "second", 10).await;

    // The connection ends after this many bytes: in the handshake, in the head, near the beginning, or near the end of
    // the body.
    for cut_after in [0, 1_000, 4_000, 100_000, 3_000_000] {
        let proxy = Proxy::new(&client.identity().address, cut_after).await;
        let server = format!("--server=https://{}", proxy.address);
        let error = error_of(&back_up(&kubeconfig, &fixture, &[&server]).await);
        assert!(error.starts_with("cannot ") || error.contains("the transfer was interrupted"), "{error}");
        assert_eq!(revision_of(&fixture), first["revision"], "after {cut_after} bytes");
    }

    let second = back_up(&kubeconfig, &fixture, &[]).await;
    let text = String::from_utf8_lossy(&second.stdout);
    assert!(text.contains(", 1 segment copied (") && text.contains(", 1 segment there already ("), "{text}");
    assert!(text.ends_with("certificates and keys are not included: they stay on the server\n"), "{text}");
    let objects = client.get(MAPS).await.json()["items"].as_array().unwrap().len();
    let restored = backups.path().join("r");
    let (from, to) = (flag("from", &fixture), flag("data-dir", &restored));
    report(&["restore", &from, &to]);
    let records = tool(&["inspect", &to, "--prefix=/core/configmaps/default/"]);
    assert_eq!(String::from_utf8_lossy(&records.stdout).lines().count(), objects);
}

/// Forwards a connection to `server` and cuts it after this many bytes of response.
struct Proxy {
    address: String,
}

impl Proxy {
    async fn new(server: &str, cut_after: u64) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let server = server.to_owned();
        tokio::spawn(async move {
            let (near, _) = listener.accept().await.unwrap();
            let far = TcpStream::connect(&server).await.unwrap();
            let ((mut from_near, mut to_near), (from_far, mut to_far)) =
                (near.into_split(), far.into_split());
            let forth = tokio::spawn(async move { tokio::io::copy(&mut from_near, &mut to_far).await });
            // The connection may be cut before everything was written.
            let _ = tokio::io::copy(&mut from_far.take(cut_after), &mut to_near).await;
            let _ = to_near.shutdown().await;
            forth.abort();
        });
        Proxy { address }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_needs_permission_to_post_to_its_path() {
    let files = vec![("tokens.csv", "some-token,operator,1\n".to_owned())];
    let flags = vec!["--token-auth-file=$dir/tokens.csv".to_owned()];
    let server = Server::start(Options { flags, files, ..Options::default() }).await;
    let (client, fixture) = (server.client(), TempDir::new());
    let to = fixture.path().join("b");
    let kubeconfig = fixture.path().join("config");
    let written = std::fs::read_to_string(server.kubeconfig()).unwrap();
    let write = |token: &str| {
        let (head, _) = written.split_once("users:").unwrap();
        let users = format!("users:\n- name: admin\n  user: {{token: {token}}}\n");
        let cluster = head.split("- name: ").nth(1).and_then(|rest| rest.lines().next()).unwrap();
        let contexts = format!(
            "contexts:\n- {{name: c, context: {{cluster: {cluster}, user: admin}}}}\ncurrent-context: c\n"
        );
        std::fs::write(&kubeconfig, format!("{head}{users}{contexts}")).unwrap();
    };
    let address = format!("https://{}", client.identity().address);
    write("unknown");
    let error = error_of(&back_up(&kubeconfig, &to, &[]).await);
    assert_eq!(error, format!("{address} refuses: Unauthorized (401)"));
    write("some-token");
    let error = error_of(&back_up(&kubeconfig, &to, &[]).await);
    let want = "forbidden: User \"operator\" cannot post path \"/backup\"";
    assert_eq!(error, format!("{address} refuses: {want} (403)"));
    let reply = client.anonymous().send("POST", "/backup", &[], b"").await;
    assert_eq!(reply.status, 403);
    assert!(!to.join("log").exists() && !to.join("log.next").exists());

    let group = "rbac.authorization.k8s.io";
    let role = json!({"metadata": {"name": "backups"}, "rules": [{"nonResourceURLs": ["/backup"], "verbs": ["post"]}]});
    let binding = json!({
        "metadata": {"name": "backups"},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "backups"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": "operator"}],
    });
    for (resource, object) in [("clusterroles", &role), ("clusterrolebindings", &binding)] {
        let made = client.post(&format!("/apis/{group}/v1/{resource}"), object).await;
        assert_eq!(made.status, 201, "{}", made.text());
    }
    while client.with_token("some-token").send("GET", "/backup", &[], b"").await.status != 403
        || client.with_token("some-token").send("POST", "/backup", &[], b"nonsense").await.status == 403
    {
        tokio::task::yield_now().await;
    }
    let done = json_of(&back_up(&kubeconfig, &to, &["-o=json"]).await);
    assert_eq!(revision_of(&to), done["revision"]);

    // Rows: wrong methods for the path, a body that is not a list of segments, and a body above the limit.
    for (method, path, body, want) in [
        ("GET", "/backup", &b""[..], 405),
        ("PUT", "/backup", b"", 405),
        ("POST", "/backup/", b"", 404),
        ("POST", "/backup", b"nonsense", 400),
        ("POST", "/backup", &[0; 1_520], 400),
        ("POST", "/backup", &vec![0; 4 << 20], 413),
    ] {
        let reply = client.send(method, path, &[], body).await;
        assert_eq!(reply.status, want, "{method} {path}: {}", reply.text());
    }
    // Use an address without a server, and a server with another CA.
    let error = error_of(&back_up(&kubeconfig, &to, &["--server=https://127.0.0.1:1"]).await);
    assert!(
        error.starts_with(
            "cannot connect to https://127.0.0.1:1: dial tcp 127.0.0.1:1: connect: connection refused"
        ),
        "{error}"
    );
    let error = error_of(&back_up(&kubeconfig, &to, &["--server=http://127.0.0.1:1"]).await);
    assert_eq!(error, "\"http://127.0.0.1:1\" is not an https:// URL");
    let other = Server::start_upstream().await;
    let elsewhere = format!("--server=https://{}", other.client().identity().address);
    let error = error_of(&back_up(&kubeconfig, &to, &[&elsewhere]).await);
    assert!(error.contains("x509: certificate signed by unknown authority"), "{error}");
    // The target has a backup of another store.
    let error = error_of(&back_up(&other.kubeconfig(), &to, &[]).await);
    assert_eq!(
        error,
        format!(
            "{} contains something other than a backup of this store: choose an empty directory",
            to.join("log").display()
        )
    );
    assert_eq!(revision_of(&to), done["revision"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn stalled_backup_clients_block_no_writer_and_are_limited() {
    let mut server = Server::start_upstream().await;
    let client = server.client().clone();
    // The backup is larger than all buffers on the way.
    fill(&client, "first", 60).await;
    let sleeping = [request_backup(&client, b"").await, request_backup(&client, b"").await];
    assert!(sleeping.iter().all(|response| response.status() == 200));
    let refused = client.send("POST", "/backup", &[], b"").await;
    assert_eq!((refused.status, refused.json()["reason"].as_str()), (429, Some("TooManyRequests")));
    assert_eq!(refused.header_all("retry-after"), ["30"]);
    fill(&client, "second", 20).await;
    assert_eq!(client.get("/readyz").await.status, 200);
    // When a client disconnects, the next one may start.
    let [mut first, second] = sleeping;
    drop(second);
    let mut other = request_backup(&client, b"").await;
    while other.status() == 429 {
        other = request_backup(&client, b"").await;
    }
    assert_eq!(other.status(), 200);
    drop(other);

    // A server that stops reports the stop in the stream, and then ends the stream regularly.
    let fixture = TempDir::new();
    let kubeconfig = fixture.path().join("config");
    std::fs::copy(server.kubeconfig(), &kubeconfig).unwrap();
    let begun = first.body_mut().frame().await.unwrap().unwrap().into_data().unwrap();
    let ended = tokio::task::spawn_blocking(move || server.terminate());
    let mut last = begun;
    while let Some(frame) = first.body_mut().frame().await {
        last = frame.unwrap().into_data().unwrap();
    }
    assert!(last.ends_with(b"the server is shutting down"), "{last:?}");
    drop(first);
    assert_eq!(ended.await.unwrap(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_fails_the_backup_and_leaves_the_previous_one() {
    let server = Server::start_upstream().await;
    let fixture = TempDir::new();
    // Only the commands can access this small file system, which is removed when they end.
    let script = "set -e; mount -t tmpfs -o size=12m tmpfs \"$1\"; shift; exec sh -ec \"$@\"";
    let on_small_disk = |commands: String| {
        let (script, path) = (script.to_owned(), fixture.path().display().to_string());
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "sh", "-c", &script, "sh", &path, &commands]);
        tokio::task::spawn_blocking(move || command.output().expect("unshare runs"))
    };
    let tried = on_small_disk("true".to_owned()).await.unwrap();
    if !tried.status.success() {
        testkit::skip(&format!("no file system can be mounted here: {tried:?}"));
        return;
    }
    fill(server.client(), "first", 10).await;
    let binary = binary().display();
    let (to, restored) = (fixture.path().join("b"), fixture.path().join("r"));
    let own = flag("data-dir", &to);
    let network = format!("{binary} backup {} {}", flag("kubeconfig", &server.kubeconfig()), flag("to", &to));
    let directory = format!("{binary} backup {} {}", flag("data-dir", server.data_dir()), flag("to", &to));
    let restore =
        format!("{binary} restore {} {}", flag("from", server.data_dir()), flag("data-dir", &restored));
    let verify = format!("{binary} verify -o=json {own}");
    let go_on = fixture.path().with_extension("go-on");
    let waiting = fixture.path().with_extension("waiting");
    let wait =
        format!("touch {0}; while [ ! -e {1} ]; do sleep 0.05; done", waiting.display(), go_on.display());
    let expect = |command: &str| format!("if {command} >&2; then echo made; else echo $?; fi");
    let commands = [
        format!("{network} >&2; {verify}; {wait}"),
        expect(&network),
        verify.clone(),
        expect(&directory),
        verify.clone(),
        expect(&restore),
        format!("ls -A {} {}", to.display(), restored.display()),
    ];
    let running = on_small_disk(commands.join("; "));
    while !waiting.exists() {
        assert!(!running.is_finished(), "{:?}", running.await);
        tokio::task::yield_now().await;
    }
    fill(server.client(), "second", 40).await;
    std::fs::write(&go_on, "").unwrap();
    let output = running.await.unwrap();
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    std::fs::remove_file(&go_on).unwrap();
    std::fs::remove_file(&waiting).unwrap();
    let lines: Vec<&str> = said.lines().collect();
    let before = lines[0];
    assert!(before.contains("\"damages\":0"), "{said}{errors}");
    assert_eq!(&lines[1..6], ["1", before, "1", before, "1"], "{said}{errors}");
    let rest = lines[6..].join(" ");
    assert!(!rest.contains("log.next"), "{rest}");
    let full: Vec<&str> = errors.lines().filter(|line| line.starts_with("error: ")).collect();
    assert_eq!(full.len(), 3, "{errors}");
    for line in full {
        assert!(line.contains(".segment: cannot ") && line.contains("No space left on device"), "{line}");
    }
}
