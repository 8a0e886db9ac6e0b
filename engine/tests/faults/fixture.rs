//! A store on a simulated disk, with a user and with faults. A single seed determines the requests of the
//! user and the faults.
//!
//! `act ─► propose, take turns, read, follow ─► power loss ─► remaining files ─► open ─► compare ─► act …`

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use engine::fault::{self, Disk, Kind, Operation, Random, Stepper, Verdict};
use engine::{
    BloomScheme, CommitError, Committed, Durability, Engine, Event, Expected, Options, Refusal, Revision,
    Snapshot, SnapshotError,
};

use crate::damage;
use crate::history::{
    Checked, Content, Follower, Guarantee, Happened, History, Proposal, Violation, bloom_scheme, check,
    check_entry, news,
};

/// Rates of faults other than power losses. A rate of n means that one in n operations has the fault on
/// average; 0 means never.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rates {
    pub sync_fails: u64,
    pub write_fails: u64,
    /// The disk becomes full in the middle of a write, as on a file system that copies on write.
    pub write_full: u64,
    /// The disk has no room for some time.
    pub disk_full: u64,
    /// A read by the store itself fails; the next read of the same bytes succeeds.
    pub read_fails: u64,
}

impl Rates {
    fn any(&self) -> bool {
        let Rates { sync_fails, write_fails, write_full, disk_full, read_fails } = *self;
        sync_fails + write_fails + write_full + disk_full + read_fails > 0
    }
}

/// A power loss that never happens, for fixtures without power losses.
pub const NEVER: Option<(u64, Verdict)> = Some((u64::MAX, Verdict::Proceed));

/// Size of pieces, which is smaller than most records.
const PIECE_BYTES: usize = 100;

/// Parameters of a fixture.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    pub seed: u64,
    pub durability: Durability,
    pub segment_bytes: u64,
    /// Retention of history. Some writes have a time to live, unless history is kept forever.
    pub retention: Duration,
    pub rates: Rates,
    /// Whether files are sometimes damaged between two openings: redundant or dispensable data of the store,
    /// and copies of the store.
    pub damage: bool,
    /// The operation at which the power is lost, and whether that operation is still done. If `None`, the
    /// power is lost at random operations.
    pub cut: Option<(u64, Verdict)>,
    /// Number of operations after which the power is lost a second time, during opening; 0 means no second
    /// power loss.
    pub again: u64,
    /// Whether states have Bloom filters, of a kind that may change from one opening to the next.
    pub signs: bool,
    /// Whether background maintenance works as under many concurrent writes.
    pub pressed: bool,
    /// Whether batches are written in pieces while they grow, as large batches are.
    pub in_pieces: bool,
    /// Seed that decides which bytes and names remain after the cut, for fixtures that run identically up to
    /// the cut.
    pub fate: u64,
}

impl Setup {
    pub fn new(seed: u64) -> Setup {
        Setup {
            seed,
            durability: Durability::Sync,
            segment_bytes: 16 * 1024,
            retention: Duration::MAX,
            rates: Rates::default(),
            damage: false,
            signs: seed % 5 != 1,
            pressed: seed % 9 < 3,
            in_pieces: seed % 7 < 3,
            cut: None,
            again: 0,
            fate: 0,
        }
    }
}

type Answer = Pin<Box<dyn Future<Output = Result<Committed, CommitError>>>>;

pub struct Fixture {
    setup: Setup,
    random: Random,
    pub disk: Disk,
    running: Option<(Engine, Stepper)>,
    pub history: History,
    /// Proposals without an answer so far, in order.
    waiting: Vec<(Proposal, Answer)>,
    followers: Vec<Follower>,
    held: Vec<Snapshot>,
    /// The newest revision that was reported as durable.
    synced: Revision,
    proposals: u64,
    /// Revision of the checkpoint that opening must begin with.
    checkpoint: Revision,
    /// Whether the store is working. Reads fail only while the store is working.
    at_work: Arc<AtomicBool>,
    /// The Bloom filter scheme of the open store.
    bloom_scheme: BloomScheme,
    /// Number of openings, each after the store had stopped in some way.
    pub cycles: u64,
}

