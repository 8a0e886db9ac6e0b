//! Accounting of the memory that clients cause the server to allocate. Memory is charged before it is
//! allocated, and a request is refused when its budget is exhausted.
//!
//! ```text
//! request body ──► bodies ──► content as trees ──► work ──► response ──► connection's own allotment, then answers
//! ```
//!
//! A request charges three budgets (bodies, work, answers), always in this order, so that two requests cannot
//! deadlock. A fourth budget covers the state of the requests themselves; charges to it never wait. Each
//! budget has a share for small charges that large charges cannot use up. A request waits for a bounded time
//! and is then refused with 429. A response is charged until its last byte has left the buffers of the
//! process: the owner of the bytes holds the charge ([`Charge::hold`]). Bytes of the store's mapped files are
//! not charged.
//!
//! Documents that the server generates about itself (metrics, profiles, discovery) are charged before they
//! are generated, with the length of the last document of their kind ([`GeneratedDocument`]). Any other
//! response is charged as soon as it exists, before any wait. The charge for the state of a request covers
//! only a response of at most [`FREE_ANSWER_BYTES`].
//!
//! Every connection has an allotment of its own for responses, bodies and requests. A client that does not
//! read responses, or does not finish its requests, therefore cannot block other clients. The total is
//! [`TOTAL_BYTES`]. Each connection adds [`CONNECTION_BYTES`], [`CONNECTION_BODY_BYTES`],
//! [`CONNECTION_REQUESTS`] requests, and its window of unread request bytes.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::json::structures_in;

/// Budget of request bodies, from their first byte until they are decoded and written.
pub const BODIES_BYTES: usize = 64 * MIB;
/// Budget of decoded request content: trees, their versions before and after the change, and values derived
/// from them.
pub const WORK_BYTES: usize = 318 * MIB;
/// Budget of responses of other servers (webhooks, reviews, documents), from their first byte until they are
/// decoded.
pub const REPLIES_BYTES: usize = 66 * MIB;
/// Budget of responses, or parts of them, beyond the allotments of connections.
pub const ANSWERS_BYTES: usize = 64 * MIB;
/// Budget of request state beyond the requests that each connection may have by itself: head, user, unsent
/// data.
pub const REQUESTS_BYTES: usize = 96 * MIB;
/// Sum of all budgets of a server.
pub const TOTAL_BYTES: usize = BODIES_BYTES + WORK_BYTES + REPLIES_BYTES + ANSWERS_BYTES + REQUESTS_BYTES;

/// Charge for the state of one waiting request; the largest case is a client that does not read (measured:
/// 6.5 KiB).
pub const REQUEST_BYTES: usize = 8 * 1024;

/// Charge for a request that another server answers: the connection to that server, with received data that
/// was not yet passed on.
pub const RELAY_BYTES: usize = 64 * 1024;

/// Maximum length of a response that is covered by the state of its request ([`REQUEST_BYTES`]), such as the
/// error of a usual rejection.
pub const FREE_ANSWER_BYTES: usize = 1024;

/// Concurrent requests that each connection may have without a charge to the budget, so that clients with few
/// requests are served regardless of other clients.
pub const CONNECTION_REQUESTS: usize = 16;

/// Bytes of responses that each connection may hold without a charge to the budget: a chunk of a list (64 KiB
/// and the item that completes it).
pub const CONNECTION_BYTES: usize = 80 * 1024;

/// Bytes of request bodies that each connection may hold without a charge to the budget: one body that is not
/// large.
pub const CONNECTION_BODY_BYTES: usize = 64 * 1024;

/// Factor from the length of a body to the memory that its content may take. Two bytes (`0,` in JSON, an
/// empty entry in protobuf) become a value of 32 bytes. Values are in vectors that grow by doubling, and for
/// a moment the old vector exists together with the new one.
pub const WORK_MULTIPLE: usize = 48;

/// Number of structures (objects and lists) in the content of a request that [`WORK_MULTIPLE`] covers. Each
/// further structure is charged [`STRUCTURE_BYTES`].
pub const STRUCTURES_FREE: usize = 1000;

