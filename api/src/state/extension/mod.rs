//! Extension servers: other API servers that serve versions of groups behind this server
//! (docs/api/extension-servers.md).
//!
//! ```text
//! APIServices ─ controllers/api_services.rs ─► Extensions ─┬─ requests below /apis/<group>/<version> ─► proxy ─► server
//!                        │ checks each of them             └─ Foreign ─► discovery documents
//!                        └─► condition Available
//! ```
//!
//! A table contains the server of each version. A change replaces the whole table. An extension server that
//! does not respond affects only the requests for that server. Requests do not wait for availability checks,
//! and documents are built from earlier reports of the servers.

pub mod proxy;

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use auth::User;
use http::{HeaderMap, HeaderName, HeaderValue};
use parking_lot::RwLock;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::sync::watch;

use objects::services::Services;
use types::discovery::{Foreign, Swagger};
use values::base64_text;
use values::json::Value;
use wire::outgoing::{Credentials, Endpoint, Identity, Networks, Service};

/// The settings of the operator.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// PEM of the certificate and the key with which this server identifies itself to extension servers.
    pub certificate: Option<(Vec<u8>, Vec<u8>)>,
    /// PEM of the authorities that the operating system trusts, for servers whose APIService names no
    /// authorities.
    pub system: Vec<u8>,
    /// Network paths to the servers.
    pub networks: Networks,
    /// Members of the ConfigMap from which extension servers learn how to authenticate requests.
    pub authentication: BTreeMap<String, String>,
    /// The headers that may carry the identity of a user.
    pub claims: IdentityClaims,
}

/// Names of headers that carry the identity of a user. Headers of a client with these names are not
/// forwarded.
#[derive(Clone, Debug, Default)]
pub struct IdentityClaims {
    names: Vec<String>,
    prefixes: Vec<String>,
}

impl IdentityClaims {
    /// Creates a set of the names and prefixes that the operator configured. The set always includes the
    /// prefixes in `USUAL_CLAIMS`.
    pub fn new(
        names: impl IntoIterator<Item: AsRef<str>>,
        prefixes: impl IntoIterator<Item: AsRef<str>>,
    ) -> Self {
        IdentityClaims {
            names: names.into_iter().map(|name| folded(name.as_ref())).collect(),
            prefixes: prefixes.into_iter().map(|prefix| folded(prefix.as_ref())).collect(),
        }
    }

    /// Returns whether a receiver may interpret a header as an identity.
    pub fn has(&self, name: &str) -> bool {
        let name = folded(name);
        USUAL_CLAIMS.iter().any(|prefix| name.starts_with(prefix))
            || self.names.contains(&name)
            || self.prefixes.iter().any(|prefix| !prefix.is_empty() && name.starts_with(prefix))
    }
}

/// Prefixes of the usual identity headers of API servers, and of the impersonation headers of clients.
const USUAL_CLAIMS: [&str; 2] = ["x-remote-", "impersonate-"];

/// Normalizes a header name as a receiver may do: CGI gateways and many frameworks map all characters other
/// than letters and digits to the same character.
fn folded(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' }).collect()
}

/// The extension servers known to this server.
pub struct Extensions {
    settings: ArcSwap<Settings>,
    /// Notified when the settings change.
    changes: watch::Sender<()>,
    table: ArcSwap<BTreeMap<(String, String), Arc<Extension>>>,
    /// Versions that have an APIService without a server.
    unserved: ArcSwap<Vec<Foreign>>,
}

/// A version of a group that an extension server serves.
#[derive(Debug)]
pub struct Extension {
    /// Name of the APIService.
    pub name: String,
    /// The service of the extension server.
    pub service: Service,
    spec: Value,
    /// The connection settings, without the address of the service; or the reason why they are unusable.
    endpoint: RwLock<Result<Endpoint, String>>,
    state: RwLock<State>,
}

#[derive(Debug, Default)]
struct State {
    was_checked: bool,
    is_available: bool,
    /// The last report of the server.
    report: ExtensionReport,
}

