//! Traces of requests: a span for each sampled request, and a span for each step of the request. The server
//! sends the spans to a collector (docs/api/operations.md#traces).
//!
//! ```text
//! request ─ traceparent of a trusted client, or by chance ─► Trace ─ stages ─► spans ─► Queue ─► export.rs ─► collector
//!                                              └─ current() ─► traceparent of calls to other servers
//! ```
//!
//! The context between servers has the format of W3C Trace Context. No code waits for the collector: the
//! queue is bounded, and spans that do not fit are counted and dropped. Without a configuration, no spans are
//! created.

pub mod export;
mod otlp;

use std::future::Future;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use http::{HeaderMap, HeaderName, HeaderValue};
use tokio::sync::mpsc;

use values::names;

/// Header that names the trace and the span to which a request belongs (W3C Trace Context, section 3.2).
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// Denominator of the sampling probability.
const MILLION: u32 = 1_000_000;

/// A trace, and the span in it that is the parent of new spans.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Parent {
    trace: [u8; 16],
    span: [u8; 8],
    is_sampled: bool,
}

impl Parent {
    /// Parses `traceparent`; returns `None` if the header is absent or malformed.
    pub fn from_headers(headers: &HeaderMap) -> Option<Parent> {
        let text = headers.get(TRACEPARENT)?.to_str().ok()?;
        let mut parts = text.split('-');
        let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let [version] = bytes::<1>(version)?;
        // Later versions may have more fields.
        if version == 0xff || version == 0 && parts.next().is_some() {
            return None;
        }
        let (trace, span, [flags]) = (bytes::<16>(trace)?, bytes::<8>(span)?, bytes::<1>(flags)?);
        let is_whole = trace != [0; 16] && span != [0; 8];
        is_whole.then_some(Parent { trace, span, is_sampled: flags & 1 == 1 })
    }

    fn header(&self) -> String {
        format!("00-{}-{}-{:02x}", hex(&self.trace), hex(&self.span), u8::from(self.is_sampled))
    }
}