/// Charge for one structure, with its defaults, its share of the managed fields, and its text. An empty
/// container takes 0.9 KiB (measured).
pub const STRUCTURE_BYTES: usize = 1024;

/// Maximum time that a request waits for memory.
pub const WAIT: Duration = Duration::from_secs(10);

/// Seconds after which a refused request may be retried.
pub const RETRY_AFTER_S: u32 = 1;

/// Maximum number of structures in the content of one request. The charge for more structures would exceed
/// the share for large charges.
pub const STRUCTURES_MAX: usize = STRUCTURES_FREE + WORK_LARGE_BYTES / STRUCTURE_BYTES;

/// Share of [`WORK_BYTES`] for large charges.
const WORK_LARGE_BYTES: usize = WORK_BYTES - WORK_BYTES / 3;

const MIB: usize = 1024 * 1024;
/// Granularity of the accounting, in bytes.
const UNIT_BYTES: usize = 1024;

/// Reason why memory was refused.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum MemoryExhausted {
    /// The budget is in use; a retry can succeed.
    #[error("memory for requests is used up")]
    Busy,
    /// The request needs more than the budget for large requests; a retry cannot succeed.
    #[error("the request needs {needed} bytes of memory, and all requests may use {limit}")]
    Never {
        /// Bytes of memory that the request needs.
        needed: usize,
        /// Bytes that all large requests may use together.
        limit: usize,
    },
}

/// A budget with a share for small and a share for large charges.
#[derive(Debug)]
struct Pool {
    small: Arc<Semaphore>,
    large: Arc<Semaphore>,
    /// Maximum size of a charge that is taken from the memory reserved for small charges.
    small_bytes_max: usize,
    large_bytes: usize,
}

impl Pool {
    fn new(bytes: usize, small_bytes: usize, small_bytes_max: usize) -> Self {
        let semaphore = |bytes: usize| Arc::new(Semaphore::new(bytes / UNIT_BYTES));
        Pool {
            small: semaphore(small_bytes),
            large: semaphore(bytes - small_bytes),
            small_bytes_max,
            large_bytes: bytes - small_bytes,
        }
    }

    /// Returns the share that a charge of `bytes` belongs to.
    fn share(&self, bytes: usize) -> Result<&Arc<Semaphore>, MemoryExhausted> {
        match bytes {
            _ if bytes <= self.small_bytes_max => Ok(&self.small),
            _ if bytes <= self.large_bytes => Ok(&self.large),
            _ => Err(MemoryExhausted::Never { needed: bytes, limit: self.large_bytes }),
        }
    }

    fn try_charge(&self, bytes: usize) -> Result<Charge, MemoryExhausted> {
        let permit = self.share(bytes)?.clone().try_acquire_many_owned(units(bytes));
        permit.map(Charge::from_permit).map_err(|_| MemoryExhausted::Busy)
    }

    async fn charge(&self, bytes: usize) -> Result<Charge, MemoryExhausted> {
        let permit = self.share(bytes)?.clone().acquire_many_owned(units(bytes));
        match tokio::time::timeout(WAIT, permit).await {
            Ok(Ok(permit)) => Ok(Charge::from_permit(permit)),
            Ok(Err(_)) | Err(_) => Err(MemoryExhausted::Busy),
        }
    }

    fn free_bytes(&self) -> usize {
        (self.small.available_permits() + self.large.available_permits()) * UNIT_BYTES
    }
}

fn units(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX)
}

/// A kind of document that the server generates for each response.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum GeneratedDocument {
    /// Page of all metrics.
    Metrics,
    /// Page of the metrics of health checks.
    Indicators,
    /// Profiles of the process, and symbol names of its addresses.
    Profile,
    /// Dumps of flow control.
    FlowControl,
    /// Discovery of groups and resources.
    Discovery,
    /// Pages of flags, of state and of log directories.
    Page,
}

/// Number of kinds of documents.
const DOCUMENTS: usize = 6;

/// Expected length of the first document of each kind.
const FIRST_DOCUMENT_BYTES: usize = 64 * 1024;

/// Expected lengths of documents, indexed by kind.
#[derive(Debug)]
struct Lengths([AtomicUsize; DOCUMENTS]);

