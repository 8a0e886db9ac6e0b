//! Reuse of cells between consecutive rows of similar objects: a cell is computed again only if the text of
//! its inputs has changed (docs/decisions/0016-every-representation-at-the-speed-of-json.md).
//!
//! ```text
//! columns ──► inputs: metadata.name, metadata.creationTimestamp, spec, status …    a set of inputs for each column
//! object  ──one pass──► texts of the inputs ──compared with the previous row──► unchanged cells · cells to compute
//! ```
//!
//! A cell is a function of its inputs and of the time to which ages refer. This time is the same for all
//! rows. Objects that are not in canonical form use the general path.

use std::ops::Range;

use smallvec::SmallVec;

use super::reads::Reads;
use values::json::scan::Scan;
use values::json::{Key, Object, Value};

/// Maximum number of inputs of a format; each input is a bit. A format with more inputs does not reuse cells.
const INPUTS_MAX: usize = 32;

/// Maximum length of a text that is kept for comparison, in bytes.
const TEXT_BYTES_MAX: usize = 8 * 1024;

/// Maximum number of members that no column reads, but whose texts are kept. If the text of such a member is
/// the same in the next row, the scan skips the member faster.
const SKIPPED_MAX: usize = 4;

/// Minimum length of the text of a member that no column reads, in bytes. Shorter texts are not kept.
const SKIPPED_BYTES_MIN: usize = 64;

/// The members that the columns of a format read.
#[derive(Debug, Default)]
pub(super) struct Inputs {
    list: Vec<Input>,
}

/// A member of the object, or of its metadata.
#[derive(Debug)]
struct Input {
    is_metadata: bool,
    name: String,
    /// Parts of the member that the columns read.
    reads: Reads,
}

/// A set of inputs, one bit each.
pub(super) type Mask = u32;

impl Inputs {
    /// Returns the inputs for the parts that `all` selects. The result is empty if `all` selects more than
    /// single members, or too many members.
    pub fn from_reads(all: &Reads) -> Inputs {
        let list: Option<Vec<Input>> = members_of(all).map(|members| {
            let input = |(is_metadata, name, reads): (bool, &str, &Reads)| Input {
                is_metadata,
                name: name.to_owned(),
                reads: reads.clone(),
            };
            members.into_iter().map(input).collect()
        });
        Inputs { list: list.filter(|list| list.len() <= INPUTS_MAX).unwrap_or_default() }
    }

    /// Returns the inputs that `reads` selects. `reads` must be a part of `all`. Returns `None` if `reads` selects more
    /// than single members, or a member that is not an input.
    pub fn mask(&self, reads: &Reads) -> Option<Mask> {
        members_of(reads)?.into_iter().try_fold(0, |mask, (is_metadata, name, _)| {
            let is_whole_metadata = !is_metadata && name == "metadata";
            let mut found = 0;
            for (at, input) in self.list.iter().enumerate() {
                let is_it = input.is_metadata == is_metadata && input.name == name
                    // Either the whole metadata is an input and this column reads a single member of the
                    // metadata, or a member is an input and the column reads the whole metadata.
                    || is_metadata && !input.is_metadata && input.name == "metadata"
                    || is_whole_metadata && input.is_metadata;
                found |= Mask::from(is_it) << at;
            }
            (found != 0).then_some(mask | found)
        })
    }

    /// Returns whether there are no inputs.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    fn position(&self, is_metadata: bool, name: &[u8]) -> Option<usize> {
        self.list.iter().position(|input| input.is_metadata == is_metadata && input.name.as_bytes() == name)
    }

    /// Returns whether single members of the metadata are inputs.
    fn has_metadata_members(&self) -> bool {
        self.list.iter().any(|input| input.is_metadata)
    }
}

/// Returns the selected members. The flag of a member is true if the member belongs to the metadata. Returns
/// `None` if `reads` selects the whole object or its size.
fn members_of(reads: &Reads) -> Option<Vec<(bool, &str, &Reads)>> {
    let mut members = Vec::new();
    for (name, below) in reads.single_members()? {
        match below.single_members() {
            Some(inner) if name == "metadata" => {
                members.extend(inner.map(|(name, reads)| (true, name, reads)));
            }
            _ => members.push((false, name, below)),
        }
    }
    Some(members)
}

