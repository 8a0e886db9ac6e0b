//! The account of memory that clients cause to be allocated: charged before it is allocated, refused when it is used up.
//!
//! ```text
//! request body ──► bodies ──► content as trees ──► work ──► answer ──► connection's own allotment, then answers
//! ```
//!
//! There are three budgets, and a request asks for them in this order only, so no two requests wait for each other for
//! ever. A fourth is for the state of the requests themselves, and nothing waits for that one. Each budget has a share for small charges, which large ones cannot use up. A request waits for a bounded time
//! and is then refused with 429. An answer is charged until its last byte has left the process's own buffers: the charge
//! lives in the owner of the bytes ([`Charge::hold`]). Bytes of the store's mapped files are not charged.
//!
//! Documents that the server makes of itself (metrics, profiles, discovery) are charged before they are made for the length
//! that the last one of their kind had ([`Document`]). Any other answer is charged as soon as it is there, before anything
//! waits; only answers of at most [`FREE_ANSWER_BYTES`] are part of the state of their request.
//!
//! Every connection has an allotment for answers, bodies and requests of its own, so clients that do not read, or do not end
//! what they send, cannot stop those that do. The total is [`TOTAL_BYTES`], and for each connection [`CONNECTION_BYTES`],
//! [`CONNECTION_BODY_BYTES`], [`CONNECTION_REQUESTS`] requests, and its window of unread request bytes.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::json::structures_in;

/// Request bodies, from their first byte until they are decoded and written.
pub const BODIES_BYTES: usize = 64 * MIB;
/// Content of requests in memory: trees, their versions before and after, and what is made of them.
pub const WORK_BYTES: usize = 318 * MIB;
/// Answers of other servers (webhooks, reviews, documents) from their first byte until they are decoded.
pub const REPLIES_BYTES: usize = 66 * MIB;
/// Answers and parts of answers beyond the allotments of connections.
pub const ANSWERS_BYTES: usize = 64 * MIB;
/// The state of requests beyond those that each connection has for itself: head, user, what is left to send.
pub const REQUESTS_BYTES: usize = 96 * MIB;
/// All of that together.
pub const TOTAL_BYTES: usize = BODIES_BYTES + WORK_BYTES + REPLIES_BYTES + ANSWERS_BYTES + REQUESTS_BYTES;

/// The state of one request that waits, for a peer that does not read most of all (measured: 6.5 KiB).
pub const REQUEST_BYTES: usize = 8 * 1024;

/// The state of one request that another server answers: its connection, with what it has received and not passed on.
pub const RELAY_BYTES: usize = 64 * 1024;

/// Longest answer that is covered by the state of its request ([`REQUEST_BYTES`]): the error of an ordinary refusal.
pub const FREE_ANSWER_BYTES: usize = 1024;

/// Requests at one time that each connection has for itself, so that clients with few of them are served whatever
/// others do.
pub const CONNECTION_REQUESTS: usize = 16;

/// What each connection may hold of answers besides: a chunk of a list (64 KiB and the item that completes it).
pub const CONNECTION_BYTES: usize = 80 * 1024;

/// What each connection may hold of request bodies besides: one of those that are not large.
pub const CONNECTION_BODY_BYTES: usize = 64 * 1024;

/// Memory that the content of a request may take, as a multiple of the body: two bytes (`0,` in JSON, an empty entry in
/// protobuf) become a value of 32 bytes, in vectors that grow by doubling, for a moment next to their older half.
pub const WORK_MULTIPLE: usize = 48;

/// Structures (objects and lists) of a request's content that are covered by [`WORK_MULTIPLE`]. Those beyond are charged
/// [`STRUCTURE_BYTES`] each.
pub const STRUCTURES_FREE: usize = 1000;

/// What a structure may come to with its defaults, its share of the managed fields, and its text: an empty container
/// has 0.9 KiB (measured).
pub const STRUCTURE_BYTES: usize = 1024;

/// How long a request waits for memory.
pub const WAIT: Duration = Duration::from_secs(10);

/// Seconds after which a refused request may try again.
pub const RETRY_AFTER_S: u32 = 1;