impl Default for Lengths {
    fn default() -> Self {
        Lengths(std::array::from_fn(|_| AtomicUsize::new(FIRST_DOCUMENT_BYTES)))
    }
}

impl Lengths {
    /// Returns the expected length: the length of the longest recent document, plus a quarter for growth
    /// since then.
    fn expected(&self, document: GeneratedDocument) -> usize {
        let last = self.0[document as usize].load(Ordering::Relaxed);
        last + last / 4
    }

    /// Records the length of a document. A shorter document lowers the expectation slowly, because the
    /// documents of one kind differ in length.
    fn note(&self, document: GeneratedDocument, bytes: usize) {
        let length = &self.0[document as usize];
        let last = length.load(Ordering::Relaxed);
        length.store(bytes.max(last - last / 8), Ordering::Relaxed);
    }
}

/// The memory budgets of a server.
#[derive(Debug)]
pub struct Memory {
    bodies: Pool,
    work: Pool,
    answers: Pool,
    requests: Pool,
    documents: Lengths,
}

impl Default for Memory {
    fn default() -> Self {
        Memory {
            bodies: Pool::new(BODIES_BYTES, BODIES_BYTES / 4, CONNECTION_BODY_BYTES),
            work: Pool::new(WORK_BYTES, WORK_BYTES - WORK_LARGE_BYTES, 64 * 1024 * WORK_MULTIPLE),
            answers: Pool::new(ANSWERS_BYTES, ANSWERS_BYTES / 2, CONNECTION_BYTES),
            requests: Pool::new(REQUESTS_BYTES, REQUESTS_BYTES, RELAY_BYTES),
            documents: Lengths::default(),
        }
    }
}

impl Memory {
    /// Charges the state of one more request of a connection. This function does not wait, because a waiting
    /// request would need the same memory.
    ///
    /// # Errors
    /// [`MemoryExhausted`] if no memory is free.
    pub fn request(&self, own: &Allotment) -> Result<Charge, MemoryExhausted> {
        match own.requests.clone().try_acquire_owned() {
            // A permit of a connection's allotment counts one request and is not part of the total.
            Ok(permit) => Ok(Charge::from_permit(permit)),
            Err(_) => self.requests.try_charge(REQUEST_BYTES),
        }
    }

    /// Charges the connection to another server that answers a request. Like [`request`](Self::request), this
    /// function does not wait.
    ///
    /// # Errors
    /// [`MemoryExhausted`] if no memory is free.
    pub fn relay(&self) -> Result<Charge, MemoryExhausted> {
        self.requests.try_charge(RELAY_BYTES)
    }

    /// Charges the content of a body, and the `stored_bytes` of the object that the request changes.
    ///
    /// # Errors
    /// [`MemoryExhausted`] if no memory became free in time.
    pub async fn work(&self, body_bytes: usize, stored_bytes: usize) -> Result<Charge, MemoryExhausted> {
        // The factor for stored text is only 8, because stored text gets no further defaults, and because
        // only its changed parts are decoded.
        let bytes = body_bytes.saturating_mul(WORK_MULTIPLE).saturating_add(stored_bytes.saturating_mul(8));
        self.work.charge(bytes.min(self.work.large_bytes)).await
    }

    /// Charges the structures of a request's content that exceed [`STRUCTURES_FREE`]. Does not wait.
    ///
    /// # Errors
    /// [`MemoryExhausted`] if no memory is free, or if the charge exceeds the share.
    pub fn structures(&self, count: usize) -> Result<Charge, MemoryExhausted> {
        match count.saturating_sub(STRUCTURES_FREE) {
            0 => Ok(Charge::default()),
            more => self.work.try_charge(more.saturating_mul(STRUCTURE_BYTES)),
        }
    }

    /// Refuses a JSON `text` with more than [`STRUCTURES_MAX`] structures before it is decoded. A text that
    /// is too short for so many structures is not read.
    ///
    /// # Errors
    /// [`MemoryExhausted::Never`] if there are too many structures.
    pub fn check_text(text: &[u8]) -> Result<(), MemoryExhausted> {
        // Each structure has an opening and a closing bracket.
        if text.len() < 2 * STRUCTURES_MAX {
            return Ok(());
        }
        Memory::check_structures(structures_in(text))
    }

