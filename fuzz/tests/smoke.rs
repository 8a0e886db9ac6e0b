//! Runs every target over its corpus and over seeded random input, as ordinary tests.
//!
//! ```text
//! corpus ─► run each ─┐
//!                     └─► pool ─► mutate: flip, insert words, cut, double, splice ─► run ─┐
//!                     random bytes ───────────────────────────────────────────────────► run ─► budget used up
//! ```
//!
//! Without coverage guidance these tests find failures near the corpus and regressions; cargo-fuzz does the
//! long runs. Each target has a budget of iterations, and of time because machines differ: the clock decides
//! only the number of inputs, never the inputs themselves. Environment:
//!
//! - `FUZZ_ITERATIONS`: inputs per target, without a time limit;
//! - `FUZZ_SECONDS`: seconds per target, without a limit of inputs;
//! - `FUZZ_SEED`: another sequence of inputs. A failure prints its seed and the file of its input.

use std::fs;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fuzz::{TARGETS, Target};

/// Default number of inputs per target.
const ITERATIONS: u64 = 20_000;

/// Default time per target.
const TIME: Duration = Duration::from_millis(1500);

/// Maximum length of generated inputs. The time of a target is about linear in the length; longer inputs are
/// for cargo-fuzz.
const INPUT_BYTES_MAX: usize = 4096;

/// Time after which an input fails, even on the slowest machine.
const INPUT_TIME_MAX: Duration = Duration::from_secs(20);

const SEED: u64 = 0x5eed_0000_f022_0001;

/// A xorshift generator with 64 bits.
struct Random(u64);

impl Random {
    /// Creates a generator that depends on the seed and the target's name.
    fn new(seed: u64, name: &str) -> Self {
        let hash = name.bytes().fold(seed ^ 0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        Random(hash.max(1))
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() >> 16) as usize % n.max(1)
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| (self.next() >> 24) as u8).collect()
    }

    /// Returns a random length, which is mostly short.
    fn len(&mut self) -> usize {
        let bits = self.below(10);
        self.below(2 << bits)
    }
}

fn number_from(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is {text:?} and must be a number")))
}

fn corpus_dir(target: &Target) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target.name)
}

/// Returns path and content of the corpus files, sorted by path.
fn corpus(target: &Target) -> Vec<(PathBuf, Vec<u8>)> {
    let entries = fs::read_dir(corpus_dir(target)).expect("every target has a corpus");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("a readable corpus").path()).collect();
    files.sort();
    let read = |path: PathBuf| {
        let content = fs::read(&path).expect("a readable corpus");
        (path, content)
    };
    files.into_iter().map(read).collect()
}

/// Returns an input from the pool with a few changes; occasionally random bytes.
fn mutated(pool: &[Vec<u8>], words: &[&str], random: &mut Random) -> Vec<u8> {
    let mut input = match random.below(8) {
        0 => {
            let len = random.len();
            random.bytes(len)
        }
        _ => pool[random.below(pool.len())].clone(),
    };
    for _ in 0..=random.below(6) {
        change(&mut input, pool, words, random);
    }
    input.truncate(INPUT_BYTES_MAX);
    input
}

fn change(input: &mut Vec<u8>, pool: &[Vec<u8>], words: &[&str], random: &mut Random) {
    let at = random.below(input.len() + 1);
    let to = at + random.below(input.len() - at + 1).min(random.len());
    match random.below(9) {
        0 if at < input.len() => input[at] ^= 1 << random.below(8),
        1 if at < input.len() => {
            input[at] = *[0, 1, 0x7f, 0x80, 0xff, b'0', b'"', b','].get(random.below(8)).unwrap_or(&0)
        }
        2 => {
            let len = random.len().min(64);
            let bytes = random.bytes(len);
            input.splice(at..at, bytes);
        }
        3 => {
            input.drain(at..to);
        }
        4 => {
            let piece = input[at..to].to_vec();
            input.splice(at..at, piece);
        }
        5 => {
            // Join the start of this input and the end of another.
            let other = &pool[random.below(pool.len())];
            input.truncate(at);
            input.extend_from_slice(&other[random.below(other.len() + 1)..]);
        }
        6 => {
            let digits = random.next().to_string();
            let len = 1 + random.below(digits.len());
            input.splice(at..at, digits.into_bytes().into_iter().take(len));
        }
        _ if !words.is_empty() => {
            let word = words[random.below(words.len())];
            input.splice(at..at, word.bytes());
        }
        _ => {
            let len = to - at;
            let bytes = random.bytes(len);
            input.splice(at..to, bytes);
        }
    }
}

