//! Tests writes at a server whose local store lags the shared store.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use engine::{
    Applied, Change, CommitError, Committed, Durability, Engine, EventKind, Options, Payload, Role, Write,
};

use super::server_fixture::TestServer;
use crate::writes::admission::Settings;
use objects::store::{Addresses, CommitFailure, Ledger, Pending};
use values::json::Value;
use values::status::{Status, StatusReason};

/// A ledger that commits to the engine `truth`. Each call of the ledger also applies the new changes to the
/// engine `copy`.
struct Lagging {
    truth: Engine,
    copy: Engine,
    checks: AtomicUsize,
    commits: AtomicUsize,
    /// Whether the ledger stores a commit but returns an error.
    loses_answers: bool,
}

impl Lagging {
    async fn apply_new_changes(&self) {
        let mut tail = self.truth.tail(self.copy.revision(), Bytes::new()).unwrap();
        while self.copy.revision() < self.truth.revision() {
            for event in tail.next(100).await.unwrap() {
                let record = event.entry.read().unwrap();
                let payload =
                    Payload { attributes: record.attributes, value: record.value, ..Payload::default() };
                let change = match event.kind {
                    EventKind::Put => Change::Put(payload),
                    EventKind::Delete => Change::Delete(Some(payload)),
                };
                let (revision, created) = (event.revision, event.entry.created());
                let applied = Applied { revision, created, key: event.key.clone(), change };
                self.copy.apply(vec![applied]).await.unwrap();
            }
        }
    }
}

impl Ledger for Lagging {
    fn commit(&self, write: Write) -> Pending<'_, Result<Committed, CommitFailure>> {
        Box::pin(async move {
            self.commits.fetch_add(1, Ordering::Relaxed);
            let outcome = self.truth.commit(write).await;
            self.apply_new_changes().await;
            if self.loses_answers {
                return Err(
                    Status::new(StatusReason::Timeout, "it is unknown whether the write was stored").into()
                );
            }
            outcome.map_err(|error| match error {
                CommitError::Conflict { current } => CommitFailure::Conflict { current },
                error => CommitFailure::Engine(error),
            })
        })
    }

    fn current(&self) -> Pending<'_, Result<(), Status>> {
        self.checks.fetch_add(1, Ordering::Relaxed);
        Box::pin(async {
            self.apply_new_changes().await;
            Ok(())
        })
    }

    fn announce<'l>(&'l self, _: &'l str, _: SocketAddr, _: i64) -> Pending<'l, Result<(), Status>> {
        Box::pin(async { Ok(()) })
    }

    fn withdraw<'l>(&'l self, _: &'l str) -> Pending<'l, Result<(), Status>> {
        Box::pin(async { Ok(()) })
    }

    fn announced(&self) -> Pending<'_, Result<Addresses, Status>> {
        Box::pin(async { Ok(Addresses::new()) })
    }

    fn enter_service(&self, _: IpAddr, _: i64) -> Pending<'_, Result<(), Status>> {
        Box::pin(async { Ok(()) })
    }

    fn leave_service(&self, _: IpAddr) -> Pending<'_, Result<(), Status>> {
        Box::pin(async { Ok(()) })
    }

    fn in_service(&self) -> Pending<'_, Result<Vec<IpAddr>, Status>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn repair_allocations(&self) -> Pending<'_, Result<bool, Status>> {
        Box::pin(async { Ok(true) })
    }

    fn health(&self) -> Result<(), String> {
        Ok(())
    }
}

/// Two servers on one store. The second server gets changes only when it calls the ledger.
struct Two {
    first: TestServer,
    second: TestServer,
    ledger: Arc<Lagging>,
}

impl Two {
    fn start(loses_answers: bool) -> Two {
        let directory =
            || -> PathBuf { std::env::temp_dir().join(format!("write-behind-{}", values::names::uid())) };
        let open = |directory: &PathBuf, role| {
            let options = Options { durability: Durability::Relaxed, role, ..Options::new(directory) };
            Engine::open(options).unwrap()
        };
        let (here, there) = (directory(), directory());
        let (truth, copy) = (open(&here, Role::Leader), open(&there, Role::Follower));
        let ledger = Arc::new(Lagging {
            truth: truth.clone(),
            copy: copy.clone(),
            checks: AtomicUsize::new(0),
            commits: AtomicUsize::new(0),
            loses_answers,
        });
        let admission = || Settings::default().without("ServiceAccount");
        let first = TestServer::on(truth, None, here, admission());
        let second = TestServer::on(copy, Some(ledger.clone()), there, admission());
        Two { first, second, ledger }
    }

