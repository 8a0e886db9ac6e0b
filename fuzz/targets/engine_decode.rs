//! Decoders of the engine: records, segments and checkpoints from any bytes, with matching checksums.
//!
//! ```text
//! bytes ─► in place of records, of a segment, of a checkpoint ─┐
//!       └► edits of all files of a store after maintenance ────┴► open, read and follow everything, write
//! ```
//!
//! An attacker who can write to the directory can compute checksums too, so no content may end the process.

use engine::fault::{Disk, Sabotage, Sabotaged};

use super::engine_recovery::{Files, check, looked_after, sound};
use crate::input::Input;

/// Maximum number of edits of one input.
const EDITS_MAX: usize = 24;

/// Name of the first segment of a store.
const FIRST: &str = "0000000001.segment";

/// Replaces bytes of a store by bytes of the input.
pub fn engine_decode(data: &[u8]) {
    let _any_checksum = Sabotaged::with(Sabotage::CrcIgnored);
    let mut input = Input::new(data);
    let kind = input.below(8);
    let mut files = if kind < 4 { sound().clone() } else { looked_after().clone() };
    match kind {
        // Keep a single segment, and replace its records, or all of it.
        0 => {
            let at = 4096 + 8 * input.below(64);
            overwrite(first_content(&mut files), at, input.rest());
            files.retain(|name, _| name == FIRST);
        }
        1 => {
            overwrite(first_content(&mut files), 0, input.rest());
            files.retain(|name, _| name == FIRST);
        }
        // Replace bytes at some position in the log.
        2 => {
            let at = input.below(1 << 15);
            overwrite(first_content(&mut files), at, input.rest());
        }
        3 => {
            let revision = input.below(200);
            files.insert(format!("{revision:020}.checkpoint"), input.rest().to_vec());
        }
        _ => edit(files.values_mut().collect(), &mut input),
    }
    check(&Disk::with_files(1, &files));
}

fn first_content(files: &mut Files) -> &mut Vec<u8> {
    files.get_mut(FIRST).expect("a store begins with its first segment")
}

/// Overwrites a few bytes at positions that have a meaning.
fn edit(mut files: Vec<&mut Vec<u8>>, input: &mut Input) {
    for _ in 0..EDITS_MAX {
        if input.is_empty() {
            break;
        }
        let file = input.below(files.len());
        let at = match input.below(4) {
            // Edit a header, or the footer of a segment.
            0 => input.below(128),
            1 => 1024 * (1 + input.below(3)) + input.below(128),
            // Edit the first records, or a checkpoint's segment list, and the bytes after it.
            2 => 4096 + input.below(256),
            _ => 4096 + 8 * input.below(1 << 12),
        };
        let len = 1 + input.below(16);
        overwrite(files[file], at, input.take(len));
    }
}

fn overwrite(content: &mut [u8], at: usize, bytes: &[u8]) {
    let at = at.min(content.len());
    let len = bytes.len().min(content.len() - at);
    content[at..at + len].copy_from_slice(&bytes[..len]);
}