/// Structures that a content may have at all: more would be charged more than all large requests may use together.
pub const STRUCTURES_MAX: usize = STRUCTURES_FREE + WORK_LARGE_BYTES / STRUCTURE_BYTES;

/// The share of [`WORK_BYTES`] for large charges.
const WORK_LARGE_BYTES: usize = WORK_BYTES - WORK_BYTES / 3;

const MIB: usize = 1024 * 1024;
/// Unit of accounting.
const UNIT_BYTES: usize = 1024;

/// There was no memory in time.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Exhausted {
    /// Others use it: try again later.
    #[error("memory for requests is used up")]
    Busy,
    /// It is more than all requests may use together.
    #[error("the request needs {wanted} bytes of memory, and all requests may use {limit}")]
    Never {
        /// Bytes that the request needs.
        wanted: usize,
        /// Bytes that all large requests may use together.
        limit: usize,
    },
}

/// A budget, in two shares.
#[derive(Debug)]
struct Pool {
    small: Arc<Semaphore>,
    large: Arc<Semaphore>,
    /// Largest charge to the share of small ones.
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

    /// The share that a charge goes to.
    fn share(&self, bytes: usize) -> Result<&Arc<Semaphore>, Exhausted> {
        match bytes {
            _ if bytes <= self.small_bytes_max => Ok(&self.small),
            _ if bytes <= self.large_bytes => Ok(&self.large),
            _ => Err(Exhausted::Never { wanted: bytes, limit: self.large_bytes }),
        }
    }

    fn try_charge(&self, bytes: usize) -> Result<Charge, Exhausted> {
        let permit = self.share(bytes)?.clone().try_acquire_many_owned(units(bytes));
        permit.map(Charge::of).map_err(|_| Exhausted::Busy)
    }

    async fn charge(&self, bytes: usize) -> Result<Charge, Exhausted> {
        let permit = self.share(bytes)?.clone().acquire_many_owned(units(bytes));
        match tokio::time::timeout(WAIT, permit).await {
            Ok(Ok(permit)) => Ok(Charge::of(permit)),
            Ok(Err(_)) | Err(_) => Err(Exhausted::Busy),
        }
    }

    fn free_bytes(&self) -> usize {
        (self.small.available_permits() + self.large.available_permits()) * UNIT_BYTES
    }
}

fn units(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX)
}

/// A kind of document that the server makes anew for each answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Document {
    /// The page of all metrics.
    Metrics,
    /// The page of the metrics of health checks.
    Indicators,
    /// Profiles of the process, and names of its addresses.
    Profile,
    /// Dumps of flow control.
    FlowControl,
    /// Discovery of groups and resources.
    Discovery,
    /// Flags, state and log directories.
    Page,
}

/// The kinds of documents.
const DOCUMENTS: usize = 6;

/// Length that a document is expected to have before the first one of its kind was made.
const FIRST_DOCUMENT_BYTES: usize = 64 * 1024;

/// The lengths that documents are expected to have, by their kind.
#[derive(Debug)]
struct Lengths([AtomicUsize; DOCUMENTS]);

impl Default for Lengths {
    fn default() -> Self {
        Lengths(std::array::from_fn(|_| AtomicUsize::new(FIRST_DOCUMENT_BYTES)))
    }
}

impl Lengths {
    /// The expected length: that of the longest recent one, and a quarter for what has been added since.
    fn expected(&self, document: Document) -> usize {
        let last = self.0[document as usize].load(Ordering::Relaxed);
        last + last / 4
    }

    /// Notes the length of a document. A shorter one lowers the expectation slowly, because kinds have documents of several
    /// lengths.
    fn note(&self, document: Document, bytes: usize) {
        let length = &self.0[document as usize];
        let last = length.load(Ordering::Relaxed);
        length.store(bytes.max(last - last / 8), Ordering::Relaxed);
    }
}

