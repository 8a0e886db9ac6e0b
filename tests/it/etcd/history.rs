//! The history of objects on etcd begins where the server began to follow etcd, and has no authors.

use serde_json::json;

use super::cluster::Etcd;
use super::{MAPS, map, value, version};
use crate::history::commands::{json_of, ok};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn history_can_be_read_and_restored_with_etcd() {
    let Some(etcd) = Etcd::start(1).await else { return };
    let (one, two) = (etcd.server(&[]).await, etcd.server(&[]).await);
    let made = one.client().post(MAPS, &map("m", "old")).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let old = version(&made.json());
    let path = format!("{MAPS}/m");
    assert_eq!(two.client().patch(&path, "merge", &json!({"data": {"v": "new"}})).await.status, 200);
    assert_eq!(one.client().post(MAPS, &map("later", "0")).await.status, 201);
    for server in [&one, &two] {
        assert_eq!(value(server.client(), "m").await, "new");
        let then = server.client().get(&format!("/as-of/{old}{path}")).await;
        assert_eq!(then.json(), made.json(), "{}", then.text());
        let log = server.client().get(&format!("/history{path}")).await.json();
        let items = log["items"].as_array().unwrap();
        assert_eq!((items.len(), &items[0]["fields"]), (2, &json!(["data.v"])), "{log}");
        assert!(items.iter().all(|item| item.get("author").is_none()), "{log}");
    }
    let undo = format!("history undo configmaps -n default --since={old}");
    let plan = json_of(&two, &format!("{undo} --dry-run")).await;
    let steps = plan["steps"].to_string();
    assert!(steps.contains(r#""name":"m""#) && steps.contains(r#""name":"later""#), "{steps}");
    // Without authors, no change can be attributed to a user.
    assert_eq!(ok(&two, &format!("{undo} --by=cluster-admin --yes")).await, "nothing to undo\n");
    assert!(ok(&two, &format!("{undo} --yes")).await.ends_with(" changes undone\n"));
    assert_eq!(value(one.client(), "m").await, "old");
    assert_eq!(one.client().get(&format!("{MAPS}/later")).await.status, 404);
}
