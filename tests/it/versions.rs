//! Tests of every cell of the resource-version tables of get, list and watch (docs/api/lists.md#resource-versions,
//! docs/api/watches.md#watch-start), on a collection with a compacted version, a retained version and a future
//! version.
//!
//! ```text
//! $old    a b c    compacted before the requests
//! $then   b c      retained; since then b has changed and d was created
//! $now    b c d    the newest state
//! $future          far above the newest revision
//! ```
//!
//! Rows with `$old` run last, on a server that retains no history.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use tests::client::Watch;
use tests::{Client, Options, Reply, Server};

use crate::fixture::{agrees, escape, names, outcome, report, version};

const SECRETS: &str = "/api/v1/namespaces/default/secrets";

/// A server whose secrets have the history described above.
struct Past {
    server: Server,
    /// Whether `$old` is compacted.
    is_compacted: bool,
    /// The abbreviations in the rows, with their values.
    words: Vec<(&'static str, String)>,
}

impl Past {
    async fn new() -> Past {
        let server = Server::start(Options::default()).await;
        let client = server.client();
        make(client, &["a", "b", "c"]).await;
        let first = page(client, "?limit=1").await;
        let old = version(&first);
        let old_token = token(&first);
        assert_eq!(client.delete(&format!("{SECRETS}/a")).await.status, 200);
        let then_page = page(client, "?limit=1").await;
        let then = version(&then_page);
        let patched = client.patch(&format!("{SECRETS}/b"), "merge", &json!({"data": {"k": "bm93"}})).await;
        assert_eq!(patched.status, 200);
        make(client, &["d"]).await;
        let now = version(&client.get(&format!("{SECRETS}/d")).await.json());
        let future = now + 1_000_000;
        let of_future = json!({"v": "meta.k8s.io/v1", "rv": future, "start": "b\0"});
        let words = vec![
            ("$oldtoken", escape(&old_token)),
            ("$futuretoken", escape(&URL_SAFE_NO_PAD.encode(of_future.to_string()))),
            ("$token", escape(&token(&then_page))),
            ("$old", old.to_string()),
            ("$then", then.to_string()),
            ("$now", now.to_string()),
            ("$future", future.to_string()),
        ];
        Past { server, is_compacted: false, words }
    }

    /// Restarts the server without retention and waits for the compaction.
    async fn compact(&mut self) {
        self.server.restart_with(&["--history-retention=0"]).await;
        let exact = self.full(&format!("{SECRETS}?resourceVersion=$old&resourceVersionMatch=Exact"));
        while self.server.client().get(&exact).await.status != 410 {
            tokio::task::yield_now().await;
        }
        self.is_compacted = true;
    }

    /// Returns whether the row runs in this phase.
    fn is_time(&self, query: &str) -> bool {
        query.contains("$old") == self.is_compacted
    }

    fn full(&self, text: &str) -> String {
        self.words.iter().fold(text.to_owned(), |text, (short, long)| text.replace(short, long))
    }

    fn number(&self, word: &str) -> u64 {
        self.full(word).parse().expect("a version")
    }

    /// Returns the abbreviation of a version: one of the four abbreviations, or the abbreviation of a retained
    /// version.
    fn name(&self, version: u64) -> &'static str {
        match version {
            _ if version == self.number("$old") => "$old",
            _ if version == self.number("$then") => "$then",
            _ if (self.number("$now")..self.number("$future")).contains(&version) => "$now",
            _ => "?",
        }
    }

    /// Returns the outcome of a read in one line. For an object or an error this is [`outcome`]; for a list it
    /// is the names, the version, `+` if the list continues, and the remaining count if present.
    fn read_outcome(&self, reply: &Reply) -> String {
        let mut text = outcome(reply);
        let body = reply.json();
        if body["kind"] == "SecretList" {
            text = format!("200 {} @{}", names(&body).join(" "), self.name(version(&body)));
            if body["metadata"]["continue"].is_string() {
                text.push_str(" +");
                text.push_str(&body["metadata"]["remainingItemCount"].to_string());
            }
        }
        if let Some((start, current)) = text.rsplit_once("current: ") {
            text = format!("{start}current: {}", self.name(current.parse().expect("a version")));
        }
        for after in reply.header_all("retry-after") {
            text.push_str(&format!(" | again after {after}"));
        }
        for cause in body["details"]["causes"].as_array().into_iter().flatten() {
            text.push_str(&format!(
                " | {}: {}",
                cause["reason"].as_str().unwrap(),
                cause["message"].as_str().unwrap()
            ));
        }
        if body["kind"] == "Status" && body["metadata"]["continue"].is_string() {
            text.push_str(" | goes on with a token");
        }
        text
    }

