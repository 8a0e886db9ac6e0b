//! Decides how far a chunk is filled with items, so that it is sent in one piece.

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