impl Fixture {
    /// Creates an empty disk with a store on it.
    pub fn new(setup: Setup) -> Checked<Fixture> {
        let mut fixture = Fixture {
            setup,
            random: Random::new(setup.seed),
            disk: Disk::new(setup.seed),
            running: None,
            history: History::default(),
            waiting: Vec::new(),
            followers: Vec::new(),
            held: Vec::new(),
            synced: Revision::ZERO,
            proposals: 0,
            checkpoint: Revision::ZERO,
            at_work: Arc::default(),
            bloom_scheme: BloomScheme::default(),
            cycles: 0,
        };
        fixture.plan();
        fixture.open(Revision::ZERO)?;
        Ok(fixture)
    }

    /// Sets the plan by which operations fail from now on.
    fn plan(&mut self) {
        let Setup { rates, cut, again, .. } = self.setup;
        let mut random = Random::new(self.random.next());
        let soon = self.disk.operations() + random.below(80);
        let after = if random.one_in(2) { Verdict::LosePower } else { Verdict::LosePowerAfter };
        let (at, how) = cut.unwrap_or((soon, after));
        let at_work = self.at_work.clone();
        self.disk.follow(move |operation: &Operation<'_>| {
            let mut happens = |rate: u64| rate > 0 && random.one_in(rate);
            match operation.kind {
                Kind::Read if at_work.load(Ordering::Relaxed) && happens(rates.read_fails) => Verdict::Fail,
                Kind::Read => Verdict::Proceed,
                _ if operation.number == at || again > 0 && operation.number == at + again => how,
                Kind::Sync | Kind::SyncDir if happens(rates.sync_fails) => Verdict::Fail,
                Kind::Write if happens(rates.write_full) => Verdict::Full,
                Kind::Write | Kind::Create if happens(rates.write_fails) => Verdict::Fail,
                _ => Verdict::Proceed,
            }
        });
    }

    pub fn engine(&self) -> &Engine {
        &self.running.as_ref().expect("it is open").0
    }

    /// Runs `turn` on the stepper. Reads may fail only during this call.
    fn work<T>(&mut self, turn: impl FnOnce(&mut Stepper) -> T) -> T {
        self.at_work.store(true, Ordering::Relaxed);
        let done = turn(&mut self.running.as_mut().expect("it is open").1);
        self.at_work.store(false, Ordering::Relaxed);
        done
    }

    /// Does one action of the user.
    pub fn act(&mut self) -> Checked {
        match self.random.below(100) {
            0..50 => {
                for _ in 0..=self.random.below(5) {
                    self.propose();
                }
                if !self.random.one_in(4) {
                    self.commit()?;
                }
            }
            50..60 => self.commit()?,
            60..68 => {
                self.work(Stepper::keep);
            }
            68..76 => self.maintain_for_a_while()?,
            76..80 => self.read()?,
            80..88 => self.follow()?,
            88..91 => {
                let snapshot = self.engine().snapshot();
                self.held.push(snapshot);
            }
            91..93 => {
                let rate = self.setup.rates.disk_full;
                if rate > 0 {
                    let full = self.random.one_in(rate);
                    let pages = full.then(|| self.random.below(4));
                    self.disk.limit_free_pages(pages);
                    self.history.refusals |= full;
                }
            }
            93..95 => self.close()?,
            95..97 if self.setup.cut.is_none() => self.disk.lose_power(),
            _ => self.commit()?,
        }
        if !self.disk.has_power() {
            self.crash()?;
        }
        Ok(())
    }

    /// Settles all requests, closes the store, opens it again and checks it.
    pub fn finish(&mut self) -> Checked {
        self.disk.limit_free_pages(None);
        self.disk.behave();
        self.commit()?;
        self.close()?;
        self.disk.behave();
        // The last operation of a successful opening may be the one at which the power is lost.
        while !self.disk.has_power() {
            self.crash()?;
            self.disk.behave();
        }
        self.outlive()?;
        for follower in &mut self.followers {
            while follower.seen < self.history.revision() {
                let before = follower.seen;
                follower.look(&self.history, 64)?;
                if follower.seen == before {
                    break;
                }
            }
        }
        (0..=self.history.revision().get())
            .rev()
            .step_by(7)
            .try_for_each(|revision| self.check_at(Revision::new(revision)))
    }

    /// Lets time pass until every key with a time to live has expired.
    fn outlive(&mut self) -> Checked {
        let lives = |happened: &Happened| happened.content.ttl.is_some();
        if !self.history.state(self.history.revision()).any(lives) {
            return Ok(());
        }
        self.disk.pass(Duration::from_secs(3_600));
        for _ in 0..50 {
            while self.maintain() {}
            self.commit()?;
        }
        let left = self.history.state(self.history.revision()).find(|happened| lives(happened));
        check(Guarantee::ExactVersion, left.is_none(), || format!("{left:?} is still there"))
    }

    /// Lets background maintenance take a turn, after which history older than the retention may be gone.
    fn maintain(&mut self) -> bool {
        let since = self.disk.time_ms().saturating_sub(self.setup.retention.as_millis() as u64);
        let old = match self.setup.retention {
            Duration::MAX => 0,
            Duration::ZERO => self.engine().revision().get(),
            _ => self.history.newest_at(since).get(),
        };
        self.history.forgettable = self.history.forgettable.max(Revision::new(old));
        self.work(Stepper::maintain)
    }

    /// Checks the states at a revision, or that the revision is compacted.
    fn check_at(&self, revision: Revision) -> Checked {
        match self.engine().snapshot_at(Revision::new(revision.get())) {
            Ok(snapshot) => self.history.check_snapshot(&snapshot),
            Err(error) => {
                let is_compacted = matches!(error, SnapshotError::Compacted { oldest } if revision < oldest);
                let allowed = is_compacted && revision < self.history.forgettable;
                check(Guarantee::ExactVersion, allowed, || format!("revision {revision}: {error}"))
            }
        }
    }

    /// Lets background maintenance work for some time. Meanwhile a caller may make a request, or time may
    /// pass.
    fn maintain_for_a_while(&mut self) -> Checked {
        if self.setup.retention < Duration::MAX {
            let engine = self.engine().clone();
            match self.random.below(8) {
                0 => {
                    let revision = self.random.below(engine.revision().next().get());
                    // The first poll makes the request; the caller does not wait for it.
                    if fault::now(engine.compact(Revision::new(revision))).is_none() {
                        self.history.forgettable = self.history.forgettable.max(Revision::new(revision));
                    }
                }
                1 => drop(fault::now(engine.checkpoint())),
                2..5 => {
                    let seconds = self.random.below(40);
                    self.disk.pass(Duration::from_secs(seconds));
                }
                _ => {}
            }
        }
        for _ in 0..self.random.below(20) {
            if !self.maintain() || self.random.one_in(4) {
                self.commit()?;
            }
        }
        self.checkpoint = Revision::new(self.engine().stats().checkpoint.get());
        let (oldest, allowed) = (self.engine().stats().oldest, self.history.forgettable);
        check(Guarantee::ExactVersion, oldest <= Revision::new(allowed.get()), || {
            format!("forgotten up to {oldest}, not {allowed}")
        })
    }

    /// Closes the store for the last time, and returns its history and files.
    pub fn end(mut self) -> Checked<(History, BTreeMap<String, Vec<u8>>)> {
        self.stop();
        if let Some((_, stepper)) = self.running.take() {
            stepper.close();
        }
        self.hear()?;
        Ok((self.history, self.disk.files()))
    }

    /// Cuts the power for the last time, and returns the known history and the remaining disk.
    pub fn cut_off(mut self, seed: u64) -> Checked<(History, Disk)> {
        self.hear()?;
        self.stop();
        self.running = None;
        self.disk.lose_power();
        self.disk.restore_power(seed);
        self.disk.behave();
        Ok((self.history, self.disk))
    }

    fn key(&mut self) -> Bytes {
        format!("/{}/{}", self.random.below(2), self.random.below(7)).into()
    }

    /// Returns contents of only a few different lengths, so that the remains of one write can be mistaken for
    /// a part of another write.
    fn content(&mut self) -> Content {
        self.proposals += 1;
        let id = format!("{:06}", self.proposals);
        let len = [8, 8, 8, 40, 700, 2_500][self.random.below(6) as usize];
        let value: String = id.chars().cycle().take(len).collect();
        let rest = self.random.one_in(3).then(|| Bytes::from(id.clone()));
        let lives = self.setup.retention < Duration::MAX && self.random.one_in(6);
        let ttl = lives.then(|| Duration::from_millis(self.random.below(60_000)));
        Content { attributes: id.into(), value: value.into(), rest, ttl }
    }

    fn propose(&mut self) {
        let key = self.key();
        let current = self.history.now(&key).map(|state| state.revision);
        let expected = match self.random.below(5) {
            0 => Expected::Absent,
            1 => {
                Expected::Revision(Revision::new(1 + self.random.below(self.history.revision().next().get())))
            }
            2 => current.map_or(Expected::Absent, Expected::Revision),
            _ => Expected::Any,
        };
        let deleting = self.random.one_in(5);
        let content = if deleting && self.random.one_in(2) { None } else { Some(self.content()) };
        let proposal = Proposal { key, expected, content, deleting, time_ms: 0 };
        let engine = self.engine().clone();
        let write = proposal.write();
        let mut answer: Answer = Box::pin(async move { engine.commit(write).await });
        // The first poll puts the write into the queue.
        let early = answer.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(early.is_pending(), "the sequencer has not worked: {early:?}");
        self.waiting.push((proposal, answer));
    }

    /// Lets the sequencer take a turn, and compares each answer with the expected one.
    fn commit(&mut self) -> Checked {
        self.work(Stepper::commit);
        self.hear()?;
        self.synced = self.synced.max(Revision::new(self.engine().stats().synced.get()));
        Ok(())
    }

    fn hear(&mut self) -> Checked {
        let now_ms = self.disk.time_ms();
        // The log also contains the writes of the store itself, for which no caller gets an answer.
        let mut news = match &self.running {
            Some((engine, _)) => VecDeque::from(news(engine, self.history.revision())?),
            None => VecDeque::new(),
        };
        let mut waiting = std::mem::take(&mut self.waiting).into_iter();
        for (mut proposal, mut answer) in waiting.by_ref() {
            match answer.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(outcome) => {
                    proposal.time_ms = now_ms;
                    self.answered(proposal, outcome, &mut news)?;
                }
                Poll::Pending => {
                    self.waiting.push((proposal, answer));
                    break;
                }
            }
        }
        self.waiting.extend(waiting);
        while self.expire(&mut news)? {}
        check(Guarantee::NoGhost, news.is_empty(), || format!("{news:?} was not asked for"))
    }

    /// Moves the next event from `news` to the history if the store wrote it without a request.
    fn expire(&mut self, news: &mut VecDeque<Arc<Event>>) -> Checked<bool> {
        let Some(event) = news.front() else { return Ok(false) };
        let now_ms = self.disk.time_ms();
        let expired = self.history.expire(event, now_ms, now_ms)?;
        if expired {
            news.pop_front();
        }
        Ok(expired)
    }

    fn answered(
        &mut self,
        proposal: Proposal,
        outcome: Result<Committed, CommitError>,
        news: &mut VecDeque<Arc<Event>>,
    ) -> Checked {
        let ours = |news: &VecDeque<Arc<Event>>, done: &Committed| {
            news.front().is_none_or(|event| event.revision >= done.revision)
        };
        match &outcome {
            Ok(done) => while !ours(news, done) && self.expire(news)? {},
            Err(CommitError::Conflict { current }) => {
                let current_revision = current.as_ref().map(|entry| entry.revision());
                let newest = |history: &History| history.now(&proposal.key).map(|state| state.revision);
                while newest(&self.history) != current_revision.map(Revision::get).map(Revision::new)
                    && self.expire(news)?
                {}
            }
            Err(_) => {}
        }
        let holds = self.history.holds(&proposal);
        match outcome {
            Ok(done) => {
                news.pop_front();
                check(Guarantee::ExactVersion, holds, || format!("{proposal:?} came true: {done:?}"))?;
                let next = self.history.revision().next();
                check(Guarantee::Ordered, done.revision == next, || format!("{done:?} instead of {next}"))?;
                check_entry(&done.entry, self.history.apply(&proposal))
            }
            Err(CommitError::Conflict { current }) => {
                let newest = self.history.now(&proposal.key).map(|state| state.revision);
                let current_revision = current.map(|entry| entry.revision());
                let right = !holds && current_revision == newest;
                check(Guarantee::ExactVersion, right, || {
                    format!("{proposal:?} met {current_revision:?}, and the state is {newest:?}")
                })
            }
            // The write never happened and never will.
            Err(CommitError::Refused(Refusal::DiskFull | Refusal::LogFailed { .. })) => Ok(()),
            Err(CommitError::Damaged(_)) if self.setup.rates.read_fails > 0 => Ok(()),
            Err(CommitError::OutcomeUnknown(_)) => {
                self.history.unknown.push_back(proposal);
                Ok(())
            }
            Err(error) => {
                let what = format!("{proposal:?}: {error}");
                Err(Violation { guarantee: Guarantee::Durable, what })
            }
        }
    }

    fn read(&mut self) -> Checked {
        let revision = self.random.below(self.history.revision().next().get());
        self.check_at(Revision::new(revision))?;
        self.history.check_snapshot(&self.engine().snapshot())?;
        self.check_filtered()?;
        self.held.iter().try_for_each(|held| self.history.check_snapshot(held))
    }

    fn check_filtered(&self) -> Checked {
        let all_have_blooms = self.setup.rates.read_fails == 0;
        self.history.check_filtered(&self.engine().snapshot(), self.bloom_scheme, all_have_blooms)
    }

    fn follow(&mut self) -> Checked {
        if self.followers.len() < 4 {
            let prefix = [&b""[..], b"/", b"/0", b"/1/3"][self.random.below(4) as usize];
            let seen = Revision::new(self.random.below(self.history.revision().next().get()));
            self.followers.push(Follower { tail: None, prefix: Bytes::from_static(prefix), seen });
        }
        let engine = &self.running.as_ref().expect("it is open").0;
        for follower in self.followers.iter_mut().filter(|follower| follower.tail.is_none()) {
            follower.resume(engine, &self.history)?;
        }
        let at = self.random.below(self.followers.len() as u64) as usize;
        let max = 1 + self.random.below(9) as usize;
        self.followers[at].look(&self.history, max)
    }

    /// Closes the store properly, and opens it again.
    fn close(&mut self) -> Checked {
        if self.setup.retention < Duration::MAX {
            // The records of keys that expire between the writes could not be looked up once the store is
            // closed.
            self.commit()?;
        }
        self.stop();
        if let Some((_, stepper)) = self.running.take() {
            stepper.close();
        }
        self.hear()?;
        if !self.disk.has_power() {
            return self.crash();
        }
        self.disk.restart();
        self.open(self.history.revision())
    }

    /// Opens the store after a power loss, or after the process was killed during its work.
    fn crash(&mut self) -> Checked {
        // Answers that were sent before the crash are valid.
        self.hear()?;
        self.stop();
        self.running = None;
        let time_ms = self.disk.time_ms();
        let unheard = std::mem::take(&mut self.waiting).into_iter();
        self.history.unknown.extend(unheard.map(|(proposal, _)| Proposal { time_ms, ..proposal }));
        let mut floor = self.history.revision();
        if self.random.one_in(4) {
            self.disk.restart();
        } else {
            self.disk.restore_power(self.random.next() ^ self.setup.fate);
            if self.setup.durability == Durability::Relaxed {
                floor = floor.min(self.synced);
            }
        }
        self.open(floor)
    }

    /// Drops all values that belong to the process of the store.
    fn stop(&mut self) {
        self.held.clear();
        self.followers.iter_mut().for_each(|follower| follower.tail = None);
    }

    /// Opens the store, with several attempts if the disk fails. Returns the revision up to which the store
    /// must have all revisions, and, if they are needed, the files that were found.
    fn open_engine(&mut self, mut floor: Revision) -> Checked<(Revision, BTreeMap<String, Vec<u8>>)> {
        let mut found = BTreeMap::new();
        for attempt in 0.. {
            if self.setup.damage {
                found = self.disk.files();
            }
            if self.setup.cut.is_none() {
                self.plan();
            }
            if attempt == 4 {
                self.disk.behave();
                self.disk.limit_free_pages(None);
            }
            if self.setup.signs {
                self.bloom_scheme = bloom_scheme([1, 0, 1, 2, 2][self.cycles as usize % 5]);
            }
            let options = Options {
                bloom_scheme: self.bloom_scheme,
                segment_bytes: self.setup.segment_bytes,
                durability: self.setup.durability,
                history_retention: self.setup.retention,
                ..Options::new("/simulated")
            };
            self.at_work.store(true, Ordering::Relaxed);
            let opened = fault::open(&self.disk, &options);
            self.at_work.store(false, Ordering::Relaxed);
            match opened {
                Ok((engine, mut stepper)) => {
                    if self.setup.in_pieces {
                        stepper.hand_over_in_pieces(PIECE_BYTES);
                    }
                    if self.setup.pressed {
                        stepper.assume_many_writers();
                    }
                    self.running = Some((engine, stepper));
                    break;
                }
                Err(_) if !self.disk.has_power() => {
                    self.cycles += 1;
                    self.disk.restore_power(self.random.next() ^ self.setup.fate);
                    if self.setup.durability == Durability::Relaxed {
                        floor = floor.min(self.synced);
                    }
                }
                Err(_) if attempt < 4 && self.setup.rates.any() => self.disk.restart(),
                Err(error) => {
                    let what = format!("the store does not open: {error}");
                    return Err(Violation { guarantee: Guarantee::Durable, what });
                }
            }
        }
        Ok((floor, found))
    }

    /// Opens the store, which must have at least all revisions up to `floor`, and compares it with the
    /// history.
    fn open(&mut self, floor: Revision) -> Checked {
        self.cycles += 1;
        if self.setup.damage && self.random.one_in(2) {
            self.damage_spares();
        }
        let (floor, found) = self.open_engine(floor)?;
        let newest = self.engine().revision();
        if newest < self.history.revision() && newest >= floor {
            // These revisions were acknowledged before they were durable, as relaxed durability allows.
            self.history.forget_after(Revision::new(newest.get()));
            self.history.unknown.clear();
            self.followers.retain(|follower| follower.seen <= Revision::new(newest.get()));
        }
        let engine = self.running.as_ref().expect("it was just opened").0.clone();
        self.history.learn(&engine, self.disk.time_ms())?;
        self.history.refusals = self.is_short_of_space() || self.setup.rates.read_fails > 0;
        self.synced = Revision::new(newest.get());
        self.history.check_snapshot(&engine.snapshot())?;
        self.check_filtered()?;
        let checkpoint = engine.stats().checkpoint;
        // On a full disk, room is more important than a fast opening, and a checkpoint that cannot be read is
        // useless.
        let excused = self.is_short_of_space() || self.setup.rates.read_fails > 0;
        let kept = checkpoint >= Revision::new(self.checkpoint.get()) || excused;
        check(Guarantee::QuickOpen, kept, || {
            format!("checkpoint {checkpoint} instead of {}", self.checkpoint)
        })?;
        let keys = engine.stats().keys;
        let expected = self.history.state(newest).count() as u64;
        check(Guarantee::ExactVersion, keys == expected, || format!("{keys} keys, not {expected}"))?;
        self.followers.iter_mut().try_for_each(|follower| follower.resume(&engine, &self.history))?;
        if self.setup.damage && self.random.one_in(2) {
            damage::check_copy(&found, &self.history, &mut self.random)?;
        }
        Ok(())
    }

    /// Damages redundant or dispensable data. The store must lose nothing; opening may only take longer.
    fn damage_spares(&mut self) {
        let files = self.disk.files();
        let random = &mut self.random;
        let how = random.below(4);
        if how < 3 {
            self.checkpoint = Revision::ZERO;
        }
        for name in files.keys().filter(|name| name.ends_with(".checkpoint")) {
            match how {
                0 => self.disk.take(name),
                1 => self
                    .disk
                    .damage(name, |bytes| bytes.truncate(random.below(bytes.len() as u64 + 1) as usize)),
                2 => self.disk.damage(name, |bytes| damage::flip_bit(bytes, random)),
                _ => {}
            }
        }
        for name in files.keys().filter(|name| how == 3 && damage::is_segment(name)) {
            // The damage is always on the same side of the block, so that the other copy stays sound.
            let side = 2048 * usize::from(name.as_bytes()[9] % 2);
            let part = if random.one_in(2) { side..side + 128 } else { side + 1024..side + 1056 };
            self.disk.damage(name, |bytes| damage::flip_bit(&mut bytes[part], random));
        }
    }

    fn is_short_of_space(&self) -> bool {
        self.setup.rates.write_full + self.setup.rates.disk_full > 0
    }
}

/// Runs a fixture for `acts` actions and returns the number of openings.
pub fn live(setup: Setup, acts: u64) -> Checked<u64> {
    let mut fixture = Fixture::new(setup)?;
    for _ in 0..acts {
        fixture.act()?;
    }
    fixture.finish()?;
    Ok(fixture.cycles)
}