/// Texts and cells of the previous row.
#[derive(Debug, Default)]
pub(super) struct PreviousRow {
    /// Text of each input; empty if the input was absent or its text is not kept.
    texts: Vec<Vec<u8>>,
    /// Inputs whose text is known, including absent inputs.
    known: Mask,
    /// Names and texts of members that no column reads.
    skipped: SmallVec<[(Vec<u8>, Vec<u8>); SKIPPED_MAX]>,
    /// Encoded cell of each column.
    pub cells: Vec<Vec<u8>>,
    /// Row conditions, as encoded after the cells.
    pub conditions: &'static str,
}

/// The positions of the inputs in an object's text.
pub(super) struct InputPositions {
    /// Range of the text of each input, empty if the input is absent. The ranges after the inputs belong to
    /// members that no column reads, but whose texts are kept for the next row.
    ranges: SmallVec<[Range<usize>; 12]>,
    /// Inputs that differ from the previous row.
    pub changed: Mask,
    /// Range of the metadata.
    pub metadata: Range<usize>,
    /// Range of the resourceVersion; empty if the resourceVersion is absent, or if the members of the metadata are not
    /// scanned.
    resource_version: Range<usize>,
}

impl PreviousRow {
    /// Scans an object and compares its inputs with the inputs of the previous row. Returns `None` if the
    /// object is not in canonical form.
    pub fn locate(&mut self, inputs: &Inputs, stored: &[u8]) -> Option<InputPositions> {
        self.texts.resize_with(inputs.list.len(), Vec::new);
        let mut positions =
            InputPositions { ranges: SmallVec::new(), changed: 0, metadata: 0..0, resource_version: 0..0 };
        positions.ranges.resize(inputs.list.len(), 0..0);
        let mut seen: Mask = 0;
        let mut same: Mask = 0;
        let mut scan = Scan::new(stored);
        if !scan.take(b'{') {
            return None;
        }
        loop {
            let name = scan.name().filter(|name| !name.is_escaped)?.raw;
            let start = scan.position();
            let is_metadata = name == b"metadata";
            if is_metadata && (positions.metadata.end > 0 || scan.peek() != b'{') {
                return None;
            }
            if is_metadata && inputs.has_metadata_members() {
                scan.take(b'{');
                if !scan.take(b'}') {
                    loop {
                        let name = scan.name().filter(|name| !name.is_escaped)?.raw;
                        let at = inputs.position(true, name);
                        let start = scan.position();
                        self.member(at, name, &mut scan, &mut positions, &mut seen, &mut same)?;
                        if name == b"resourceVersion" {
                            positions.resource_version = start..scan.position();
                        }
                        if !scan.more(b'}')? {
                            scan.take(b'}');
                            break;
                        }
                    }
                }
                positions.metadata = start..scan.position();
            } else {
                let at = inputs.position(false, name);
                self.member(at, name, &mut scan, &mut positions, &mut seen, &mut same)?;
                if is_metadata {
                    positions.metadata = start..scan.position();
                }
            }
            if !scan.more(b'}')? {
                break;
            }
        }
        if !scan.take(b'}') || !scan.is_at_end() || positions.metadata.end == 0 {
            return None;
        }
        for (at, text) in self.texts.iter().enumerate() {
            // The input is absent, as in the previous row.
            let is_absent = seen >> at & 1 == 0 && self.known >> at & 1 == 1 && text.is_empty();
            same |= Mask::from(is_absent) << at;
        }
        positions.changed = !same & all(inputs.list.len());
        Some(positions)
    }