/// The report of an extension server about a version.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ExtensionReport {
    /// The resources, in the form of aggregated discovery.
    pub resources: Option<Arc<[Value]>>,
    /// Path and hash of the OpenAPI document, as in the OpenAPI index.
    pub openapi: Option<String>,
    /// The part of the OpenAPI v2 document that concerns the version.
    pub swagger: Option<Arc<Swagger>>,
}

impl Extensions {
    /// Returns a set without extension servers.
    pub fn new(settings: Settings) -> Extensions {
        let (changes, _) = watch::channel(());
        let (table, unserved) = (ArcSwap::default(), ArcSwap::default());
        Extensions { settings: ArcSwap::from_pointee(settings), changes, table, unserved }
    }

    /// Returns the settings of the operator.
    pub fn settings(&self) -> Arc<Settings> {
        self.settings.load_full()
    }

    /// Replaces the settings. New requests use the new credentials.
    pub fn replace_settings(&self, settings: Settings) {
        for extension in self.all() {
            *extension.endpoint.write() = endpoint(&extension.spec, &extension.service, &settings);
        }
        self.settings.store(Arc::new(settings));
        self.changes.send_replace(());
    }

    /// Returns a receiver that is notified when the settings change.
    pub fn setting_changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    /// Returns the server of a path below `/apis/<group>/<version>`.
    pub fn of_path(&self, path: &str) -> Option<Arc<Extension>> {
        let table = self.table.load();
        if table.is_empty() {
            return None;
        }
        let mut parts = path.strip_prefix("/apis/")?.splitn(3, '/');
        let (group, version) = (parts.next()?, parts.next()?);
        table.get(&(group.to_owned(), version.to_owned())).cloned()
    }

    /// Returns all extension servers in the table.
    pub fn all(&self) -> Vec<Arc<Extension>> {
        self.table.load().values().cloned().collect()
    }

    /// Returns whether the table contains this exact value. A change of the APIService replaces the value in
    /// the table.
    pub fn has(&self, extension: &Arc<Extension>) -> bool {
        self.table.load().values().any(|known| Arc::ptr_eq(known, extension))
    }

    /// Returns the groups and versions that extension servers serve.
    pub fn versions(&self) -> Vec<(String, String)> {
        self.table.load().keys().cloned().collect()
    }

    /// Sets the APIServices. An APIService with a server keeps its known state if its spec does not change.
    /// An APIService without a server counts only if this server does not serve the version itself
    /// (`is_own`). The result is `true` if a spec changed, or an APIService was added or removed.
    pub fn configure(&self, services: &[Value], is_own: impl Fn(&Value) -> bool) -> bool {
        let before = self.table.load_full();
        let mut table = BTreeMap::new();
        let mut unserved = Vec::new();
        let mut is_changed = false;
        let settings = self.settings();
        for object in services {
            let Some(spec) = object.get("spec") else { continue };
            let (group, version) = (spec.str_at(&["group"]), spec.str_at(&["version"]));
            if spec.get("service").is_none_or(Value::is_null) {
                if !group.is_empty() && !is_own(object) {
                    unserved.push(Foreign { is_unserved: true, ..discovery_entry(group, version, spec) });
                }
                continue;
            }
            let key = (group.to_owned(), version.to_owned());
            let known = before.get(&key).filter(|known| known.spec == *spec).cloned();
            is_changed |= known.is_none();
            let extension = known.unwrap_or_else(|| Arc::new(Extension::read(object, spec, &settings)));
            table.insert(key, extension);
        }
        is_changed |= table.len() != before.len() || unserved != **self.unserved.load();
        self.table.store(Arc::new(table));
        self.unserved.store(Arc::new(unserved));
        is_changed
    }

    /// Returns the entries for the discovery documents.
    pub fn foreign(&self) -> Arc<[Foreign]> {
        let (table, unserved) = (self.table.load(), self.unserved.load());
        let foreign = table.iter().map(|((group, version), extension)| {
            let state = extension.state.read();
            Foreign {
                resources: state.report.resources.clone().filter(|_| state.is_available),
                openapi: state.report.openapi.clone().filter(|_| state.is_available),
                swagger: state.report.swagger.clone().filter(|_| state.is_available),
                ..discovery_entry(group, version, &extension.spec)
            }
        });
        foreign.chain(unserved.iter().cloned()).collect()
    }
}