/// The budgets of a server.
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
    /// Room for the state of one more request of a connection. Does not wait: that would need the room too.
    ///
    /// # Errors
    /// No memory is free.
    pub fn request(&self, own: &Allotment) -> Result<Charge, Exhausted> {
        match own.requests.clone().try_acquire_owned() {
            // One permit of a connection is one request, and not part of the total.
            Ok(permit) => Ok(Charge::of(permit)),
            Err(_) => self.requests.try_charge(REQUEST_BYTES),
        }
    }

    /// Room for the connection to another server that answers a request. Does not wait, as [`request`](Self::request).
    ///
    /// # Errors
    /// No memory is free.
    pub fn relay(&self) -> Result<Charge, Exhausted> {
        self.requests.try_charge(RELAY_BYTES)
    }

    /// Room for the content of a body, and of the `stored_bytes` of the object that it changes.
    ///
    /// # Errors
    /// No memory became free in time, or the request needs more than the budget has.
    pub async fn work(&self, body_bytes: usize, stored_bytes: usize) -> Result<Charge, Exhausted> {
        // Stored text has no structures that defaults could still be added to, and is read only where it changes.
        let bytes = body_bytes.saturating_mul(WORK_MULTIPLE).saturating_add(stored_bytes.saturating_mul(8));
        self.work.charge(bytes.min(self.work.large_bytes)).await
    }

    /// Room for the structures of a content, if they are more than its length stands for. Does not wait.
    ///
    /// # Errors
    /// There is none, or never can be.
    pub fn structures(&self, count: usize) -> Result<Charge, Exhausted> {
        match count.saturating_sub(STRUCTURES_FREE) {
            0 => Ok(Charge::default()),
            more => self.work.try_charge(more.saturating_mul(STRUCTURE_BYTES)),
        }
    }

    /// Refuses a content that has more structures than there may be, before they are made of `text` in JSON. A shorter text than
    /// so many need is not looked at.
    ///
    /// # Errors
    /// There never can be room for them.
    pub fn check_text(text: &[u8]) -> Result<(), Exhausted> {
        // Each has a beginning and an end.
        if text.len() < 2 * STRUCTURES_MAX {
            return Ok(());
        }
        Memory::check_structures(structures_in(text))
    }

    /// The same of a content that was read to a tree.
    ///
    /// # Errors
    /// There never can be room for them.
    pub fn check_structures(count: usize) -> Result<(), Exhausted> {
        match count {
            0..=STRUCTURES_MAX => Ok(()),
            more => Err(Exhausted::Never {
                wanted: (more - STRUCTURES_FREE).saturating_mul(STRUCTURE_BYTES),
                limit: WORK_LARGE_BYTES,
            }),
        }
    }

    /// Bytes charged at present, without the allotments of connections.
    pub fn charged_bytes(&self) -> usize {
        let pools = [&self.bodies, &self.work, &self.answers, &self.requests];
        let free: usize = pools.iter().map(|pool| pool.free_bytes()).sum();
        BODIES_BYTES + WORK_BYTES + ANSWERS_BYTES + REQUESTS_BYTES - free
    }
}

/// The budget of answers of other servers. It belongs to the process, because the calls of the server's own parts have no
/// connection of a client.
static REPLIES: LazyLock<Pool> =
    LazyLock::new(|| Pool::new(REPLIES_BYTES, REPLIES_BYTES / 4, CONNECTION_BODY_BYTES));

/// Bytes to charge for each value of an answer that is decoded: its node, a text of its own, and a copy for the caller.
const REPLY_VALUE_BYTES: usize = 128;

/// Room for bytes of an answer of another server before they are read.
///
/// # Errors
/// No memory became free in time, or the request needs more than the budget has.
pub async fn reply(bytes: usize) -> Result<Charge, Exhausted> {
    REPLIES.charge(bytes).await
}

/// Room for what an answer of another server comes to when it is decoded, which its separators tell.
///
/// # Errors
/// No memory became free in time, or the request needs more than the budget has.
pub async fn decoded_reply(text: &[u8]) -> Result<Charge, Exhausted> {
    let separators = memchr::memchr3_iter(b',', b'{', b'[', text).count();
    // In YAML each line is a value.
    let lines = memchr::memchr_iter(b'\n', text).count();
    reply(2 * text.len() + REPLY_VALUE_BYTES * (separators + lines)).await
}

