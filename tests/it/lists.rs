//! Lists: chunks, versions, selectors and order (docs/api/selectors.md, docs/api/lists.md#list-options,
//! #read-consistency, #remaining-items, #continue-tokens, #get).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use tests::Server;

use crate::fixture::{Fixture, agrees, escape, names, outcome, report, version};

async fn with_secrets(fixture: &Fixture, all: &[&str]) {
    let secrets: Vec<Value> =
        all.iter().map(|name| json!({"metadata": {"name": name}, "data": {"k": "dGhlbg=="}})).collect();
    fixture.make("$core/secrets", &secrets).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn list_chunks_show_one_point_in_time_under_concurrent_writes() {
    let fixture = Fixture::new("chunks").await;
    let all: Vec<String> = (0..60).map(|n| format!("m{n:02}")).collect();
    with_secrets(&fixture, &all.iter().map(String::as_str).collect::<Vec<_>>()).await;

    // A writer changes, deletes and adds objects continuously.
    let writer = {
        let (client, path) = (fixture.client.another(), fixture.full("$core/secrets"));
        tokio::spawn(async move {
            for round in 0..10 {
                client.post(&path, &json!({"metadata": {"name": format!("m{round:02}x")}})).await;
                client.delete(&format!("{path}/m{:02}", 59 - round * 5)).await;
                client
                    .patch(&format!("{path}/m{:02}", round * 5), "merge", &json!({"data": {"k": "bm93"}}))
                    .await;
            }
        })
    };
    let (mut seen, mut token, mut versions, mut left) = (Vec::new(), String::new(), Vec::new(), Vec::new());
    loop {
        let chunk = fixture.get(&format!("$core/secrets?limit=7&continue={}", escape(&token))).await;
        for item in chunk["items"].as_array().unwrap() {
            seen.push(item.clone());
        }
        versions.push(version(&chunk));
        left.push(chunk["metadata"]["remainingItemCount"].as_u64());
        match chunk["metadata"]["continue"].as_str() {
            Some(next) => next.clone_into(&mut token),
            None => break,
        }
    }
    // The first chunk determines the version. The earlier changes of the writer are not known here, so every chunk is
    // compared with a complete list at the same version.
    writer.await.unwrap();
    assert!(versions.iter().all(|version| *version == versions[0]), "continue-tokens {versions:?}");
    let whole = fixture
        .get(&format!("$core/secrets?resourceVersion={}&resourceVersionMatch=Exact", versions[0]))
        .await;
    assert_eq!(
        seen,
        *whole["items"].as_array().unwrap(),
        "read-consistency, continue-tokens: each item has its state at the version of the list"
    );
    let total = seen.len() as u64;
    let want: Vec<Option<u64>> =
        (1..=left.len() as u64).map(|n| total.checked_sub(n * 7).filter(|left| *left > 0)).collect();
    assert_eq!(left, want, "remaining-items");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn remaining_item_count_is_present_only_where_it_is_known() {
    let fixture = Fixture::new("remaining").await;
    with_secrets(&fixture, &["a", "b", "c", "d", "e"]).await;
    fixture.send("PATCH $core/secrets/e", r#"{"metadata":{"labels":{"x":"y"}}}"#).await;
    for (query, items, remaining, more) in [
        ("limit=2", "a b", Some(3), true),
        ("limit=4", "a b c d", Some(1), true),
        ("limit=5", "a b c d e", None, false),
        ("limit=6", "a b c d e", None, false),
        ("limit=0", "a b c d e", None, false),
        ("limit=-1", "a b c d e", None, false),
        ("limit=2&labelSelector=!x", "a b", None, true),
        ("limit=2&fieldSelector=metadata.name!=a", "b c", None, true),
        ("limit=1&labelSelector=x", "e", None, false),
        ("limit=1&labelSelector=nothing", "", None, false),
    ] {
        let list = fixture.get(&format!("$core/secrets?{query}")).await;
        assert_eq!(names(&list).join(" "), items, "remaining-items {query}");
        assert_eq!(list["metadata"]["remainingItemCount"].as_u64(), remaining, "remaining-items {query}");
        assert_eq!(list["metadata"]["continue"].is_string(), more, "continue-tokens {query}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn continue_tokens_are_readable_by_clients_and_validated() {
    let fixture = Fixture::new("tokens").await;
    with_secrets(&fixture, &["a", "b", "c"]).await;
    let list = fixture.get("$core/secrets?limit=1").await;
    let token = list["metadata"]["continue"].as_str().unwrap();
    let decoded: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(token).unwrap()).unwrap();
    assert_eq!(
        decoded,
        json!({"v": "meta.k8s.io/v1", "rv": version(&list), "start": "a\0"}),
        "continue-tokens"
    );

    let forged = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let bad = "400 BadRequest: invalid continue token: continue key is not valid: ";
    let current = version(&list);
    let mut wrong = Vec::new();
    for (token, extra, want) in [
        (forged(json!({"v": "meta.k8s.io/v1", "rv": current, "start": "b\0"})), "", "200 SecretList".to_owned()),
        (forged(json!({"v": "meta.k8s.io/v1", "rv": -1, "start": "b\0"})), "", "200 SecretList".to_owned()),
        (forged(json!({"v": "meta.k8s.io/v1", "rv": current, "start": "zzz"})), "", "200 SecretList".to_owned()),
        (forged(json!({"v": "meta.k8s.io/v1", "rv": current, "start": "b\0"})), "&resourceVersion=0", "200 SecretList".to_owned()),
        (forged(json!({"v": "meta.k8s.io/v1", "rv": 0, "start": "b"})), "", format!("{bad}incorrect encoded start resourceVersion (version meta.k8s.io/v1)")),
        (forged(json!({"v": "meta.k8s.io/v1", "rv": 5, "start": ""})), "", format!("{bad}encoded start key empty (version meta.k8s.io/v1)")),
        (forged(json!({"v": "meta.k8s.io/v1", "rv": 5, "start": "../secrets/x"})), "", format!("{bad}../secrets/x")),
        (forged(json!({"v": "v2", "rv": 5, "start": "a"})), "", format!("{bad}server does not recognize this encoded version v2")),
        ("%%%".to_owned(), "", format!("{bad}…")),
        (URL_SAFE_NO_PAD.encode("[1,2]"), "", format!("{bad}…")),
        (forged(json!({"v": "meta.k8s.io/v1", "rv": current + 1_000_000, "start": "b\0"})), "", "504 Timeout: Timeout: Too large resource version: …".to_owned()),
        (token.to_owned(), &format!("&resourceVersion={current}"), "400 BadRequest: specifying resource version is not allowed when using continue".to_owned()),
        (token.to_owned(), "&resourceVersionMatch=Exact&resourceVersion=5", "422 Invalid: ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when continue is provided".to_owned()),
    ] {
        let request = format!("GET $core/secrets?continue={}{extra}", escape(&token));
        let got = outcome(&fixture.send(&request, "").await);
        if !agrees(&got, &want) {
            wrong.push(format!("continue-tokens {request}\n  want {want}\n  got  {got}"));
        }
    }
    report(&wrong);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forged_continue_tokens_cannot_reach_outside_their_collection() {
    let fixture = Fixture::new("m-forged").await;
    with_secrets(&fixture, &["mine"]).await;
    // Create objects directly before and after the key, and an object whose name begins with the name of this object.
    for name in [format!("a-{}", fixture.ns), format!("z-{}", fixture.ns), format!("{}-0", fixture.ns)] {
        let made = fixture.client.post("/api/v1/namespaces", &json!({"metadata": {"name": name}})).await;
        assert_eq!(made.status, 201);
        let secrets = format!("/api/v1/namespaces/{name}/secrets");
        assert_eq!(fixture.client.post(&secrets, &json!({"metadata": {"name": "theirs"}})).await.status, 201);
    }
    let current = version(&fixture.get("$core/secrets").await);
    let ns = &fixture.ns;
    let mut starts = [
        "a",
        "/",
        "/a",
        "//",
        "///a",
        ".",
        "..",
        "./a",
        "../a",
        "a/..",
        "a/../b",
        "/..",
        "../../configmaps/a",
        "..\0",
        "\0",
        "\0\0",
        "\u{1}",
        "\u{7f}",
        "\u{10ffff}",
        "%2e%2e/a",
        "..%2fa",
        "\\..\\a",
        "a/",
        "zzz",
        "mine",
        "mine\0",
        "mine/x",
    ]
    .map(str::to_owned)
    .to_vec();
    starts.extend([
        format!("a-{ns}/theirs"),
        format!("../a-{ns}/theirs"),
        format!("../z-{ns}/"),
        format!("/z-{ns}/theirs"),
        format!("/registry/secrets/a-{ns}/theirs"),
        format!("{ns}/mine"),
        "x".repeat(5_000),
    ]);
    for start in starts {
        for rv in [json!(current), json!(-1), json!(i64::MIN)] {
            let token =
                URL_SAFE_NO_PAD.encode(json!({"v": "meta.k8s.io/v1", "rv": rv, "start": start}).to_string());
            for limit in ["", "&limit=1"] {
                let reply = fixture.send(&format!("GET $core/secrets?continue={token}{limit}"), "").await;
                let shown: String = start.chars().take(60).collect();
                assert!(matches!(reply.status, 200 | 400), "continue-tokens {shown:?}: {}", reply.text());
                for item in reply.json()["items"].as_array().into_iter().flatten() {
                    assert_eq!(
                        item["metadata"]["namespace"],
                        fixture.ns.as_str(),
                        "continue-tokens {shown:?}"
                    );
                }
                // The collection of all namespaces ends where the next resource begins.
                let all = fixture.send(&format!("GET /api/v1/secrets?continue={token}{limit}"), "").await;
                assert!(
                    matches!(outcome(&all).as_str(), "200 SecretList") || all.status == 400,
                    "{}",
                    all.text()
                );
                for item in all.json()["items"].as_array().into_iter().flatten() {
                    assert!(item["type"].is_string(), "continue-tokens {shown:?}: {item} is not a secret");
                }
            }
        }
    }
    // A text that is not a token gets a precise error.
    let bad = "400 BadRequest: invalid continue token: continue key is not valid: ";
    for (token, why) in [
        ("%", "illegal base64 data at input byte 0"),
        ("e30=", "illegal base64 data at input byte 3"),
        ("e30", "server does not recognize this encoded version "),
        ("AAAA AAAA", "illegal base64 data at input byte 4"),
    ] {
        let got = outcome(&fixture.send(&format!("GET $core/secrets?continue={}", escape(token)), "").await);
        assert_eq!(got, format!("{bad}{why}"), "continue-tokens {token}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_list_options_are_refused() {
    let fixture = Fixture::new("options").await;
    with_secrets(&fixture, &["b"]).await;
    let options = |text: &str| format!("422 Invalid: ListOptions.meta.k8s.io \"\" is invalid: {text}");
    let no_version = "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided";
    let unknown = "resourceVersionMatch: Unsupported value: \"Newest\": supported values: \"Exact\", \"NotOlderThan\", \"\"";
    let streaming = "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list";
    let number = |text: &str| {
        format!(
            "400 BadRequest: invalid resource version: resourceVersion: Invalid value: \"{text}\": strconv.ParseUint: parsing \"{text}\": invalid syntax"
        )
    };
    let integer =
        |text: &str| format!("400 BadRequest: strconv.ParseInt: parsing \"{text}\": invalid syntax");
    let rows = [
        ("list-options", "?resourceVersion=5&resourceVersionMatch=Newest", options(unknown)),
        ("list-options", "?sendInitialEvents=true", options(streaming)),
        ("list-options", "?sendInitialEvents=", options(streaming)),
        (
            "list-options",
            "?resourceVersionMatch=Newest&sendInitialEvents=false",
            options(&format!("[{no_version}, {unknown}, {streaming}]")),
        ),
        ("list-options", "?resourceVersion=x", number("x")),
        ("list-options", "?resourceVersion=-1", number("-1")),
        ("list-options", "?resourceVersion=%2B1", number("+1")),
        ("query-parameters", "?limit=x", integer("x")),
        ("query-parameters", "?limit=", integer("")),
        ("query-parameters", "?timeoutSeconds=1.5", integer("1.5")),
        (
            "list-options",
            "/b?resourceVersion=x",
            "500 -: resourceVersion: Invalid value: \"x\": strconv.ParseUint: parsing \"x\": invalid syntax"
                .to_owned(),
        ),
        (
            "options",
            "/b?export=true",
            "400 BadRequest: the export parameter, deprecated since v1.14, is no longer supported".to_owned(),
        ),
    ];
    let rows = rows.map(|(section, query, want)| (section, format!("GET $core/secrets{query}"), want));
    let rows: Vec<_> =
        rows.iter().map(|(section, request, want)| (*section, request.as_str(), "", want.as_str())).collect();
    fixture.check(&rows).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_waits_for_a_future_resource_version() {
    let fixture = Fixture::new("soon").await;
    let current = version(&fixture.get("$core/secrets").await);
    let (path, other) =
        (fixture.full(&format!("$core/secrets?resourceVersion={}", current + 3)), fixture.client.another());
    let waiting = tokio::spawn(async move { other.get(&path).await });
    with_secrets(&fixture, &["e", "f", "g"]).await;
    assert_eq!(outcome(&waiting.await.unwrap()), "200 SecretList", "read-consistency");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_are_sorted_by_key_and_items_omit_kind_and_version() {
    let fixture = Fixture::new("order").await;
    with_secrets(&fixture, &["b", "a.b", "a-b", "a", "ab", "a0"]).await;
    let list = fixture.get("$core/secrets").await;
    assert_eq!(names(&list), ["a", "a-b", "a.b", "a0", "ab", "b"], "read-consistency: byte order");
    for item in list["items"].as_array().unwrap() {
        assert_eq!((&item["kind"], &item["apiVersion"]), (&Value::Null, &Value::Null), "read-consistency");
    }
    let empty = fixture.send("GET $core/pods", "").await;
    let text = empty.text();
    assert!(text.contains("\"items\":[]"), "read-consistency {text}");
    assert_eq!((&empty.json()["kind"], &empty.json()["apiVersion"]), (&json!("PodList"), &json!("v1")));

    // The list is sorted by the bytes of the namespace, a slash, and the name: `a-b/x` comes before `a/x`.
    let other = Fixture::new("order").await;
    other.make("$core/secrets", &[json!({"metadata": {"name": "0"}})]).await;
    let all = fixture.get("/api/v1/secrets").await;
    let key = |item: &Value| {
        let [namespace, name] =
            ["namespace", "name"].map(|field| item["metadata"][field].as_str().unwrap().to_owned());
        format!("{namespace}/{name}")
    };
    let keys: Vec<String> = all["items"].as_array().unwrap().iter().map(key).collect();
    assert!(keys.is_sorted(), "read-consistency {keys:?}");
    // A list of a namespace does not contain the objects of a namespace whose name begins with the same
    // text.
    let longer = format!("{}x", fixture.ns);
    assert_eq!(
        fixture.client.post("/api/v1/namespaces", &json!({"metadata": {"name": longer}})).await.status,
        201
    );
    fixture
        .client
        .post(&format!("/api/v1/namespaces/{longer}/secrets"), &json!({"metadata": {"name": "z"}}))
        .await;
    assert!(!names(&fixture.get("$core/secrets").await).contains(&"z".to_owned()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_lists_are_streamed_completely() {
    let fixture = Fixture::new("long").await;
    // About 2 MiB, so that the server streams the list in many pieces.
    let filler = "x".repeat(20_000);
    for n in 0..100 {
        fixture
            .make(
                "$core/secrets",
                &[json!({"metadata": {"name": format!("m{n:03}")}, "data": {"k": filler}})],
            )
            .await;
    }
    for query in ["", "?limit=100", "?pretty=1", "?labelSelector=!none"] {
        let list = fixture.get(&format!("$core/secrets{query}")).await;
        assert_eq!(names(&list).len(), 100, "{query}");
        assert!(
            list["items"].as_array().unwrap().iter().all(|item| item["data"]["k"] == filler.as_str()),
            "{query}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flow_schema_tables_are_sorted_by_matching_precedence() {
    const SCHEMAS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas";
    let server = Server::start_upstream().await;
    let client = server.client();
    let table = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];
    let rows = async |query: &str| -> Vec<(i64, String)> {
        let reply = client.send("GET", &format!("{SCHEMAS}{query}"), &table, b"").await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        let table = reply.json();
        let cells = table["rows"].as_array().unwrap().iter().map(|row| row["cells"].clone());
        cells.map(|cells| (cells[2].as_i64().unwrap(), cells[0].as_str().unwrap().to_owned())).collect()
    };
    let shown = rows("").await;
    let mut sorted = shown.clone();
    sorted.sort();
    assert_eq!(shown, sorted, "rows are sorted by precedence, then by name");
    assert_eq!(shown.first().map(|(precedence, name)| (*precedence, name.as_str())), Some((1, "exempt")));
    let list = client.get(SCHEMAS).await.json();
    let names: Vec<&str> = list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["metadata"]["name"].as_str().unwrap())
        .collect();
    assert!(names.is_sorted() && names.len() == shown.len(), "objects are sorted by name: {names:?}");
    // A page has the first objects by name. The rows of a page, and the rows that a selector selects, have the same
    // order.
    let some = rows("?limit=5").await;
    let mut expected: Vec<_> =
        shown.iter().filter(|(_, name)| names[..5].contains(&name.as_str())).cloned().collect();
    assert_eq!(some, expected);
    expected.retain(|(_, name)| name == names[2]);
    assert_eq!(rows(&format!("?fieldSelector=metadata.name%3D{}", names[2])).await, expected);
}
