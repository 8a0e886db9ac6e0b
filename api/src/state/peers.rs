//! Peers: the other servers on the same store, which may serve types that this one does not (docs/api/peers.md).
//!
//! ```text
//! Leases of servers ─ controllers/peers.rs ─► Peers ─┬─ type that is not served here ─► address ─► proxy ─► peer
//!                        │ asks each what it serves  └─ groups ─► aggregated discovery
//! ```
//!
//! A request finds the servers of its type in a table that is swapped as a whole. Types that all servers know from the store
//! (custom ones, those of extension servers) are never looked for at a peer: each server knows best itself whether they are
//! there. A request that was passed on says so, and is not passed on again.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use http::HeaderName;
use parking_lot::Mutex;

use crate::values::json::Value;
use crate::wire::outgoing::{Credentials, Endpoint, Identity};

/// Says of a request that a peer passed it on.
pub const PASSED_ON: HeaderName = HeaderName::from_static("x-kubernetes-peer-proxied");

/// Most peers that are asked what they serve; far more than share one store.
pub const PEERS_MAX: usize = 64;

/// Most types of one peer that are known.
const TYPES_MAX: usize = 16_384;

/// How long a version that went is not looked for at peers: they may not know yet that it is gone.
pub const GONE: Duration = Duration::from_secs(300);

/// What an operator sets.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Where peers reach this server; `None`: they are not told, as the gate is closed.
    pub address: Option<SocketAddr>,
    /// PEM of the authorities of peers' certificates; `None`: no request is passed on.
    pub authorities: Option<Vec<u8>>,
    /// PEM of the certificate and the key by which peers know this one.
    pub certificate: Option<(Vec<u8>, Vec<u8>)>,
    /// The name that the certificate of each peer has.
    pub server_name: String,
}

/// A version of a group.
pub type Version = (String, String);

/// What a peer says that it serves.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Told {
    /// Resources by group and version.
    types: BTreeMap<Version, BTreeSet<String>>,
    /// The named groups, as aggregated discovery has them.
    groups: Vec<Value>,
}

impl Told {
    /// What the aggregated documents of a peer say: of the core group, and of the named ones.
    ///
    /// # Errors
    /// One of them is none, or has too much in it.
    pub fn read(core: &Value, named: Value) -> Result<Told, String> {
        let mut told = Told::default();
        let mut count = 0;
        for document in [core, &named] {
            if document.str_at(&["kind"]) != "APIGroupDiscoveryList" {
                return Err("the peer has no aggregated discovery".to_owned());
            }
            for group in list(document, "items") {
                let name = group.str_at(&["metadata", "name"]);
                for version in list(group, "versions") {
                    let resources = list(version, "resources").iter().map(|one| one.str_at(&["resource"]));
                    let resources: BTreeSet<String> = resources.map(str::to_owned).collect();
                    count += resources.len();
                    let key = (name.to_owned(), version.str_at(&["version"]).to_owned());
                    told.types.insert(key, resources);
                }
            }
        }
        if count > TYPES_MAX {
            return Err(format!("the peer serves {count} types, more than {TYPES_MAX}"));
        }
        // The core group has a document of its own, which is not merged.
        told.groups = list(&named, "items")
            .iter()
            .filter(|group| !group.str_at(&["metadata", "name"]).is_empty())
            .cloned()
            .collect();
        Ok(told)
    }

    /// The groups without these versions.
    fn groups_without(&self, excluded: &BTreeMap<Version, Option<Instant>>) -> Vec<Value> {
        let without = |group: &Value| {
            let name = group.str_at(&["metadata", "name"]).to_owned();
            let mut group = group.clone();
            if let Value::Array(versions) = group.as_object_mut()?.get_mut("versions")? {
                versions.retain(|version| {
                    !excluded.contains_key(&(name.clone(), version.str_at(&["version"]).to_owned()))
                });
                return (!versions.is_empty()).then_some(group);
            }
            None
        };
        self.groups.iter().filter_map(without).collect()
    }
}

fn list<'v>(value: &'v Value, member: &str) -> &'v [Value] {
    value.get(member).and_then(Value::as_array).unwrap_or_default()
}

/// The peers.
pub struct Peers {
    address: Option<SocketAddr>,
    authorities: Option<Vec<u8>>,
    server_name: String,
    /// How a peer is called, but for its address; or why it cannot be.
    endpoint: ArcSwap<Result<Endpoint, String>>,
    known: Mutex<Known>,
    table: ArcSwap<Table>,
    /// Turns among the peers of a type.
    turn: AtomicUsize,
}

#[derive(Default)]
struct Known {
    told: BTreeMap<String, Told>,
    /// Versions that are not looked for at peers; those that went, since when.
    excluded: BTreeMap<Version, Option<Instant>>,
}

