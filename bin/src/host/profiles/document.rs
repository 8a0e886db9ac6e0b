//! A profile in the format of pprof: `perftools.profiles.Profile` (github.com/google/pprof,
//! `proto/profile.proto`), compressed.

use std::collections::HashMap;
use std::io::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use api::state::debug::MemoryProfile;
use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message;

use super::cpu::{self, Samples};
use super::heap::{self, Amounts};
use super::names::Names;

#[derive(Clone, PartialEq, Message)]
pub struct PprofProfile {
    #[prost(message, repeated, tag = "1")]
    sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    sample: Vec<Sample>,
    #[prost(message, repeated, tag = "3")]
    mapping: Vec<Mapping>,
    #[prost(message, repeated, tag = "4")]
    location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    function: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    string_table: Vec<String>,
    #[prost(int64, tag = "9")]
    time_nanos: i64,
    #[prost(int64, tag = "10")]
    duration_nanos: i64,
    #[prost(message, optional, tag = "11")]
    period_type: Option<ValueType>,
    #[prost(int64, tag = "12")]
    period: i64,
    #[prost(int64, tag = "14")]
    default_sample_type: i64,
}

/// The kind and the unit of a value, as indexes in the table of strings.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct ValueType {
    #[prost(int64, tag = "1")]
    kind: i64,
    #[prost(int64, tag = "2")]
    unit: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct Sample {
    /// Frames of the stack, innermost first.
    #[prost(uint64, repeated, tag = "1")]
    location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    value: Vec<i64>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct Mapping {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(uint64, tag = "2")]
    memory_start: u64,
    #[prost(uint64, tag = "3")]
    memory_limit: u64,
    #[prost(uint64, tag = "4")]
    file_offset: u64,
    #[prost(int64, tag = "5")]
    filename: i64,
    #[prost(bool, tag = "7")]
    has_functions: bool,
}

#[derive(Clone, PartialEq, Message)]
pub struct Location {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(uint64, tag = "2")]
    mapping_id: u64,
    #[prost(uint64, tag = "3")]
    address: u64,
    #[prost(message, repeated, tag = "4")]
    line: Vec<Line>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct Line {
    #[prost(uint64, tag = "1")]
    function_id: u64,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct Function {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "2")]
    name: i64,
    #[prost(int64, tag = "3")]
    system_name: i64,
}

/// Encodes a processor profile that was taken for the time `length`.
pub fn of_processor(samples: &Samples, length: Duration) -> Vec<u8> {
    let period = nanoseconds(cpu::PERIOD);
    let mut document = Document::for_stacks(samples.keys().map(|stack| &**stack));
    document.values(&[("samples", "count"), ("cpu", "nanoseconds")], "cpu");
    document.period("cpu", "nanoseconds", period);
    document.profile.duration_nanos = nanoseconds(length);
    for (stack, &count) in samples {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        document.sample(stack, vec![count, count.saturating_mul(period)]);
    }
    document.compressed()
}

/// Encodes a heap profile, which has all allocations since the start and the memory in use.
pub fn of_memory(samples: &[(Box<[usize]>, Amounts)], selected: MemoryProfile) -> Vec<u8> {
    let mut document = Document::for_stacks(samples.iter().map(|(stack, _)| &**stack));
    let kinds = [
        ("alloc_objects", "count"),
        ("alloc_space", "bytes"),
        ("inuse_objects", "count"),
        ("inuse_space", "bytes"),
    ];
    let first = match selected {
        MemoryProfile::InUse => "inuse_space",
        MemoryProfile::Allocated => "alloc_space",
    };
    document.values(&kinds, first);
    document.period("space", "bytes", i64::try_from(heap::INTERVAL).unwrap_or(i64::MAX));
    for (stack, Amounts { allocated, freed }) in samples {
        let (blocks, bytes) = (allocated.blocks - freed.blocks, allocated.bytes - freed.bytes);
        let values = [allocated.blocks, allocated.bytes, blocks, bytes];
        // Clamp negative differences to 0: two sums of the same numbers in different orders may differ in
        // their last digits.
        document.sample(stack, values.map(|value| value.round().max(0.0) as i64).to_vec());
    }
    document.compressed()
}

fn nanoseconds(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}

/// A builder of a profile.
struct Document {
    profile: PprofProfile,
    strings: HashMap<String, i64>,
    locations: HashMap<usize, u64>,
    functions: HashMap<i64, u64>,
    names: Names,
}