/// Bytes that are charged for answers of other servers at present.
pub fn charged_reply_bytes() -> usize {
    REPLIES_BYTES - REPLIES.free_bytes()
}

/// What one connection holds of answers, of bodies and of requests.
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

/// Where the bodies and answers of a connection are charged.
#[derive(Clone, Debug)]
pub struct Account {
    memory: Arc<Memory>,
    own: Allotment,
}

impl Account {
    /// The account of a connection.
    pub fn new(memory: Arc<Memory>, own: Allotment) -> Self {
        Account { memory, own }
    }

    /// An account that nothing else is charged to.
    pub fn detached() -> Self {
        Account { memory: Arc::default(), own: Allotment::default() }
    }

    /// The budgets of the server.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Room for bytes of a request body.
    ///
    /// # Errors
    /// No memory became free in time, or the request needs more than the budget has.
    pub async fn body(&self, bytes: usize) -> Result<Charge, Exhausted> {
        charge(&self.own.bodies, CONNECTION_BODY_BYTES, &self.memory.bodies, bytes).await
    }

    /// Room for bytes of an answer, if there is some now.
    ///
    /// # Errors
    /// There is none, or never can be.
    pub fn try_answer(&self, bytes: usize) -> Result<Charge, Exhausted> {
        try_charge(&self.own.answers, &self.memory.answers, bytes)
    }

    /// Room for a document before it is made, and the length that it is expected to have.
    ///
    /// # Errors
    /// No memory became free in time.
    pub async fn document(&self, document: Document) -> Result<(Charge, usize), Exhausted> {
        let expected = self.memory.documents.expected(document).min(self.memory.answers.large_bytes);
        Ok((self.answer(expected).await?, expected))
    }

    /// Room for a document that was made, of which `charge` was taken before. What is missing is charged without waiting,
    /// because the document is there.
    ///
    /// # Errors
    /// There is no room for what is missing.
    pub fn made(&self, document: Document, bytes: usize, charge: Charge) -> Result<Charge, Exhausted> {
        self.memory.documents.note(document, bytes);
        match bytes.saturating_sub(charge.bytes()) {
            0 => Ok(charge),
            missing => Ok(charge.and(self.try_answer(missing)?)),
        }
    }

    /// Room for bytes of an answer.
    ///
    /// # Errors
    /// No memory became free in time, or the request needs more than the budget has.
    pub async fn answer(&self, bytes: usize) -> Result<Charge, Exhausted> {
        charge(&self.own.answers, CONNECTION_BYTES, &self.memory.answers, bytes).await
    }
}

/// Room in a connection's own allotment or else in a budget, if there is some now.
fn try_charge(own: &Arc<Semaphore>, pool: &Pool, bytes: usize) -> Result<Charge, Exhausted> {
    match own.clone().try_acquire_many_owned(units(bytes)) {
        Ok(permit) => Ok(Charge::of(permit)),
        Err(_) => pool.try_charge(bytes),
    }
}

/// The same, waited for in whichever has some first. The allotment has `own_bytes` when nothing is taken of it.
async fn charge(
    own: &Arc<Semaphore>,
    own_bytes: usize,
    pool: &Pool,
    bytes: usize,
) -> Result<Charge, Exhausted> {
    match try_charge(own, pool, bytes) {
        Err(Exhausted::Busy) => {}
        charge => return charge,
    }
    if bytes > own_bytes {
        return pool.charge(bytes).await;
    }
    let own = own.clone().acquire_many_owned(units(bytes));
    tokio::select! {
        biased;
        Ok(permit) = own => Ok(Charge::of(permit)),
        charge = pool.charge(bytes) => charge,
    }
}

/// Memory that is charged until this is dropped, to one share or to two.
#[derive(Debug, Default)]
#[must_use]
pub struct Charge([Option<OwnedSemaphorePermit>; 2]);

impl Charge {
    fn of(permit: OwnedSemaphorePermit) -> Self {
        Charge([Some(permit), None])
    }

