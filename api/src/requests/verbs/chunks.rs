//! The sizes of the chunks in which lists and watches are sent, and the rule that decides when a chunk is full. The
//! connection sends each chunk in one piece.

use wire::server::PIECE_BYTES;

/// Number of bytes that are gathered before they are passed to the connection.
pub const CHUNK_BYTES: usize = PIECE_BYTES;

/// Additional space for the last item of a chunk. Most items fit into this space; the buffer grows for a larger
/// item.
pub const ITEM_BYTES: usize = 8 * 1024;

/// Minimum size of an object that is sent in a chunk of its own. An object in stored form is sent as a
/// reference to the file; an object in another encoding is sent as a chunk with its own charge.
pub const LARGE_BYTES: usize = ITEM_BYTES;

/// Maximum size of an object in another encoding, as a multiple of its stored form.
pub const FORM_MULTIPLE: usize = 4;

/// Decides whether a chunk takes another item. The chunk takes another item only if an item as large as the
/// last item would fit.
pub struct ChunkFill {
    limit_bytes: usize,
    /// Length of the chunk at the previous call; `None` before the first call.
    before: Option<usize>,
}

impl ChunkFill {
    /// Creates the state for a chunk of about `limit_bytes` at most.
    pub fn up_to(limit_bytes: usize) -> ChunkFill {
        ChunkFill { limit_bytes, before: None }
    }

    /// Returns whether a chunk of length `len` takes another item. The growth since the previous call is
    /// taken as the size of the last item; the first item fits into any chunk that is not full.
    pub fn takes_more(&mut self, len: usize) -> bool {
        let last = len.saturating_sub(self.before.unwrap_or(len));
        self.before = Some(len);
        len + last < self.limit_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::ChunkFill;

    #[test]
    fn a_chunk_ends_when_an_item_as_large_as_the_previous_one_would_not_fit() {
        for (limit, lens) in [
            (100, &[(0, true), (40, true), (80, false)][..]),
            (100, &[(0, true), (200, false)]),
            // A chunk that is not empty at the start, and an item without bytes.
            (100, &[(90, true), (95, false), (95, true)]),
            (1, &[(0, true), (1, false)]),
            (100, &[(100, false)]),
        ] {
            let mut filling = ChunkFill::up_to(limit);
            for (len, takes_more) in lens {
                assert_eq!(filling.takes_more(*len), *takes_more, "{limit} {lens:?}");
            }
        }
    }
}
