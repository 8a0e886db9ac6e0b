//! The fixture of most tests: a shared server, a namespace for each test, and tables of requests.
//!
//! A row is `(section, request, body, outcome)`. The section is a heading of a page under `docs/api/` that
//! defines the outcome; a request is `METHOD path`, then ` | Name: value` for each header; [`outcome`]
//! defines the format of an outcome. All rows of a table run before it fails, so that one run reports every
//! wrong row.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};

use serde_json::Value;
use tests::{Client, Options, Reply, Server};
use tokio::sync::Mutex;

/// A request of a table and its expected outcome: section, request, body, outcome.
pub type Row<'r> = (&'r str, &'r str, &'r str, &'r str);

/// A namespace of one test on a server that several tests share.
///
/// A server ends with the last test that uses it, because the values of statics are never dropped.
pub struct Fixture {
    server: Arc<Server>,
    /// The administrator's client, on a connection of its own.
    pub client: Client,
    /// Name of the namespace.
    pub ns: String,
}

/// The server of all tests that need no special flags.
static PLAIN: Mutex<Weak<Server>> = Mutex::const_new(Weak::new());

/// Returns the server in `slot`, which is started if no test uses it.
pub async fn shared(slot: &Mutex<Weak<Server>>, options: Options) -> Arc<Server> {
    let mut slot = slot.lock().await;
    if let Some(server) = slot.upgrade() {
        return server;
    }
    let server = Arc::new(Server::start(options).await);
    *slot = Arc::downgrade(&server);
    server
}

impl Fixture {
    /// Creates a namespace on the plain server; its name begins with `topic`.
    pub async fn new(topic: &str) -> Fixture {
        let fixture = Fixture::on(shared(&PLAIN, Options::default()).await, topic).await;
        // A controller of the server writes this object. Without the wait, a test would count its write.
        let root_certificate = fixture.full("$core/configmaps/kube-root-ca.crt");
        fixture.client.until(&root_certificate, |found| found.is_some()).await;
        fixture
    }

    /// Creates a namespace on `server`; its name begins with `topic`.
    pub async fn on(server: Arc<Server>, topic: &str) -> Fixture {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let client = server.client().another();
        let ns = format!("{topic}-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let body = serde_json::json!({"metadata": {"name": ns}});
        let made = client.post("/api/v1/namespaces", &body).await;
        assert_eq!(made.status, 201, "{}", made.text());
        Fixture { server, client, ns }
    }

    /// Returns the server of the namespace.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Expands the abbreviations in `text`: `$ns`, `$core` (the core group in the namespace), and `$apps`, `$batch`,
    /// `$rbac`, `$lease`, `$autoscaling` for other groups in the namespace.
    pub fn full(&self, text: &str) -> String {
        let ns = &self.ns;
        [
            ("$core", format!("/api/v1/namespaces/{ns}")),
            ("$apps", format!("/apis/apps/v1/namespaces/{ns}")),
            ("$batch", format!("/apis/batch/v1/namespaces/{ns}")),
            ("$rbac", format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}")),
            ("$lease", format!("/apis/coordination.k8s.io/v1/namespaces/{ns}")),
            ("$autoscaling", format!("/apis/autoscaling/v2/namespaces/{ns}")),
            ("$ns", ns.clone()),
        ]
        .iter()
        .fold(text.to_owned(), |text, (short, long)| text.replace(short, long))
    }

    /// Sends the request of a row.
    pub async fn send(&self, request: &str, body: &str) -> Reply {
        self.send_as(&self.client, request, body).await
    }

    /// Sends the request of a row with another client.
    pub async fn send_as(&self, client: &Client, request: &str, body: &str) -> Reply {
        let request = self.full(request);
        let body = self.full(body);
        let mut parts = request.split(" | ");
        let (method, path) =
            parts.next().and_then(|line| line.split_once(' ')).expect("a request is METHOD path");
        let mut headers: Vec<(&str, &str)> =
            parts.map(|header| header.split_once(": ").expect("a header is Name: value")).collect();
        if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type")) {
            match method {
                "PATCH" => headers.push(("content-type", "application/merge-patch+json")),
                _ if !body.is_empty() => headers.push(("content-type", "application/json")),
                _ => {}
            }
        }
        client.send(method, path, &headers, body.as_bytes()).await
    }

