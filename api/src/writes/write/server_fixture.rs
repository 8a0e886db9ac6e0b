//! A complete server in one thread, without sockets and controllers, for tests of the write path. Requests
//! enter through the pipeline. The engine has its own directory.

use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;

use auth::Authenticator;
use auth::authn::service_account::TokenIssuer;
use auth::authn::{NameDomains, SigningKey};
use auth::authz::Module;
use bytes::Bytes;
use engine::{Durability, Engine, Options};
use http_body_util::BodyExt;

use crate::state::allocation::Ranges;
use crate::state::certificates::Certificates;
use crate::state::connect::NodeConnections;
use crate::state::tokens::{EXTENDED_LIFETIME, TokenSigner, Tokens};
use crate::writes::admission::Settings;
use crate::writes::server::operations::Operations;
use crate::writes::server::{self, Server};
use objects::store::Ledger;
use objects::store::backends::{Backend, Backends};
use values::cancellation::CancellationToken;
use values::json::{Value, parse};
use values::naming::KUBERNETES;
use wire::response::Response;
use wire::server::{ConnectionInfo, Handler, Incoming, LifecycleStage};

/// A signing key that only tests use.
const KEY: &[u8] = include_bytes!("../../../../fuzz/tokens.key");

/// A test server. Dropping the server removes its store.
pub(crate) struct TestServer {
    server: Arc<Server>,
    connection: Arc<ConnectionInfo>,
    directory: PathBuf,
}

impl TestServer {
    /// Starts a server that allows everything to every caller, with an empty store.
    pub(crate) fn start() -> TestServer {
        // No controller creates service accounts in namespaces here.
        TestServer::admitting(Settings::default().without("ServiceAccount"))
    }

    /// Starts a server like [`TestServer::start`] with these admission plugins.
    pub(crate) fn admitting(admission: Settings) -> TestServer {
        TestServer::over(std::env::temp_dir().join(format!("write-path-{}", values::names::uid())), admission)
    }

    /// Starts a server with the store in a directory. Dropping the server removes the directory.
    pub(crate) fn in_directory(directory: &std::path::Path) -> TestServer {
        TestServer::over(directory.to_owned(), Settings::default().without("ServiceAccount"))
    }

    /// Closes the store and starts a new server with the same store. No other code may use the store.
    pub(crate) async fn restart(mut self) -> TestServer {
        self.server.store.engine().close().await;
        TestServer::over(std::mem::take(&mut self.directory), Settings::default())
    }

    /// Starts a server with an empty store and the configuration that `change` has changed.
    pub(crate) fn configured(change: impl FnOnce(&mut server::Settings)) -> TestServer {
        let directory = std::env::temp_dir().join(format!("write-path-{}", values::names::uid()));
        let admission = Settings::default().without("ServiceAccount");
        let mut settings = settings(open(&directory), None, admission);
        change(&mut settings);
        TestServer::from_settings(settings, directory)
    }

    fn over(directory: PathBuf, admission: Settings) -> TestServer {
        TestServer::on(open(&directory), None, directory, admission)
    }

    /// Returns a server on this engine. If there is a ledger, it decides the writes.
    pub(crate) fn on(
        engine: Engine,
        ledger: Option<Arc<dyn Ledger>>,
        directory: PathBuf,
        admission: Settings,
    ) -> TestServer {
        TestServer::from_settings(settings(engine, ledger, admission), directory)
    }

    fn from_settings(settings: server::Settings, directory: PathBuf) -> TestServer {
        let address = settings.operations.address;
        let server = Server::assemble(settings).unwrap();
        server.operations.lifecycle.advance(LifecycleStage::Serving);
        let connection = Arc::new(ConnectionInfo::detached(address, Vec::new()));
        TestServer { server, connection, directory }
    }