    /// Scans the value of one member.
    fn member(
        &self,
        at: Option<usize>,
        name: &[u8],
        scan: &mut Scan<'_>,
        positions: &mut InputPositions,
        seen: &mut Mask,
        same: &mut Mask,
    ) -> Option<()> {
        let before = match at {
            Some(at) => Some(&self.texts[at]),
            None => self.skipped.iter().find(|(skipped, _)| skipped == name).map(|(_, text)| text),
        };
        let start = scan.position();
        // Texts of these types end with their closing delimiter, regardless of the next byte.
        let is_whole = |text: &Vec<u8>| matches!(text.first(), Some(b'{' | b'[' | b'"'));
        let is_same = before.is_some_and(|text| is_whole(text) && scan.rest().starts_with(text));
        let value_len = match before {
            Some(text) if is_same => {
                scan.skip(text.len());
                text.len()
            }
            _ => scan.value()?.len(),
        };
        if let Some(at) = at {
            if *seen >> at & 1 == 1 {
                return None;
            }
            *seen |= 1 << at;
            *same |= Mask::from(is_same) << at;
            positions.ranges[at] = start..start + value_len;
        } else if !is_same && value_len >= SKIPPED_BYTES_MIN {
            positions.ranges.push(start..start + value_len);
        }
        Some(())
    }

    /// Stores the changed texts for the comparison with the next row. For a member that no column reads, the
    /// name is taken from the text before the value.
    pub fn keep(&mut self, inputs: &Inputs, positions: &InputPositions, stored: &[u8]) {
        for (at, text) in self.texts.iter_mut().enumerate() {
            if positions.changed >> at & 1 == 0 {
                continue;
            }
            let new = stored.get(positions.ranges[at].clone()).unwrap_or_default();
            text.clear();
            let is_kept = new.len() <= TEXT_BYTES_MAX;
            if is_kept {
                text.extend_from_slice(new);
            }
            self.known = self.known & !(1 << at) | Mask::from(is_kept) << at;
        }
        for range in &positions.ranges[inputs.list.len()..] {
            let name = name_before(stored, range.start);
            let new = &stored[range.clone()];
            if new.len() > TEXT_BYTES_MAX {
                continue;
            }
            if let Some((_, text)) = self.skipped.iter_mut().find(|(skipped, _)| skipped == name) {
                text.clear();
                text.extend_from_slice(new);
            } else if self.skipped.len() < SKIPPED_MAX {
                self.skipped.push((name.to_vec(), new.to_vec()));
            }
        }
    }

    /// Discards the previous row.
    pub fn forget(&mut self) {
        self.known = 0;
        self.texts.iter_mut().for_each(Vec::clear);
    }
}

impl InputPositions {
    /// Returns the resourceVersion; `None` if the resourceVersion is not a string without escapes.
    pub fn resource_version<'s>(&self, stored: &'s [u8]) -> Option<&'s str> {
        let text = stored.get(self.resource_version.clone())?;
        let text = text.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
        std::str::from_utf8(text).ok().filter(|text| !text.contains('\\'))
    }

    /// Returns the tree of the parts that columns read from the inputs `selected`; `None` if a text is not in
    /// canonical form.
    pub fn tree(&self, inputs: &Inputs, selected: Mask, stored: &[u8]) -> Option<Value> {
        let (mut members, mut metadata) = (Vec::new(), Vec::new());
        for (at, input) in inputs.list.iter().enumerate() {
            let text = stored.get(self.ranges[at].clone()).unwrap_or_default();
            if selected >> at & 1 == 0 || text.is_empty() {
                continue;
            }
            let to = if input.is_metadata { &mut metadata } else { &mut members };
            to.push((
                Key::Owned(input.name.clone()),
                input.reads.select_from(text, 1 + usize::from(input.is_metadata))?,
            ));
        }
        if !metadata.is_empty() {
            let metadata: Object = metadata.into_iter().collect();
            members.push((Key::Borrowed("metadata"), Value::Object(metadata)));
        }
        Some(Value::Object(members.into_iter().collect()))
    }
}

/// Returns the name of the member whose value starts at `start`, from the text `"name":` before it.
fn name_before(stored: &[u8], start: usize) -> &[u8] {
    let before = stored.get(..start).and_then(|text| text.strip_suffix(b"\":")).unwrap_or_default();
    let begin = memchr::memrchr(b'"', before).map_or(before.len(), |at| at + 1);
    &before[begin..]
}

/// Returns a mask with the lowest `count` bits set.
pub(super) fn all(count: usize) -> Mask {
    if count >= INPUTS_MAX { Mask::MAX } else { (1 << count) - 1 }
}