/// Runs one input; a failure is reported with all information to repeat it.
fn try_one(target: &Target, input: &[u8], what: &str) {
    let begun = Instant::now();
    let failed = panic::catch_unwind(AssertUnwindSafe(|| (target.run)(input)));
    let slow = begun.elapsed() > INPUT_TIME_MAX;
    if failed.is_ok() && !slow {
        return;
    }
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}.input", target.name));
    let kept =
        fs::write(&path, input).map_or_else(|error| error.to_string(), |()| path.display().to_string());
    eprintln!("{}: {what}: {} bytes, kept in {kept}: {}", target.name, input.len(), input.escape_ascii());
    assert!(!slow, "{}: took {:?}", target.name, begun.elapsed());
    panic!("{}: see above", target.name);
}

fn smoke(name: &str) {
    let target = TARGETS.iter().find(|target| target.name == name).expect("a target of that name");
    let seed = number_from("FUZZ_SEED").unwrap_or(SEED);
    let (iterations, time) = match (number_from("FUZZ_ITERATIONS"), number_from("FUZZ_SECONDS")) {
        (None, None) => (ITERATIONS, TIME),
        (iterations, seconds) => {
            (iterations.unwrap_or(u64::MAX), seconds.map_or(Duration::MAX, Duration::from_secs))
        }
    };
    let begun = Instant::now();
    (target.run)(b"");
    let corpus = corpus(target);
    for (path, input) in &corpus {
        try_one(target, input, &path.display().to_string());
    }
    let pool: Vec<Vec<u8>> = corpus.into_iter().map(|(_, input)| input).collect();
    let mut random = Random::new(seed, name);
    let mut tried = 0;
    while tried < iterations && begun.elapsed() < time {
        let input = mutated(&pool, target.words, &mut random);
        try_one(target, &input, &format!("FUZZ_SEED={seed}, input {tried}"));
        tried += 1;
    }
    eprintln!("{name}: {tried} inputs in {:?}", begun.elapsed());
}

macro_rules! smoke {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            smoke(stringify!($name));
        })*

        const TESTED: &[&str] = &[$(stringify!($name)),*];
    };
}

smoke! {
    accept
    apply
    attributes
    cbor_item
    certificates
    continue_token
    credentials
    engine_decode
    engine_model
    engine_recovery
    expressions
    field_selector
    field_set
    json_text
    label_selector
    patch
    patch_round_trip
    printer_columns
    query
    request_path
    scalars
    schema_objects
    schema_text
    table
    token_file
    validate
    writes
    yaml_layout
    yaml_text
}

/// Checks that every target has a test here, a corpus and an entry point for cargo-fuzz, and that all tests,
/// corpora and entry points belong to a target.
#[test]
fn every_fuzz_target_has_a_test_a_corpus_and_an_entry_point() {
    let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
    assert_eq!(names, TESTED);
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let manifest = fs::read_to_string(root.join("cargo-fuzz/Cargo.toml")).unwrap();
    for name in &names {
        let entry = fs::read_to_string(root.join(format!("fuzz_targets/{name}.rs"))).unwrap();
        assert!(entry.contains(&format!("fuzz::{name}(data)")), "{name}");
        let bin = format!("name = \"{name}\"\npath = \"../fuzz_targets/{name}.rs\"");
        assert!(manifest.contains(&bin), "{name} is not a binary of cargo-fuzz");
    }
    for dir in ["corpus", "fuzz_targets"] {
        for entry in fs::read_dir(root.join(dir)).unwrap() {
            let path = entry.unwrap().path();
            let stem = path.file_stem().unwrap().to_string_lossy();
            assert!(names.contains(&&*stem), "{} belongs to no target", path.display());
        }
    }
    for target in TARGETS {
        assert!(!corpus(target).is_empty(), "{} has no corpus", target.name);
    }
}
