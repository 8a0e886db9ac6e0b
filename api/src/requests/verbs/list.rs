//! The verb list: a stream over the state at one revision.
//!
//! The snapshot pins a revision without holding a lock. The list walks the index range; selectors check the
//! Bloom filters in the index, and then the stored attributes of the remaining entries. Stored bytes are copied
//! into chunks of at most `CHUNK_BYTES`. A list response of any size needs memory for one chunk or, if objects
//! are not sent in stored form, for one chunk per rendering thread (`parallel_render.rs`). With a limit the
//! range is walked twice: once over the index to find the end of the page (the head of a list contains the
//! continue token), and once to write the page.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use engine::{KeyRange, Revision, SnapshotError};
use futures_util::{FutureExt, Stream, StreamExt};
use http::StatusCode;

use super::Call;
use super::chunks::{CHUNK_BYTES, ChunkFill, FORM_MULTIPLE, ITEM_BYTES, LARGE_BYTES};
use super::continue_token::ContinueToken;
use super::parallel_render::{self, ParallelRender};
use super::selected::{Need, Selected, SelectedItem};
use crate::writes::accesses::{self, StoreAccess};
use objects::conversion::Converter;
use objects::negotiate::Transform;
use objects::representation::{self, ListMeta, ListSize, Renderer, SizeNeeded};
use objects::store::{self, Store, StoreView, Stored};
use types::attributes::Selection;
use types::bloom;
use types::options::{ListOptions, VersionMatch, list_version_number};
use types::schema::registry::Resource;
use values::json::{Indenter, Value};
use values::memory::Charge;
use values::object::at;
use values::status::Status;
use wire::response::{Response, respond_shared};
use wire::server::{Aborted, Body};

/// Number of bytes of a chunk before indentation. Indented output can be four times as long as its input.
const PRETTY_CHUNK_BYTES: usize = 12 * 1024;

/// Maximum total size of rendered items that are kept while the items are measured. Most lists have at most four
/// chunks, and such lists are rendered only once.
const WHOLE_BYTES: u64 = 4 * CHUNK_BYTES as u64;

/// Maximum number of rows that are sorted by object contents. All rows must be in memory to be sorted.
const ROWS_SORTED_MAX: usize = 1000;

/// Returns the collection (docs/api/lists.md#resource-versions, docs/api/lists.md#list-options,
/// #read-consistency, #remaining-items, #continue-tokens).
pub async fn list(call: &mut Call<'_>) -> Result<Response, Status> {
    let meta_group = call.server().types.naming.meta_group();
    let options = ListOptions::from_query(&call.request.query, call.selection()?, false, &meta_group)?;
    let mut page = Page::find(call, options).await?;
    if call.output.transform == Transform::Table {
        page.sort_rows().await?;
    }
    let renderer = call.renderer()?;
    representation::refuse_object_transform(&call.output, call.resource)?;
    ListStream::respond(renderer, page).await
}

/// A page of a collection: a range of one snapshot, and the metadata for the head of the page.
pub struct Page {
    view: StoreView,
    range: KeyRange,
    /// Selectors that must be evaluated for the objects in the range.
    selection: Selection,
    resource: Arc<Resource>,
    converter: Arc<Converter>,
    /// The sorted objects; `None` if the list is in key order.
    sorted: Option<Vec<Stored>>,
    /// Number of matching items in this page; `u64::MAX` if there is no limit.
    pub items: u64,
    /// Revision, continue token and remaining count for the head.
    pub meta: ListMeta,
}

