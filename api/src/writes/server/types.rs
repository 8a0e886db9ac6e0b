//! The component of the server that contains the types: the served types, the naming profile, the feature
//! gates and the validation settings.

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

/// Data in discovery documents that does not depend on the types.
pub(super) struct DocumentFacts<'a> {
    /// Address of the server in discovery documents.
    pub(super) address: String,
    /// Paths outside the resource API.
    pub(super) other_paths: Vec<String>,
    /// Version that the server reports.
    pub(super) git_version: &'a str,
}

/// The types of the server.
pub struct TypeCatalog {
    /// The served types. This handle always returns the current types.
    pub served: Arc<Types>,
    /// The built-in resource types, which are always served.
    pub builtin: Registry,
    /// The naming profile in use.
    pub naming: &'static Naming,
    /// The settings that determine which objects are valid.
    pub validation: validation::Settings,
    /// The encodings that the server accepts and returns.
    pub formats: Formats,
    /// The feature gates of the server.
    pub features: Features,
    /// The resource of namespaces, kept here because every namespaced write needs it.
    pub namespaces: Arc<Resource>,
    /// The resource of definitions of custom types, kept here because every creation of a custom object needs
    /// it.
    pub definitions: Arc<Resource>,
    pub(super) established: Mutex<Established>,
}

impl TypeCatalog {
    /// Creates a catalog with the built-in types. Events expire after `event_ttl`, if it is set.
    pub(super) fn new(
        settings: Settings,
        event_ttl: Option<Duration>,
        facts: DocumentFacts<'_>,
    ) -> TypeCatalog {
        let Settings { naming, allows_privileged, features, enablement } = settings;
        let DocumentFacts { address, other_paths, git_version } = facts;
        let builtin = Registry::with_event_ttl(naming, event_ttl);
        let served = Served::new(enablement.enabled_types(&builtin), address, other_paths, git_version);
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

    /// Returns the types that are served now, with their documents. A request calls this method once, at the
    /// start of the request.
    pub fn now(&self) -> Arc<Served> {
        self.served.now()
    }

    /// Returns a built-in resource. `group` is the stem of the group name, without the suffix of the naming
    /// profile.
    ///
    /// # Panics
    /// Panics if the resource does not exist. Plugins and controllers call this method for built-in resources
    /// when they are created.
    pub fn resource(&self, group: &str, version: &str, plural: &str) -> Arc<Resource> {
        let found = [true, false].into_iter().find_map(|suffixed| {
            let group = self.naming.group(group, suffixed && !group.is_empty());
            self.builtin.resource(&group, version, plural)
        });
        found.cloned().unwrap_or_else(|| panic!("{group}/{version} {plural} is built in"))
    }

    /// Replaces the registry of served types by the registry that `make` returns. `make` gets the current
    /// registry and must not change built-in types.
    ///
    /// # Errors
    /// Returns the error of `make`. The registry does not change in this case.
    pub fn change<E>(&self, make: impl FnOnce(&Registry) -> Result<Registry, E>) -> Result<(), E> {
        self.served.change(make)
    }

    /// Returns a future that completes when exactly this custom type is no longer served, because it was
    /// removed or replaced. Returns `None` for a built-in type, which is always served.
    pub fn retired(&self, resource: &Arc<Resource>) -> Option<impl Future<Output = ()> + Send + 'static> {
        (!resource.is_builtin()).then(|| self.served.retired(resource))
    }

    /// Returns a receiver that reports each later change of the types. The receiver may combine several
    /// changes into one report.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.served.changes()
    }
}