    /// Sends the requests of all rows concurrently, because some responses are delayed, and compares the outcomes.
    async fn check(&self, path: &str, rows: &[(&str, &str, &str)]) {
        let checks =
            rows.iter().filter(|(_, query, _)| self.is_time(query)).map(|(cell, query, want)| async move {
                let request = self.full(&format!("{path}{query}"));
                let got = self.read_outcome(&self.server.client().another().get(&request).await);
                // Both sides contain the abbreviations of versions.
                let (got, want) = (got, self.full_but_versions(want));
                (!agrees(&got, &want)).then(|| format!("{cell} {query}\n  want {want}\n  got  {got}"))
            });
        let wrong: Vec<String> = futures_util::future::join_all(checks).await.into_iter().flatten().collect();
        report(&wrong);
    }

    /// Replaces the abbreviations of the requested versions in an expected text by numbers; abbreviations of
    /// versions in the response are kept.
    fn full_but_versions(&self, want: &str) -> String {
        want.replace(": $future,", &format!(": {},", self.full("$future")))
    }
}

async fn make(client: &Client, all: &[&str]) {
    for name in all {
        assert_eq!(client.post(SECRETS, &json!({"metadata": {"name": name}})).await.status, 201);
    }
}

async fn page(client: &Client, query: &str) -> Value {
    let reply = client.get(&format!("{SECRETS}{query}")).await;
    assert_eq!(reply.status, 200, "{query}: {}", reply.text());
    reply.json()
}

fn token(list: &Value) -> String {
    list["metadata"]["continue"].as_str().expect("the list has another page").to_owned()
}

/// The outcome for a future version, whether the server waits for it or not.
const LATE: &str = "504 Timeout: Timeout: Too large resource version: $future, current: $now | again after 1 | \
    ResourceVersionTooLarge: Too large resource version";

const GONE: &str = "410 Expired: The resourceVersion for the provided list is too old.";

const EXPIRED_TOKEN: &str = "410 Expired: The provided continue parameter is too old to display a consistent list \
    result. You can start a new list without the continue parameter, or use the continue token in this response to \
    retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - \
    objects that were created, modified, or deleted between the time the first chunk was returned and now may show up \
    in the list. | goes on with a token";

const WITHOUT_VERSION: &str = "422 Invalid: ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: \
    resourceVersionMatch is forbidden unless resourceVersion is provided | FieldValueForbidden: Forbidden: \
    resourceVersionMatch is forbidden unless resourceVersion is provided";

const EXACTLY_ANY: &str = "422 Invalid: ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: \
    resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\" | FieldValueForbidden: Forbidden: \
    resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";

const WITH_TOKEN: &str = "400 BadRequest: specifying resource version is not allowed when using continue";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_combination_of_match_limit_and_version_behaves_as_documented() {
    let mut past = Past::new().await;
    tables(&past).await;
    past.compact().await;
    tables(&past).await;
    tokens_outlive_the_history(&past).await;
}