/// Returns the part of an APIService spec that discovery shows.
fn discovery_entry(group: &str, version: &str, spec: &Value) -> Foreign {
    let number = |name: &str| {
        let number = spec.get(name).and_then(Value::as_i64);
        number.and_then(|number| u32::try_from(number).ok()).unwrap_or_default()
    };
    Foreign {
        group: group.to_owned(),
        version: version.to_owned(),
        group_priority: number("groupPriorityMinimum"),
        version_priority: number("versionPriority"),
        is_unserved: false,
        resources: None,
        openapi: None,
        swagger: None,
    }
}

impl Extension {
    fn read(object: &Value, spec: &Value, settings: &Settings) -> Extension {
        let service = Service::read(spec.get("service").unwrap_or(&Value::Null));
        Extension {
            name: object.str_at(&["metadata", "name"]).to_owned(),
            endpoint: RwLock::new(endpoint(spec, &service, settings)),
            service,
            spec: spec.clone(),
            state: RwLock::default(),
        }
    }

    /// Returns whether a check of the server has ended.
    pub fn was_checked(&self) -> bool {
        self.state.read().was_checked
    }

    /// Returns whether the last check passed.
    pub fn is_available(&self) -> bool {
        self.state.read().is_available
    }

    /// Stores the result of a check. Returns whether the result changed.
    pub fn set_available(&self, is_available: bool) -> bool {
        let mut state = self.state.write();
        state.was_checked = true;
        std::mem::replace(&mut state.is_available, is_available) != is_available
    }

    /// Changes the stored report about the types of an extension server, if that server is available.
    /// Returns whether the report changed.
    pub fn learn(&self, change: impl FnOnce(&mut ExtensionReport)) -> bool {
        let mut state = self.state.write();
        let mut report = state.report.clone();
        change(&mut report);
        let is_changed = state.is_available && state.report != report;
        if is_changed {
            state.report = report;
        }
        is_changed
    }

    /// Returns the prefix of the paths of this version.
    pub fn path(&self) -> String {
        format!("/apis/{}/{}", self.spec.str_at(&["group"]), self.spec.str_at(&["version"]))
    }

    /// Returns whether the last report contains this subresource, or the resource itself if `subresource` is
    /// empty.
    pub fn has_reported(&self, resource: &str, subresource: &str) -> bool {
        let state = self.state.read();
        let resources = state.report.resources.as_deref().unwrap_or_default();
        let Some(found) = resources.iter().find(|one| one.str_at(&["resource"]) == resource) else {
            return false;
        };
        let all = found.get("subresources").and_then(Value::as_array).unwrap_or_default();
        subresource.is_empty() || all.iter().any(|one| one.str_at(&["subresource"]) == subresource)
    }

    /// Returns the OpenAPI v2 part that was reported together with the v3 document `openapi`. The text
    /// `openapi` contains the hash of the v3 document.
    pub fn swagger_of(&self, openapi: &str) -> Option<Arc<Swagger>> {
        let state = self.state.read();
        state.report.swagger.clone().filter(|_| state.report.openapi.as_deref() == Some(openapi))
    }

    /// Returns whether the server has an OpenAPI document for the version.
    pub fn has_openapi(&self) -> bool {
        self.state.read().report.openapi.is_some()
    }

    /// Returns the current endpoint of the server.
    ///
    /// # Errors
    /// The reason why the server cannot be reached.
    pub fn endpoint(&self, services: &Services) -> Result<Endpoint, String> {
        let (host, port) = services.address(&self.service)?;
        self.endpoint.read().as_ref().map_err(String::clone)?.moved(host, port)
    }
}

