//! Builds the handler of requests from the configuration and the open store.

use std::net::SocketAddr;
use std::sync::Arc;

use api::state::policy::EngineAccounts;
use api::state::secrecy::Secrecy;
use api::state::tokens::external::External;
use api::writes::context::{Context as Api, OwnService, Parts};
use auth::authn::NameDomains;
use objects::store::backends::Backends;
use wire::traces::Tracer;

use crate::assemble::authenticators::{self, Bundles};
use crate::assemble::credentials::Credentials;
use crate::assemble::{Run, tokens};
use crate::audit;
use crate::config::extension;
use crate::host::pki::PKI_DIR;
use crate::host::{log_files, machine};

/// Values of the handler that earlier steps of the start have made.
pub struct Made {
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
pub fn build(run: &Run<'_>, credentials: &Credentials, made: Made) -> anyhow::Result<(Arc<Api>, Bundles)> {
    let (config, metrics) = (&run.config, run.process.metrics.clone());
    let Made { address, backends, secrecy, tracer, external } = made;
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
    let parts = Parts {
        naming: config.store.naming,
        allows_privileged: config.admission.allow_privileged,
        backends,
        authenticator,
        lifecycle: run.lifecycle.clone(),
        limits: config.requests.limits.clone(),
        address,
        root_ca: credentials.root_ca.clone(),
        tokens,
        certificates: config.signing.settings(&config.store.data_dir.join(PKI_DIR)),
        ranges: config.service.ranges.clone(),
        features: config.features.clone(),
        enablement: config.enablement.clone(),
        fairness: config.fairness,
        edge: config.edge.edge.clone(),
        flags: config.flags.clone(),
        log_files: config.edge.serves_log_files.then(|| Arc::new(log_files::Directory::default()) as _),
        debugging: run.process.debugging.clone(),
        tracer,
        extensions,
        peers: config.peers.settings(
            address,
            config.service.advertise_address,
            config.extensions.settings.certificate.clone(),
            config.store.naming,
            &config.extensions.settings.networks,
        ),
        nodes: config.nodes.nodes.clone(),
        secrecy,
        version: config.version.clone(),
        host_name: machine::node_name(),
        own_service: OwnService {
            advertised: machine::advertised_address(address, config.service.advertise_address),
            port: address.port(),
            ..config.service.own_service
        },
        collects_garbage: config.controllers.collects_garbage,
        admission: config.admission.plugins.clone(),
        auditor: config.audit.as_ref().map(|config| audit::auditor(config, &metrics)).transpose()?.flatten(),
        metrics,
    };
    let api = Api::assemble(parts, config.authorization.modules(&nodes))?;
    let follow = config.authorization.clone().follow(nodes, api.shared_authorizer(), api.metrics().clone());
    tokio::spawn(follow);
    Ok((api, bundles))
}
