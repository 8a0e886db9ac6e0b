//! Allocation for services: cluster IPs, node ports and health check ports (docs/api/validation.md#services).
//!
//! ```text
//! write of a service ─► begin ─► service (requested and missing items) ─► pools ─► Reservation
//!                                                                                     │ kept until
//!                                           validate ─► commit ◄──────────────────────┘ the write ends
//! ```
//!
//! A failed write or a dry run returns all items by dropping the [`Reservation`].

mod pools;
mod range;
mod service;

use std::collections::HashSet;

use engine::Engine;

use self::pools::{Item, Pools};
pub use self::range::{Family, Network, Ports};
use objects::store;
use types::schema::registry::{Registry, Resource};
use values::json::Object;
use values::status::{Status, Subject};

/// The ranges to allocate from.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Ranges {
    /// Networks of cluster IPs: one network, or one network of each family. The first network is the default.
    pub networks: Vec<Network>,
    /// Range of node ports.
    pub ports: Ports,
}

impl Ranges {
    /// Parses networks that are separated by commas. The first network is the default.
    ///
    /// # Errors
    /// Fails for a malformed network, and for a default network that is too small.
    pub fn parse_networks(text: &str) -> Result<Vec<Network>, String> {
        let mut networks = Vec::new();
        for part in text.split(',') {
            let network = Network::parse(part.trim())?;
            if networks.is_empty() {
                network.check_size()?;
            }
            networks.push(network);
        }
        Ok(networks)
    }

    /// Checks that there is one network, or one network of each family.
    ///
    /// # Errors
    /// Fails for more than two networks, or two of the same family.
    pub fn check_networks(networks: &[Network]) -> Result<(), String> {
        match networks {
            [_] => Ok(()),
            [first, second] if first.family() != second.family() => Ok(()),
            [_, _] => Err("--service-cluster-ip-range[0] and --service-cluster-ip-range[1] must be of different IP family"
                .to_owned()),
            _ => Err("--service-cluster-ip-range must not contain more than two entries".to_owned()),
        }
    }
}

impl Default for Ranges {
    /// Returns the defaults of kube-apiserver: `10.0.0.0/24` and 30000–32767.
    fn default() -> Self {
        let networks = Self::parse_networks("10.0.0.0/24").unwrap_or_default();
        Ranges { networks, ports: Ports::DEFAULT }
    }
}

/// Returns the addresses and ports of a stored service, without duplicates.
pub fn allocated_items(value: &[u8]) -> (Vec<std::net::IpAddr>, Vec<u16>) {
    let (mut addresses, mut ports) = (Vec::new(), Vec::new());
    for item in pools::held_by(value) {
        match item {
            Item::Address(address) => addresses.push(address),
            Item::Port(port) => ports.push(port),
        }
    }
    (addresses, ports)
}

/// The allocator of one server.
pub struct Allocations {
    pools: Pools,
}

/// The items reserved for one write. Dropping the reservation releases the items that were not stored.
#[must_use]
pub struct Reservation<'a> {
    pools: &'a Pools,
    items: HashSet<Item>,
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        if !self.items.is_empty() {
            self.pools.end(&self.items);
        }
    }
}

impl Allocations {
    /// Returns an allocator for `ranges`. The items of services stored in `engine` are in use.
    pub fn new(engine: Engine, registry: &Registry, ranges: Ranges) -> Self {
        let services = registry.resource("", "v1", "services");
        let prefix = services.map(|services| store::collection(services, ""));
        let prefix = prefix.expect("a test holds that services are built in");
        Allocations { pools: Pools::new(engine, prefix, ranges.networks, ranges.ports) }
    }

    /// Returns the cluster IP of this server's own service, which is the first address of the default network.
    pub fn own_address(&self) -> Option<std::net::IpAddr> {
        self.pools.networks.first().and_then(Network::first)
    }

    /// Returns the networks of cluster IPs as text, the default network first.
    pub fn networks(&self) -> impl Iterator<Item = String> {
        self.pools.networks.iter().map(Network::to_string)
    }

    /// Allocates the items that a new or updated service requests or lacks. On an update, `old` is the stored
    /// service. Objects of other types are left unchanged.
    ///
    /// # Errors
    /// 422 for an unavailable item, 500 if a range is exhausted.
    pub fn begin(
        &self,
        resource: &Resource,
        object: &mut Object,
        old: Option<&Object>,
    ) -> Result<Option<Reservation<'_>>, Status> {
        if !resource.table.behavior.allocated {
            return Ok(None);
        }
        let mut reservation = Reservation { pools: &self.pools, items: HashSet::new() };
        let outcome = match old {
            None => service::create(&mut reservation, object),
            Some(old) => service::update(&mut reservation, object, old),
        };
        outcome.map_err(|trouble| match trouble {
            service::Trouble::Invalid(errors) => {
                let name = values::object::meta(object, "name");
                let subject = Subject { group: &resource.group, kind: &resource.table.kind, name };
                Status::invalid(subject, &errors)
            }
            service::Trouble::Internal(text) => Status::internal(text),
            service::Trouble::Plain(text) => Status::new(values::status::StatusReason::Unknown, text),
        })?;
        Ok(Some(reservation))
    }
}