/// Returns the connection settings for the server of a version, under the name of its service.
fn endpoint(spec: &Value, service: &Service, settings: &Settings) -> Result<Endpoint, String> {
    let Service { namespace, name, port } = service;
    let path = format!("/apis/{}/{}", spec.str_at(&["group"]), spec.str_at(&["version"]));
    let url = format!("https://{name}.{namespace}.svc:{port}{path}");
    let authorities = base64_text::decode(spec.str_at(&["caBundle"])).unwrap_or_default();
    let identity = Identity { certificate: settings.certificate.clone(), ..Identity::default() };
    let credentials = Credentials {
        authorities: &authorities,
        otherwise: &settings.system,
        identity: Some(&identity),
        is_unverified: spec.get("insecureSkipTLSVerify").and_then(Value::as_bool) == Some(true),
        ..Credentials::default()
    };
    let endpoint = Endpoint::with(url.parse().map_err(|error| format!("{error}"))?, &credentials)?;
    Ok(endpoint.through(&settings.networks.cluster))
}

/// Characters that a key of extra values may contain unescaped in a header name.
const KEY: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'!')
    .remove(b'#')
    .remove(b'$')
    .remove(b'&')
    .remove(b'\'')
    .remove(b'*')
    .remove(b'+')
    .remove(b'-')
    .remove(b'.')
    .remove(b'^')
    .remove(b'_')
    .remove(b'`')
    .remove(b'|')
    .remove(b'~');