impl Page {
    /// Finds the page that the options select.
    pub async fn find(call: &Call<'_>, options: ListOptions) -> Result<Self, Status> {
        let meta_version = format!("{}/v1", call.server().types.naming.meta_group());
        let token = match options.continue_token.as_str() {
            "" => None,
            _ if !matches!(options.resource_version.as_str(), "" | "0") => {
                return Err(Status::bad_request(
                    "specifying resource version is not allowed when using continue",
                ));
            }
            text => Some(ContinueToken::decode(text, &meta_version)?),
        };
        let began = Instant::now();
        let view = pick_view(call, &options, token.as_ref(), &meta_version).await?;
        let found = began.elapsed();

        let mut namespace = call.info.namespace_of(call.resource).to_owned();
        if namespace.is_empty()
            && let Some(exact) = options.selection.field().exact_namespace()
        {
            namespace = exact.to_owned();
        }
        let prefix = store::collection(call.resource, &namespace);
        let mut range = KeyRange::prefix(&prefix);
        let mut is_one = false;
        let single_scope = !namespace.is_empty() || !call.resource.namespaced();
        if let Some(name) = options.selection.field().exact_name().filter(|_| single_scope && token.is_none())
        {
            is_one = true;
            // A name within one namespace corresponds to one key.
            let key = store::key(call.resource, &namespace, name);
            range = KeyRange { end: Some([&key[..], b"\0"].concat().into()), start: key };
        }
        if let Some(token) = &token {
            range = range.from(&[&prefix[..], token.suffix().as_bytes()].concat());
        }

        let from_version = token.as_ref().is_some_and(|token| token.revision.is_some());
        let access = accesses::list_access(call.resource, &options, is_one, from_version);

        let mut page = Page {
            meta: ListMeta { revision: view.revision(), continue_token: String::new(), remaining: None },
            view,
            range,
            selection: options.selection,
            resource: call.resource.clone(),
            converter: call.server().outgoing.converter.clone(),
            sorted: None,
            items: u64::MAX,
        };
        // For resourceVersion "0" the server may return any revision. In this case Kubernetes ignores the limit
        // (docs/api/lists.md#read-consistency).
        let is_any = options.resource_version == "0" && token.is_none();
        let is_limited = options.limit > 0 && !is_any;
        let began = Instant::now();
        if is_limited {
            page.limit(options.limit, &prefix, &meta_version).await?;
        }
        if let Some(access) = access {
            let took = match access {
                StoreAccess::Version => Some(found),
                // Without a limit, the server searches the objects while the client reads the response.
                StoreAccess::Object | StoreAccess::Objects => is_limited.then(|| began.elapsed()),
            };
            call.server().listed(call.resource, access, took);
        }
        Ok(page)
    }

    /// Walks the range up to `limit` matching items and, if more entries follow, creates the continue token.
    async fn limit(&mut self, limit: u64, prefix: &[u8], meta_version: &str) -> Result<(), Status> {
        let mut taken = 0;
        let mut last: Option<Bytes> = None;
        let mut objects = self.objects();
        while taken < limit
            && let Some(found) = objects.next(Need::Places).await?
        {
            let entry = match found {
                SelectedItem::Pause => {
                    tokio::task::yield_now().await;
                    continue;
                }
                SelectedItem::Entry(entry) => entry,
                SelectedItem::Record(stored) => stored.entry,
            };
            last = Some(entry.key().clone());
            taken += 1;
        }
        self.items = taken;
        let Some(last) = last.filter(|_| taken == limit) else { return Ok(()) };
        // At least one more entry exists (matching or not), so another page follows.
        if self.view.range(self.range.clone().after(&last)).next().is_some() {
            let suffix = last.get(prefix.len()..).unwrap_or_default();
            let start = format!("{}\0", String::from_utf8_lossy(suffix));
            let token = ContinueToken { revision: Some(self.meta.revision), start };
            self.meta.continue_token = token.encode(meta_version);
            if self.selection.is_everything() {
                self.meta.remaining = Some(self.view.count(&self.range).saturating_sub(limit));
            }
        }
        Ok(())
    }

    /// Returns the number of items in this page.
    async fn count(&self) -> Result<u64, Status> {
        if self.items != u64::MAX {
            return Ok(self.items);
        }
        if let Some(sorted) = &self.sorted {
            return Ok(sorted.len() as u64);
        }
        if self.selection.is_everything() {
            return Ok(self.view.count(&self.range));
        }
        let mut items = 0;
        let mut objects = self.objects();
        while let Some(found) = objects.next(Need::Places).await? {
            match found {
                SelectedItem::Pause => tokio::task::yield_now().await,
                SelectedItem::Entry(_) | SelectedItem::Record(_) => items += 1,
            }
        }
        Ok(items)
    }