/// Parses lower-case hexadecimal digits of exactly `N` bytes.
fn bytes<const N: usize>(text: &str) -> Option<[u8; N]> {
    let is_lower = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    if text.len() != 2 * N || !text.bytes().all(is_lower) {
        return None;
    }
    let mut out = [0; N];
    for (at, byte) in out.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(out)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A span that has ended.
#[derive(Clone, Debug)]
pub struct Span {
    trace: [u8; 16],
    id: [u8; 8],
    parent: Option<[u8; 8]>,
    name: String,
    /// Whether the span is a whole incoming request rather than a part of a request.
    is_entry: bool,
    began_ns: u64,
    ended_ns: u64,
    attributes: Vec<(&'static str, String)>,
    /// Whether the operation ended with a server error.
    is_failed: bool,
}

/// Decides which requests are traced, and queues their spans.
#[derive(Debug)]
pub struct Tracer {
    per_million: u32,
    queue: mpsc::Sender<Span>,
}

impl Tracer {
    /// Creates a tracer that samples `per_million` of a million requests; spans go into `queue`.
    pub fn new(per_million: u32, queue: mpsc::Sender<Span>) -> Tracer {
        Tracer { per_million, queue }
    }

    /// Begins the trace of a request, if it is sampled. `given` is the context that the client sent, if the
    /// server trusts the client.
    pub fn begin(&self, given: Option<Parent>) -> Option<Trace> {
        let is_sampled = match given {
            Some(parent) => parent.is_sampled,
            None => u32::from_le_bytes(names::random()) % MILLION < self.per_million,
        };
        is_sampled.then(|| Trace {
            trace: given.map_or_else(names::random, |parent| parent.trace),
            id: names::random(),
            parent: given.map(|parent| parent.span),
            began: Instant::now(),
            began_at: SystemTime::now(),
            stages: Vec::new(),
            queue: self.queue.clone(),
        })
    }
}

/// The trace of one request, while it is served.
#[derive(Debug)]
pub struct Trace {
    trace: [u8; 16],
    id: [u8; 8],
    parent: Option<[u8; 8]>,
    began: Instant,
    began_at: SystemTime,
    stages: Vec<(&'static str, Duration, Duration)>,
    queue: mpsc::Sender<Span>,
}

impl Trace {
    /// Returns the context for operations that are part of the request.
    pub fn context(&self) -> Parent {
        Parent { trace: self.trace, span: self.id, is_sampled: true }
    }

    /// Adds a span for a step of the request that took `took` and ended now.
    pub fn stage(&mut self, name: &'static str, took: Duration) {
        let ended = self.began.elapsed();
        self.stages.push((name, ended.saturating_sub(took), ended));
    }

    /// Ends the trace, and queues its spans. Returns the number of spans that did not fit into the queue.
    pub fn end(self, name: String, attributes: Vec<(&'static str, String)>, is_failed: bool) -> u64 {
        let at = |after: Duration| {
            let since = (self.began_at + after).duration_since(UNIX_EPOCH).unwrap_or_default();
            u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
        };
        let stages = self.stages.iter().map(|(stage, began, ended)| Span {
            trace: self.trace,
            id: names::random(),
            parent: Some(self.id),
            name: (*stage).to_owned(),
            is_entry: false,
            began_ns: at(*began),
            ended_ns: at(*ended),
            attributes: Vec::new(),
            is_failed: false,
        });
        let entry = Span {
            trace: self.trace,
            id: self.id,
            parent: self.parent,
            name,
            is_entry: true,
            began_ns: at(Duration::ZERO),
            ended_ns: at(self.began.elapsed()),
            attributes,
            is_failed,
        };
        let spans = std::iter::once(entry).chain(stages);
        spans.map(|span| u64::from(self.queue.try_send(span).is_err())).sum()
    }
}

tokio::task_local! {
    static CURRENT: Parent;
}

/// Runs `work` as a part of the trace in `context`; calls to other servers carry the context.
pub async fn within<F: Future>(context: Option<Parent>, work: F) -> F::Output {
    match context {
        Some(context) => CURRENT.scope(context, work).await,
        None => work.await,
    }
}

/// Sets the trace header of a call to another server, if the current task belongs to a trace.
pub fn propagate(headers: &mut HeaderMap) {
    let Ok(context) = CURRENT.try_with(|context| *context) else { return };
    if let Ok(value) = HeaderValue::from_str(&context.header()) {
        headers.insert(TRACEPARENT, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parent(text: &str) -> Option<Parent> {
        Parent::from_headers(&HeaderMap::from_iter([(TRACEPARENT, text.parse().unwrap())]))
    }

    #[test]
    fn traceparent_headers_are_parsed_and_written() {
        let text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        assert_eq!(parent(text).unwrap().header(), text);
        for (text, is_one) in [
            ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00", true),
            ("01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00-more", true),
            ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00-more", false),
            ("ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00", false),
            ("00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-00", false),
            ("00-00000000000000000000000000000000-00f067aa0ba902b7-00", false),
            ("00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-00", false),
            ("00-4bf9-00f067aa0ba902b7-00", false),
            ("", false),
        ] {
            assert_eq!(parent(text).is_some(), is_one, "{text}");
        }
    }

    #[tokio::test]
    async fn a_sampled_parent_of_a_trusted_client_begins_a_trace_and_otherwise_chance_decides() {
        let (queue, mut spans) = mpsc::channel(2);
        let sampled = parent("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
        let not_sampled = parent("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00");
        for (per_million, given, begins) in
            [(0, sampled, true), (MILLION, not_sampled, false), (0, None, false), (MILLION, None, true)]
        {
            let trace = Tracer::new(per_million, queue.clone()).begin(given);
            assert_eq!(trace.is_some(), begins, "{per_million} {given:?}");
        }
        let mut trace = Tracer::new(0, queue).begin(sampled).unwrap();
        let (context, mut headers) = (trace.context(), HeaderMap::new());
        within(Some(context), async { propagate(&mut headers) }).await;
        assert_eq!(Parent::from_headers(&headers), Some(context));
        let mut none = HeaderMap::new();
        within(None, async { propagate(&mut none) }).await;
        assert!(none.is_empty());
        trace.stage("serve", Duration::from_millis(1));
        trace.stage("more", Duration::ZERO);
        assert_eq!(trace.end("get pods".to_owned(), Vec::new(), false), 1, "the queue has room for two");
        let (entry, stage) = (spans.recv().await.unwrap(), spans.recv().await.unwrap());
        assert_eq!((entry.parent, stage.parent), (Some(sampled.unwrap().span), Some(entry.id)));
        assert!(entry.began_ns <= stage.began_ns && stage.ended_ns <= entry.ended_ns);
    }
}