/// Adds headers with the identity of the user to a request.
///
/// # Errors
/// A name, a group or an extra value of the user is not valid in a header. The error text is that of Go. The caller
/// must not send such a request: without the name, the extension server would treat the request as a request of this
/// server itself.
pub fn identify(headers: &mut HeaderMap, user: &User) -> Result<(), String> {
    let mut add = |name: &str, value: &str| {
        let key = HeaderName::try_from(name)
            .map_err(|_| format!("net/http: invalid header field name {}", go::quote(name)))?;
        let value = HeaderValue::from_str(value)
            .map_err(|_| format!("net/http: invalid header field value for {}", go::quote(name)))?;
        headers.append(key, value);
        Ok::<(), String>(())
    };
    add("X-Remote-User", &user.name)?;
    if !user.uid.is_empty() {
        add("X-Remote-Uid", &user.uid)?;
    }
    user.groups.iter().try_for_each(|group| add("X-Remote-Group", group))?;
    for (key, values) in &user.extra {
        let name = format!("X-Remote-Extra-{}", utf8_percent_encode(key, KEY));
        values.iter().try_for_each(|value| add(&name, value))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use values::json::parse;

    fn service(version: &str, extra: &str) -> Value {
        let text = format!(
            r#"{{"metadata":{{"name":"{version}.g.io"}},"spec":{{"group":"g.io","version":"{version}","service":{{"namespace":"n","name":"s","port":8443}}{extra}}}}}"#
        );
        parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn paths_below_a_registered_version_belong_to_its_extension_server() {
        let extensions = Extensions::new(Settings::default());
        assert!(extensions.of_path("/apis/g.io/v1").is_none());
        let local = |group: &str| {
            parse(format!(r#"{{"spec":{{"group":"{group}","version":"v1"}}}}"#).as_bytes()).unwrap()
        };
        let all = [service("v1", ""), local(""), local("own.io"), local("none.io")];
        let is_own = |service: &Value| service.str_at(&["spec", "group"]) == "own.io";
        assert!(extensions.configure(&all, is_own));
        assert!(!extensions.configure(&all, is_own));
        let shown = extensions.foreign();
        let shown: Vec<_> = shown.iter().map(|one| (&*one.group, one.is_unserved)).collect();
        assert_eq!(shown, [("g.io", false), ("none.io", true)]);
        for (path, is_its) in [
            ("/apis/g.io/v1", true),
            ("/apis/g.io/v1/", true),
            ("/apis/g.io/v1/namespaces/a/things", true),
            ("/apis/g.io/v12", false),
            ("/apis/g.io", false),
            ("/apis/h.io/v1", false),
            ("/api/v1", false),
            ("/apis//v1", false),
        ] {
            assert_eq!(extensions.of_path(path).is_some(), is_its, "{path}");
        }
    }

    #[test]
    fn the_report_of_an_extension_server_is_kept_until_its_spec_changes() {
        let extensions = Extensions::new(Settings::default());
        extensions.configure(&[service("v1", "")], |_| true);
        let found = extensions.all().remove(0);
        let report = || ExtensionReport {
            resources: Some(Arc::from([Value::Null])),
            openapi: Some("/o?hash=1".to_owned()),
            swagger: None,
        };
        assert!(!found.learn(|known| *known = report()), "it is not available");
        assert!(found.set_available(true));
        assert!(!found.set_available(true));
        assert!(!found.has_openapi());
        assert!(found.learn(|known| *known = report()));
        assert!(!found.learn(|known| known.openapi = report().openapi));
        assert!(found.has_openapi());
        assert!(!extensions.configure(&[service("v1", "")], |_| true));
        assert!(extensions.all()[0].is_available());
        assert_eq!(extensions.foreign()[0].resources, report().resources);
        assert!(found.set_available(false));
        assert_eq!((&extensions.foreign()[0].resources, &extensions.foreign()[0].openapi), (&None, &None));
        assert!(extensions.configure(&[service("v1", r#","insecureSkipTLSVerify":true"#)], |_| true));
        assert!(!extensions.all()[0].is_available());
        assert!(extensions.configure(&[], |_| true));
    }

    #[test]
    fn proxied_requests_identify_the_user_in_headers() {
        let mut user = User::new("ü", ["a", "b"]);
        user.uid = "7".to_owned();
        user.extra.insert("example.com/k%y".to_owned(), vec!["v".to_owned()]);
        let mut headers = HeaderMap::new();
        identify(&mut headers, &user).unwrap();
        let all =
            |name: &str| headers.get_all(name).iter().map(|v| v.as_bytes().to_vec()).collect::<Vec<_>>();
        assert_eq!(all("x-remote-user"), ["ü".as_bytes()]);
        assert_eq!(all("x-remote-group"), [b"a", b"b"]);
        assert_eq!(all("x-remote-uid"), [b"7"]);
        assert_eq!(all("x-remote-extra-example.com%2fk%25y"), [b"v"]);
    }

    #[test]
    fn identity_headers_of_a_client_are_recognized_in_every_spelling() {
        let claims = IdentityClaims::new(["X-Custom_User"], ["X-My-Extra-"]);
        for (name, want) in [
            ("x-remote-user", true),
            ("x_remote_user", true),
            ("X-Remote_User", true),
            ("x.remote.user", true),
            ("x-remote-group", true),
            ("x_remote-extra-scopes", true),
            ("x~remote!uid", true),
            ("impersonate_user", true),
            ("impersonate.extra-a", true),
            ("x-custom-user", true),
            ("x_custom_user", true),
            ("x_my_extra_a", true),
            ("x-custom-users", false),
            ("x-remotely", false),
            ("my-x-remote-user", false),
            ("x-forwarded-for", false),
            ("user-agent", false),
        ] {
            assert_eq!(claims.has(name), want, "{name}");
        }
    }

    #[test]
    fn a_user_whose_name_does_not_fit_in_a_header_is_not_forwarded() {
        let named = |name: &str| User::new(name, ["a"]);
        let extra = User { extra: [("k".to_owned(), vec!["a\0".to_owned()])].into(), ..named("a") };
        for (user, want) in [
            (named("a b"), ""),
            (named("a\nb"), "net/http: invalid header field value for \"X-Remote-User\""),
            (
                User { uid: "\r".to_owned(), ..named("a") },
                "net/http: invalid header field value for \"X-Remote-Uid\"",
            ),
            (User::new("a", ["b\u{7f}"]), "net/http: invalid header field value for \"X-Remote-Group\""),
            (extra, "net/http: invalid header field value for \"X-Remote-Extra-k\""),
        ] {
            let identified = identify(&mut HeaderMap::new(), &user);
            assert_eq!(identified.err().unwrap_or_default(), want, "{user:?}");
        }
    }
}