    /// Renders the first items of this page, up to [`WHOLE_BYTES`], to measure them. Keeps the rendered items
    /// if `may_keep` is true.
    async fn measure(&self, renderer: &mut Renderer, may_keep: bool) -> Result<Measured, Status> {
        let mut size = ListSize::default();
        let mut objects = self.objects();
        let mut whole = Vec::new();
        while size.items < self.items
            && let Some(found) = objects.next(Need::Objects(self.items - size.items)).await?
        {
            let Some(revision) = found.revision() else {
                tokio::task::yield_now().await;
                continue;
            };
            if !may_keep {
                whole.clear();
            }
            let start = whole.len();
            found.show(|stored| renderer.list_item(stored, size.items == 0, &mut whole))?;
            let bytes = whole.len() - start;
            renderer.remember_item_len(revision, bytes);
            size.items += 1;
            size.bytes += bytes as u64;
            if size.bytes > WHOLE_BYTES {
                return Ok(Measured::Start(size, Box::new(objects)));
            }
        }
        Ok(if may_keep { Measured::Whole(size, whole) } else { Measured::Size(size) })
    }

    /// Sorts the objects as rows, if the kind has its own order and the page has at most [`ROWS_SORTED_MAX`]
    /// objects.
    async fn sort_rows(&mut self) -> Result<(), Status> {
        let path = self.resource.table.behavior.rows_sorted_by;
        if path.is_empty() {
            return Ok(());
        }
        let mut rows: Vec<(i64, Stored)> = Vec::new();
        let mut objects = self.objects();
        while (rows.len() as u64) < self.items
            && let Some(found) = objects.next(Need::Objects(self.items - rows.len() as u64)).await?
        {
            let Some(stored) = found.read()? else {
                tokio::task::yield_now().await;
                continue;
            };
            if rows.len() == ROWS_SORTED_MAX {
                return Ok(());
            }
            let object = stored.object(&self.resource)?;
            rows.push((at(&object, path).and_then(Value::as_i64).unwrap_or_default(), stored));
        }
        // The rows were in name order, which a stable sort keeps among equal numbers.
        rows.sort_by_key(|(number, _)| *number);
        self.sorted = Some(rows.into_iter().map(|(_, stored)| stored).collect());
        Ok(())
    }

    /// Returns the selected objects of the range, in the order of `sorted` if the list was sorted, and in key
    /// order otherwise.
    pub fn objects(&self) -> Selected {
        let range = match &self.sorted {
            // All objects are already known, so the range is empty.
            Some(_) => KeyRange { start: self.range.start.clone(), end: Some(self.range.start.clone()) },
            None => self.range.clone(),
        };
        let scan = self.view.range(range).reading_values().filtered(bloom::query(&self.selection));
        Selected::new(scan, self.selection.clone(), self.resource.clone(), self.converter.clone())
            .after(self.sorted.iter().flatten().cloned())
    }
}

/// Result of measuring the items of a page.
enum Measured {
    /// The size of all items, and the rendered items.
    Whole(ListSize, Vec<u8>),
    /// The size of all items.
    Size(ListSize),
    /// The size of the first items, and the items that are not measured yet.
    Start(ListSize, Box<Selected>),
}

