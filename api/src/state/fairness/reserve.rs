//! The reserved seats of a level, for flows with few running requests (docs/api/fairness.md#levels). A flow
//! that floods its level cannot use the reserved seats, so requests of other flows start at once and do not
//! wait until long requests end.
//!
//! This module depends only on seats and on hashes of flows. The reserve keeps only flows with running
//! requests, so the number of flows is at most the number of running requests.

use std::collections::HashMap;

/// Number of seats for which the level reserves one seat; a level with fewer seats has no reserve.
const PART: u32 = 8;

/// The reserved seats of a level, and the seats that each flow uses.
#[derive(Debug, Default)]
pub(super) struct Reserve {
    in_use: u32,
    /// Number of seats of each flow, including reserved seats.
    flows: HashMap<u64, u32>,
}

impl Reserve {
    /// Returns how many of a level's seats are reserved.
    pub(super) fn size(limit: u32) -> u32 {
        limit / PART
    }

    /// Returns how many reserved seats are in use.
    pub(super) fn in_use(&self) -> u32 {
        self.in_use
    }

    /// Returns the number of reserved seats that a request of a flow may take, if any. Enough reserved seats
    /// must be free, and with this request the flow may have at most half of the reserved seats. If the
    /// request needs more seats and its flow has no other request, the request gets half of the reserved
    /// seats: otherwise a large list could wait for minutes until a flood frees seats.
    pub(super) fn room(&self, limit: u32, flow: u64, seats: u32) -> Option<u32> {
        let size = Reserve::size(limit);
        let (half, under_way) = ((size / 2).max(1), self.under_way(flow));
        let seats = if under_way == 0 { seats.min(half) } else { seats };
        (self.in_use + seats <= size && under_way + seats <= half).then_some(seats)
    }

    /// Returns the number of seats that a flow uses.
    pub(super) fn under_way(&self, flow: u64) -> u32 {
        self.flows.get(&flow).copied().unwrap_or_default()
    }

    /// Records that a request of a flow begins, on reserved or other seats.
    pub(super) fn begin(&mut self, flow: u64, seats: u32, is_kept: bool) {
        *self.flows.entry(flow).or_default() += seats;
        if is_kept {
            self.in_use += seats;
        }
    }

    /// Records that a request of a flow ends.
    pub(super) fn end(&mut self, flow: u64, seats: u32, is_kept: bool) {
        if let Some(under_way) = self.flows.get_mut(&flow) {
            *under_way -= seats;
            if *under_way == 0 {
                self.flows.remove(&flow);
            }
        }
        if is_kept {
            self.in_use -= seats;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_seats_go_to_flows_with_few_requests_in_flight() {
        let (flood, one, other) = (1, 2, 3);
        let mut reserve = Reserve::default();
        reserve.begin(flood, 40, false);
        // A level with 49 seats reserves 6 seats. Each flow may use at most 3 of these seats.
        for (flow, seats, limit, want) in [
            (flood, 1, 49, None),
            (one, 3, 49, Some(3)),
            (one, 40, 49, Some(3)),
            (one, 1, 8, Some(1)),
            (one, 2, 8, Some(1)),
            (one, 1, 7, None),
        ] {
            assert_eq!(reserve.room(limit, flow, seats), want, "{flow} {seats} of {limit}");
        }
        reserve.begin(one, 2, true);
        assert_eq!(reserve.room(49, one, 2), None, "another one takes what it wants or waits");
        reserve.begin(one, 1, true);
        assert_eq!((reserve.room(49, one, 1), reserve.room(49, other, 3)), (None, Some(3)));
        reserve.begin(other, 3, true);
        assert_eq!(reserve.room(49, 4, 1), None, "all are taken");
        for (flow, seats, is_kept) in [(one, 2, true), (one, 1, true), (other, 3, true), (flood, 40, false)] {
            reserve.end(flow, seats, is_kept);
        }
        assert!(reserve.flows.is_empty() && reserve.in_use() == 0);
    }
}
