//! The part of the server that calls other servers: webhooks of custom types, extension servers, the other
//! servers on the same store, nodes, pods and services.

use std::sync::Arc;

use engine::Engine;

use super::types::TypeCatalog;
use crate::state::connect::NodeConnections;
use crate::state::extension::{self, Extensions};
use crate::state::peers::{self, Peers};
use objects::conversion::Converter;
use objects::services::Services;

/// The configuration of [`OutgoingCalls`].
pub struct Settings {
    /// Settings for the identification of this server to extension servers.
    pub extensions: extension::Settings,
    /// Settings for mutual identification of the servers on the same store.
    pub peers: peers::Settings,
    /// Settings for connections to nodes, pods and services.
    pub nodes: NodeConnections,
    /// Whether services are reached at one of their endpoints instead of their cluster IP.
    pub reaches_endpoints: bool,
}

/// The other servers that the server calls.
pub struct OutgoingCalls {
    /// The resolver of service addresses for calls by the server.
    pub services: Arc<Services>,
    /// The converter for objects of custom types between versions.
    pub converter: Arc<Converter>,
    /// The extension servers known to this server.
    pub extensions: Extensions,
    /// The other servers on the same store.
    pub peers: Peers,
    /// Settings for connections to nodes, pods and services.
    pub nodes: NodeConnections,
}

impl OutgoingCalls {
    /// Creates the part for a server whose services are in `engine`.
    pub(super) fn new(settings: Settings, engine: &Engine, types: &TypeCatalog) -> OutgoingCalls {
        let Settings { extensions, peers, nodes, reaches_endpoints } = settings;
        let services = Services::new(engine.clone(), &types.builtin, types.naming, reaches_endpoints);
        let services = Arc::new(services);
        let converter = Converter::new(services.clone(), types.naming)
            .calling(extensions.system.clone(), extensions.networks.clone());
        OutgoingCalls {
            services,
            converter: Arc::new(converter),
            extensions: Extensions::new(extensions),
            peers: Peers::new(peers),
            nodes,
        }
    }
}
