//! The addresses and ports that stored services and writes in progress use.
//!
//! ```text
//! log ─ tail on services ─ caught up at each use ─► holdings ──┐
//!                                                              ├─► is it free?
//! writes between their choice and their commit ─► reservations ┘
//! ```
//!
//! The log is the only source of the allocations: the server rebuilds the pools from the log at each start. Allocations
//! are not stored separately from the services. Therefore allocations are consistent with the services after a crash,
//! and every removal of a service releases the items of the service. A single lock covers both steps: reading the log
//! to its end and making a reservation. A reservation ends after its write, when the event of the write is already in
//! the log. So two writers never get the same item.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use bytes::Bytes;
use engine::{Engine, EventKind, Revision, Tail, TailError};
use futures_util::FutureExt;
use parking_lot::Mutex;
use serde::Deserialize;

use super::range::{Family, Network, Ports};
use values::names;

/// Maximum number of events read from the tail at once.
const EVENTS_MAX: usize = 1024;

/// Number of random positions that are tried before the range is searched linearly.
const RANDOM_TRIES: usize = 16;

/// An item that at most one service may hold.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) enum Item {
    Address(IpAddr),
    Port(u16),
}

/// The reason why an item cannot be reserved.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum ReservationRefusal {
    /// The item is in use.
    Taken,
    /// The item is outside the ranges.
    OutOfRange,
    /// The range is exhausted.
    Full,
}

/// The pools of one server.
pub(super) struct Pools {
    engine: Engine,
    /// Key prefix of services.
    prefix: Bytes,
    /// The networks: one, or two of different families. The first is the default.
    pub networks: Vec<Network>,
    pub ports: Ports,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// `None` before the first read, and after the tail was lost.
    tail: Option<Tail>,
    /// Items of each stored service.
    holdings: HashMap<Bytes, Vec<Item>>,
    /// Number of services that hold each item. Two services can hold the same item only if they were stored
    /// before this server allocated items.
    held: HashMap<Item, usize>,
    /// Items of writes in progress.
    reserved: HashSet<Item>,
}

impl Pools {
    pub fn new(engine: Engine, prefix: Bytes, networks: Vec<Network>, ports: Ports) -> Self {
        Pools { engine, prefix, networks, ports, state: Mutex::default() }
    }

    /// Reserves a requested item.
    pub fn take(&self, item: Item) -> Result<(), ReservationRefusal> {
        let in_range = match item {
            Item::Address(address) => self.networks.iter().any(|network| network.contains(address)),
            Item::Port(port) => self.ports.contains(port.into()),
        };
        if !in_range {
            return Err(ReservationRefusal::OutOfRange);
        }
        let mut state = self.caught_up();
        if state.is_taken(item) {
            return Err(ReservationRefusal::Taken);
        }
        state.reserved.insert(item);
        Ok(())
    }

    /// Reserves any free address of a family that has a network.
    pub fn take_address(&self, family: Family) -> Result<IpAddr, ReservationRefusal> {
        let network = self.networks.iter().find(|network| network.family() == family);
        let network = network.ok_or(ReservationRefusal::OutOfRange)?;
        let any = |at| Item::Address(network.nth(at));
        match self.take_any(network.count(), network.reserved(), any)? {
            Item::Address(address) => Ok(address),
            Item::Port(_) => unreachable!("asked for an address"),
        }
    }

    /// Reserves any free port.
    pub fn take_port(&self) -> Result<u16, ReservationRefusal> {
        let any = |at| Item::Port(self.ports.nth(at as u16));
        match self.take_any(self.ports.count().into(), self.ports.reserved().into(), any)? {
            Item::Port(port) => Ok(port),
            Item::Address(_) => unreachable!("asked for a port"),
        }
    }

    /// Reserves one of `count` items. The first `reserved` items are chosen only if all other items are in use.
    fn take_any(
        &self,
        count: u128,
        reserved: u128,
        nth: impl Fn(u128) -> Item,
    ) -> Result<Item, ReservationRefusal> {
        let upper = count - reserved;
        if upper == 0 {
            return Err(ReservationRefusal::Full);
        }
        let mut state = self.caught_up();
        let random = || u128::from_le_bytes(names::random());
        let tries = (0..RANDOM_TRIES).map(|_| reserved + random() % upper);
        // The search starts at a random position, so that nearly full ranges are not filled from their start.
        let start = random() % upper;
        // If the search covers one position more than there are items in use, one of the positions must be
        // free.
        let enough = state.held.len() as u128 + state.reserved.len() as u128 + 1;
        let search = (0..upper.min(enough)).map(|step| reserved + (start + step) % upper);
        let found = tries.chain(search).chain(0..reserved).map(nth).find(|item| !state.is_taken(*item));
        let item = found.ok_or(ReservationRefusal::Full)?;
        state.reserved.insert(item);
        Ok(item)
    }

