//! The other servers on the same store (peers): announces the address of this server to the peers, and queries
//! the resources that the peers serve (docs/api/peers.md).
//!
//! ```text
//! every 10 s ─► own address, for 15 s
//! tail on Leases ─► servers that started, ended or restarted ─► ask each ─► table and aggregated discovery
//! types, APIServices ─► versions from the store ─► ignored in the responses of peers
//! ```
//!
//! The query of a server that does not respond is repeated as long as the Lease of that server shows that the server is
//! alive. The previous response of that server remains valid in the meantime, so that clients get a retryable error for
//! the resources of that server instead of "not found".

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use auth::User;
use auth::identity::AUTHENTICATED;
use futures_util::future::join_all;
use http::header::{ACCEPT, USER_AGENT};
use http::{HeaderMap, HeaderValue};

use super::{EVENTS_MAX, Ending, identity};
use crate::state::extension::identify;
use crate::state::peers::{GONE, PASSED_ON, PEERS_MAX, PeerGroupVersion, PeerReport};
use crate::writes::bootstrap::ObjectTarget;
use crate::writes::loopback::Loopback;
use crate::writes::server::Server;
use objects::store::{self, Ledger};
use types::discovery::resource_lists;
use values::json::{self, Value};
use values::status::Status;
use wire::outgoing;

/// Interval at which the own address is announced.
const ANNOUNCE_PAUSE: Duration = Duration::from_secs(10);

/// Time limit for one document of a peer.
const ANSWERED_WITHIN: Duration = Duration::from_secs(5);

/// Time after which this server repeats the query of peers that did not respond.
const AGAIN: Duration = Duration::from_secs(2);

/// User of the queries.
const ASKER: &str = "system:apiserver";

/// Announces the address of this server to peers, if the server has a ledger and an address.
pub(super) async fn announce(server: Arc<Server>) -> Ending {
    let (Some(ledger), Some(address)) = (server.store.ledger(), server.outgoing.peers.address()) else {
        return std::future::pending().await;
    };
    let name = identity::own_name(&server);
    for round in 1.. {
        ledger.announce(&name, address, round).await?;
        tokio::time::sleep(ANNOUNCE_PAUSE).await;
    }
    std::future::pending().await
}

/// Withdraws the announcement because this server stops.
pub(super) async fn withdraw(server: &Server) {
    if let (Some(ledger), Some(_)) = (server.store.ledger(), server.outgoing.peers.address())
        && let Err(error) = ledger.withdraw(&identity::own_name(server)).await
    {
        tracing::warn!(%error, "peers not notified that this server stops");
    }
}

/// Follows the set of peers, and the resources that they serve.
pub(super) async fn follow(server: Arc<Server>) -> Ending {
    let Some(ledger) = server.store.ledger() else { return std::future::pending().await };
    let own = identity::own_name(&server);
    let mut types = server.types.changes();
    let tail = |prefix: bytes::Bytes| {
        let engine = server.store.backends.holding(&prefix).engine();
        engine.tail(engine.revision(), prefix)
    };
    let mut leases = tail(identity::leases(&server)?)?;
    let mut services = tail(api_services(&server)?)?;
    // The peers that responded: the process of each, and the time of the query.
    let mut answered: BTreeMap<String, (String, Instant)> = BTreeMap::new();
    loop {
        let mut alive = identity::servers(&server)?;
        alive.remove(&own);
        let now = Instant::now();
        answered.retain(|peer, (process, queried_at)| {
            alive.get(peer) == Some(process) && now.duration_since(*queried_at) < GONE
        });
        let unanswered = alive.keys().filter(|peer| !answered.contains_key(*peer));
        let unanswered: Vec<&String> = unanswered.take(PEERS_MAX).collect();
        let mut reports = Vec::new();
        for (peer, report) in query_peers(&server, &**ledger, &unanswered).await {
            match report {
                Ok(report) => {
                    answered.extend(alive.get(peer).map(|process| (peer.clone(), (process.clone(), now))));
                    reports.push((peer.clone(), report));
                }
                Err(why) => tracing::debug!(peer, why, "peer does not report the types that it serves"),
            }
        }
        let names: BTreeSet<String> = alive.into_keys().collect();
        let are_all_known = names.len() == answered.len();
        let is_changed = server.outgoing.peers.exclude(&from_store(&server), Instant::now());
        if server.outgoing.peers.learn(&names, reports, now) || is_changed {
            server.show_peers();
        }
        let pause = if are_all_known { GONE / 5 } else { AGAIN };
        let (lease, service) = (pin!(leases.next(EVENTS_MAX)), pin!(services.next(EVENTS_MAX)));
        tokio::select! {
            events = lease => drop(events?),
            events = service => drop(events?),
            // The sender lives as long as the context.
            _ = types.changed() => {}
            () = tokio::time::sleep(pause) => {}
        }
    }
}

fn api_services(server: &Server) -> Result<bytes::Bytes, Status> {
    let (namespace, name) = (String::new(), String::new());
    let all =
        ObjectTarget { group: "apiregistration", version: "v1", resource: "apiservices", namespace, name };
    Ok(store::collection(Loopback::new(server).resource(&all)?, ""))
}

/// Returns the versions that are defined in the store: the versions of custom types and of extension servers.
fn from_store(server: &Server) -> BTreeSet<PeerGroupVersion> {
    let types = server.types.now();
    let custom = types.registry().resources().filter(|resource| resource.table.message.custom);
    let custom = custom.map(|resource| (resource.group.clone(), resource.version.to_string()));
    custom.chain(server.outgoing.extensions.versions()).collect()
}

/// Returns for each server the resources that the server serves, or the reason why these resources are unknown.
async fn query_peers<'s>(
    server: &Server,
    ledger: &dyn Ledger,
    servers: &[&'s String],
) -> Vec<(&'s String, Result<PeerReport, String>)> {
    if servers.is_empty() {
        return Vec::new();
    }
    let addresses = ledger.announced().await.map_err(|status| status.message.clone());
    let queries = servers.iter().map(|peer| async {
        let report = match &addresses {
            Ok(addresses) => match addresses.get(*peer) {
                Some((host, port)) => query_peer(server, host.clone(), *port).await,
                None => Err("its lease contains no address".to_owned()),
            },
            Err(why) => Err(why.clone()),
        };
        (*peer, report)
    });
    join_all(queries).await
}

async fn query_peer(server: &Server, host: String, port: u16) -> Result<PeerReport, String> {
    let endpoint = server.outgoing.peers.at(host, port)?;
    let mut headers = HeaderMap::new();
    let asker = User { uid: ASKER.to_owned(), ..User::new(ASKER, [AUTHENTICATED]) };
    identify(&mut headers, &asker)?;
    let accept = resource_lists::aggregated_media_type(server.types.naming);
    let texts = [
        (ACCEPT, format!("{accept};profile=nopeer,{accept}")),
        (USER_AGENT, server.types.naming.system("apiserver")),
        (PASSED_ON, "true".to_owned()),
    ];
    for (name, text) in texts {
        headers.insert(name, HeaderValue::try_from(text).map_err(|error| error.to_string())?);
    }
    let document = async |path: &str| -> Result<Value, String> {
        let endpoint = endpoint.to(path)?;
        let got = outgoing::get(&endpoint, headers.clone(), ANSWERED_WITHIN).await;
        let (code, body) = got.map_err(|failure| failure.to_string())?;
        if !code.is_success() {
            return Err(format!("{path} is answered with {code}"));
        }
        json::parse(&body).map_err(|error| error.to_string())
    };
    PeerReport::read(&document("/api").await?, document("/apis").await?)
}