    /// Runs a table in order and fails if any row is wrong.
    pub async fn check(&self, rows: &[Row<'_>]) {
        self.check_as(&self.client, rows).await;
    }

    /// Runs a table with another client.
    pub async fn check_as(&self, client: &Client, rows: &[Row<'_>]) {
        let mut wrong = Vec::new();
        for (section, request, body, want) in rows {
            let got = outcome(&self.send_as(client, request, body).await);
            let want = self.full(want);
            if !agrees(&got, &want) {
                wrong.push(format!("{section} {request} {}\n  want {want}\n  got  {got}", shorten(body)));
            }
        }
        report(&wrong);
    }

    /// Creates the objects that later requests need.
    pub async fn make(&self, collection: &str, objects: &[Value]) {
        for object in objects {
            let reply = self.send(&format!("POST {collection}"), &object.to_string()).await;
            assert_eq!(reply.status, 201, "{collection} {object}: {}", reply.text());
        }
    }

    /// Returns the current version of an object.
    pub async fn get(&self, path: &str) -> Value {
        let reply = self.client.get(&self.full(path)).await;
        assert_eq!(reply.status, 200, "{path}: {}", reply.text());
        reply.json()
    }

    /// Returns the resourceVersion of an object.
    pub async fn version(&self, path: &str) -> u64 {
        version(&self.get(path).await)
    }
}

/// Fails with all lines of `wrong`, unless `wrong` is empty.
pub fn report(wrong: &[String]) {
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// Returns whether an outcome is the expected text, or begins with an expected text that ends in `…`.
pub fn agrees(got: &str, want: &str) -> bool {
    want.strip_suffix('…').map_or(got == want, |start| got.starts_with(start))
}

/// Returns the outcome of a request in one line: `404 NotFound: pods "x" not found`, `500 -: text` for a
/// Status without reason, `200 Success`, `201 Pod` for an object, `404 text: …` for anything except a JSON
/// object.
pub fn outcome(reply: &Reply) -> String {
    let code = reply.status;
    let Ok(Value::Object(body)) = serde_json::from_slice(&reply.body) else {
        return match reply.text().as_str() {
            "" => format!("{code}"),
            text => format!("{code} text: {text}"),
        };
    };
    let text = |name: &str| body.get(name).and_then(Value::as_str).unwrap_or_default();
    match (text("kind"), text("status")) {
        ("Status", "Failure") => {
            assert_eq!(body.get("code"), Some(&Value::from(code)), "the code equals the status");
            let reason = if text("reason").is_empty() { "-" } else { text("reason") };
            format!("{code} {reason}: {}", text("message"))
        }
        ("Status", status) => format!("{code} {status}"),
        (kind, _) => format!("{code} {kind}"),
    }
}

/// Returns the resourceVersion of an object or a list.
pub fn version(object: &Value) -> u64 {
    let text =
        object["metadata"]["resourceVersion"].as_str().unwrap_or_else(|| panic!("no version in {object}"));
    text.parse().unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Returns the names of a list's items, in order.
pub fn names(list: &Value) -> Vec<String> {
    let items = list["items"].as_array().unwrap_or_else(|| panic!("no items in {list}"));
    items.iter().map(|item| item["metadata"]["name"].as_str().unwrap_or_default().to_owned()).collect()
}

/// Escapes a text for a query string.
pub fn escape(text: &str) -> String {
    text.bytes()
        .map(
            |byte| {
                if byte.is_ascii_alphanumeric() {
                    char::from(byte).to_string()
                } else {
                    format!("%{byte:02X}")
                }
            },
        )
        .collect()
}

fn shorten(text: &str) -> String {
    text.chars().take(120).collect()
}
