//! Peers: the other servers on the same store, which may serve types that this server does not serve
//! (docs/api/peers.md).
//!
//! ```text
//! Leases of servers ─ controllers/peers.rs ─► Peers ─┬─ type that is not served here ─► address ─► proxy ─► peer
//!                        │ asks each what it serves  └─ groups ─► aggregated discovery
//! ```
//!
//! A table contains the servers of each type. A change replaces the whole table. Requests for types that are defined in
//! the store (custom types, and types of extension servers) are never forwarded to a peer, because every server reads
//! the definitions of these types from the store. A forwarded request carries a header and is not forwarded again.

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

/// Maximum number of peers whose resources are queried; in practice far fewer servers share a store.
pub const PEERS_MAX: usize = 64;

/// Maximum number of types that are kept for one peer.
const TYPES_MAX: usize = 16_384;

/// Time after the removal of a version during which reports of peers about this version are ignored, because peers may
/// not have noticed the removal yet. A report is also valid for this time.
pub const GONE: Duration = Duration::from_secs(300);

/// The settings of the operator.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Address at which peers reach this server. `None` means that the address is not announced, because the
    /// feature gate is off.
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
    /// Reads the aggregated discovery documents of a peer: the document of the core group, and the document of
    /// the named groups.
    ///
    /// # Errors
    /// Fails if a document is invalid or too large.
    pub fn read(core: &Value, named: Value) -> Result<PeerReport, String> {
        let mut report = PeerReport::default();
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
                    report.types.insert(key, resources);
                }
            }
        }
        if count > TYPES_MAX {
            return Err(format!("the peer serves {count} types, more than {TYPES_MAX}"));
        }
        // The core group has a separate document, which is not merged.
        report.groups = list(&named, "items")
            .iter()
            .filter(|group| !group.str_at(&["metadata", "name"]).is_empty())
            .cloned()
            .collect();
        Ok(report)
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
    /// The reports of servers, with the time at which each report was requested.
    reports: BTreeMap<String, (PeerReport, Instant)>,
    /// Versions that come from the store (`None`), and removed versions with the time of their removal.
    excluded: BTreeMap<PeerGroupVersion, Option<Instant>>,
}

impl Known {
    /// Returns whether this server uses a report about a version that was requested at `requested_at`.
    fn counts(&self, version: &PeerGroupVersion, requested_at: Instant) -> bool {
        self.excluded.get(version).is_none_or(|since| since.is_some_and(|since| requested_at >= since + GONE))
    }

