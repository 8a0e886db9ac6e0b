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

use values::json::Value;
use wire::outgoing::{Credentials, Endpoint, Identity};

/// Says of a request that a peer passed it on.
pub const PASSED_ON: HeaderName = HeaderName::from_static("x-kubernetes-peer-proxied");

/// Most peers that are asked what they serve; far more than share one store.
pub const PEERS_MAX: usize = 64;

/// Most types of one peer that are known.
const TYPES_MAX: usize = 16_384;

/// How long after a version went what peers say of it does not count: they may not know yet that it is gone. They are asked again as
/// often.
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

    /// The groups with those versions that count.
    fn groups(&self, counts: impl Fn(&Version) -> bool) -> Vec<Value> {
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
    /// What servers said, and when they were asked.
    told: BTreeMap<String, (Told, Instant)>,
    /// Versions that come from the store; those that went, since when.
    excluded: BTreeMap<Version, Option<Instant>>,
}

impl Known {
    /// Whether it counts what a server says of a version that was asked then.
    fn counts(&self, version: &Version, asked: Instant) -> bool {
        self.excluded.get(version).is_none_or(|since| since.is_some_and(|since| asked >= since + GONE))
    }

    /// Whether the exclusion of a version that went makes no difference any more.
    fn is_over(&self, version: &Version, since: Instant, now: Instant) -> bool {
        let mut telling = self.told.values().filter(|(told, _)| told.types.contains_key(version));
        now >= since + GONE && telling.all(|(_, asked)| *asked >= since + GONE)
    }
}

/// What the peers serve, as far as it counts.
#[derive(Default, PartialEq)]
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

    /// Takes over what peers say that were asked at a time; says whether they serve something else than before. A peer that is not
    /// among `alive` is forgotten.
    pub fn learn(&self, alive: &BTreeSet<String>, told: Vec<(String, Told)>, asked: Instant) -> bool {
        let mut known = self.known.lock();
        known.told.retain(|server, _| alive.contains(server));
        known.told.extend(told.into_iter().map(|(server, told)| (server, (told, asked))));
        self.publish(&known)
    }

    /// Takes over which versions come from the store, as all servers know them; says whether peers serve something else by that
    /// than before. Of those that went no answer counts that was given within [`GONE`] after that.
    pub fn exclude(&self, active: &BTreeSet<Version>, now: Instant) -> bool {
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

    /// Takes over that versions come from the store, or did until now, before all of them are told with
    /// [`exclude`](Self::exclude). Says whether peers serve something else by that than before.
    pub fn note(&self, versions: impl IntoIterator<Item = Version>, now: Instant) -> bool {
        let mut known = self.known.lock();
        let mut is_told = false;
        for version in versions {
            is_told |= known.told.values().any(|(told, _)| told.types.contains_key(&version));
            let since = known.excluded.entry(version).or_insert(Some(now));
            *since = since.map(|_| now);
        }
        // Where thousands of types come one by one no peer says anything of them yet.
        is_told && self.publish(&known)
    }

    /// Makes the table; says whether that is another one.
    fn publish(&self, known: &Known) -> bool {
        let mut servers: HashMap<Version, HashMap<String, Vec<String>>> = HashMap::new();
        let mut groups = Vec::with_capacity(known.told.len());
        for (server, (told, asked)) in &known.told {
            let counts = |version: &Version| known.counts(version, *asked);
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
    use values::json::parse;

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
        // Documents have the named groups alone.
        assert_eq!(peers.groups().iter().map(Vec::len).collect::<Vec<_>>(), [1, 1]);
        assert!(peers.learn(&names(&["b"]), Vec::new(), now));
        assert_eq!(find("g", "v1", "things"), "");
        assert_eq!(find("", "v1", "pods"), "b");
        assert_eq!(peers.groups().len(), 1);
        let turns: Vec<_> = (0..4).map(|_| peers.one_of(vec![1, 2]).unwrap()).collect();
        assert_eq!(turns, [1, 2, 1, 2]);
        assert_eq!(peers.one_of(Vec::<u8>::new()), None);
    }

    /// What happens, in a table of the rule for versions of the store.
    enum Event {
        /// The version comes from the store, or does not; all that do are told.
        Active(bool),
        /// It comes or goes.
        Changes,
        /// The peer is asked again.
        Asked,
    }

    #[test]
    fn versions_of_the_store_are_not_looked_for_at_peers_and_not_in_answers_from_before_they_know() {
        use Event::{Active, Asked, Changes};
        // After how many seconds what happens, whether peers serve something else by that, whether the version is among it.
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
            // It came and went before anyone told of all.
            &[
                (0, Changes, true, false),
                (9, Changes, false, false),
                (10, Active(false), false, false),
                (308, Active(false), false, false),
                (308, Asked, false, false),
                (309, Asked, true, true),
                (310, Active(false), false, true),
            ],
            // While it is there, other types of it may come and go.
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