impl Document {
    /// Creates a document without samples, with the names of all frames of these stacks.
    fn for_stacks<'s>(stacks: impl Iterator<Item = &'s [usize]>) -> Document {
        let names = Names::for_addresses(&stacks.flatten().copied().collect());
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let profile = PprofProfile { time_nanos: nanoseconds(time), ..PprofProfile::default() };
        let mut document = Document {
            profile,
            strings: HashMap::new(),
            locations: HashMap::new(),
            functions: HashMap::new(),
            names,
        };
        // The first string of the table must be empty.
        document.string("");
        let mappings = std::mem::take(&mut document.names.mappings);
        for (mapping, id) in mappings.iter().zip(1..) {
            let filename = document.string(&mapping.file);
            document.profile.mapping.push(Mapping {
                id,
                memory_start: mapping.start as u64,
                memory_limit: mapping.end as u64,
                file_offset: mapping.offset,
                filename,
                has_functions: true,
            });
        }
        document
    }

    fn string(&mut self, text: &str) -> i64 {
        if let Some(&at) = self.strings.get(text) {
            return at;
        }
        let at = self.profile.string_table.len() as i64;
        self.profile.string_table.push(text.to_owned());
        self.strings.insert(text.to_owned(), at);
        at
    }

    fn value_type(&mut self, kind: &str, unit: &str) -> ValueType {
        ValueType { kind: self.string(kind), unit: self.string(unit) }
    }

    /// Sets the kinds of values that each sample has. `first` is the default kind.
    fn values(&mut self, kinds: &[(&str, &str)], first: &str) {
        self.profile.sample_type = kinds.iter().map(|(kind, unit)| self.value_type(kind, unit)).collect();
        self.profile.default_sample_type = self.string(first);
    }

    fn period(&mut self, kind: &str, unit: &str, period: i64) {
        self.profile.period_type = Some(self.value_type(kind, unit));
        self.profile.period = period;
    }

    fn sample(&mut self, stack: &[usize], value: Vec<i64>) {
        let location_id = stack.iter().map(|&frame| self.location(frame)).collect();
        self.profile.sample.push(Sample { location_id, value });
    }

    fn location(&mut self, address: usize) -> u64 {
        if let Some(&id) = self.locations.get(&address) {
            return id;
        }
        let name = self.names.name(address).map(str::to_owned);
        let line = name.map(|name| Line { function_id: self.function(&name) });
        let id = self.profile.location.len() as u64 + 1;
        let address_in = address as u64;
        let within = |mapping: &&Mapping| (mapping.memory_start..mapping.memory_limit).contains(&address_in);
        let mapping_id = self.profile.mapping.iter().find(within).map_or(0, |mapping| mapping.id);
        let line = line.into_iter().collect();
        self.profile.location.push(Location { id, mapping_id, address: address_in, line });
        self.locations.insert(address, id);
        id
    }

    fn function(&mut self, name: &str) -> u64 {
        let name = self.string(name);
        let next = self.profile.function.len() as u64 + 1;
        let id = *self.functions.entry(name).or_insert(next);
        if id == next {
            self.profile.function.push(Function { id, name, system_name: name });
        }
        id
    }

    fn compressed(self) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        let written = encoder.write_all(&self.profile.encode_to_vec());
        written.and_then(|()| encoder.finish()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::read::GzDecoder;

    use super::heap::Amount;
    use super::*;

    fn read(document: &[u8]) -> PprofProfile {
        let mut bytes = Vec::new();
        GzDecoder::new(document).read_to_end(&mut bytes).unwrap();
        PprofProfile::decode(&*bytes).unwrap()
    }

    /// Returns the samples of a profile: the function names of each stack, and its values.
    fn sample_stacks(profile: &PprofProfile) -> Vec<(Vec<&str>, &[i64])> {
        let function = |id: u64| &profile.function[id as usize - 1];
        let name = |line: &Line| &*profile.string_table[function(line.function_id).name as usize];
        let frame = |&id: &u64| profile.location[id as usize - 1].line.first().map_or("?", name);
        profile.sample.iter().map(|it| (it.location_id.iter().map(frame).collect(), &*it.value)).collect()
    }

    #[test]
    fn profile_documents_have_names_values_and_mappings() {
        let here = profile_documents_have_names_values_and_mappings as *const () as usize;
        let profile = read(&of_processor(&Samples::from([([here, 1].into(), 3)]), Duration::from_secs(2)));
        let stacks = sample_stacks(&profile);
        assert!(stacks[0].0[0].ends_with("::profile_documents_have_names_values_and_mappings"), "{stacks:?}");
        assert_eq!((stacks[0].0[1], stacks[0].1), ("?", &[3, 30_000_000][..]));
        assert_eq!((profile.duration_nanos, profile.period), (2_000_000_000, 10_000_000));
        let mapping = &profile.mapping[profile.location[0].mapping_id as usize - 1];
        assert!((mapping.memory_start..mapping.memory_limit).contains(&(here as u64)));
        assert!(profile.string_table[mapping.filename as usize].starts_with('/'));

        let allocated = Amount { blocks: 4.0, bytes: 400.0 };
        let freed = Amount { blocks: 1.0, bytes: 100.0 };
        for (selected, first) in
            [(MemoryProfile::InUse, "inuse_space"), (MemoryProfile::Allocated, "alloc_space")]
        {
            let profile = read(&of_memory(&[([here].into(), Amounts { allocated, freed })], selected));
            assert_eq!(sample_stacks(&profile)[0].1, [4, 400, 3, 300]);
            assert_eq!(profile.string_table[profile.default_sample_type as usize], first);
        }
    }
}
