//! Peers: the other servers on the same store, which may serve types that this server does not know
//! (docs/api/peers.md).
//!
//! ```text
//! Leases of servers ─ controllers/peers.rs ─► Peers ─┬─ type that is not served here ─► address ─► proxy ─► peer
//!                        │ asks each what it serves  └─ groups ─► aggregated discovery
//! ```
//!
//! A request finds the servers of its type in a table that is replaced as a whole. Types that all servers
//! know from the store (custom types, and those of extension servers) are never looked up at a peer, because
//! each server knows itself whether they exist. A forwarded request carries a header and is not forwarded
//! again.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use http::HeaderName;
use parking_lot::Mutex;

use values::json::Value;
use wire::outgoing::{Credentials, Egress, Endpoint, Identity};

/// Header of a request that a peer has forwarded.
pub const PASSED_ON: HeaderName = HeaderName::from_static("x-kubernetes-peer-proxied");

/// Maximum number of peers that are asked what they serve; far more than share a store in practice.
pub const PEERS_MAX: usize = 64;

/// Maximum number of types that are kept for one peer.
const TYPES_MAX: usize = 16_384;

/// Time after the removal of a version during which reports of peers about it are ignored, because peers may
/// not have noticed the removal yet. Peers are asked again at this interval.
pub const GONE: Duration = Duration::from_secs(300);

/// The settings of the operator.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Address at which peers reach this server. `None` means that it is not announced, because the feature
    /// gate is off.
    pub address: Option<SocketAddr>,
    /// PEM of the authorities of peers' certificates. `None` means that no request is forwarded.
    pub authorities: Option<Vec<u8>>,
    /// PEM of the certificate and the key with which this server identifies itself to peers.
    pub certificate: Option<(Vec<u8>, Vec<u8>)>,
    /// The server name in the certificates of all peers.
    pub server_name: String,
    /// Network path to peers.
    pub egress: Egress,
}

/// Group and version of a type.
pub type PeerGroupVersion = (String, String);

/// The types that a peer reports to serve.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PeerReport {
    /// Resources by group and version.
    types: BTreeMap<PeerGroupVersion, BTreeSet<String>>,
    /// The named groups, as in aggregated discovery.
    groups: Vec<Value>,
}

impl PeerReport {
    /// Reads the aggregated discovery documents of a peer: that of the core group, and that of the named
    /// groups.
    ///
    /// # Errors
    /// Fails if a document is invalid or too large.
    pub fn read(core: &Value, named: Value) -> Result<PeerReport, String> {
        let mut told = PeerReport::default();
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
        // The core group has a separate document, which is not merged.
        told.groups = list(&named, "items")
            .iter()
            .filter(|group| !group.str_at(&["metadata", "name"]).is_empty())
            .cloned()
            .collect();
        Ok(told)
    }

    /// Returns the groups with the versions for which `counts` is true.
    fn groups(&self, counts: impl Fn(&PeerGroupVersion) -> bool) -> Vec<Value> {
        let counting = |group: &Value| {
            let name = group.str_at(&["metadata", "name"]).to_owned();
            let mut group = group.clone();
            if let Value::Array(versions) = group.as_object_mut()?.get_mut("versions")? {
                versions.retain(|version| counts(&(name.clone(), version.str_at(&["version"]).to_owned())));
                return (!versions.is_empty()).then_some(group);
            }
            None
        };
        self.groups.iter().filter_map(counting).collect()
    }
}

fn list<'v>(value: &'v Value, member: &str) -> &'v [Value] {
    value.get(member).and_then(Value::as_array).unwrap_or_default()
}

/// The peers of this server.
pub struct Peers {
    address: Option<SocketAddr>,
    authorities: Option<Vec<u8>>,
    server_name: String,
    egress: Egress,
    /// The connection settings for peers, without an address; or the reason why they are unusable.
    endpoint: ArcSwap<Result<Endpoint, String>>,
    known: Mutex<Known>,
    table: ArcSwap<Table>,
    /// Counter for the rotation among the peers of a type.
    turn: AtomicUsize,
}