    /// Performs the check of [`check_text`](Self::check_text) for content that is already a tree with `count`
    /// structures.
    ///
    /// # Errors
    /// [`MemoryExhausted::Never`] if there are too many structures.
    pub fn check_structures(count: usize) -> Result<(), MemoryExhausted> {
        match count {
            0..=STRUCTURES_MAX => Ok(()),
            more => Err(MemoryExhausted::Never {
                needed: (more - STRUCTURES_FREE).saturating_mul(STRUCTURE_BYTES),
                limit: WORK_LARGE_BYTES,
            }),
        }
    }

    /// Returns the bytes that are charged now, without the allotments of connections.
    pub fn charged_bytes(&self) -> usize {
        let pools = [&self.bodies, &self.work, &self.answers, &self.requests];
        let free: usize = pools.iter().map(|pool| pool.free_bytes()).sum();
        BODIES_BYTES + WORK_BYTES + ANSWERS_BYTES + REQUESTS_BYTES - free
    }
}

/// Budget of responses of other servers. The budget belongs to the process, because calls by the server's own
/// components have no client connection.
static REPLIES: LazyLock<Pool> =
    LazyLock::new(|| Pool::new(REPLIES_BYTES, REPLIES_BYTES / 4, CONNECTION_BODY_BYTES));

/// Charge for each value of a decoded response of another server: its node, its text, and a copy for the
/// caller.
const REPLY_VALUE_BYTES: usize = 128;

/// Charges `bytes` of a response of another server before they are read.
///
/// # Errors
/// [`MemoryExhausted`] if no memory became free in time, or if the response needs more than the budget has.
pub async fn reply(bytes: usize) -> Result<Charge, MemoryExhausted> {
    REPLIES.charge(bytes).await
}

/// Charges the decoded size of a response of another server, estimated from the number of separators in its
/// text.
///
/// # Errors
/// [`MemoryExhausted`] if no memory became free in time, or if the response needs more than the budget has.
pub async fn decoded_reply(text: &[u8]) -> Result<Charge, MemoryExhausted> {
    let separators = memchr::memchr3_iter(b',', b'{', b'[', text).count();
    // In YAML each line is a value.
    let lines = memchr::memchr_iter(b'\n', text).count();
    reply(2 * text.len() + REPLY_VALUE_BYTES * (separators + lines)).await
}

/// Returns the bytes that are charged now for responses of other servers.
pub fn charged_reply_bytes() -> usize {
    REPLIES_BYTES - REPLIES.free_bytes()
}

/// The part of the memory that belongs to one connection: responses, bodies and requests.
#[derive(Clone, Debug)]
pub struct Allotment {
    answers: Arc<Semaphore>,
    bodies: Arc<Semaphore>,
    requests: Arc<Semaphore>,
}

impl Default for Allotment {
    fn default() -> Self {
        Allotment {
            answers: Arc::new(Semaphore::new(CONNECTION_BYTES / UNIT_BYTES)),
            bodies: Arc::new(Semaphore::new(CONNECTION_BODY_BYTES / UNIT_BYTES)),
            requests: Arc::new(Semaphore::new(CONNECTION_REQUESTS)),
        }
    }
}

/// The account of one connection, to which its bodies and responses are charged.
#[derive(Clone, Debug)]
pub struct Account {
    memory: Arc<Memory>,
    own: Allotment,
}

impl Account {
    /// Creates the account of a connection with the allotment `own`.
    pub fn new(memory: Arc<Memory>, own: Allotment) -> Self {
        Account { memory, own }
    }

    /// Creates an account with budgets of its own that no other account shares.
    pub fn detached() -> Self {
        Account { memory: Arc::default(), own: Allotment::default() }
    }

    /// Returns the budgets of the server.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Charges `bytes` of a request body.
    ///
    /// # Errors
    /// [`MemoryExhausted`] if no memory became free in time, or if the request needs more than the budget
    /// has.
    pub async fn body(&self, bytes: usize) -> Result<Charge, MemoryExhausted> {
        charge(&self.own.bodies, CONNECTION_BODY_BYTES, &self.memory.bodies, bytes).await
    }