async fn tables(past: &Past) {
    past.check(
        SECRETS,
        &[
            // Rows without `resourceVersionMatch` and without a limit.
            ("resource-versions unset/none/unset", "", "200 b c d @$now"),
            ("resource-versions unset/none/0", "?resourceVersion=0", "200 b c d @$now"),
            ("resource-versions unset/none/other", "?resourceVersion=$then", "200 b c d @$now"),
            ("resource-versions unset/none/other", "?resourceVersion=$old", "200 b c d @$now"),
            ("resource-versions unset/none/other", "?resourceVersion=$future", LATE),
            // Rows without `resourceVersionMatch`, for the first chunk of a list.
            ("resource-versions unset/first/unset", "?limit=1", "200 b @$now +2"),
            ("read-consistency unset/first/0", "?limit=1&resourceVersion=0", "200 b c d @$now"),
            ("resource-versions unset/first/other", "?limit=1&resourceVersion=$then", "200 b @$then +1"),
            ("resource-versions unset/first/other", "?limit=5&resourceVersion=$then", "200 b c @$then"),
            ("resource-versions unset/first/other", "?limit=1&resourceVersion=$old", GONE),
            ("resource-versions unset/first/other", "?limit=1&resourceVersion=$future", LATE),
            // Rows without `resourceVersionMatch`, for a later chunk.
            ("resource-versions unset/next/unset", "?limit=1&continue=$token", "200 c @$then"),
            ("resource-versions unset/next/unset", "?limit=1&continue=$oldtoken", EXPIRED_TOKEN),
            ("resource-versions unset/next/unset", "?limit=1&continue=$futuretoken", LATE),
            ("resource-versions unset/next/unset", "?continue=$token", "200 c @$then"),
            ("resource-versions unset/next/0", "?limit=1&continue=$token&resourceVersion=0", "200 c @$then"),
            (
                "resource-versions unset/next/0",
                "?limit=1&continue=$oldtoken&resourceVersion=0",
                EXPIRED_TOKEN,
            ),
            (
                "resource-versions unset/next/other",
                "?limit=1&continue=$token&resourceVersion=$then",
                WITH_TOKEN,
            ),
            (
                "resource-versions unset/next/other",
                "?limit=1&continue=$token&resourceVersion=$now",
                WITH_TOKEN,
            ),
            // Rows with `resourceVersionMatch=Exact`.
            ("resource-versions Exact/none/unset", "?resourceVersionMatch=Exact", WITHOUT_VERSION),
            ("resource-versions Exact/none/0", "?resourceVersionMatch=Exact&resourceVersion=0", EXACTLY_ANY),
            (
                "resource-versions Exact/none/other",
                "?resourceVersionMatch=Exact&resourceVersion=$then",
                "200 b c @$then",
            ),
            (
                "resource-versions Exact/none/other",
                "?resourceVersionMatch=Exact&resourceVersion=$now",
                "200 b c d @$now",
            ),
            ("resource-versions Exact/none/other", "?resourceVersionMatch=Exact&resourceVersion=$old", GONE),
            (
                "resource-versions Exact/none/other",
                "?resourceVersionMatch=Exact&resourceVersion=$future",
                LATE,
            ),
            ("resource-versions Exact/first/unset", "?limit=1&resourceVersionMatch=Exact", WITHOUT_VERSION),
            (
                "resource-versions Exact/first/0",
                "?limit=1&resourceVersionMatch=Exact&resourceVersion=0",
                EXACTLY_ANY,
            ),
            (
                "resource-versions Exact/first/other",
                "?limit=1&resourceVersionMatch=Exact&resourceVersion=$then",
                "200 b @$then +1",
            ),
            (
                "resource-versions Exact/first/other",
                "?limit=1&resourceVersionMatch=Exact&resourceVersion=$old",
                GONE,
            ),
            (
                "resource-versions Exact/first/other",
                "?limit=1&resourceVersionMatch=Exact&resourceVersion=$future",
                LATE,
            ),
            // Rows with `resourceVersionMatch=NotOlderThan`.
            (
                "resource-versions NotOlderThan/none/unset",
                "?resourceVersionMatch=NotOlderThan",
                WITHOUT_VERSION,
            ),
            (
                "resource-versions NotOlderThan/none/0",
                "?resourceVersionMatch=NotOlderThan&resourceVersion=0",
                "200 b c d @$now",
            ),
            (
                "resource-versions NotOlderThan/none/other",
                "?resourceVersionMatch=NotOlderThan&resourceVersion=$then",
                "200 b c d @$now",
            ),
            (
                "resource-versions NotOlderThan/none/other",
                "?resourceVersionMatch=NotOlderThan&resourceVersion=$old",
                "200 b c d @$now",
            ),
            (
                "resource-versions NotOlderThan/none/other",
                "?resourceVersionMatch=NotOlderThan&resourceVersion=$future",
                LATE,
            ),
            (
                "resource-versions NotOlderThan/first/unset",
                "?limit=1&resourceVersionMatch=NotOlderThan",
                WITHOUT_VERSION,
            ),
            (
                "read-consistency NotOlderThan/first/0",
                "?limit=1&resourceVersionMatch=NotOlderThan&resourceVersion=0",
                "200 b c d @$now",
            ),
            (
                "resource-versions NotOlderThan/first/other",
                "?limit=1&resourceVersionMatch=NotOlderThan&resourceVersion=$then",
                "200 b @$now +2",
            ),
            (
                "resource-versions NotOlderThan/first/other",
                "?limit=1&resourceVersionMatch=NotOlderThan&resourceVersion=$old",
                "200 b @$now +2",
            ),
            (
                "resource-versions NotOlderThan/first/other",
                "?limit=1&resourceVersionMatch=NotOlderThan&resourceVersion=$future",
                LATE,
            ),
            // A selector for one name reads one key. The same rules for versions apply.
            ("read-consistency one name", "?fieldSelector=metadata.name%3Dd", "200 d @$now"),
            (
                "read-consistency one name",
                "?fieldSelector=metadata.name%3Dd&resourceVersionMatch=Exact&resourceVersion=$then",
                "200  @$then",
            ),
            (
                "read-consistency one name",
                "?fieldSelector=metadata.name%3Db&resourceVersionMatch=Exact&resourceVersion=$old",
                GONE,
            ),
            ("read-consistency one name", "?fieldSelector=metadata.name%3Db&resourceVersion=$future", LATE),
        ],
    )
    .await;
    past.check(
        &format!("{SECRETS}/b"),
        &[
            ("resource-versions get/unset", "", "200 Secret"),
            ("resource-versions get/0", "?resourceVersion=0", "200 Secret"),
            ("resource-versions get/other", "?resourceVersion=$then", "200 Secret"),
            ("resource-versions get/other", "?resourceVersion=$old", "200 Secret"),
            ("resource-versions get/other", "?resourceVersion=$future", LATE),
        ],
    )
    .await;
    past.check(
        &format!("{SECRETS}/a"),
        &[("get", "?resourceVersion=$old", "404 NotFound: secrets \"a\" not found")],
    )
    .await;
    watches(past).await;
}