#[derive(Default)]
struct Known {
    /// The reports of servers, with the times of the questions.
    told: BTreeMap<String, (PeerReport, Instant)>,
    /// Versions that come from the store (`None`), and removed ones with the time of their removal.
    excluded: BTreeMap<PeerGroupVersion, Option<Instant>>,
}

impl Known {
    /// Returns whether the report of a server about a version, asked at `asked`, is used.
    fn counts(&self, version: &PeerGroupVersion, asked: Instant) -> bool {
        self.excluded.get(version).is_none_or(|since| since.is_some_and(|since| asked >= since + GONE))
    }

    /// Returns whether the exclusion of a removed version has no effect any more.
    fn is_over(&self, version: &PeerGroupVersion, since: Instant, now: Instant) -> bool {
        let mut telling = self.told.values().filter(|(told, _)| told.types.contains_key(version));
        now >= since + GONE && telling.all(|(_, asked)| *asked >= since + GONE)
    }
}

/// The types that peers serve, after exclusions.
#[derive(Default, PartialEq)]
struct Table {
    servers: HashMap<PeerGroupVersion, HashMap<String, Vec<String>>>,
    groups: Arc<[Vec<Value>]>,
}

impl Peers {
    /// Returns a set without peers.
    pub fn new(settings: Settings) -> Peers {
        let Settings { address, authorities, certificate, server_name, egress } = settings;
        let endpoint = endpoint(authorities.as_deref(), certificate, &server_name, &egress);
        Peers {
            address,
            authorities,
            server_name,
            egress,
            endpoint: ArcSwap::from_pointee(endpoint),
            known: Mutex::default(),
            table: ArcSwap::default(),
            turn: AtomicUsize::new(0),
        }
    }

    /// Returns the address at which peers reach this server, if it is announced.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Returns whether requests are forwarded.
    pub fn passes_on(&self) -> bool {
        self.authorities.is_some()
    }

    /// Replaces the client certificate for calls to peers, from the next request on.
    pub fn replace_certificate(&self, certificate: Option<(Vec<u8>, Vec<u8>)>) {
        let endpoint = endpoint(self.authorities.as_deref(), certificate, &self.server_name, &self.egress);
        self.endpoint.store(Arc::new(endpoint));
    }

    /// Returns the connection settings for a peer at an address.
    ///
    /// # Errors
    /// Says why they are unusable.
    pub fn at(&self, host: String, port: u16) -> Result<Endpoint, String> {
        (**self.endpoint.load()).as_ref().map_err(String::clone)?.moved(host, port)
    }

    /// Returns the peers that serve a resource. Search this server's own types first.
    pub fn serving(&self, group: &str, version: &str, resource: &str) -> Vec<String> {
        let table = self.table.load();
        if table.servers.is_empty() {
            return Vec::new();
        }
        let resources = table.servers.get(&(group.to_owned(), version.to_owned()));
        resources.and_then(|resources| resources.get(resource)).cloned().unwrap_or_default()
    }