    /// Returns the body of the response to a GET, as text.
    pub(crate) async fn get(&self, path: &str, accept: &str) -> String {
        let request = http::Request::builder().uri(path).header("accept", accept);
        let request = request.body(Incoming::detached(Bytes::new())).unwrap();
        let body = self.server.handle(request, &self.connection).await.into_body();
        String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap()
    }

    /// Returns the response to a GET. The caller reads the body.
    pub(crate) async fn open(&self, path: &str) -> Response {
        let request = http::Request::builder().uri(path).body(Incoming::detached(Bytes::new())).unwrap();
        self.server.handle(request, &self.connection).await
    }

    /// Sends one request. Returns the status code, the warnings and the body as a tree.
    pub(crate) async fn send(&self, request: &str, body: &str) -> (u16, Vec<String>, Value) {
        self.send_within(&CancellationToken::default(), request, body).await
    }

    /// Sends one request with a token that cancels its computations.
    pub(crate) async fn send_within(
        &self,
        token: &CancellationToken,
        request: &str,
        body: &str,
    ) -> (u16, Vec<String>, Value) {
        let (method, path) = request.split_once(' ').unwrap();
        let (method, content_type) = match method {
            "APPLY" => ("PATCH", "application/apply-patch+yaml"),
            "JSON" => ("PATCH", "application/json-patch+json"),
            "MERGE" => ("PATCH", "application/merge-patch+json"),
            "STRATEGIC" => ("PATCH", "application/strategic-merge-patch+json"),
            "YAML" => ("POST", "application/yaml"),
            method => (method, "application/json"),
        };
        let request = http::Request::builder().method(method).uri(path).header("content-type", content_type);
        let request = request.extension(token.clone());
        let body = Incoming::detached(Bytes::copy_from_slice(body.as_bytes()));
        let response = self.server.handle(request.body(body).unwrap(), &self.connection).await;
        let code = response.status().as_u16();
        let warnings = response.headers().get_all("warning").iter();
        let warnings = warnings.map(|warning| warning.to_str().unwrap().to_owned()).collect();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (code, warnings, parse(&body).unwrap_or_default())
    }
}

/// Opens the store in a directory.
fn open(directory: &std::path::Path) -> Engine {
    Engine::open(Options { durability: Durability::Relaxed, ..Options::new(directory) }).unwrap()
}

/// Returns the configuration of a server on this engine. If there is a ledger, it decides the writes.
fn settings(engine: Engine, ledger: Option<Arc<dyn Ledger>>, admission: Settings) -> server::Settings {
    let key = SigningKey::from_pem(KEY).unwrap();
    let issuer = TokenIssuer::new("issuer", key, NameDomains::new(KUBERNETES.domain));
    server::Settings {
        store: server::store::Settings {
            backends: Backends::new(Backend::new(engine, ledger), Vec::new()),
            secrecy: None,
            ranges: Ranges::default(),
            last_backup: None,
        },
        types: server::types::Settings::new(&KUBERNETES),
        access: server::access::Settings {
            authenticator: Authenticator::new().with_anonymous(auth::authn::Anonymous::Accepted),
            authorizers: vec![Module::AlwaysAllow],
            tokens: Tokens {
                signer: TokenSigner::Own(issuer),
                audiences: vec!["here".to_owned()],
                lifetime_max: None,
                extends: false,
                extended_lifetime: EXTENDED_LIFETIME,
                documents: Default::default(),
                uses: Default::default(),
            },
            certificates: Certificates::unsigned(),
            fairness: Default::default(),
            edge: Default::default(),
            auditor: None,
        },
        outgoing: server::outgoing::Settings {
            extensions: Default::default(),
            peers: Default::default(),
            nodes: NodeConnections::new(Default::default()).unwrap(),
            reaches_endpoints: false,
        },
        operations: Operations::new(SocketAddr::from((Ipv4Addr::LOCALHOST, 1))),
        admission: admission.plugins(),
    }
}

impl Deref for TestServer {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        if !self.directory.as_os_str().is_empty() {
            let _ = std::fs::remove_dir_all(&self.directory);
        }
    }
}