/// What the peers serve, without what is excluded.
#[derive(Default)]
struct Table {
    servers: HashMap<Version, HashMap<String, Vec<String>>>,
    groups: Arc<[Vec<Value>]>,
}

impl Peers {
    /// None so far.
    pub fn new(settings: Settings) -> Peers {
        let Settings { address, authorities, certificate, server_name } = settings;
        let endpoint = endpoint(authorities.as_deref(), certificate, &server_name);
        Peers {
            address,
            authorities,
            server_name,
            endpoint: ArcSwap::from_pointee(endpoint),
            known: Mutex::default(),
            table: ArcSwap::default(),
            turn: AtomicUsize::new(0),
        }
    }

    /// Where peers reach this server, if they are told.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Whether requests are passed on.
    pub fn passes_on(&self) -> bool {
        self.authorities.is_some()
    }

    /// Calls peers with another certificate from the next request on.
    pub fn replace_certificate(&self, certificate: Option<(Vec<u8>, Vec<u8>)>) {
        let endpoint = endpoint(self.authorities.as_deref(), certificate, &self.server_name);
        self.endpoint.store(Arc::new(endpoint));
    }

    /// How a peer at an address is called.
    ///
    /// # Errors
    /// Why it cannot be.
    pub fn at(&self, (host, port): (String, u16)) -> Result<Endpoint, String> {
        (**self.endpoint.load()).as_ref().map_err(String::clone)?.moved(host, port)
    }

    /// The peers that serve a resource. This server's own types must have been looked through before.
    pub fn serving(&self, group: &str, version: &str, resource: &str) -> Vec<String> {
        let table = self.table.load();
        if table.servers.is_empty() {
            return Vec::new();
        }
        let resources = table.servers.get(&(group.to_owned(), version.to_owned()));
        resources.and_then(|resources| resources.get(resource)).cloned().unwrap_or_default()
    }

    /// One of several, each in its turn.
    pub fn one_of<T>(&self, mut several: Vec<T>) -> Option<T> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        (!several.is_empty()).then(|| several.swap_remove(turn % several.len()))
    }

    /// The named groups of each peer, as aggregated discovery has them.
    pub fn groups(&self) -> Arc<[Vec<Value>]> {
        self.table.load().groups.clone()
    }

    /// Takes over what peers say; says whether that is something else than before. A peer that is not among `alive` is forgotten.
    pub fn learn(&self, alive: &BTreeSet<String>, told: Vec<(String, Told)>) -> bool {
        let mut known = self.known.lock();
        let before = known.told.len();
        known.told.retain(|server, _| alive.contains(server));
        let mut is_changed = known.told.len() != before;
        for (server, told) in told {
            is_changed |= known.told.insert(server, told.clone()).is_none_or(|before| before != told);
        }
        if is_changed {
            self.publish(&known);
        }
        is_changed
    }

    /// Takes over which versions come from the store, as all servers know them; says whether that changes anything. Those that
    /// went count for [`GONE`] more.
    pub fn exclude(&self, active: &BTreeSet<Version>, now: Instant) -> bool {
        let mut known = self.known.lock();
        let before = known.excluded.len();
        let mut is_changed = false;
        known.excluded.retain(|version, since| match (active.contains(version), *since) {
            (true, _) => {
                *since = None;
                true
            }
            (false, None) => {
                *since = Some(now);
                true
            }
            (false, Some(since)) => now.duration_since(since) < GONE,
        });
        is_changed |= known.excluded.len() != before;
        for version in active {
            is_changed |= known.excluded.insert(version.clone(), None).is_none();
        }
        if is_changed {
            self.publish(&known);
        }
        is_changed
    }

    fn publish(&self, known: &Known) {
        let mut servers: HashMap<Version, HashMap<String, Vec<String>>> = HashMap::new();
        for (server, told) in &known.told {
            for (version, resources) in &told.types {
                if known.excluded.contains_key(version) {
                    continue;
                }
                let of_version = servers.entry(version.clone()).or_default();
                for resource in resources {
                    of_version.entry(resource.clone()).or_default().push(server.clone());
                }
            }
        }
        let groups = known.told.values().map(|told| told.groups_without(&known.excluded)).collect();
        self.table.store(Arc::new(Table { servers, groups }));
    }
}