    /// Returns one element of a list, in rotation.
    pub fn one_of<T>(&self, mut several: Vec<T>) -> Option<T> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        (!several.is_empty()).then(|| several.swap_remove(turn % several.len()))
    }

    /// Returns the named groups of each peer, as in aggregated discovery.
    pub fn groups(&self) -> Arc<[Vec<Value>]> {
        self.table.load().groups.clone()
    }

    /// Stores the reports of peers that were asked at `asked`, and forgets peers that are not in `alive`.
    /// Returns whether the table of served types changed.
    pub fn learn(&self, alive: &BTreeSet<String>, told: Vec<(String, PeerReport)>, asked: Instant) -> bool {
        let mut known = self.known.lock();
        known.told.retain(|server, _| alive.contains(server));
        known.told.extend(told.into_iter().map(|(server, told)| (server, (told, asked))));
        self.publish(&known)
    }

    /// Sets the versions that come from the store, which all servers know. Returns whether the table of
    /// served types changed. Reports about a removed version are ignored if they were requested within
    /// [`GONE`] after its removal.
    pub fn exclude(&self, active: &BTreeSet<PeerGroupVersion>, now: Instant) -> bool {
        let mut known = self.known.lock();
        let mut excluded = std::mem::take(&mut known.excluded);
        for (version, since) in &mut excluded {
            *since = if active.contains(version) { None } else { since.or(Some(now)) };
        }
        excluded.retain(|version, since| since.is_none_or(|since| !known.is_over(version, since, now)));
        excluded.extend(active.iter().map(|version| (version.clone(), None)));
        known.excluded = excluded;
        self.publish(&known)
    }

    /// Excludes versions that come from the store, or did until now, before [`exclude`](Self::exclude) sets
    /// all of them. Returns whether the table of served types changed.
    pub fn note(&self, versions: impl IntoIterator<Item = PeerGroupVersion>, now: Instant) -> bool {
        let mut known = self.known.lock();
        let mut is_told = false;
        for version in versions {
            is_told |= known.told.values().any(|(told, _)| told.types.contains_key(&version));
            let since = known.excluded.entry(version).or_insert(Some(now));
            *since = since.map(|_| now);
        }
        // When thousands of types are created one by one, no peer reports them yet, so the table is not
        // rebuilt each time.
        is_told && self.publish(&known)
    }

    /// Rebuilds the table. Returns whether it changed.
    fn publish(&self, known: &Known) -> bool {
        let mut servers: HashMap<PeerGroupVersion, HashMap<String, Vec<String>>> = HashMap::new();
        let mut groups = Vec::with_capacity(known.told.len());
        for (server, (told, asked)) in &known.told {
            let counts = |version: &PeerGroupVersion| known.counts(version, *asked);
            for (version, resources) in told.types.iter().filter(|(version, _)| counts(version)) {
                let of_version = servers.entry(version.clone()).or_default();
                for resource in resources {
                    of_version.entry(resource.clone()).or_default().push(server.clone());
                }
            }
            groups.push(told.groups(counts));
        }
        let table = Table { servers, groups: groups.into() };
        let is_other = **self.table.load() != table;
        if is_other {
            self.table.store(Arc::new(table));
        }
        is_other
    }
}

fn endpoint(
    authorities: Option<&[u8]>,
    certificate: Option<(Vec<u8>, Vec<u8>)>,
    server_name: &str,
    egress: &Egress,
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
    let url = url.map_err(|error: http::uri::InvalidUri| error.to_string())?;
    Ok(Endpoint::with(url, &credentials)?.through(egress))
}

#[cfg(test)]
mod tests {
    use super::*;
    use values::json::parse;

    fn told(group: &str, version: &str, resource: &str) -> PeerReport {
        let document = |name: &str, resource: &str| {
            let text = format!(
                r#"{{"kind":"APIGroupDiscoveryList","items":[{{"metadata":{{"name":"{name}"}},"versions":[{{"version":"{version}","resources":[{{"resource":"{resource}"}}]}}]}}]}}"#
            );
            parse(text.as_bytes()).unwrap()
        };
        PeerReport::read(&document("", "pods"), document(group, resource)).unwrap()
    }

