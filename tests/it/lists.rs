//! Lists: chunks, versions, selectors and order (semantics §4.3, §8.1–8.5).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use crate::place::{Place, agrees, escape, names, outcome, report, version};

async fn with_secrets(place: &Place, all: &[&str]) {
    let secrets: Vec<Value> =
        all.iter().map(|name| json!({"metadata": {"name": name}, "data": {"k": "dGhlbg=="}})).collect();
    place.make("$core/secrets", &secrets).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chunks_are_one_point_in_time_whatever_is_written_meanwhile() {
    let place = Place::new("chunks").await;
    let all: Vec<String> = (0..60).map(|n| format!("m{n:02}")).collect();
    with_secrets(&place, &all.iter().map(String::as_str).collect::<Vec<_>>()).await;

    // A writer changes, deletes and adds all the time.
    let writer = {
        let (client, path) = (place.client.another(), place.full("$core/secrets"));
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
        let chunk = place.get(&format!("$core/secrets?limit=7&continue={}", escape(&token))).await;
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
    // The first chunk fixes the time; what the writer did before it is not known here, so every chunk is
    // compared with the same version read whole.
    writer.await.unwrap();
    assert!(versions.iter().all(|version| *version == versions[0]), "§8.4 {versions:?}");
    let whole =
        place.get(&format!("$core/secrets?resourceVersion={}&resourceVersionMatch=Exact", versions[0])).await;
    assert_eq!(seen, *whole["items"].as_array().unwrap(), "§8.2, §8.4: each as it was");
    let total = seen.len() as u64;
    let want: Vec<Option<u64>> =
        (1..=left.len() as u64).map(|n| total.checked_sub(n * 7).filter(|left| *left > 0)).collect();
    assert_eq!(left, want, "§8.3");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_remains_is_told_only_where_it_is_known() {
    let place = Place::new("remaining").await;
    with_secrets(&place, &["a", "b", "c", "d", "e"]).await;
    place.ask("PATCH $core/secrets/e", r#"{"metadata":{"labels":{"x":"y"}}}"#).await;
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
        let list = place.get(&format!("$core/secrets?{query}")).await;
        assert_eq!(names(&list).join(" "), items, "§8.3 {query}");
        assert_eq!(list["metadata"]["remainingItemCount"].as_u64(), remaining, "§8.3 {query}");
        assert_eq!(list["metadata"]["continue"].is_string(), more, "§8.4 {query}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn continue_tokens_are_open_but_checked() {
    let place = Place::new("tokens").await;
    with_secrets(&place, &["a", "b", "c"]).await;
    let list = place.get("$core/secrets?limit=1").await;
    let token = list["metadata"]["continue"].as_str().unwrap();
    let decoded: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(token).unwrap()).unwrap();
    assert_eq!(decoded, json!({"v": "meta.k8s.io/v1", "rv": version(&list), "start": "a\0"}), "§8.4");

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
        let got = outcome(&place.ask(&request, "").await);
        if !agrees(&got, &want) {
            wrong.push(format!("§8.4 {request}\n  want {want}\n  got  {got}"));
        }
    }
    report(&wrong);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn versions_of_lists_and_gets_follow_the_table() {
    let place = Place::new("versions").await;
    with_secrets(&place, &["a", "b", "c"]).await;
    let then = version(&place.get("$core/secrets").await);
    place.ask("DELETE $core/secrets/a", "").await;
    place.ask("PATCH $core/secrets/b", r#"{"data":{"k":"bm93"}}"#).await;
    with_secrets(&place, &["d"]).await;
    let now = version(&place.get("$core/secrets/d").await);

    // What is served: the newest state, or exactly the state asked for.
    for (query, want, at) in [
        (String::new(), "b c d", None),
        ("resourceVersion=0".to_owned(), "b c d", None),
        (format!("resourceVersion={then}"), "b c d", None),
        (format!("resourceVersion={then}&resourceVersionMatch=NotOlderThan"), "b c d", None),
        ("resourceVersion=0&resourceVersionMatch=NotOlderThan".to_owned(), "b c d", None),
        (format!("resourceVersion={then}&resourceVersionMatch=Exact"), "a b c", Some(then)),
        (format!("resourceVersion={now}&resourceVersionMatch=Exact"), "b c d", Some(now)),
        (format!("resourceVersion={then}&limit=2"), "a b", Some(then)),
        (format!("resourceVersion={then}&limit=2&resourceVersionMatch=NotOlderThan"), "b c", None),
    ] {
        let list = place.get(&format!("$core/secrets?{query}")).await;
        assert_eq!(names(&list).join(" "), want, "§8.2 {query}");
        match at {
            Some(at) => assert_eq!(version(&list), at, "§8.2 {query}"),
            None => assert!(version(&list) >= now, "§8.2 {query}"),
        }
    }
    let future = now + 1_000_000;
    let too_large = format!("504 Timeout: Timeout: Too large resource version: {future}, current: …");
    let options = "422 Invalid: ListOptions.meta.k8s.io \"\" is invalid: ";
    let row = |query: &str, want: &str| (format!("GET $core/secrets{query}"), want.to_owned());
    let rows = [
        row(
            "?resourceVersionMatch=Exact",
            &format!(
                "{options}resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided"
            ),
        ),
        row(
            "?resourceVersion=5&resourceVersionMatch=Newest",
            &format!(
                "{options}resourceVersionMatch: Unsupported value: \"Newest\": supported values: \"Exact\", \"NotOlderThan\", \"\""
            ),
        ),
        row(
            "?resourceVersion=0&resourceVersionMatch=Exact",
            &format!(
                "{options}resourceVersionMatch: Forbidden: resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\""
            ),
        ),
        row(
            "?sendInitialEvents=true",
            &format!("{options}sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list"),
        ),
        row(
            "?resourceVersionMatch=Newest&sendInitialEvents=false",
            &format!(
                "{options}[resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided, resourceVersionMatch: Unsupported value: \"Newest\": supported values: \"Exact\", \"NotOlderThan\", \"\", sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list]"
            ),
        ),
        row(
            "?resourceVersion=x",
            "400 BadRequest: invalid resource version: resourceVersion: Invalid value: \"x\": strconv.ParseUint: parsing \"x\": invalid syntax",
        ),
        row("?resourceVersion=-1", "400 BadRequest: invalid resource version: …"),
        row("?limit=x", "400 BadRequest: strconv.ParseInt: parsing \"x\": invalid syntax"),
        row("?limit=", "400 BadRequest: strconv.ParseInt: parsing \"\": invalid syntax"),
        row("?timeoutSeconds=1.5", "400 BadRequest: strconv.ParseInt: parsing \"1.5\": invalid syntax"),
        row(&format!("?resourceVersion={future}&resourceVersionMatch=Exact"), &too_large),
        row(&format!("?resourceVersion={future}&limit=1"), &too_large),
        row("/b?resourceVersion=0", "200 Secret"),
        row(&format!("/b?resourceVersion={then}"), "200 Secret"),
        row("/b?resourceVersion=x", "400 BadRequest: …"),
        row(
            "/b?export=true",
            "400 BadRequest: the export parameter, deprecated since v1.14, is no longer supported",
        ),
        row("/a?resourceVersion=0", "404 NotFound: secrets \"a\" not found"),
    ];
    let rows: Vec<_> =
        rows.iter().map(|(request, want)| ("8.1", request.as_str(), "", want.as_str())).collect();
    place.check(&rows).await;

    // A version that has not happened is waited for, but not for long; the wait is told.
    let start = std::time::Instant::now();
    let (list, get) = (
        format!("$core/secrets?resourceVersion={future}"),
        format!("$core/secrets/b?resourceVersion={future}"),
    );
    let other = place.client.another();
    let (list, get) = (place.full(&list), place.full(&get));
    let (list, get) = futures_util::join!(place.client.get(&list), other.get(&get));
    for reply in [list, get] {
        assert!(agrees(&outcome(&reply), &too_large), "§8.2 {}", reply.text());
        assert_eq!(reply.header_all("retry-after"), ["1"], "§1.3");
        assert_eq!(reply.json()["details"]["causes"][0]["reason"], "ResourceVersionTooLarge", "§1.3");
    }
    assert!((2..10).contains(&start.elapsed().as_secs()), "§8.2: about three seconds");

    // One that happens meanwhile is served.
    let current = version(&place.get("$core/secrets").await);
    let (path, other) =
        (place.full(&format!("$core/secrets?resourceVersion={}", current + 3)), place.client.another());
    let waiting = tokio::spawn(async move { other.get(&path).await });
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    with_secrets(&place, &["e", "f", "g"]).await;
    assert_eq!(outcome(&waiting.await.unwrap()), "200 SecretList", "§8.2");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn label_selectors_select() {
    let place = Place::new("labels").await;
    for (name, labels) in [
        ("a", json!({"app": "web", "tier": "1"})),
        ("b", json!({"app": "db", "tier": "20"})),
        ("c", json!({"app": ""})),
        ("d", json!({})),
    ] {
        place.make("$core/secrets", &[json!({"metadata": {"name": name, "labels": labels}})]).await;
    }
    for (selector, want) in [
        ("", "a b c d"),
        ("app", "a b c"),
        ("!app", "d"),
        ("app=web", "a"),
        ("app==web", "a"),
        ("app!=web", "b c d"),
        ("app=", "c"),
        ("app in (web,db)", "a b"),
        ("app in (,db)", "b c"),
        ("app notin (web)", "b c d"),
        ("tier>5", "b"),
        ("tier < 5", "a"),
        ("app=web,tier=1", "a"),
        ("app=web, tier=2", ""),
        (" app = web ", "a"),
    ] {
        let list = place.get(&format!("$core/secrets?labelSelector={}", escape(selector))).await;
        assert_eq!(names(&list).join(" "), want, "§4.3 {selector}");
    }
    let mut wrong = Vec::new();
    for (selector, want) in [
        ("app in web", "400 BadRequest: unable to parse requirement: found 'web'…"),
        ("=x", "400 BadRequest: found '=', expected: !, identifier, or 'end of string'"),
        ("app=web,", "400 BadRequest: found '', expected: identifier after ','"),
        (
            "tier>x",
            "400 BadRequest: unable to parse requirement: values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must be an integer",
        ),
        ("-a-=x", "400 BadRequest: unable to parse requirement: <nil>: Invalid value: \"-a-\": …"),
        (
            "app=-web-",
            "400 BadRequest: unable to parse requirement: values[0][app]: Invalid value: \"-web-\": …",
        ),
    ] {
        let got =
            outcome(&place.ask(&format!("GET $core/secrets?labelSelector={}", escape(selector)), "").await);
        if !agrees(&got, want) {
            wrong.push(format!("§4.3 {selector}\n  want {want}\n  got  {got}"));
        }
    }
    report(&wrong);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn field_selectors_select_what_each_kind_offers() {
    let place = Place::new("fields").await;
    let pod = |name: &str, node: &str, policy: &str| json!({"metadata": {"name": name}, "spec": {"nodeName": node, "restartPolicy": policy, "containers": [{"name": "c", "image": "i"}]}});
    place
        .make("$core/pods", &[pod("p1", "n1", "Never"), pod("p2", "n2", "Always"), pod("p3", "n1", "Always")])
        .await;
    place.ask("PATCH $core/pods/p2/status", r#"{"status":{"phase":"Running","podIP":"10.0.0.1"}}"#).await;
    place
        .make(
            "$core/secrets",
            &[
                json!({"metadata": {"name": "s"}}),
                json!({"metadata": {"name": "t"}, "type": "example.com/t"}),
            ],
        )
        .await;
    let event = |name: &str, kind: &str, reason: &str| json!({"metadata": {"name": name}, "involvedObject": {"kind": kind, "name": "x", "namespace": place.ns}, "reason": reason, "type": "Normal"});
    place.make("$core/events", &[event("e1", "Pod", "Started"), event("e2", "Node", "Ready")]).await;
    for (collection, selector, want) in [
        ("pods", "spec.nodeName=n1", "p1 p3"),
        ("pods", "spec.nodeName!=n1", "p2"),
        ("pods", "spec.host=n1", "p1 p3"),
        ("pods", "spec.nodeName=n1,spec.restartPolicy=Always", "p3"),
        ("pods", "status.phase=Running", "p2"),
        ("pods", "status.phase=Pending", "p1 p3"),
        ("pods", "status.podIP=10.0.0.1", "p2"),
        ("pods", "spec.nodeName=", ""),
        ("pods", "metadata.name=p2", "p2"),
        ("pods", "metadata.name==p2,spec.nodeName=n1", ""),
        ("pods", "metadata.name!=p2", "p1 p3"),
        ("pods", "metadata.name=none", ""),
        ("pods", "metadata.namespace=elsewhere", ""),
        ("secrets", "type=Opaque", "s"),
        ("secrets", "type=example.com/t", "t"),
        ("events", "involvedObject.kind=Pod,reason=Started", "e1"),
        ("events", "involvedObject.name=x", "e1 e2"),
        ("events", "type=Warning", ""),
    ] {
        let list = place.get(&format!("$core/{collection}?fieldSelector={}", escape(selector))).await;
        assert_eq!(names(&list).join(" "), want, "§4.3 {collection} {selector}");
        assert!(list["items"].is_array(), "§8.2: `items` is never null");
    }
    let everywhere = place
        .get(&format!("/api/v1/pods?fieldSelector={}", escape(&format!("metadata.namespace={}", place.ns))))
        .await;
    assert_eq!(names(&everywhere).join(" "), "p1 p2 p3", "§8.2");
    let one = place.get(&format!("/api/v1/namespaces?fieldSelector=metadata.name%3D{}", place.ns)).await;
    assert_eq!(names(&one), [place.ns.as_str()], "§8.2");
    let phase = place.get("/api/v1/namespaces?fieldSelector=status.phase%3DActive").await;
    assert!(names(&phase).contains(&place.ns), "§4.3");
    place
        .check(&[
            ("4.3", "GET $core/pods?fieldSelector=spec.nodeName", "", "400 BadRequest: invalid selector: 'spec.nodeName'; can't understand 'spec.nodeName'"),
            ("4.3", "GET $core/pods?fieldSelector=spec.color%3Dred", "", "400 BadRequest: field label not supported: spec.color"),
            ("4.3", "GET $core/configmaps?fieldSelector=data.k%3Dred", "", "400 BadRequest: \"data.k\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\""),
            ("4.3", "GET $core/secrets?fieldSelector=metadata.name%3Da%5Cx", "", "400 BadRequest: invalid field selector: invalid escape sequence: \\x"),
            ("4.3", "GET $core/secrets?fieldSelector=metadata.name%3Da%3Db", "", "400 BadRequest: invalid field selector: unescaped character in value: 61"),
            ("4.3", "GET $core/secrets?fieldSelector=,,", "", "200 SecretList"),
        ])
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_are_in_key_order_and_items_are_bare() {
    let place = Place::new("order").await;
    with_secrets(&place, &["b", "a.b", "a-b", "a", "ab", "a0"]).await;
    let list = place.get("$core/secrets").await;
    assert_eq!(names(&list), ["a", "a-b", "a.b", "a0", "ab", "b"], "§8.2: byte order");
    for item in list["items"].as_array().unwrap() {
        assert_eq!((&item["kind"], &item["apiVersion"]), (&Value::Null, &Value::Null), "§8.2");
    }
    let empty = place.ask("GET $core/pods", "").await;
    let text = empty.text();
    assert!(text.contains("\"items\":[]"), "§8.2 {text}");
    assert_eq!((&empty.json()["kind"], &empty.json()["apiVersion"]), (&json!("PodList"), &json!("v1")));

    // Namespaces come first in the order, then names.
    let other = Place::new("order").await;
    other.make("$core/secrets", &[json!({"metadata": {"name": "0"}})]).await;
    let all = place.get("/api/v1/secrets").await;
    let keys: Vec<(String, String)> = all["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| {
            (
                item["metadata"]["namespace"].as_str().unwrap().to_owned(),
                item["metadata"]["name"].as_str().unwrap().to_owned(),
            )
        })
        .collect();
    assert!(keys.is_sorted(), "§8.2 {keys:?}");
    // A namespace whose name begins with another's is not mixed up with it.
    let longer = format!("{}x", place.ns);
    assert_eq!(
        place.client.post("/api/v1/namespaces", &json!({"metadata": {"name": longer}})).await.status,
        201
    );
    place
        .client
        .post(&format!("/api/v1/namespaces/{longer}/secrets"), &json!({"metadata": {"name": "z"}}))
        .await;
    assert!(!names(&place.get("$core/secrets").await).contains(&"z".to_owned()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_lists_are_streamed_whole() {
    let place = Place::new("long").await;
    // About 2 MiB, so that the list takes many chunks of the server's making.
    let filler = "x".repeat(20_000);
    for n in 0..100 {
        place
            .make(
                "$core/secrets",
                &[json!({"metadata": {"name": format!("m{n:03}")}, "data": {"k": filler}})],
            )
            .await;
    }
    for query in ["", "?limit=100", "?pretty=1", "?labelSelector=!none"] {
        let list = place.get(&format!("$core/secrets{query}")).await;
        assert_eq!(names(&list).len(), 100, "{query}");
        assert!(
            list["items"].as_array().unwrap().iter().all(|item| item["data"]["k"] == filler.as_str()),
            "{query}"
        );
    }
}
