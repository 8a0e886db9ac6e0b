//! Starts a cluster-apiserver for each test of a controller, and controls its test features.
//!
//! ```no_run
//! # async fn test() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//! use cluster_apiserver_testkit::{Fault, RequestPattern, TestServer};
//!
//! let server = TestServer::start()?;
//! let client = server.client().await?;
//! let features = server.features(client.clone());
//! let updates = RequestPattern { verbs: vec!["update".into()], ..RequestPattern::default() };
//! features.add_fault(&Fault::error(409).on(updates).times(3)).await?;
//! features.advance(Duration::from_secs(3600)).await?;
//! # Ok(())
//! # }
//! ```
//!
//! The server is the program `cluster-apiserver`. The environment variable `CLUSTER_APISERVER` has the path of the
//! program; without the variable, the program must be in the search path. The server listens on a free port of
//! 127.0.0.1, and has its store in a temporary directory. Dropping a [`TestServer`] ends the process and removes the
//! directory.

mod features;
mod server;

pub use features::{
    Clock, Fault, FaultEffect, FaultId, FeatureError, Mark, Quiescence, RecordedRequest, RequestPattern,
    RestoredSnapshot, SavedSnapshot, TestFeatures, WatchEffect,
};
pub use server::{Settings, StartError, TestServer};
