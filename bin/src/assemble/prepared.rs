//! The third phase of a run: the handler of requests exists and has all resource types, but no request is
//! served yet.

use std::sync::Arc;

use anyhow::Context;
use api::state::audit::Sink;
use api::writes::server::Server as Api;
use wire::server::LifecycleStage;

use crate::assemble::Run;
use crate::assemble::authenticators::Bundles;
use crate::assemble::credentials::Credentials;
use crate::assemble::handler::{self, HandlerParts};
use crate::assemble::listening::BoundPort;
use crate::assemble::opened::{OpenStore, Opened};
use crate::assemble::spans::Exporting;
use crate::remote::signer;

/// A run whose handler can serve requests.
pub struct Prepared<'p> {
    pub(super) run: Run<'p>,
    pub(super) port: BoundPort,
    pub(super) store: OpenStore,
    pub(super) credentials: Arc<Credentials>,
    pub(super) handler: Arc<Api>,
    pub(super) bundles: Bundles,
    pub(super) outlets: OutputSinks,
}

/// The receivers of audit events and trace spans. The end of the run flushes both receivers.
pub struct OutputSinks {
    /// The sink of audit events, if requests are audited.
    pub sink: Option<Arc<dyn Sink>>,
    /// The exporter of spans, if requests are traced.
    pub spans: Option<Exporting>,
}

impl<'p> Opened<'p> {
    /// Reads or creates the credentials, builds the handler, and reads the definitions of custom types.
    ///
    /// # Errors
    /// A credential is invalid, an external signer does not respond, or a definition cannot be read.
    pub async fn prepare(self) -> anyhow::Result<Prepared<'p>> {
        let Opened { run, port, store } = self;
        let credentials = Arc::new(Credentials::prepare(&run.config, port.address)?);
        let traces = run.config.traces.as_ref();
        let traced = traces.map(|settings| Exporting::start(settings, &run.lifecycle));
        let (tracer, spans) = traced.unzip();
        let external = match &run.config.authentication.tokens.endpoint {
            Some(path) => Some(run.unless_stopped(signer::open(path, run.process.metrics.clone())).await?),
            None => None,
        };
        let parts = HandlerParts {
            address: port.address,
            backends: store.copies.backends(&store.engine),
            secrecy: store.opener.secrecy.clone(),
            tracer,
            external,
        };
        let (handler, bundles) = handler::build(&run, &credentials, parts)?;
        store.copies.serve(&handler.types.served, &handler.operations.metrics);
        let sink = handler.access.auditor.as_ref().map(|auditor| auditor.sink.clone());
        run.ending.attach_outlets(sink.clone(), spans.as_ref().map(Exporting::waiting));
        api::system::startup::load_types(&handler).context("cannot read the definitions of custom types")?;
        run.lifecycle.advance(LifecycleStage::TypesServed);
        let outlets = OutputSinks { sink, spans };
        Ok(Prepared { run, port, store, credentials, handler, bundles, outlets })
    }
}