/// Checks the table of docs/api/watches.md#watch-start. Every watch is open before the object `end` is
/// created. The event of this object ends the reading.
async fn watches(past: &Past) {
    const STREAM: &str = "&resourceVersionMatch=NotOlderThan&sendInitialEvents";
    let marked = |rest: &str| format!("{STREAM}=true&allowWatchBookmarks=true{rest}");
    let streamed = |rest: &str| format!("{STREAM}=true{rest}");
    let silent = |rest: &str| format!("{STREAM}=false{rest}");
    let all = "ADDED b, ADDED c, ADDED d, ADDED end";
    let since = "MODIFIED b, ADDED d, ADDED end";
    let too_old = "ERROR 410 Expired: too old resource version: $old ($oldest)";
    let too_large = "ERROR 504 Timeout: Timeout: Too large resource version: $future, current: $now";
    let mut rows: Vec<(&str, String, &str)> = vec![
        ("watch-start unset", String::new(), all),
        ("watch-start 0", "&resourceVersion=0".into(), all),
        ("watch-start other", "&resourceVersion=$then".into(), since),
        ("watch-start other", "&resourceVersion=$now".into(), "ADDED end"),
        ("watch-start other", "&resourceVersion=$old".into(), too_old),
        ("watch-start future", "&resourceVersion=$future&timeoutSeconds=5".into(), ""),
        (
            "watch-start future",
            "&resourceVersion=$future&timeoutSeconds=5&allowWatchBookmarks=true".into(),
            "",
        ),
        (
            "list-options unset, bookmarks",
            "&allowWatchBookmarks=true".into(),
            "ADDED b, ADDED c, ADDED d, MARK $now, ADDED end",
        ),
        ("watch-start other, bookmarks", "&allowWatchBookmarks=true&resourceVersion=$then".into(), since),
        ("watch-start streamed", streamed(""), all),
        ("watch-start streamed", streamed("&resourceVersion=0"), all),
        ("watch-start streamed", streamed("&resourceVersion=$then"), all),
        ("watch-start streamed", streamed("&resourceVersion=$old"), all),
        ("watch-start streamed", streamed("&resourceVersion=$future"), too_large),
        ("watch-start marked", marked(""), "ADDED b, ADDED c, ADDED d, MARK $now, ADDED end"),
        (
            "watch-start marked",
            marked("&resourceVersion=0"),
            "ADDED b, ADDED c, ADDED d, MARK $now, ADDED end",
        ),
        (
            "watch-start marked",
            marked("&resourceVersion=$old"),
            "ADDED b, ADDED c, ADDED d, MARK $now, ADDED end",
        ),
        ("watch-start marked", marked("&resourceVersion=$future"), too_large),
        ("watch-start silent", silent(""), "ADDED end"),
        ("watch-start silent", silent("&resourceVersion=0"), "ADDED end"),
        ("watch-start silent", silent("&resourceVersion=$then"), since),
        ("watch-start silent", silent("&resourceVersion=$old"), too_old),
    ];
    rows.retain(|(_, query, _)| past.is_time(query));
    let opened = rows.iter().map(|(_, query, _)| async move {
        let path = past.full(&format!("{SECRETS}?watch=1{query}"));
        // A watch for a future version gets its response head before that version exists: errors of the
        // history are events (docs/api/watches.md#watch-start).
        past.server.client().watch(&path).await
    });
    let mut opened = futures_util::future::join_all(opened).await;
    make(past.server.client(), &["end"]).await;
    let received = opened.iter_mut().map(|watch| receive(past, watch));
    let received = futures_util::future::join_all(received).await;
    let mut wrong = Vec::new();
    for ((cell, query, want), got) in rows.iter().zip(received) {
        let want = want.replace("$old ", &format!("{} ", past.full("$old")));
        let want = past.full_but_versions(&want);
        if got != want {
            wrong.push(format!("{cell} {query}\n  want {want}\n  got  {got}"));
        }
    }
    report(&wrong);
    assert_eq!(past.server.client().delete(&format!("{SECRETS}/end")).await.status, 200);
}

