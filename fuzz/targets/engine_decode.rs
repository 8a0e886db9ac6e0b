//! Decoders: records, segments and checkpoints from any bytes, with checksums that always match.
//!
//! ```text
//! bytes ─► in place of the records, of a segment, of a checkpoint ─► open, read and follow everything, write
//! ```
//!
//! Whoever can write to the directory can compute checksums too; none of what he writes may end the process.

use engine::fault::{Disk, Sabotage, Sabotaged};

use super::engine_recovery::{check, sound};
use crate::input::Input;

/// Puts the bytes where a store keeps its own.
pub fn engine_decode(data: &[u8]) {
    let _any_checksum = Sabotaged::with(Sabotage::CrcIgnored);
    let mut input = Input::new(data);
    let mut files = sound().clone();
    let first = "0000000001.segment";
    let content = files.get_mut(first).expect("a store begins with its first segment");
    match input.below(4) {
        // A segment and nothing else: its records, or all of it.
        0 => {
            let at = 4096 + 8 * input.below(64);
            overwrite(content, at, input.rest());
            files.retain(|name, _| name == first);
        }
        1 => {
            overwrite(content, 0, input.rest());
            files.retain(|name, _| name == first);
        }
        // Somewhere in the log.
        2 => {
            let at = input.below(1 << 15);
            overwrite(content, at, input.rest());
        }
        _ => {
            let revision = input.below(200);
            files.insert(format!("{revision:020}.checkpoint"), input.rest().to_vec());
        }
    }
    check(&Disk::with_files(1, &files));
}

fn overwrite(content: &mut [u8], at: usize, bytes: &[u8]) {
    let at = at.min(content.len());
    let len = bytes.len().min(content.len() - at);
    content[at..at + len].copy_from_slice(&bytes[..len]);
}
