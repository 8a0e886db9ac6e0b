//! The sizes of the chunks in which lists and watches are sent, and how far a chunk is filled with items, so that
//! it is sent in one piece.

use wire::server::PIECE_BYTES;

/// Number of bytes that are gathered before they are passed to the connection.
pub const CHUNK_BYTES: usize = PIECE_BYTES;

/// Additional space for the last item of a chunk: most items fit, a larger one makes the buffer grow.
pub const ITEM_BYTES: usize = 8 * 1024;

/// Size from which an object is sent by itself. An object in stored form is sent as a reference to the file;
/// an object in another encoding is sent as a chunk with its own charge.
pub const LARGE_BYTES: usize = ITEM_BYTES;

/// Maximum size of an object in another encoding, as a multiple of its stored form.
pub const FORM_MULTIPLE: usize = 4;

/// Decides whether a chunk takes another item: only if one as large as the last would fit.
pub struct Filling {
    limit_bytes: usize,
    /// Length of the chunk at the previous call; `None` before the first.
    before: Option<usize>,
}

impl Filling {
    /// Creates the state for a chunk of about `limit_bytes` at most.
    pub fn up_to(limit_bytes: usize) -> Filling {
        Filling { limit_bytes, before: None }
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
    use super::Filling;

    #[test]
    fn a_chunk_ends_before_an_item_as_large_as_the_last_would_not_fit() {
        for (limit, lens) in [
            (100, &[(0, true), (40, true), (80, false)][..]),
            (100, &[(0, true), (200, false)]),
            // A chunk that is not empty at the start, and an item of no bytes.
            (100, &[(90, true), (95, false), (95, true)]),
            (1, &[(0, true), (1, false)]),
            (100, &[(100, false)]),
        ] {
            let mut filling = Filling::up_to(limit);
            for (len, takes_more) in lens {
                assert_eq!(filling.takes_more(*len), *takes_more, "{limit} {lens:?}");
            }
        }
    }
}
