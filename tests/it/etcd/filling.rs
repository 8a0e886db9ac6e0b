//! Interrupted fills of a copy: they continue from their last position, with the present contents of etcd.

use tests::{Client, Options, Server};

use super::cluster::{Etcd, Stop};
use super::{MAPS, map, version};

/// Number and size of the config maps. Together they are much larger than one window of a fill.
const MAPS_MADE: usize = 800;
const MAP_BYTES: usize = 4_000;

/// Bytes from etcd after which a fill is interrupted. The number exceeds the size of the four windows that may be in
/// flight, so at least one window has been applied before the interruption.
const BREAK_OFF_AT: usize = 2_200_000;

/// Number and size of values that are too large to read a hundred at a time.
const LARGE: (usize, usize) = (110, 100_000);

fn name(at: usize) -> String {
    format!("m{at:03}")
}

async fn make(client: &Client, names: impl Iterator<Item = String>, bytes: usize) {
    let names: Vec<String> = names.collect();
    let making = names.chunks(names.len().div_ceil(8)).map(|names| {
        let (client, names) = (client.another(), names.to_vec());
        tokio::spawn(async move {
            for name in names {
                let made = client.post(MAPS, &map(&name, &"v".repeat(bytes))).await;
                assert_eq!(made.status, 201, "{}", made.text());
            }
        })
    });
    for making in making.collect::<Vec<_>>() {
        making.await.expect("the config maps are created");
    }
}

/// Changes, deletes and creates again the map number `at` and the two after it.
async fn disturb(client: &Client, at: usize) {
    let path = |at| format!("{MAPS}/{}", name(at));
    let changed = client.put(&path(at), &map(&name(at), "changed")).await;
    assert_eq!(changed.status, 200, "{}", changed.text());
    for gone in [at + 1, at + 2] {
        assert_eq!(client.delete(&path(gone)).await.status, 200);
    }
    assert_eq!(client.post(MAPS, &map(&name(at + 2), "again")).await.status, 201);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interrupted_initial_copy_starts_again_with_the_current_state_of_etcd() {
    let Some(etcd) = Etcd::start(1).await else { return };
    let proxy = etcd.proxies().await.remove(0);
    let other = etcd.server(&["--controllers="]).await;
    let flags = vec![format!("--etcd-servers={}", proxy.url), "--controllers=".to_owned()];
    let mut server = Server::start(Options { flags, ..Options::default() }).await;
    make(other.client(), (0..MAPS_MADE).map(name), MAP_BYTES).await;
    make(other.client(), (0..LARGE.0).map(|at| format!("large{at}")), LARGE.1).await;
    // Rows: how the fill is interrupted, whether etcd compacts the revision of the fill during the interruption, and
    // whether the process is killed.
    for (round, (stop, is_compacted, is_killed)) in [
        (Stop::Cut, false, false),
        (Stop::Cut, true, false),
        (Stop::Hold, true, false),
        (Stop::Hold, true, true),
    ]
    .into_iter()
    .enumerate()
    {
        let row = format!("{stop:?}, compacted {is_compacted}, killed {is_killed}");
        server.terminate();
        std::fs::remove_dir_all(server.data_dir().join("etcd-copy")).expect("the copy exists");
        let logged = server.log().len();
        proxy.stop_after(BREAK_OFF_AT, stop);
        server.begin();
        proxy.stopped().await;
        // Change maps that the fill has copied already, and maps that it has not copied yet.
        let before = version(&other.client().get(MAPS).await.json());
        for at in [10 * round, MAPS_MADE - 10 * (round + 1)] {
            disturb(other.client(), at).await;
        }
        if is_compacted {
            let newest = etcd.put("elsewhere", b"x".to_vec()).await;
            etcd.client().compact(newest).await.expect("etcd compacts");
        }
        if is_killed {
            server.kill();
            proxy.open();
            server.restart().await;
        } else {
            proxy.open();
            server.ready().await;
        }
        // The server queues its log lines.
        let filled = "local copy of etcd filled";
        let before_round = server.log()[..logged].matches(filled).count();
        let log = server.until_logged(filled, before_round + 1).await.split_off(logged);
        assert!(is_killed || log.contains("waiting for etcd"), "{row}: {log}");
        assert_eq!(log.matches(filled).count(), 1, "{row}: {log}");
        assert!(!log.contains("is rebuilt"), "{row}: {log}");
        let (ours, theirs) = (server.client().get(MAPS).await, other.client().get(MAPS).await);
        assert!(ours.json()["items"] == theirs.json()["items"], "{row}: the copies differ");
        // The copy lacks the changes from before the fill, so such a watch is refused; a watch from now on
        // gets all events.
        let path = format!("{MAPS}?watch=true&resourceVersion=");
        let refused = server.client().get(&format!("{path}{before}")).await;
        assert!(refused.text().contains("\"code\":410"), "{row}: {}", refused.text());
        let from = version(&ours.json());
        let mut watch = server.client().another().watch(&format!("{path}{from}")).await;
        let later = format!("later{round}");
        assert_eq!(other.client().post(MAPS, &map(&later, "1")).await.status, 201);
        assert_eq!(watch.expect().await.1, later, "{row}");
    }
}
