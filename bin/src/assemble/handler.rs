//! Builds the handler of requests from the configuration and the open store.

use std::net::SocketAddr;
use std::sync::Arc;

use api::state::audit::Auditor;
use api::state::policy::EngineAccounts;
use api::state::secrecy::Secrecy;
use api::state::testing::Testing;
use api::state::tokens::external::External;
use api::writes::server::operations::{Operations, OwnService};
use api::writes::server::{self, Server as Api};
use auth::authn::NameDomains;
use futures_util::FutureExt;
use objects::store::backends::Backends;
use tokio::sync::watch;
use values::memory::Memory;
use wire::traces::Tracer;

use crate::assemble::authenticators::{self, Bundles};
use crate::assemble::credentials::Credentials;
use crate::assemble::{Run, tokens};
use crate::audit;
use crate::config::extension;
use crate::host::pki::PKI_DIR;
use crate::host::{log_files, machine};
use crate::store::last_backup::LastBackup;

/// Values that earlier steps of the start have created for the handler.
pub struct HandlerParts {
    /// The address that the server listens on.
    pub address: SocketAddr,
    /// The stores of the objects.
    pub backends: Backends,
    /// The encryption of stored values, if they are encrypted.
    pub secrecy: Option<Arc<Secrecy>>,
    /// The tracer, if requests are traced.
    pub tracer: Option<Tracer>,
    /// The external signer of tokens, if one is configured.
    pub external: Option<External>,
}

/// Builds the request handler, and the credentials that are reloaded while the server runs.
///
/// # Errors
/// A credential is invalid, or the audit log cannot be opened.
pub fn build(
    run: &Run<'_>,
    credentials: &Credentials,
    parts: HandlerParts,
) -> anyhow::Result<(Arc<Api>, Bundles)> {
    let config = &run.config;
    let HandlerParts { address, backends, secrecy, tracer, external } = parts;
    let engine = backends.main().engine();
    let domains = NameDomains::new(config.store.naming.domain);
    let accounts = Arc::new(EngineAccounts::new(engine.clone(), config.store.naming));
    let (account_tokens, tokens) = tokens::prepare(config, accounts.clone(), address, &domains, external)?;
    let (authenticator, bundles) = authenticators::chain(
        &config.authentication,
        &credentials.client_cas,
        config.store.naming,
        accounts,
        account_tokens,
        &tokens.signer,
    )?;
    let mut extensions = config.extensions.settings.clone();
    extension::publish_own_authority(&mut extensions, &credentials.client_cas);
    let nodes = config.authorization.nodes(engine.clone());
    for warning in &config.features.warnings {
        tracing::warn!("{warning}");
    }
    if config.testing {
        tracing::warn!(
            "test features enabled: users with permission for /testing can set the clock, make requests fail and replace \
             all objects; remove --testing if this is not a test server"
        );
    }
    let settings = server::Settings {
        store: server::store::Settings {
            backends,
            secrecy,
            ranges: config.service.ranges.clone(),
            last_backup: Some(Arc::new(LastBackup::in_data_dir(&config.store.data_dir))),
        },
        types: server::types::Settings {
            naming: config.store.naming,
            allows_privileged: config.admission.allow_privileged,
            features: config.features.clone(),
            enablement: config.enablement.clone(),
        },
        access: server::access::Settings {
            authenticator,
            authorizers: config.authorization.modules(&nodes),
            tokens,
            certificates: config.signing.settings(&config.store.data_dir.join(PKI_DIR)),
            fairness: config.fairness,
            edge: config.edge.edge.clone(),
            auditor: auditor(run)?,
        },
        outgoing: server::outgoing::Settings {
            peers: config.peers.settings(
                address,
                config.service.advertise_address,
                extensions.certificate.clone(),
                config.store.naming,
                &extensions.networks,
            ),
            extensions,
            nodes: config.nodes.nodes.clone(),
            reaches_endpoints: config.admission.plugins.reaches_endpoints(),
        },
        operations: operations(run, credentials, address, tracer),
        admission: config.admission.plugins.plugins(),
    };
    let api = Api::assemble(settings)?;
    let follow = config.authorization.clone().follow(
        nodes,
        api.access.authorizer.clone(),
        api.operations.metrics.clone(),
    );
    tokio::spawn(follow.boxed());
    Ok((api, bundles))
}

/// Returns the auditor; `None` if nothing is audited.
fn auditor(run: &Run<'_>) -> anyhow::Result<Option<Auditor>> {
    let audit = run.config.audit.as_ref();
    Ok(audit.map(|config| audit::auditor(config, &run.process.metrics)).transpose()?.flatten())
}

/// Returns the part of the server's settings that describes the process.
fn operations(
    run: &Run<'_>,
    credentials: &Credentials,
    address: SocketAddr,
    tracer: Option<Tracer>,
) -> Operations {
    let (config, process) = (&run.config, &run.process);
    let memory = Arc::<Memory>::default();
    Operations {
        lifecycle: run.lifecycle.clone(),
        limits: config.requests.limits.clone(),
        metrics: process.metrics.clone(),
        tracer,
        log_files: config.edge.serves_log_files.then(|| Arc::new(log_files::Directory::default()) as _),
        debugging: process.debugging.clone(),
        testing: config.testing.then(|| Arc::new(Testing::new(memory.clone()))),
        memory,
        flags: config.flags.clone(),
        version: config.version.clone(),
        host_name: machine::node_name(),
        own_service: OwnService {
            advertised: machine::advertised_address(address, config.service.advertise_address),
            port: address.port(),
            ..config.service.own_service
        },
        root_ca: watch::Sender::new(credentials.root_ca.clone()),
        collects_garbage: config.controllers.collects_garbage,
        ..Operations::new(address)
    }
}