    /// This, and what was charged for more of the same.
    pub fn and(self, more: Charge) -> Self {
        let ([first, _], [second, _]) = (self.0, more.0);
        Charge([first, second])
    }

    /// Bytes that are charged.
    pub fn bytes(&self) -> usize {
        self.0.iter().flatten().map(OwnedSemaphorePermit::num_permits).sum::<usize>() * UNIT_BYTES
    }

    /// The same bytes, charged until the last reference to them is gone. What they do not need is given back.
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

/// Bytes with their charge.
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
    async fn a_budget_that_is_used_up_refuses_after_a_bounded_wait_and_keeps_a_share_for_the_small() {
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
    async fn a_connection_that_reads_goes_on_beside_others_that_do_not() {
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
            Exhausted::Never { wanted: 2 * ANSWERS_BYTES, limit: ANSWERS_BYTES / 2 }
        );
    }

    #[tokio::test(start_paused = true)]
    async fn bodies_that_do_not_end_do_not_keep_those_of_other_connections_waiting() {
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
    async fn documents_are_charged_before_they_are_made_for_what_the_last_one_had() {
        let memory = Arc::new(Memory::default());
        let connection = || Account::new(memory.clone(), Allotment::default());
        const BYTES: usize = 300 * 1024;
        // The first one is longer than expected.
        let account = connection();
        let (charge, expected) = account.document(Document::Metrics).await.unwrap();
        assert!(charge.bytes() >= expected && expected < BYTES);
        let mut kept = vec![account.made(Document::Metrics, BYTES, charge).unwrap().hold(vec![0; BYTES])];
        // From then on there is room before it is made, until the budget is used up.
        loop {
            let account = connection();
            let Ok((charge, expected)) = account.document(Document::Metrics).await else { break };
            assert!(expected >= BYTES && charge.bytes() >= expected);
            kept.push(account.made(Document::Metrics, BYTES, charge).unwrap().hold(vec![0; BYTES]));
        }
        assert!(kept.len() * BYTES <= ANSWERS_BYTES, "{}", kept.len());
        // Other kinds do not wait for it, and the expectation follows the documents down again.
        drop(connection().document(Document::Page).await.unwrap());
        drop(kept);
        for _ in 0..100 {
            let (charge, _) = connection().document(Document::Metrics).await.unwrap();
            drop(connection().made(Document::Metrics, 1000, charge).unwrap());
        }
        assert!(connection().document(Document::Metrics).await.unwrap().1 < 4000);
        // A document that is longer than there is room for is refused.
        let (charge, _) = connection().document(Document::Profile).await.unwrap();
        assert!(connection().made(Document::Profile, 2 * ANSWERS_BYTES, charge).is_err());
    }

    #[tokio::test]
    async fn a_charge_lives_as_long_as_the_bytes_and_is_as_large_as_they_are() {
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
    fn requests_that_wait_are_bounded_and_each_connection_has_some_of_its_own() {
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
    async fn answers_of_other_servers_are_charged_by_what_they_become() {
        // A review with a hundred thousand groups.
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
        // An ordinary one still passes, and an object in a patch takes no more than its text twice.
        drop(decoded_reply(br#"{"status":{"allowed":true}}"#).await.unwrap());
        drop(held);
        let patch = format!(r#"{{"response":{{"patch":"{}"}}}}"#, "A".repeat(4 * MIB));
        assert!(decoded_reply(patch.as_bytes()).await.unwrap().bytes() < 9 * MIB);
        let bomb = "[".repeat(8 * MIB);
        assert!(matches!(decoded_reply(bomb.as_bytes()).await, Err(Exhausted::Never { .. })));
    }

    #[test]
    fn structures_beyond_what_the_length_stands_for_are_charged() {
        let memory = Memory::default();
        for (count, charged) in
            [(0, Ok(0)), (STRUCTURES_FREE, Ok(0)), (STRUCTURES_FREE + 10, Ok(10 * STRUCTURE_BYTES))]
        {
            assert_eq!(memory.structures(count).map(|charge| charge.bytes()), charged, "{count}");
        }
        assert!(matches!(memory.structures(900_000), Err(Exhausted::Never { .. })));
    }
}
