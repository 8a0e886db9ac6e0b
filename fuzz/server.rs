//! An API server in one thread: the request pipeline over an engine on a simulated disk, without sockets and
//! controllers, and with one namespace in the store.

use std::net::{Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;

use api::state::allocation::Ranges;
use api::state::certificates::Certificates;
use api::state::connect::NodeConnections;
use api::state::tokens::{EXTENDED_LIFETIME, TokenSigner, Tokens};
use api::writes::admission::{self, Files, Wishes};
use api::writes::server::operations::Operations;
use api::writes::server::{self, Server as Api};
use auth::Authenticator;
use auth::authn::service_account::TokenIssuer;
use auth::authn::{NameDomains, SigningKey};
use auth::authz::Module;
use bytes::Bytes;
use engine::fault::{self, Disk, Stepper};
use engine::{Engine, Options};
use http_body_util::BodyExt;
use objects::store::backends::{Backend, Backends};
use tokio::runtime::{Builder, Runtime};
use values::json::{Value, parse};
use values::naming::KUBERNETES;
use wire::server::{ConnectionInfo, Handler, Incoming};

/// Name of the existing namespace.
pub(crate) const NAMESPACE: &str = "fuzz";

/// A key for these tests only. The requests of the tests never ask for a token.
const KEY: &[u8] = include_bytes!("tokens.key");

/// Number of engine turns after which a pending request counts as stuck.
const TURNS_MAX: usize = 1000;

/// A server with its engine and runtime.
pub(crate) struct Server {
    pub api: Arc<Api>,
    stepper: Stepper,
    /// The runtime for the clock of time limits, and for the tasks that decide about quotas.
    runtime: Runtime,
    connection: Arc<ConnectionInfo>,
}

/// Returns the settings of the default plugins, without the plugin that refuses pods until controllers have
/// created a service account.
fn admission() -> admission::Settings {
    struct NoFiles;
    impl Files for NoFiles {
        fn read(&self, path: &str) -> Result<Vec<u8>, String> {
            Err(format!("{path}: there are no files"))
        }
    }
    let disable = ["ServiceAccount".to_owned()];
    admission::Settings::parse(&Wishes { disable: &disable, ..Wishes::default() }, &NoFiles)
        .expect("known plugins")
}

/// The response to a request.
pub(crate) struct Answer {
    pub code: u16,
    pub body: Bytes,
}

impl Answer {
    /// Returns the body as a tree.
    pub fn value(&self) -> Value {
        let parsed = parse(&self.body);
        parsed.unwrap_or_else(|error| panic!("{error} in {}", String::from_utf8_lossy(&self.body)))
    }
}

impl Server {
    /// Starts a server that allows every request.
    pub fn start() -> Server {
        let runtime = Builder::new_current_thread().enable_time().build().expect("a clock");
        let (engine, stepper) = fault::open(&Disk::new(1), &Options::new("/simulated")).expect("a new store");
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        let api = Self::assemble(engine, address).expect("the engine is open");
        let connection = Arc::new(ConnectionInfo::detached(address, Vec::new()));
        let mut server = Server { api, stepper, runtime, connection };
        let namespace = format!(r#"{{"metadata":{{"name":"{NAMESPACE}"}}}}"#);
        let made =
            server.send_request("POST", "/api/v1/namespaces", "application/json", namespace.as_bytes());
        assert_eq!(made.code, 201, "{}", String::from_utf8_lossy(&made.body));
        server
    }

    fn assemble(engine: Engine, address: SocketAddr) -> Result<Arc<Api>, engine::TailError> {
        let domains = NameDomains::new(KUBERNETES.domain);
        let key = SigningKey::from_pem(KEY).expect("a key of our own");
        let issuer = TokenIssuer::new("issuer", key, domains);
        let tokens = Tokens {
            signer: TokenSigner::Own(issuer),
            audiences: Vec::new(),
            lifetime_max: None,
            extends: false,
            extended_lifetime: EXTENDED_LIFETIME,
            documents: Default::default(),
            uses: Default::default(),
        };
        Api::assemble(server::Settings {
            store: server::store::Settings {
                backends: Backends::new(Backend::new(engine, None), Vec::new()),
                secrecy: None,
                ranges: Ranges::default(),
                last_backup: None,
            },
            types: server::types::Settings::new(&KUBERNETES),
            access: server::access::Settings {
                authenticator: Authenticator::new().with_anonymous(auth::authn::Anonymous::Accepted),
                authorizers: vec![Module::AlwaysAllow],
                tokens,
                certificates: Certificates::unsigned(),
                fairness: Default::default(),
                edge: Default::default(),
                auditor: None,
            },
            outgoing: server::outgoing::Settings {
                extensions: Default::default(),
                peers: Default::default(),
                nodes: NodeConnections::new(Default::default()).expect("there are no certificates to read"),
                reaches_endpoints: false,
            },
            operations: Operations::new(address),
            admission: admission().plugins(),
        })
    }

    /// Sends a request and runs the engine until there is a response.
    pub fn send_request(&mut self, method: &str, path: &str, content_type: &str, body: &[u8]) -> Answer {
        let request = http::Request::builder().method(method).uri(path).header("content-type", content_type);
        let body = Incoming::detached(Bytes::copy_from_slice(body));
        let request = request.body(body).expect("a request of our own");
        let _clock = self.runtime.enter();
        let mut answer = pin!(async {
            let response = self.api.handle(request, &self.connection).await;
            let code = response.status().as_u16();
            let body = response.into_body().collect().await.map(|body| body.to_bytes());
            Answer { code, body: body.unwrap_or_else(|error| panic!("{method} {path}: {error}")) }
        });
        for _ in 0..TURNS_MAX {
            if let Some(answer) = fault::now(answer.as_mut()) {
                return answer;
            }
            self.runtime.block_on(tokio::task::yield_now());
            self.stepper.commit();
        }
        panic!("{method} {path} waits for something that does not come");
    }
}
