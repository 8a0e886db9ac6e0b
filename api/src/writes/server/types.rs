//! The part of the server that knows the types: those that it serves now, and the settings by which all
//! types are named, gated and validated.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;

use objects::custom::established::Established;
use objects::negotiate::{Formats, Objects};
use objects::validation;
use types::enablement::Enablement;
use types::features::{Feature, Features};
use types::schema::registry::{Registry, Resource};
use types::served::{Served, Types};
use values::naming::Naming;

/// The configuration of a [`TypeCatalog`].
pub struct Settings {
    /// The naming profile in use.
    pub naming: &'static Naming,
    /// Whether containers may be privileged.
    pub allows_privileged: bool,
    /// The feature gates of the server.
    pub features: Features,
    /// Selection of the built-in types that are served.
    pub enablement: Enablement,
}

impl Settings {
    /// Returns the default settings of a server with this naming profile.
    pub fn new(naming: &'static Naming) -> Settings {
        let (features, enablement) = (Features::default(), Enablement::default());
        Settings { naming, allows_privileged: false, features, enablement }
    }
}

/// Facts about the server, besides its types, that discovery documents contain.
pub(super) struct DocumentFacts<'a> {
    /// Address that discovery gives to clients.
    pub(super) address: String,
    /// Paths outside the resource API.
    pub(super) other_paths: Vec<String>,
    /// Version that the server reports.
    pub(super) git_version: &'a str,
}

/// The types of the server.
pub struct TypeCatalog {
    /// The types that are served now, as a handle that follows changes.
    pub served: Arc<Types>,
    /// The built-in resource types, which are always served.
    pub builtin: Registry,
    /// The naming profile in use.
    pub naming: &'static Naming,
    /// The settings that determine which objects are valid.
    pub validation: validation::Settings,
    /// The encodings that are served.
    pub formats: Formats,
    /// The feature gates of the server.
    pub features: Features,
    /// The resource of namespaces, which every namespaced write looks up.
    pub namespaces: Arc<Resource>,
    /// The resource of definitions of custom types, which every creation of a custom object looks up.
    pub definitions: Arc<Resource>,
    pub(super) established: Mutex<Established>,
}

impl TypeCatalog {
    /// Creates the catalog of the built-in types. Events expire after `event_ttl`, if it is given.
    pub(super) fn new(
        settings: Settings,
        event_ttl: Option<Duration>,
        facts: DocumentFacts<'_>,
    ) -> TypeCatalog {
        let Settings { naming, allows_privileged, features, enablement } = settings;
        let DocumentFacts { address, other_paths, git_version } = facts;
        let builtin = Registry::with_event_ttl(naming, event_ttl);
        let served = Served::new(enablement.of(&builtin), address, other_paths, git_version);
        let namespaces = builtin.resource("", "v1", "namespaces").cloned();
        let extensions = naming.group("apiextensions", true);
        let definitions = builtin.resource(&extensions, "v1", "customresourcedefinitions").cloned();
        let cbor = features.has(Feature::CborServingAndStorage);
        TypeCatalog {
            served: Arc::new(Types::new(served)),
            naming,
            validation: validation::Settings { naming, allows_privileged },
            formats: Formats { naming, cbor, objects: Objects::Typed },
            features,
            namespaces: namespaces.expect("a test holds that namespaces are built in"),
            definitions: definitions.expect("a test holds that definitions are built in"),
            established: Mutex::default(),
            builtin,
        }
    }

    /// Returns the types that are served now, with their documents. A request calls this once, at its start.
    pub fn now(&self) -> Arc<Served> {
        self.served.now()
    }

    /// Returns a built-in resource. `group` is the stem of the group name, without the suffix of the naming
    /// profile.
    ///
    /// # Panics
    /// Panics if the resource does not exist. Plugins and controllers call this once, for built-in resources,
    /// when they are created.
    pub fn resource(&self, group: &str, version: &str, plural: &str) -> Arc<Resource> {
        let found = [true, false].into_iter().find_map(|suffixed| {
            let group = self.naming.group(group, suffixed && !group.is_empty());
            self.builtin.resource(&group, version, plural)
        });
        found.cloned().unwrap_or_else(|| panic!("{group}/{version} {plural} is built in"))
    }

    /// Replaces the served types by what `make` derives from the current registry. `make` must leave built-in
    /// types as they are.
    ///
    /// # Errors
    /// Returns the error of `make`; nothing changes in this case.
    pub fn change<E>(&self, make: impl FnOnce(&Registry) -> Result<Registry, E>) -> Result<(), E> {
        self.served.change(make)
    }

    /// Returns a future that ends once this exact type is no longer served; `None` for a type that is always
    /// served.
    pub fn retired(&self, resource: &Arc<Resource>) -> Option<impl Future<Output = ()> + Send + 'static> {
        (!resource.is_builtin()).then(|| self.served.retired(resource))
    }

    /// Returns a receiver that reports changes of the types from now on. Several changes may be reported as
    /// one.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.served.changes()
    }
}
