//! The component of the server that calls other servers: conversion webhooks, extension servers, the other
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
    /// Settings for the calls of extension servers.
    pub extensions: extension::Settings,
    /// Settings for the calls between the servers on the same store.
    pub peers: peers::Settings,
    /// Settings for connections to nodes, pods and services.
    pub nodes: NodeConnections,
    /// Whether the server connects to an endpoint of a service instead of its cluster IP.
    pub reaches_endpoints: bool,
}

/// The calls of this server to other servers.
pub struct OutgoingCalls {
    /// The resolver of service addresses for calls of the server.
    pub services: Arc<Services>,
    /// The converter of custom objects between versions.
    pub converter: Arc<Converter>,
    /// The extension servers known to this server.
    pub extensions: Extensions,
    /// The other servers on the same store.
    pub peers: Peers,
    /// Settings for connections to nodes, pods and services.
    pub nodes: NodeConnections,
}

impl OutgoingCalls {
    /// Creates the component for a server whose services are in `engine`.
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