/// Returns the view that serves a list (the table of docs/api/lists.md#resource-versions).
async fn pick_view(
    call: &Call<'_>,
    options: &ListOptions,
    token: Option<&ContinueToken>,
    meta_version: &str,
) -> Result<StoreView, Status> {
    let store = call.store();
    // A revision that another server has returned to a client may not have reached this server yet.
    let follow = async |revision| match (call.server().store.ledger(), call.request.past) {
        (None, None) => Ok(()),
        _ => call.reach_revision(revision).await,
    };
    if let Some(token) = token {
        let Some(revision) = token.revision else { return call.view() };
        follow(revision).await?;
        let expired = || {
            let fresh = ContinueToken { revision: None, start: token.start.clone() };
            let mut status = Status::expired(EXPIRED_TOKEN);
            status.continue_token = Some(fresh.encode(meta_version));
            status
        };
        // A continue token of a list at an earlier point stays valid as long as this point can be read.
        let ttl = call.server().operations.limits.continue_ttl;
        if call.request.past.is_none() && is_outlived(&store, revision, ttl) {
            return Err(expired());
        }
        return store.view_at(revision).map_err(|error| match error {
            SnapshotError::Compacted { .. } => expired(),
            SnapshotError::Future { current } => {
                Status::too_large_resource_version(revision.get(), current.get(), 1)
            }
        });
    }
    let revision = list_version_number(&options.resource_version)?;
    let exact = options.version_match == Some(VersionMatch::Exact)
        || options.version_match.is_none() && options.limit > 0 && revision > Revision::ZERO;
    if exact {
        follow(revision).await?;
        return store.view_at(revision).map_err(|error| match error {
            SnapshotError::Compacted { .. } => {
                Status::expired("The resourceVersion for the provided list is too old.")
            }
            SnapshotError::Future { current } => {
                Status::too_large_resource_version(revision.get(), current.get(), 1)
            }
        });
    }
    call.reach_revision(revision).await?;
    call.view()
}

/// Returns whether a write more than `ttl` ago replaced the state at `revision`. Clients rely on tokens that expire:
/// the conformance tests of Kubernetes wait ten minutes for a token to expire.
fn is_outlived(store: &Store<'_>, revision: Revision, ttl: Duration) -> bool {
    let superseded = (!ttl.is_zero()).then(|| store.superseded_at(revision)).flatten();
    superseded.is_some_and(|then| then.elapsed().is_ok_and(|age| age > ttl))
}

const EXPIRED_TOKEN: &str = "The provided continue parameter is too old to display a consistent list result. \
    You can start a new list without the continue parameter, or use the continue token in this response to \
    retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - \
    objects that were created, modified, or deleted between the time the first chunk was returned and now may \
    show up in the list.";

/// The body of a list, which is produced chunk by chunk as the connection accepts chunks.
pub struct ListStream {
    renderer: Renderer,
    /// The remaining objects; `None` after the end was written.
    objects: Option<Selected>,
    left: u64,
    buffer: Vec<u8>,
    /// Memory charge for the current chunk.
    charge: Charge,
    /// A large object that waits until the previous chunk is sent.
    waiting: Option<Stored>,
    /// Stored bytes that follow the current chunk.
    stored: Option<Bytes>,
    first: bool,
    /// The renderer of the objects, if several threads render them.
    ahead: Option<ParallelRender>,
    /// Indents the text; `None` if the client did not request indented text.
    indenter: Option<Indenter>,
}

impl ListStream {
    /// Returns the response with one page of a list. A list that fits into one chunk is sent whole, with its
    /// length; a longer list is streamed.
    ///
    /// Some encodings contain the total length of the items before the items. For such an encoding, the server renders
    /// the items of a long list twice, the first time only to measure them. Measuring takes time in proportion to the
    /// list, but keeping the rendered items would take memory in proportion to the list. While the server measures the
    /// items, it already sends the bytes that precede the length.
    ///
    /// # Errors
    /// Fails if an object cannot be read and the server detects this error before the response has begun.
    pub async fn respond(mut renderer: Renderer, page: Page) -> Result<Response, Status> {
        let mut size = ListSize::default();
        match renderer.size_needed() {
            SizeNeeded::Nothing => {}
            SizeNeeded::Items => {
                size.items = page.count().await?;
            }
            SizeNeeded::Bytes => {
                let charge = renderer.account().try_answer(3 * WHOLE_BYTES as usize);
                match page.measure(&mut renderer, charge.is_ok()).await? {
                    Measured::Whole(size, items) => {
                        let mut out = Vec::with_capacity(items.len() + ITEM_BYTES);
                        renderer.list_head(&page.meta, size, &mut out)?;
                        out.extend_from_slice(&items);
                        renderer.list_tail(&mut out);
                        let charge = charge.map_err(Status::no_memory)?;
                        let out = charge.hold(out);
                        return Ok(respond_shared(StatusCode::OK, renderer.media_type(), out));
                    }
                    Measured::Size(all) => size = all,
                    Measured::Start(start, others) => {
                        drop(charge);
                        return Ok(Self::respond_early(renderer, page, start, *others));
                    }
                }
            }
        }
        let media_type = renderer.media_type();
        let (chunk, stream) = Self::begin(renderer, page, size, 0).await?;
        if stream.is_over() {
            return Ok(respond_shared(StatusCode::OK, media_type, chunk));
        }
        let first = futures_util::stream::iter([Ok(chunk)]);
        Ok(streamed(media_type, first.chain(stream.into_stream())))
    }