    async fn at_first(&self, request: &str, body: &str) -> Value {
        let (code, _, answer) = self.first.send(request, body).await;
        assert!(code < 300, "{request}: {code} {answer:?}");
        answer
    }
}

const MAPS: &str = "/api/v1/namespaces/here/configmaps";

fn map(name: &str, rest: &str) -> String {
    format!(r#"{{"metadata":{{"name":"{name}"{rest}}},"data":{{"at":"second"}}}}"#)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_from_a_lagging_copy_ends_as_a_write_from_the_newest_state() {
    let two = Two::start(false);
    for name in ["here", "goes"] {
        two.at_first("POST /api/v1/namespaces", &format!(r#"{{"metadata":{{"name":"{name}"}}}}"#)).await;
    }
    two.ledger.apply_new_changes().await;
    let first = |name: &str| map(name, "").replace("second", "first");
    // The columns: the requests that both servers have; the later requests of the first server only; the
    // request to the second server, its body, and the status code; the numbers of checks and of commits. In
    // the body, N is the newest version, O the version of the second server, and U the newest uid.
    for (at, (known, since, request, body, code, checks, commits)) in [
        // The copy is current. Only a refused write checks whether the server lags.
        ("", "", "POST", "{}", 201, 0, 1),
        ("put", "", "PUT", "{}", 200, 0, 1),
        ("put", "", "MERGE", r#"{"data":{"at":"second"}}"#, 200, 0, 1),
        ("put", "", "DELETE", "", 200, 0, 1),
        ("", "", "PUT", "{}", 404, 1, 0),
        ("put", "", "POST", "{}", 409, 0, 1),
        ("put", "", "PUT", r#","resourceVersion":"1""#, 409, 1, 0),
        ("", "", "POST", r#","labels":{"a":"?"}"#, 422, 1, 0),
        ("put", "", "MERGE", r#"{"data":{"at":"first"}}"#, 200, 1, 0),
        // The object exists, but the copy does not have it.
        ("", "put", "POST", "{}", 409, 0, 1),
        ("", "put", "PUT", "{}", 200, 1, 1),
        ("", "put", "PUT", r#","resourceVersion":"N""#, 200, 1, 1),
        ("", "put", "MERGE", r#"{"data":{"at":"second"}}"#, 200, 1, 1),
        ("", "put", "DELETE", "", 200, 1, 1),
        // The object changed.
        ("put", "more", "PUT", "{}", 200, 0, 2),
        ("put", "more", "PUT", r#","resourceVersion":"N""#, 200, 1, 1),
        ("put", "more", "PUT", r#","resourceVersion":"O""#, 409, 0, 1),
        ("put", "more", "MERGE", r#"{"data":{"at":"first"}}"#, 200, 1, 1),
        ("put", "more", "JSON", r#"[{"op":"test","path":"/data/at","value":"more"}]"#, 200, 1, 0),
        ("put", "more", "JSON", r#"[{"op":"test","path":"/data/at","value":"first"}]"#, 422, 1, 0),
        ("put", "more", "DELETE", r#"{"preconditions":{"resourceVersion":"N"}}"#, 200, 1, 1),
        ("put", "more", "DELETE", r#"{"preconditions":{"resourceVersion":"O"}}"#, 409, 0, 1),
        // The object was deleted, or deleted and created again.
        ("put", "delete", "PUT", "{}", 404, 0, 1),
        ("put", "delete", "MERGE", r#"{"data":{"at":"second"}}"#, 404, 0, 1),
        ("put", "delete", "DELETE", "", 404, 0, 1),
        ("put", "delete", "POST", "{}", 201, 0, 1),
        ("put", "delete put", "DELETE", r#"{"preconditions":{"uid":"U"}}"#, 200, 1, 1),
        ("put", "delete put", "PUT", r#","uid":"U""#, 200, 1, 1),
        // The namespace of the object was created or deleted.
        ("", "POST there", "POST there", "{}", 201, 1, 1),
        ("", "", "POST goes", "{}", 201, 0, 1),
        // Requests that do not commit check whether the server lags before they begin.
        ("", "put", "POST ?dryRun=All", "{}", 409, 1, 0),
        ("put", "delete", "PUT ?dryRun=All", "{}", 404, 1, 0),
        ("put", "delete", "GET", "", 404, 1, 0),
    ]
    .into_iter()
    .enumerate()
    {
        let what = format!("{known:?}, {since:?}, {request:?} {body}");
        let name = format!("map-{at}");
        let path = format!("{MAPS}/{name}");
        let act = async |steps: &str| {
            for step in steps.split_whitespace() {
                match step {
                    "put" => two.at_first(&format!("POST {MAPS}"), &first(&name)).await,
                    "more" => {
                        two.at_first(&format!("PUT {path}"), &first(&name).replace("first", "more")).await
                    }
                    "delete" => two.at_first(&format!("DELETE {path}"), "").await,
                    "POST" => Value::Null,
                    namespace => {
                        let body = format!(r#"{{"metadata":{{"name":"{namespace}"}}}}"#);
                        two.at_first("POST /api/v1/namespaces", &body).await
                    }
                };
            }
        };
        act(known).await;
        two.ledger.apply_new_changes().await;
        let field = async |server: &TestServer, member: &str| {
            let (_, _, object) = server.send(&format!("GET {path}"), "").await;
            object.str_at(&["metadata", member]).to_owned()
        };
        let old = field(&two.first, "resourceVersion").await;
        act(since).await;
        let (new, uid) = (field(&two.first, "resourceVersion").await, field(&two.first, "uid").await);
        let (method, more) = request.split_once(' ').unwrap_or((request, ""));
        let (namespace, query) = match more.strip_prefix('?') {
            Some(query) => ("here", format!("?{query}")),
            None if more.is_empty() => ("here", String::new()),
            None => (more, String::new()),
        };
        let maps = MAPS.replace("/here/", &format!("/{namespace}/"));
        let target = match method {
            "POST" => format!("POST {maps}{query}"),
            method => format!("{method} {maps}/{name}{query}"),
        };
        let body = body.replace("\"N\"", &format!("\"{new}\"")).replace("\"O\"", &format!("\"{old}\""));
        let body = body.replace("\"U\"", &format!("\"{uid}\""));
        let body = match method {
            "POST" | "PUT" => map(&name, if body == "{}" { "" } else { &body }),
            _ => body,
        };
        let before = (two.ledger.checks.load(Ordering::Relaxed), two.ledger.commits.load(Ordering::Relaxed));
        let (got, _, answer) = two.second.send(&target, &body).await;
        let after = (two.ledger.checks.load(Ordering::Relaxed), two.ledger.commits.load(Ordering::Relaxed));
        let counted = (after.0 - before.0, after.1 - before.1);
        assert_eq!((got, counted), (code, (checks, commits)), "{what}: {answer:?}");
        if got < 300 && query.is_empty() && matches!(method, "POST" | "PUT" | "MERGE") {
            let (_, _, stored) = two.first.send(&format!("GET {maps}/{name}"), "").await;
            assert_eq!(stored.at(&["data"]), answer.at(&["data"]), "{what}");
            let version = ["metadata", "resourceVersion"];
            assert_eq!(stored.str_at(&version), answer.str_at(&version), "{what}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_with_an_unknown_outcome_is_not_repeated() {
    let two = Two::start(true);
    two.at_first("POST /api/v1/namespaces", r#"{"metadata":{"name":"here"}}"#).await;
    two.at_first(&format!("POST {MAPS}"), &map("there", "")).await;
    two.ledger.apply_new_changes().await;
    for (request, body) in [
        (format!("POST {MAPS}"), map("new", "")),
        (format!("PUT {MAPS}/there"), map("there", r#","labels":{"a":"b"}"#)),
        (format!("DELETE {MAPS}/there"), String::new()),
    ] {
        let before = two.ledger.commits.load(Ordering::Relaxed);
        let reply = tokio::time::timeout(Duration::from_secs(60), two.second.send(&request, &body)).await;
        let (code, _, answer) = reply.unwrap();
        assert_eq!(code, 504, "{request}: {answer:?}");
        assert_eq!(two.ledger.commits.load(Ordering::Relaxed) - before, 1, "{request}");
    }
}