fn endpoint(
    authorities: Option<&[u8]>,
    certificate: Option<(Vec<u8>, Vec<u8>)>,
    server_name: &str,
) -> Result<Endpoint, String> {
    let authorities = authorities.ok_or("no request is passed on to peers")?;
    let identity = Identity { certificate, ..Identity::default() };
    let credentials = Credentials {
        authorities,
        server_name: Some(server_name),
        identity: Some(&identity),
        ..Credentials::default()
    };
    let url = format!("https://{server_name}/").parse();
    Endpoint::with(url.map_err(|error: http::uri::InvalidUri| error.to_string())?, &credentials)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::json::parse;

    fn told(group: &str, version: &str, resource: &str) -> Told {
        let document = |name: &str, resource: &str| {
            let text = format!(
                r#"{{"kind":"APIGroupDiscoveryList","items":[{{"metadata":{{"name":"{name}"}},"versions":[{{"version":"{version}","resources":[{{"resource":"{resource}"}}]}}]}}]}}"#
            );
            parse(text.as_bytes()).unwrap()
        };
        Told::read(&document("", "pods"), document(group, resource)).unwrap()
    }

    fn names(all: &[&str]) -> BTreeSet<String> {
        all.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_type_is_found_at_the_peers_that_serve_it_and_are_there() {
        let peers = Peers::new(Settings::default());
        let told = || {
            [("a", told("g", "v1", "things")), ("b", told("g", "v1", "others"))]
                .map(|(name, told)| (name.to_owned(), told))
                .to_vec()
        };
        assert!(peers.learn(&names(&["a", "b"]), told()));
        assert!(!peers.learn(&names(&["a", "b"]), told()));
        let find = |group, version, resource| peers.serving(group, version, resource).join(",");
        for ((group, version, resource), want) in [
            (("g", "v1", "things"), "a"),
            (("g", "v1", "others"), "b"),
            (("", "v1", "pods"), "a,b"),
            (("g", "v2", "things"), ""),
            (("h", "v1", "things"), ""),
        ] {
            assert_eq!(find(group, version, resource), want, "{group}/{version}/{resource}");
        }
        // Documents have the named groups alone.
        assert_eq!(peers.groups().iter().map(Vec::len).collect::<Vec<_>>(), [1, 1]);
        assert!(peers.learn(&names(&["b"]), Vec::new()));
        assert_eq!(find("g", "v1", "things"), "");
        assert_eq!(find("", "v1", "pods"), "b");
        assert_eq!(peers.groups().len(), 1);
        let turns: Vec<_> = (0..4).map(|_| peers.one_of(vec![1, 2]).unwrap()).collect();
        assert_eq!(turns, [1, 2, 1, 2]);
        assert_eq!(peers.one_of(Vec::<u8>::new()), None);
    }

    #[test]
    fn versions_of_the_store_are_not_looked_for_at_peers_and_not_soon_after_they_went() {
        let peers = Peers::new(Settings::default());
        peers.learn(&names(&["a"]), vec![("a".to_owned(), told("g", "v1", "things"))]);
        let (start, active) = (Instant::now(), BTreeSet::from([("g".to_owned(), "v1".to_owned())]));
        let none = BTreeSet::new();
        for (active, seconds, is_changed, is_found) in [
            (&none, 0, false, true),
            (&active, 1, true, false),
            (&active, 2, false, false),
            (&none, 3, false, false),
            (&none, 302, false, false),
            (&active, 302, false, false),
            (&none, 303, false, false),
            (&none, 602, false, false),
            (&none, 603, true, true),
        ] {
            let now = start + Duration::from_secs(seconds);
            assert_eq!(peers.exclude(active, now), is_changed, "after {seconds} s");
            assert_eq!(!peers.serving("g", "v1", "things").is_empty(), is_found, "after {seconds} s");
            assert_eq!(!peers.groups()[0].is_empty(), is_found, "after {seconds} s");
        }
    }

    #[test]
    fn what_is_no_aggregated_document_is_not_taken_for_one() {
        let good = r#"{"kind":"APIGroupDiscoveryList","items":[]}"#;
        for (core, named, want) in [
            (good, good, true),
            (r#"{"kind":"APIVersions"}"#, good, false),
            (good, r#"{"kind":"APIGroupList"}"#, false),
            (good, "5", false),
            (good, r#"{"kind":"APIGroupDiscoveryList","items":[5,{"versions":[{"resources":7}]}]}"#, true),
        ] {
            let told = Told::read(&parse(core.as_bytes()).unwrap(), parse(named.as_bytes()).unwrap());
            assert_eq!(told.is_ok(), want, "{core} {named}");
        }
    }

    #[test]
    fn no_peer_is_called_without_authorities() {
        let peers = Peers::new(Settings { server_name: "a.b".to_owned(), ..Settings::default() });
        assert!(!peers.passes_on());
        assert!(peers.at(("127.0.0.1".to_owned(), 1)).is_err());
        let known =
            Settings { authorities: Some(Vec::new()), server_name: "a.b".to_owned(), ..Settings::default() };
        let known = Peers::new(known).at(("127.0.0.1".to_owned(), 7)).unwrap();
        assert_eq!(known.url().to_string(), "https://127.0.0.1:7/");
    }
}