    /// Sends the bytes that precede the length of the list, measures the items after `start`, and then sends the items.
    fn respond_early(renderer: Renderer, page: Page, start: ListSize, others: Selected) -> Response {
        let media_type = renderer.media_type();
        let mut opening = Vec::new();
        renderer.list_opening(&mut opening);
        let sent = opening.len();
        let rest = async move {
            let mut size = start;
            parallel_render::measure(&renderer, others, page.items - start.items, &mut size).await?;
            Self::begin(renderer, page, size, sent).await
        };
        let rest = rest.map(|begun| match begun {
            Ok((chunk, stream)) => {
                futures_util::stream::iter([Ok(chunk)]).chain(stream.into_stream()).boxed()
            }
            Err(status) => {
                tracing::error!(error = %status, "list ended early");
                futures_util::stream::iter([Err(Aborted)]).boxed()
            }
        });
        let first = futures_util::stream::iter([Ok(Bytes::from(opening))]);
        streamed(media_type, first.chain(rest.flatten_stream()))
    }

    /// Returns the first chunk of a list and the stream of the other chunks. The first chunk is returned
    /// without its first `sent` bytes, because these bytes have been sent.
    async fn begin(
        mut renderer: Renderer,
        page: Page,
        size: ListSize,
        sent: usize,
    ) -> Result<(Bytes, ListStream), Status> {
        let charge = renderer.account().answer(CHUNK_BYTES + ITEM_BYTES).await.map_err(Status::no_memory)?;
        let mut buffer = Vec::with_capacity(ITEM_BYTES);
        renderer.list_head(&page.meta, size, &mut buffer)?;
        buffer.drain(..sent.min(buffer.len()));
        let objects = Some(page.objects());
        let indenter = renderer.is_pretty().then(Indenter::default);
        let mut stream = ListStream {
            renderer,
            objects,
            left: page.items,
            buffer,
            charge,
            waiting: None,
            stored: None,
            first: true,
            ahead: None,
            indenter,
        };
        stream.fill().await?;
        Ok((stream.take(), stream))
    }

    fn into_stream(self) -> impl Stream<Item = Result<Bytes, Aborted>> + Send {
        futures_util::stream::unfold(self, |mut stream| async move {
            let chunk = stream.next_chunk().await?;
            Some((chunk, stream))
        })
    }

    /// Returns the next bytes for the client, or `None` at the end.
    async fn next_chunk(&mut self) -> Option<Result<Bytes, Aborted>> {
        if let Some(stored) = self.stored.take() {
            return Some(Ok(stored));
        }
        if self.is_over() {
            return None;
        }
        self.go_ahead();
        if let Err(status) = self.fill().await {
            tracing::error!(error = %status, "list ended early");
            (self.objects, self.ahead) = (None, None);
            return Some(Err(Aborted));
        }
        match self.stored.take_if(|_| self.buffer.is_empty()) {
            Some(chunk) => Some(Ok(chunk)),
            None => Some(Ok(self.take())),
        }
    }

    /// Starts rendering the remaining items on several threads. Has no effect if stored bytes are copied, or if
    /// each item depends on the previous output (indentation).
    fn go_ahead(&mut self) {
        let is_made_here = self.renderer.is_as_stored() || self.indenter.is_some();
        if is_made_here || self.first || self.waiting.is_some() || self.ahead.is_some() {
            return;
        }
        let show = Arc::new(|renderer: &mut Renderer, stored: &[u8], out: &mut Vec<u8>| {
            renderer.list_item(stored, false, out)
        });
        self.ahead = ParallelRender::new(&self.renderer, &mut self.objects, self.left, show);
    }

