//! The first phase of a run: the port is bound, and nothing else has changed.

use std::net::SocketAddr;

use anyhow::Context;
use futures_util::FutureExt;
use tokio::net::TcpListener;

use crate::assemble::{ListenerSlot, Run};
use crate::host::platform::limits;
use crate::host::{debug_socket, machine};

/// A run whose port is bound. Connections wait in the backlog.
pub struct Listening<'p> {
    pub(super) run: Run<'p>,
    pub(super) port: BoundPort,
}

/// A bound port and its address.
pub struct BoundPort {
    pub(super) listener: TcpListener,
    pub(super) address: SocketAddr,
}

impl<'p> Listening<'p> {
    /// Binds the port, or takes the socket that an earlier run of this process kept, and opens the debug socket.
    ///
    /// # Errors
    /// The address is in use or does not exist.
    pub fn bind(mut run: Run<'p>, slot: &mut ListenerSlot) -> anyhow::Result<Listening<'p>> {
        limits::raise_open_files();
        let listener = match slot {
            Some(slot) => slot.try_clone().and_then(TcpListener::from_std),
            None => machine::listen(run.config.listening.bind, run.config.listening.shares_port)?
                .into_std()
                .and_then(|listener| {
                    *slot = Some(listener.try_clone()?);
                    TcpListener::from_std(listener)
                }),
        };
        let listener = listener.context("cannot keep the listening socket")?;
        let address = listener.local_addr().context("cannot read the listening address")?;
        if let Some(path) = &run.config.edge.debug_socket {
            let serving = debug_socket::serve(path.clone(), run.process.debugging.clone());
            run.debug_socket.spawn(serving.boxed());
        }
        Ok(Listening { run, port: BoundPort { listener, address } })
    }
}
