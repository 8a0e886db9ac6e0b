//! Stored objects are encrypted according to the configuration, and clients see no difference
//! (docs/api/encryption.md).

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tests::{Options, Server};

const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Maximum time until a changed file is in effect.
const RELOADED_WITHIN: Duration = Duration::from_secs(60);

fn configuration(providers: &str) -> String {
    format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\n\
         resources: [{{resources: [secrets], providers: [{providers}]}}]\n"
    )
}

const OLD: &str = "{aescbc: {keys: [{name: old, secret: MDEyMzQ1Njc4OWFiY2RlZg==}]}}";
const NEW: &str = "{secretbox: {keys: [{name: new, secret: MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=}]}}";

/// Returns how often a text occurs in the files of the log.
fn count_on_disk(server: &Server, text: &str) -> usize {
    let files = std::fs::read_dir(server.data_dir().join("log")).unwrap();
    let files = files.map(|file| std::fs::read(file.unwrap().path()).unwrap_or_default());
    files.map(|bytes| bytes.windows(text.len()).filter(|found| *found == text.as_bytes()).count()).sum()
}

fn version(object: &Value) -> &str {
    object["metadata"]["resourceVersion"].as_str().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn encrypted_objects_are_readable_and_encryption_keys_can_be_rotated() {
    let mut server = Server::start(Options {
        files: vec![("encryption.yaml", configuration(OLD))],
        flags: [
            "--encryption-provider-config=$dir/encryption.yaml",
            "--encryption-provider-config-automatic-reload=true",
        ]
        .map(str::to_owned)
        .to_vec(),
        ..Options::default()
    })
    .await;
    let client = server.client().clone();
    let mut watch = client.watch(&format!("{SECRETS}?watch=1")).await;
    let word = json!({"word": "very-much-hidden"});
    for (path, data) in [(SECRETS, "stringData"), (MAPS, "data")] {
        let made = client.post(path, &json!({"metadata": {"name": "one"}, data: word})).await;
        assert_eq!(made.status, 201, "{}", made.text());
    }
    let hidden = "dmVyeS1tdWNoLWhpZGRlbg=="; // the word in base64
    assert_eq!(watch.next().await.unwrap()["object"]["data"]["word"], hidden);
    let list = client.get(SECRETS).await.json();
    assert_eq!(list["items"][0]["data"]["word"], hidden);
    assert_eq!(count_on_disk(&server, hidden), 0, "secrets are not readable on the disk");
    assert_ne!(count_on_disk(&server, "k8s:enc:aescbc:v1:old:"), 0);
    assert_ne!(count_on_disk(&server, "very-much-hidden"), 0, "other objects are not encrypted");

    server.kill();
    server.restart().await;
    let client = server.client().clone();
    let one = format!("{SECRETS}/one");
    let read = client.get(&one).await.json();
    assert_eq!(read["data"]["word"], hidden);
    let same = client.put(&one, &read).await.json();
    assert_eq!(version(&same), version(&read), "an unchanged object with the current key is not written");

    let file = server.data_dir().join("encryption.yaml");
    std::fs::write(&file, configuration(&format!("{NEW}, {OLD}"))).unwrap();
    let began = Instant::now();
    while version(&client.put(&one, &read).await.json()) == version(&read) {
        assert!(began.elapsed() < RELOADED_WITHIN, "the object is never written with the new key");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    assert_eq!(count_on_disk(&server, "k8s:enc:secretbox:v1:new:"), 1);
    let again = client.get(&one).await.json();
    let same = client.put(&one, &again).await.json();
    assert_eq!((version(&same), &same["data"]["word"]), (version(&again), &json!(hidden)));

    let mut watch = client.watch(&format!("{SECRETS}?watch=1&resourceVersion={}", version(&again))).await;
    assert_eq!(client.delete(&one).await.status, 200);
    let deleted = watch.next().await.unwrap();
    assert_eq!((&deleted["type"], &deleted["object"]["data"]["word"]), (&json!("DELETED"), &json!(hidden)));
    assert!(version(&deleted["object"]) > version(&again), "the event of the deletion has a new version");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_whose_encryption_key_is_missing_fails_only_its_own_requests() {
    let mut server = Server::start(Options {
        files: vec![("encryption.yaml", configuration(OLD))],
        flags: vec!["--encryption-provider-config=$dir/encryption.yaml".to_owned()],
        ..Options::default()
    })
    .await;
    for (path, name) in [(SECRETS, "one"), (MAPS, "one")] {
        let made = server.client().post(path, &json!({"metadata": {"name": name}})).await;
        assert_eq!(made.status, 201, "{}", made.text());
    }
    let file = server.data_dir().join("encryption.yaml");
    std::fs::write(&file, configuration(NEW)).unwrap();
    assert_eq!(server.terminate(), Some(0));
    server.restart().await;
    let refused = server.client().get(&format!("{SECRETS}/one")).await;
    assert_eq!(refused.status, 500);
    assert!(refused.text().contains("no matching prefix found"), "{}", refused.text());
    assert_eq!(server.client().get(&format!("{MAPS}/one")).await.status, 200);
    let made = server.client().post(SECRETS, &json!({"metadata": {"name": "two"}})).await;
    assert_eq!(made.status, 201, "{}", made.text());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn earlier_states_are_decrypted_with_the_current_keys() {
    let mut server = Server::start(Options {
        files: vec![("encryption.yaml", configuration(OLD))],
        flags: vec!["--encryption-provider-config=$dir/encryption.yaml".to_owned()],
        ..Options::default()
    })
    .await;
    let secret = |word: &str| json!({"metadata": {"name": "one"}, "stringData": {"word": word}});
    let made = server.client().post(SECRETS, &secret("first")).await.json();
    let first = version(&made).to_owned();
    let file = server.data_dir().join("encryption.yaml");
    let one = format!("{SECRETS}/one");

    std::fs::write(&file, configuration(&format!("{NEW}, {OLD}"))).unwrap();
    assert_eq!(server.terminate(), Some(0));
    server.restart().await;
    let put = server.client().put(&one, &secret("second")).await.json();
    let second = version(&put).to_owned();
    let word = async |server: &Server, at: &str| {
        let reply = server.client().get(&format!("/as-of/{at}{one}")).await;
        (reply.status, reply.json()["data"]["word"].clone())
    };
    assert_eq!(word(&server, &first).await, (200, json!("Zmlyc3Q=")));
    assert_eq!(word(&server, &second).await, (200, json!("c2Vjb25k")));
    let log = server.client().get(&format!("/history{one}?include=object")).await.json();
    assert_eq!(log["items"][1]["object"]["data"]["word"], "Zmlyc3Q=");
    assert_eq!(count_on_disk(&server, "Zmlyc3Q="), 0, "earlier states remain encrypted");

    // Without the old key only the states that the new key encrypted can be read.
    std::fs::write(&file, configuration(NEW)).unwrap();
    assert_eq!(server.terminate(), Some(0));
    server.restart().await;
    assert_eq!(word(&server, &first).await.0, 500);
    assert_eq!(word(&server, &second).await, (200, json!("c2Vjb25k")));
}

/// A key service on a socket, with the gRPC protocol KMS v2. The service wraps keys by inverting bits.
struct KeyService {
    key: parking_lot::Mutex<String>,
    unwrapped: std::sync::atomic::AtomicUsize,
}

impl KeyService {
    /// Starts a service at `path` that runs as long as the test.
    fn start(path: &std::path::Path) -> Arc<KeyService> {
        let service =
            Arc::new(KeyService { key: parking_lot::Mutex::new("1".to_owned()), unwrapped: 0.into() });
        let listener = tokio::net::UnixListener::bind(path).unwrap();
        let served = service.clone();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let service = served.clone();
                let answer = service_fn(move |request| {
                    let service = service.clone();
                    async move { Ok::<_, std::convert::Infallible>(service.answer(request).await) }
                });
                let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(stream), answer);
                tokio::spawn(async move { drop(connection.await) });
            }
        });
        service
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<BoxBody<Bytes, std::convert::Infallible>> {
        let path = request.uri().path().to_owned();
        let bytes = request.into_body().collect().await.unwrap().to_bytes();
        // In both kinds of requests, the first field contains the bytes to invert.
        let turned = || -> Vec<u8> {
            let len = usize::from(bytes[6]);
            bytes[7..7 + len].iter().map(|byte| !byte).collect()
        };
        let field = |number: u8, bytes: &[u8]| [&[number << 3 | 2, bytes.len() as u8], bytes].concat();
        let key = self.key.lock().clone();
        let message = match path.strip_prefix("/v2.KeyManagementService/").unwrap() {
            "Status" => [field(1, b"v2"), field(2, b"ok"), field(3, key.as_bytes())].concat(),
            "Encrypt" => [field(1, &turned()), field(2, key.as_bytes())].concat(),
            "Decrypt" => {
                self.unwrapped.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                field(1, &turned())
            }
            other => panic!("{other}"),
        };
        let framed = [&[0, 0, 0, 0, message.len() as u8], &message[..]].concat();
        let trailers = HeaderMap::from_iter([(HeaderName::from_static("grpc-status"), "0".parse().unwrap())]);
        let body = Full::new(Bytes::from(framed)).with_trailers(std::future::ready(Some(Ok(trailers))));
        Response::builder().header("content-type", "application/grpc").body(body.boxed()).unwrap()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kms_keys_are_unwrapped_once_and_an_unavailable_kms_is_reported() {
    let directory = std::env::temp_dir().join(format!("kms-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let socket = directory.join("socket");
    let _ = std::fs::remove_file(&socket);
    let kms = format!(
        "{{kms: {{apiVersion: v2, name: one, endpoint: 'unix://{}', timeout: 10s}}}}",
        socket.display()
    );
    let service = KeyService::start(&socket);
    let mut server = Server::start(Options {
        files: vec![("encryption.yaml", configuration(&format!("{kms}, {OLD}")))],
        flags: vec!["--encryption-provider-config=$dir/encryption.yaml".to_owned()],
        ..Options::default()
    })
    .await;
    for name in ["one", "two"] {
        let object = json!({"metadata": {"name": name}, "stringData": {"word": "very-much-hidden"}});
        let made = server.client().post(SECRETS, &object).await;
        assert_eq!(made.status, 201, "{}", made.text());
    }
    assert_ne!(count_on_disk(&server, "k8s:enc:kms:v2:one:"), 0);
    assert_eq!(count_on_disk(&server, "dmVyeS1tdWNoLWhpZGRlbg=="), 0);
    assert!(server.client().get("/readyz?verbose").await.text().contains("[+]kms-providers ok"));

    server.kill();
    server.restart().await;
    let list = server.client().get(SECRETS).await.json();
    let words: Vec<&Value> =
        list["items"].as_array().unwrap().iter().map(|item| &item["data"]["word"]).collect();
    assert_eq!(words, ["dmVyeS1tdWNoLWhpZGRlbg=="; 2]);
    // Both values have the same seed. Readers that need the seed at the same moment request it
    // separately.
    let calls = service.unwrapped.load(std::sync::atomic::Ordering::Relaxed);
    let again = server.client().get(SECRETS).await;
    assert_eq!(again.status, 200, "{}", again.text());
    let calls_later = service.unwrapped.load(std::sync::atomic::Ordering::Relaxed);
    assert!((1..=2).contains(&calls) && calls_later == calls, "{calls} calls, then {calls_later}");

    // Without the service the server starts, and reports the missing key where it is needed.
    server.kill();
    std::fs::remove_file(&socket).unwrap();
    server.restart().await;
    let read = server.client().get(&format!("{SECRETS}/one")).await;
    assert_eq!(read.status, 500);
    assert!(read.text().contains("Decrypt of the key service one: cannot connect to"), "{}", read.text());
    let made = server.client().post(SECRETS, &json!({"metadata": {"name": "three"}})).await;
    assert_eq!(made.status, 500);
    assert!(made.text().contains("the key service one is not available"), "{}", made.text());
    assert_eq!(server.client().get(MAPS).await.status, 200);
    let health = server.client().get("/readyz").await;
    assert_eq!(health.status, 500);
    assert!(health.text().contains("[-]kms-providers failed: reason withheld"), "{}", health.text());
    std::fs::remove_dir_all(&directory).unwrap();
}