    /// Continues a chunk until it is full or the list ends. At the end of the list, `objects` becomes `None`.
    async fn fill(&mut self) -> Result<(), Status> {
        if let Some(ahead) = &mut self.ahead {
            match ahead.next(&self.renderer).await? {
                Some(chunk) => self.stored = Some(chunk),
                None => {
                    self.ahead = None;
                    self.renderer.list_tail(&mut self.buffer);
                }
            }
            return Ok(());
        }
        if self.buffer.is_empty() {
            // Memory is charged only when the chunk is needed, so that a slow reader of the previous chunk does not
            // hold memory for this chunk.
            if self.charge.bytes() == 0 {
                let charge = self.renderer.account().answer(CHUNK_BYTES + ITEM_BYTES).await;
                self.charge = charge.map_err(Status::no_memory)?;
            }
            self.buffer.reserve(CHUNK_BYTES + ITEM_BYTES);
        }
        let chunk_bytes = if self.indenter.is_some() { PRETTY_CHUNK_BYTES } else { CHUNK_BYTES };
        let mut filling = ChunkFill::up_to(chunk_bytes);
        while filling.takes_more(self.buffer.len()) {
            if let Some(stored) = self.waiting.take() {
                return self.show_large(&stored).await;
            }
            let found = match &mut self.objects {
                Some(objects) if self.left > 0 => objects.next(Need::Objects(self.left)).await?,
                _ => None,
            };
            let Some(found) = found else {
                self.renderer.list_tail(&mut self.buffer);
                self.objects = None;
                return Ok(());
            };
            if matches!(found, SelectedItem::Pause) {
                tokio::task::yield_now().await;
                continue;
            }
            self.left -= 1;
            if found.record_bytes() >= LARGE_BYTES {
                let Some(stored) = found.read()? else { continue };
                let item = &stored.record.value;
                self.stored = self.renderer.list_item_stored(item, self.first, &mut self.buffer);
                if self.stored.is_none() {
                    self.waiting = Some(stored);
                    if self.buffer.is_empty() {
                        continue;
                    }
                    return Ok(());
                }
                self.first = false;
                return Ok(());
            }
            found.show(|stored| self.renderer.list_item(stored, self.first, &mut self.buffer))?;
            self.first = false;
        }
        Ok(())
    }

    /// Renders a chunk of one object, with its own charge.
    async fn show_large(&mut self, stored: &Stored) -> Result<(), Status> {
        let value = &stored.record.value;
        let needed = FORM_MULTIPLE * value.len();
        if needed > self.charge.bytes() {
            // The smaller charge is released first, so that two streams do not wait for each other's memory.
            drop(std::mem::take(&mut self.charge));
            self.charge = self.renderer.account().answer(needed).await.map_err(Status::no_memory)?;
        }
        self.renderer.list_item(value, self.first, &mut self.buffer)?;
        self.first = false;
        Ok(())
    }

    /// Returns whether the whole document was returned.
    fn is_over(&self) -> bool {
        self.objects.is_none() && self.stored.is_none() && self.ahead.is_none()
    }

    /// Takes the contents of the current chunk.
    fn take(&mut self) -> Bytes {
        let mut chunk = std::mem::take(&mut self.buffer);
        if chunk.capacity() > chunk.len() + ITEM_BYTES {
            // The buffer may be twice as large as its contents, because the buffer grew for a large item. The chunk may
            // wait for a slow reader, so release the unused memory.
            chunk.shrink_to_fit();
        }
        let charge = std::mem::take(&mut self.charge);
        let Some(indenter) = &mut self.indenter else { return charge.hold(chunk) };
        let mut indented = Vec::with_capacity(chunk.len() * 2);
        indenter.push(&chunk, &mut indented);
        charge.hold(indented)
    }
}

/// Returns a response whose body is sent while the server produces it.
fn streamed(
    media_type: &'static str,
    chunks: impl Stream<Item = Result<Bytes, Aborted>> + Send + 'static,
) -> Response {
    let mut response = http::Response::new(Body::stream(chunks));
    response.headers_mut().insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static(media_type));
    response
}
