//! etcd compacts revisions before the stream of a server has received them. Watches that miss an event end, and clients
//! must list again.

use std::time::{Duration, Instant};

use tests::{PATIENCE, Server};

use super::cluster::Etcd;
use super::{MAPS, map, value, version};

#[tokio::test]
async fn open_watches_end_if_changes_were_compacted_while_the_stream_was_interrupted() {
    let Some(etcd) = Etcd::start(1).await else { return };
    let proxy = etcd.proxies().await.remove(0);
    let other = etcd.server(&["--controllers="]).await;
    let options = tests::Options {
        flags: vec![format!("--etcd-servers={}", proxy.url), "--controllers=".to_owned()],
        ..Default::default()
    };
    let server = Server::start(options).await;
    for name in ["goes", "changes"] {
        assert_eq!(other.client().post(MAPS, &map(name, "1")).await.status, 201);
    }
    let list = server.client().get(MAPS).await.json();
    let from = version(&list);
    // The first watch selects the changed objects, the second selects objects that never change.
    let concerned = format!("{MAPS}?watch=true&resourceVersion={from}");
    let idle = format!("/api/v1/namespaces/default/secrets?watch=true&resourceVersion={from}");
    let mut watches =
        [server.client().another().watch(&concerned).await, server.client().another().watch(&idle).await];
    let first = other.client().put(&format!("{MAPS}/changes"), &map("changes", "2")).await;
    assert_eq!(first.status, 200, "{}", first.text());
    assert_eq!(watches[0].expect().await.0, "MODIFIED");

    // These changes are lost on their way, and compacted before they are requested again.
    proxy.delay(60_000);
    assert_eq!(other.client().put(&format!("{MAPS}/changes"), &map("changes", "3")).await.status, 200);
    assert_eq!(other.client().put(&format!("{MAPS}/changes"), &map("changes", "4")).await.status, 200);
    assert_eq!(other.client().post(MAPS, &map("came", "1")).await.status, 201);
    for name in ["came", "goes"] {
        assert_eq!(other.client().delete(&format!("{MAPS}/{name}")).await.status, 200);
    }
    let newest = etcd.put("elsewhere", b"x".to_vec()).await;
    etcd.client().compact(newest).await.expect("etcd compacts");
    proxy.delay(0);
    proxy.cut();

    for mut watch in watches {
        let end = tokio::time::timeout(PATIENCE, watch.next()).await.expect("the watch ends");
        let end = end.expect("the watch ends with an error event");
        assert_eq!((&end["type"], &end["object"]["code"]), (&"ERROR".into(), &410.into()), "{end}");
        assert!(watch.next().await.is_none());
    }
    server.until_logged("behind its compaction", 1).await;
    let until = Instant::now() + PATIENCE;
    while server.client().another().get(MAPS).await.status != 200 {
        assert!(Instant::now() < until, "{}", server.log());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(
        server.client().get(MAPS).await.json()["items"],
        other.client().get(MAPS).await.json()["items"]
    );
    assert_eq!(value(server.client(), "changes").await, "4");
    // Watches from earlier versions are refused; a watch from the new list gets all later events.
    for before in [from, version(&first.json())] {
        let refused = server.client().get(&format!("{MAPS}?watch=true&resourceVersion={before}")).await;
        assert!(refused.text().contains("\"code\":410"), "{}", refused.text());
        let exact = format!("{MAPS}?resourceVersionMatch=Exact&resourceVersion={before}");
        assert_eq!(server.client().get(&exact).await.status, 410);
    }
    let again = version(&server.client().get(MAPS).await.json());
    let mut watch =
        server.client().another().watch(&format!("{MAPS}?watch=true&resourceVersion={again}")).await;
    assert_eq!(other.client().post(MAPS, &map("later", "1")).await.status, 201);
    assert_eq!(watch.expect().await.1, "later");
}