    fn names(all: &[&str]) -> BTreeSet<String> {
        all.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_type_is_found_at_the_peers_that_serve_it_and_are_there() {
        let (peers, now) = (Peers::new(Settings::default()), Instant::now());
        let told = || {
            [("a", told("g", "v1", "things")), ("b", told("g", "v1", "others"))]
                .map(|(name, told)| (name.to_owned(), told))
                .to_vec()
        };
        assert!(peers.learn(&names(&["a", "b"]), told(), now));
        assert!(!peers.learn(&names(&["a", "b"]), told(), now));
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
        // The documents contain only the named groups.
        assert_eq!(peers.groups().iter().map(Vec::len).collect::<Vec<_>>(), [1, 1]);
        assert!(peers.learn(&names(&["b"]), Vec::new(), now));
        assert_eq!(find("g", "v1", "things"), "");
        assert_eq!(find("", "v1", "pods"), "b");
        assert_eq!(peers.groups().len(), 1);
        let turns: Vec<_> = (0..4).map(|_| peers.one_of(vec![1, 2]).unwrap()).collect();
        assert_eq!(turns, [1, 2, 1, 2]);
        assert_eq!(peers.one_of(Vec::<u8>::new()), None);
    }

    /// An event in a test of the exclusion of versions.
    enum Event {
        /// Sets all versions of the store, with or without the version under test.
        Active(bool),
        /// The version is created or removed.
        Changes,
        /// The peer is asked again.
        Asked,
    }

    #[test]
    fn versions_of_the_store_are_not_looked_for_at_peers_and_not_in_answers_from_before_they_know() {
        use Event::{Active, Asked, Changes};
        // Each row: time in seconds, event, whether the table changed, whether it contains the version.
        let all: [&[(u64, Event, bool, bool)]; 3] = [
            &[
                (0, Active(false), false, true),
                (1, Active(true), true, false),
                (2, Active(true), false, false),
                (3, Active(false), false, false),
                (302, Active(false), false, false),
                (302, Active(true), false, false),
                (303, Active(false), false, false),
                (602, Asked, false, false),
                (602, Active(false), false, false),
                (603, Active(false), false, false),
                (604, Asked, true, true),
                (604, Active(false), false, true),
                (605, Active(true), true, false),
            ],
            // The version is created and removed before all versions are set.
            &[
                (0, Changes, true, false),
                (9, Changes, false, false),
                (10, Active(false), false, false),
                (308, Active(false), false, false),
                (308, Asked, false, false),
                (309, Asked, true, true),
                (310, Active(false), false, true),
            ],
            // While the version exists, other types of it may be created and removed.
            &[
                (0, Active(true), true, false),
                (1, Changes, false, false),
                (500, Active(true), false, false),
                (500, Asked, false, false),
                (501, Active(false), false, false),
                (801, Asked, true, true),
            ],
        ];
        for (story, events) in all.into_iter().enumerate() {
            let (peers, start) = (Peers::new(Settings::default()), Instant::now());
            let version = || ("g".to_owned(), "v1".to_owned());
            let ask =
                |asked| peers.learn(&names(&["a"]), vec![("a".to_owned(), told("g", "v1", "things"))], asked);
            ask(start);
            for (seconds, event, is_other, is_found) in events {
                let now = start + Duration::from_secs(*seconds);
                let is = match event {
                    Active(active) => peers.exclude(&active.then(version).into_iter().collect(), now),
                    Changes => peers.note([version()], now),
                    Asked => ask(now),
                };
                let at = format!("story {story}, after {seconds} s");
                assert_eq!(is, *is_other, "{at}");
                assert_eq!(!peers.serving("g", "v1", "things").is_empty(), *is_found, "{at}");
                assert_eq!(!peers.groups()[0].is_empty(), *is_found, "{at}");
            }
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
            let told = PeerReport::read(&parse(core.as_bytes()).unwrap(), parse(named.as_bytes()).unwrap());
            assert_eq!(told.is_ok(), want, "{core} {named}");
        }
    }

    #[test]
    fn no_peer_is_called_without_authorities() {
        let peers = Peers::new(Settings { server_name: "a.b".to_owned(), ..Settings::default() });
        assert!(!peers.passes_on());
        assert!(peers.at("127.0.0.1".to_owned(), 1).is_err());
        let known =
            Settings { authorities: Some(Vec::new()), server_name: "a.b".to_owned(), ..Settings::default() };
        let known = Peers::new(known).at("127.0.0.1".to_owned(), 7).unwrap();
        assert_eq!(known.url().to_string(), "https://127.0.0.1:7/");
    }
}