/// Returns the events of a watch up to `end`, or up to its own end.
async fn receive(past: &Past, watch: &mut Watch) -> String {
    let mut received = Vec::new();
    while let Some(event) = watch.next().await {
        let (kind, object) = (event["type"].as_str().unwrap(), &event["object"]);
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        received.push(match kind {
            "ERROR" => {
                let message = object["message"].as_str().unwrap();
                let message = match message.rsplit_once("current: ") {
                    Some((text, current)) => {
                        format!("{text}current: {}", past.name(current.parse().unwrap()))
                    }
                    None => {
                        // The number is one below the oldest version from which a watch can still start.
                        let (text, oldest) = message.trim_end_matches(')').rsplit_once('(').unwrap();
                        let oldest: u64 = oldest.parse().unwrap();
                        assert!((past.number("$old")..past.number("$future")).contains(&oldest), "{message}");
                        format!("{text}($oldest)")
                    }
                };
                format!("ERROR {} {}: {message}", object["code"], object["reason"].as_str().unwrap())
            }
            "BOOKMARK" => {
                let is_mark =
                    object["metadata"]["annotations"] == json!({"k8s.io/initial-events-end": "true"});
                format!("{} {}", if is_mark { "MARK" } else { "BOOKMARK" }, past.name(version(object)))
            }
            _ => format!("{kind} {name}"),
        });
        if name == "end" {
            break;
        }
    }
    received.join(", ")
}

/// The token in a 410 response continues at the newest version, at the key of the old token
/// (docs/api/lists.md#continue-tokens).
async fn tokens_outlive_the_history(past: &Past) {
    let client = past.server.client();
    let expired = client.get(&past.full(&format!("{SECRETS}?limit=1&continue=$oldtoken"))).await;
    let fresh = expired.json()["metadata"]["continue"].as_str().expect("a token").to_owned();
    let read: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(&fresh).unwrap()).unwrap();
    assert_eq!(read, json!({"v": "meta.k8s.io/v1", "rv": -1, "start": "a\0"}), "continue-tokens");

    let mut seen = Vec::new();
    let mut next = Some(fresh);
    let mut versions = Vec::new();
    while let Some(token) = next {
        let chunk = page(client, &format!("?limit=2&continue={}", escape(&token))).await;
        seen.extend(names(&chunk));
        versions.push(version(&chunk));
        next = chunk["metadata"]["continue"].as_str().map(str::to_owned);
        if versions.len() == 1 {
            // The version of this token is fixed: objects that are created later are not part of the list.
            make(client, &["e"]).await;
        }
    }
    assert_eq!(seen, ["b", "c", "d"], "continue-tokens: the last pages have the current state");
    assert!(
        versions[0] >= past.number("$now") && versions.iter().all(|at| *at == versions[0]),
        "continue-tokens {versions:?}"
    );
    assert_eq!(client.delete(&format!("{SECRETS}/e")).await.status, 200);
}