    /// Returns whether the exclusion of a removed version can be deleted because it has no effect any more.
    fn is_over(&self, version: &PeerGroupVersion, since: Instant, now: Instant) -> bool {
        let mut telling = self.reports.values().filter(|(report, _)| report.types.contains_key(version));
        now >= since + GONE && telling.all(|(_, requested_at)| *requested_at >= since + GONE)
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

    /// Returns the address at which peers reach this server, if the address is announced.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Returns whether requests are forwarded.
    pub fn passes_on(&self) -> bool {
        self.authorities.is_some()
    }

    /// Replaces the client certificate for calls to peers. New requests use the new certificate.
    pub fn replace_certificate(&self, certificate: Option<(Vec<u8>, Vec<u8>)>) {
        let endpoint = endpoint(self.authorities.as_deref(), certificate, &self.server_name, &self.egress);
        self.endpoint.store(Arc::new(endpoint));
    }

    /// Returns the connection settings for a peer at an address.
    ///
    /// # Errors
    /// The reason why the settings are unusable.
    pub fn at(&self, host: String, port: u16) -> Result<Endpoint, String> {
        (**self.endpoint.load()).as_ref().map_err(String::clone)?.moved(host, port)
    }

    /// Returns the peers that serve a resource. The caller must search this server's own types first.
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

    /// Stores the reports of peers that were requested at `requested_at`, and removes peers that are not in
    /// `alive`. Returns whether the table of served types changed.
    pub fn learn(
        &self,
        alive: &BTreeSet<String>,
        reports: Vec<(String, PeerReport)>,
        requested_at: Instant,
    ) -> bool {
        let mut known = self.known.lock();
        known.reports.retain(|server, _| alive.contains(server));
        known.reports.extend(reports.into_iter().map(|(server, report)| (server, (report, requested_at))));
        self.publish(&known)
    }

    /// Sets the versions that come from the store, which are the same for all servers. Returns whether the table
    /// of served types changed. Reports about a removed version are ignored if they were requested within
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

    /// Excludes versions that were added to the store or removed from the store, until
    /// [`exclude`](Self::exclude) sets all versions. Returns whether the table of served types changed.
    pub fn note(&self, versions: impl IntoIterator<Item = PeerGroupVersion>, now: Instant) -> bool {
        let mut known = self.known.lock();
        let mut is_reported = false;
        for version in versions {
            is_reported |= known.reports.values().any(|(report, _)| report.types.contains_key(&version));
            let since = known.excluded.entry(version).or_insert(Some(now));
            *since = since.map(|_| now);
        }
        // When thousands of types are created one by one, no peer reports these types yet. In this case the
        // table is not rebuilt.
        is_reported && self.publish(&known)
    }

    /// Rebuilds the table. Returns whether the table changed.
    fn publish(&self, known: &Known) -> bool {
        let mut servers: HashMap<PeerGroupVersion, HashMap<String, Vec<String>>> = HashMap::new();
        let mut groups = Vec::with_capacity(known.reports.len());
        for (server, (report, requested_at)) in &known.reports {
            let counts = |version: &PeerGroupVersion| known.counts(version, *requested_at);
            for (version, resources) in report.types.iter().filter(|(version, _)| counts(version)) {
                let of_version = servers.entry(version.clone()).or_default();
                for resource in resources {
                    of_version.entry(resource.clone()).or_default().push(server.clone());
                }
            }
            groups.push(report.groups(counts));
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

    fn peer_report(group: &str, version: &str, resource: &str) -> PeerReport {
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
    fn a_missing_type_is_found_at_the_active_peers_that_serve_it() {
        let (peers, now) = (Peers::new(Settings::default()), Instant::now());
        let reports = || {
            [("a", peer_report("g", "v1", "things")), ("b", peer_report("g", "v1", "others"))]
                .map(|(name, report)| (name.to_owned(), report))
                .to_vec()
        };
        assert!(peers.learn(&names(&["a", "b"]), reports(), now));
        assert!(!peers.learn(&names(&["a", "b"]), reports(), now));
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
        /// The peer reports again.
        Asked,
    }

    #[test]
    fn a_version_of_the_store_is_found_at_peers_only_in_reports_made_after_its_removal() {
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
            // While the version exists, other types of the version may be created and removed.
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
            let learn = |requested_at| {
                peers.learn(
                    &names(&["a"]),
                    vec![("a".to_owned(), peer_report("g", "v1", "things"))],
                    requested_at,
                )
            };
            learn(start);
            for (seconds, event, is_other, is_found) in events {
                let now = start + Duration::from_secs(*seconds);
                let is = match event {
                    Active(active) => peers.exclude(&active.then(version).into_iter().collect(), now),
                    Changes => peers.note([version()], now),
                    Asked => learn(now),
                };
                let at = format!("story {story}, after {seconds} s");
                assert_eq!(is, *is_other, "{at}");
                assert_eq!(!peers.serving("g", "v1", "things").is_empty(), *is_found, "{at}");
                assert_eq!(!peers.groups()[0].is_empty(), *is_found, "{at}");
            }
        }
    }

    #[test]
    fn a_peer_report_that_is_not_an_aggregated_discovery_document_is_refused() {
        let good = r#"{"kind":"APIGroupDiscoveryList","items":[]}"#;
        for (core, named, want) in [
            (good, good, true),
            (r#"{"kind":"APIVersions"}"#, good, false),
            (good, r#"{"kind":"APIGroupList"}"#, false),
            (good, "5", false),
            (good, r#"{"kind":"APIGroupDiscoveryList","items":[5,{"versions":[{"resources":7}]}]}"#, true),
        ] {
            let report = PeerReport::read(&parse(core.as_bytes()).unwrap(), parse(named.as_bytes()).unwrap());
            assert_eq!(report.is_ok(), want, "{core} {named}");
        }
    }

    #[test]
    fn a_server_without_peer_authorities_calls_no_peer() {
        let peers = Peers::new(Settings { server_name: "a.b".to_owned(), ..Settings::default() });
        assert!(!peers.passes_on());
        assert!(peers.at("127.0.0.1".to_owned(), 1).is_err());
        let known =
            Settings { authorities: Some(Vec::new()), server_name: "a.b".to_owned(), ..Settings::default() };
        let known = Peers::new(known).at("127.0.0.1".to_owned(), 7).unwrap();
        assert_eq!(known.url().to_string(), "https://127.0.0.1:7/");
    }
}