    /// Charges `bytes` of a response without waiting.
    ///
    /// # Errors
    /// [`MemoryExhausted`] if no memory is free, or if the response needs more than the budget has.
    pub fn try_answer(&self, bytes: usize) -> Result<Charge, MemoryExhausted> {
        try_charge(&self.own.answers, &self.memory.answers, bytes)
    }

    /// Charges a document before it is generated, and returns the charge with the expected length.
    ///
    /// # Errors
    /// [`MemoryExhausted`] if no memory became free in time.
    pub async fn document(&self, document: GeneratedDocument) -> Result<(Charge, usize), MemoryExhausted> {
        let expected = self.memory.documents.expected(document).min(self.memory.answers.large_bytes);
        Ok((self.answer(expected).await?, expected))
    }

    /// Adjusts the `charge` of a document after it was generated. A missing amount is charged without
    /// waiting, because the document already exists.
    ///
    /// # Errors
    /// [`MemoryExhausted`] if no memory is free for the missing amount.
    pub fn adjust(
        &self,
        document: GeneratedDocument,
        bytes: usize,
        charge: Charge,
    ) -> Result<Charge, MemoryExhausted> {
        self.memory.documents.note(document, bytes);
        match bytes.saturating_sub(charge.bytes()) {
            0 => Ok(charge),
            missing => Ok(charge.and(self.try_answer(missing)?)),
        }
    }

    /// Charges `bytes` of a response.
    ///
    /// # Errors
    /// [`MemoryExhausted`] if no memory became free in time, or if the response needs more than the budget
    /// has.
    pub async fn answer(&self, bytes: usize) -> Result<Charge, MemoryExhausted> {
        charge(&self.own.answers, CONNECTION_BYTES, &self.memory.answers, bytes).await
    }
}

/// Charges the allotment of the connection, or the budget if the allotment has no room. Does not wait.
fn try_charge(own: &Arc<Semaphore>, pool: &Pool, bytes: usize) -> Result<Charge, MemoryExhausted> {
    match own.clone().try_acquire_many_owned(units(bytes)) {
        Ok(permit) => Ok(Charge::from_permit(permit)),
        Err(_) => pool.try_charge(bytes),
    }
}

/// Charges the allotment of the connection or the budget, whichever has room first. `own_bytes` is the full
/// size of the allotment.
async fn charge(
    own: &Arc<Semaphore>,
    own_bytes: usize,
    pool: &Pool,
    bytes: usize,
) -> Result<Charge, MemoryExhausted> {
    match try_charge(own, pool, bytes) {
        Err(MemoryExhausted::Busy) => {}
        charge => return charge,
    }
    if bytes > own_bytes {
        return pool.charge(bytes).await;
    }
    let own = own.clone().acquire_many_owned(units(bytes));
    tokio::select! {
        biased;
        Ok(permit) = own => Ok(Charge::from_permit(permit)),
        charge = pool.charge(bytes) => charge,
    }
}

/// A charge that is released when this value is dropped. The charge belongs to one share or to two.
#[derive(Debug, Default)]
#[must_use]
pub struct Charge([Option<OwnedSemaphorePermit>; 2]);

impl Charge {
    fn from_permit(permit: OwnedSemaphorePermit) -> Self {
        Charge([Some(permit), None])
    }

    /// Returns the sum of this charge and `more`; each of the two must belong to a single share.
    pub fn and(self, more: Charge) -> Self {
        let ([first, _], [second, _]) = (self.0, more.0);
        Charge([first, second])
    }

    /// Returns the charged amount in bytes.
    pub fn bytes(&self) -> usize {
        self.0.iter().flatten().map(OwnedSemaphorePermit::num_permits).sum::<usize>() * UNIT_BYTES
    }

