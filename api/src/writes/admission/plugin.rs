//! The interface of admission plugins: the writes that a plugin handles, its decision at each point, and its
//! creation from files and a [`Lookup`].

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use auth::authn::webhook::Reviewer;

use super::lookup::Lookup;
use super::record::{AdmissionRecord, Review};
use super::target::Target;
use values::json::Object;
use values::status::Status;
use wire::outgoing::{Identities, Networks};

/// The decision of a plugin, immediate or as a future. Plugins that decide from memory allocate nothing.
pub enum Step<'p> {
    /// The plugin does nothing at this point.
    Pass,
    /// The plugin has decided immediately.
    Done(Result<(), Status>),
    /// The plugin decides later, because it writes or asks another server.
    Wait(Pin<Box<dyn Future<Output = Result<(), Status>> + Send + 'p>>),
}

impl<'p> Step<'p> {
    /// Returns a decision to wait for.
    pub fn wait(answer: impl Future<Output = Result<(), Status>> + Send + 'p) -> Step<'p> {
        Step::Wait(Box::pin(answer))
    }
}

impl From<Result<(), Status>> for Step<'_> {
    fn from(decision: Result<(), Status>) -> Self {
        Step::Done(decision)
    }
}

/// An admission plugin. It is created once, at the start of the server.
pub trait Plugin: Send + Sync {
    /// Returns whether the plugin handles such writes.
    fn handles(&self, target: &Target<'_>) -> bool;

    /// Returns whether the plugin reads objects. If not, none need be read for it.
    fn reads_objects(&self) -> bool {
        true
    }

    /// Runs the plugin at the mutating point, where it may change the new object or refuse the write.
    fn mutate<'p>(
        &'p self,
        _record: &'p mut AdmissionRecord<'_, &mut Object>,
        _review: &'p mut Review,
    ) -> Step<'p> {
        Step::Pass
    }

    /// Runs the plugin at the validating point, where the new object is in its final state.
    fn validate<'p>(
        &'p self,
        _record: &'p AdmissionRecord<'_, &Object>,
        _review: &'p mut Review,
    ) -> Step<'p> {
        Step::Pass
    }
}

/// Creates a plugin at the start of the server, after its configuration was read.
pub type Make = Arc<dyn Fn(&Lookup) -> Arc<dyn Plugin> + Send + Sync>;

/// Access to the files that the configuration of plugins names.
pub trait Files {
    /// Reads a file that the configuration names.
    ///
    /// # Errors
    /// Returns the complete error message if the file cannot be read.
    fn read(&self, path: &str) -> Result<Vec<u8>, String>;

    /// Returns the PEM of the certificate authorities that the operating system trusts.
    fn system_authorities(&self) -> Vec<u8> {
        Vec::new()
    }

    /// Returns how other servers are reached.
    fn networks(&self) -> Networks {
        Networks::default()
    }

    /// Returns the credentials of this server for other servers, from the users of a kubeconfig file.
    ///
    /// # Errors
    /// Describes why the file cannot be used.
    fn identities(&self, path: &str) -> Result<Identities, String> {
        Err(format!("stat {path}: no such file or directory"))
    }

    /// Returns a client for the server that a kubeconfig file names. `pause` is the time before a failed
    /// request is retried.
    ///
    /// # Errors
    /// Describes why the file cannot be used.
    fn reviewer(&self, path: &str, _pause: Duration) -> Result<Arc<dyn Reviewer>, String> {
        Err(format!("stat {path}: no such file or directory"))
    }
}