    /// Ends reservations after their write has been committed or has failed.
    pub fn end(&self, items: &HashSet<Item>) {
        let mut state = self.state.lock();
        for item in items {
            state.reserved.remove(item);
        }
    }

    /// Applies all commits up to now, and returns the state.
    fn caught_up(&self) -> parking_lot::MutexGuard<'_, State> {
        let mut state = self.state.lock();
        if state.follow(self.engine.revision()).is_err() {
            // The history at the position of the tail is no longer retained, or a part of the history is damaged, so
            // read the newest state instead.
            if let Err(error) = state.begin(&self.engine, &self.prefix) {
                tracing::error!(%error, "cannot follow changes of services");
            }
        }
        state
    }
}

impl State {
    fn is_taken(&self, item: Item) -> bool {
        self.held.contains_key(&item) || self.reserved.contains(&item)
    }

    /// Applies the commits up to `revision`.
    fn follow(&mut self, revision: Revision) -> Result<(), Option<TailError>> {
        let mut tail = self.tail.take().ok_or(None)?;
        while tail.progress() < revision {
            // The tail pauses only to wait for uncommitted events, or to yield.
            let Some(events) = tail.next(EVENTS_MAX).now_or_never() else { continue };
            for event in events? {
                let items = match event.kind {
                    EventKind::Put => {
                        event.entry.read().map(|record| held_by(&record.value)).unwrap_or_default()
                    }
                    EventKind::Delete => Vec::new(),
                };
                self.set(event.key.clone(), items);
            }
        }
        self.tail = Some(tail);
        Ok(())
    }

    /// Reads all services again.
    fn begin(&mut self, engine: &Engine, prefix: &Bytes) -> Result<(), TailError> {
        let snapshot = engine.snapshot();
        self.holdings.clear();
        self.held.clear();
        for entry in snapshot.prefix(prefix) {
            match entry.read() {
                Ok(record) => self.set(record.key, held_by(&record.value)),
                Err(error) => {
                    tracing::error!(%error, "service cannot be read: its addresses and ports may be allocated again")
                }
            }
        }
        self.tail = Some(engine.tail(snapshot.revision(), prefix.clone())?);
        Ok(())
    }

    /// Sets the items of the service at `key`.
    fn set(&mut self, key: Bytes, items: Vec<Item>) {
        for item in &items {
            *self.held.entry(*item).or_default() += 1;
        }
        let before =
            if items.is_empty() { self.holdings.remove(&key) } else { self.holdings.insert(key, items) };
        for item in before.into_iter().flatten() {
            if let Some(count) = self.held.get_mut(&item) {
                *count -= 1;
                if *count == 0 {
                    self.held.remove(&item);
                }
            }
        }
    }
}

/// Returns the items of a stored service, without duplicates.
pub(super) fn held_by(value: &[u8]) -> Vec<Item> {
    #[derive(Deserialize)]
    struct Service {
        #[serde(default)]
        spec: Spec,
    }
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    struct Spec {
        r#type: String,
        #[serde(rename = "clusterIP")]
        cluster_ip: String,
        #[serde(rename = "clusterIPs")]
        cluster_ips: Vec<String>,
        ports: Vec<Port>,
        health_check_node_port: u16,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Port {
        #[serde(default)]
        node_port: u16,
    }
    let Ok(Service { spec }) = serde_json::from_slice(value) else { return Vec::new() };
    let mut items = Vec::new();
    if spec.r#type != "ExternalName" {
        let addresses = spec.cluster_ips.iter().chain([&spec.cluster_ip]);
        items.extend(addresses.filter_map(|text| text.parse().ok()).map(Item::Address));
    }
    let ports = spec.ports.iter().map(|port| port.node_port).chain([spec.health_check_node_port]);
    items.extend(ports.filter(|port| *port != 0).map(Item::Port));
    let mut seen = HashSet::new();
    items.retain(|item| seen.insert(*item));
    items
}