    /// Returns `bytes` with this charge attached until the last reference to the bytes is dropped. Releases
    /// the part of the charge that exceeds the length of the bytes.
    pub fn hold(mut self, bytes: impl Into<Bytes>) -> Bytes {
        let bytes = bytes.into();
        let mut spare = (self.bytes() / UNIT_BYTES).saturating_sub(units(bytes.len()) as usize);
        for permit in self.0.iter_mut().flatten() {
            let given_back = spare.min(permit.num_permits());
            drop(permit.split(given_back));
            spare -= given_back;
        }
        Bytes::from_owner(Held { bytes, _charge: self })
    }
}

/// Bytes together with their charge.
struct Held {
    bytes: Bytes,
    _charge: Charge,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_exhausted_memory_budget_still_accepts_small_requests() {
        let memory = Memory::default();
        let mut held = Vec::new();
        while let Ok(charge) = memory.bodies.charge(3 * MIB).await {
            held.push(charge);
        }
        assert_eq!(held.len() * 3 * MIB, BODIES_BYTES / 4 * 3);
        let small = memory.bodies.charge(1000).await.unwrap();
        assert!(memory.charged_bytes() <= TOTAL_BYTES);
        drop((held, small));
        assert_eq!(memory.charged_bytes(), 0);
        drop(memory.bodies.charge(3 * MIB).await.unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_reads_continues_while_others_exhaust_the_answer_budget() {
        let memory = Arc::new(Memory::default());
        let idle = Account::new(memory.clone(), Allotment::default());
        let mut kept = Vec::new();
        while let Ok(charge) = idle.answer(CONNECTION_BYTES).await {
            kept.push(charge.hold(vec![0; CONNECTION_BYTES]));
        }
        assert!(kept.len() * CONNECTION_BYTES <= ANSWERS_BYTES + CONNECTION_BYTES);
        let busy = Account::new(memory.clone(), Allotment::default());
        for _ in 0..1000 {
            drop(busy.answer(CONNECTION_BYTES).await.unwrap().hold(vec![0; 10]));
        }
        assert_eq!(
            busy.answer(2 * ANSWERS_BYTES).await.unwrap_err(),
            MemoryExhausted::Never { needed: 2 * ANSWERS_BYTES, limit: ANSWERS_BYTES / 2 }
        );
    }

    #[tokio::test(start_paused = true)]
    async fn endless_request_bodies_do_not_delay_those_of_other_connections() {
        let memory = Arc::new(Memory::default());
        let mut held = Vec::new();
        let endless = Account::new(memory.clone(), Allotment::default());
        while let Ok(charge) = endless.body(CONNECTION_BODY_BYTES).await {
            held.push(charge);
        }
        assert_eq!(held.len() * CONNECTION_BODY_BYTES, BODIES_BYTES / 4 + CONNECTION_BODY_BYTES);
        let other = Account::new(memory.clone(), Allotment::default());
        for bytes in [1, 1000, CONNECTION_BODY_BYTES] {
            let began = tokio::time::Instant::now();
            drop(other.body(bytes).await.unwrap());
            assert_eq!(began.elapsed(), Duration::ZERO, "{bytes}");
        }
        drop(other.body(3 * MIB).await.unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn a_generated_document_is_charged_in_advance_for_its_expected_length() {
        let memory = Arc::new(Memory::default());
        let connection = || Account::new(memory.clone(), Allotment::default());
        const BYTES: usize = 300 * 1024;
        // The first document is longer than expected.
        let account = connection();
        let (charge, expected) = account.document(GeneratedDocument::Metrics).await.unwrap();
        assert!(charge.bytes() >= expected && expected < BYTES);
        let mut kept =
            vec![account.adjust(GeneratedDocument::Metrics, BYTES, charge).unwrap().hold(vec![0; BYTES])];
        // Later documents are charged in full before they are generated, until the budget is exhausted.
        loop {
            let account = connection();
            let Ok((charge, expected)) = account.document(GeneratedDocument::Metrics).await else { break };
            assert!(expected >= BYTES && charge.bytes() >= expected);
            kept.push(
                account.adjust(GeneratedDocument::Metrics, BYTES, charge).unwrap().hold(vec![0; BYTES]),
            );
        }
        assert!(kept.len() * BYTES <= ANSWERS_BYTES, "{}", kept.len());
        // Documents of other kinds do not wait for the metrics, and the expected length decreases again after
        // shorter documents.
        drop(connection().document(GeneratedDocument::Page).await.unwrap());
        drop(kept);
        for _ in 0..100 {
            let (charge, _) = connection().document(GeneratedDocument::Metrics).await.unwrap();
            drop(connection().adjust(GeneratedDocument::Metrics, 1000, charge).unwrap());
        }
        assert!(connection().document(GeneratedDocument::Metrics).await.unwrap().1 < 4000);
        // A document that is longer than the free memory is refused.
        let (charge, _) = connection().document(GeneratedDocument::Profile).await.unwrap();
        assert!(connection().adjust(GeneratedDocument::Profile, 2 * ANSWERS_BYTES, charge).is_err());
    }

    #[tokio::test]
    async fn a_charge_has_the_size_and_lifetime_of_its_bytes() {
        let memory = Arc::new(Memory::default());
        let account = Account::new(memory.clone(), Allotment::default());
        let bytes = account.answer(200 * 1024).await.unwrap().hold(vec![1; 100 * 1024]);
        assert_eq!(memory.charged_bytes(), 100 * 1024);
        let part = bytes.slice(10..20);
        drop(bytes);
        assert_eq!(memory.charged_bytes(), 100 * 1024);
        drop(part);
        assert_eq!(memory.charged_bytes(), 0);
    }

    #[test]
    fn requests_in_memory_are_bounded_and_each_connection_has_a_reserved_share() {
        let memory = Memory::default();
        let greedy = Allotment::default();
        let mut held = Vec::new();
        while let Ok(charge) = memory.request(&greedy) {
            held.push(charge);
        }
        assert_eq!(held.len(), CONNECTION_REQUESTS + REQUESTS_BYTES / REQUEST_BYTES);
        assert_eq!(memory.charged_bytes(), REQUESTS_BYTES);
        let modest = Allotment::default();
        let own: Vec<Charge> = (0..CONNECTION_REQUESTS).map_while(|_| memory.request(&modest).ok()).collect();
        assert_eq!(own.len(), CONNECTION_REQUESTS);
        assert!(memory.request(&modest).is_err());
        drop((held, own));
        assert_eq!(memory.charged_bytes(), 0);
        drop(memory.request(&modest).unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn replies_of_other_servers_are_charged_for_their_decoded_size() {
        // A review with 100 000 groups.
        let groups = vec!["\"a-group-of-many\""; 100_000].join(",");
        let review = format!(r#"{{"status":{{"user":{{"groups":[{groups}]}}}}}}"#);
        let charge = decoded_reply(review.as_bytes()).await.unwrap();
        assert!(charge.bytes() > 100_000 * REPLY_VALUE_BYTES, "{}", charge.bytes());
        let mut held = vec![charge];
        while let Ok(charge) = decoded_reply(review.as_bytes()).await {
            held.push(charge);
        }
        assert!(held.iter().map(Charge::bytes).sum::<usize>() <= REPLIES_BYTES);
        assert!(held.len() < REPLIES_BYTES / (100_000 * REPLY_VALUE_BYTES));
        // A usual response still fits, and an object in a patch takes at most twice the length of its text.
        drop(decoded_reply(br#"{"status":{"allowed":true}}"#).await.unwrap());
        drop(held);
        let patch = format!(r#"{{"response":{{"patch":"{}"}}}}"#, "A".repeat(4 * MIB));
        assert!(decoded_reply(patch.as_bytes()).await.unwrap().bytes() < 9 * MIB);
        let bomb = "[".repeat(8 * MIB);
        assert!(matches!(decoded_reply(bomb.as_bytes()).await, Err(MemoryExhausted::Never { .. })));
    }

    #[test]
    fn structures_beyond_the_free_number_are_charged() {
        let memory = Memory::default();
        for (count, charged) in
            [(0, Ok(0)), (STRUCTURES_FREE, Ok(0)), (STRUCTURES_FREE + 10, Ok(10 * STRUCTURE_BYTES))]
        {
            assert_eq!(memory.structures(count).map(|charge| charge.bytes()), charged, "{count}");
        }
        assert!(matches!(memory.structures(900_000), Err(MemoryExhausted::Never { .. })));
    }
}
