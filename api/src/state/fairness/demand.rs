//! The demand of a level for seats, and the division of the server's seats by the demand of all levels
//! (docs/api/fairness.md#borrowing).

use std::time::Instant;

/// Share of the old average that remains after each period.
const KEPT: f64 = 0.977;

/// The number of wanted seats over time.
#[derive(Debug)]
pub struct Demand {
    since: Instant,
    at: Instant,
    value: f64,
    sum: f64,
    sum_of_squares: f64,
    highest: f64,
}

/// The number of wanted seats in a period.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Observed {
    /// Average demand over the period.
    pub average: f64,
    /// Standard deviation of the demand over the period.
    pub deviation: f64,
    /// Highest demand in the period.
    pub highest: f64,
}

/// The load of a level at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub executing: u32,
    pub waiting: u32,
    pub in_use: u32,
    pub limit: u32,
    /// Total number of requests that fit into the queues of the level.
    pub room: u64,
}

impl Demand {
    /// Returns a demand of 0 seats.
    pub fn new(now: Instant) -> Demand {
        Demand { since: now, at: now, value: 0.0, sum: 0.0, sum_of_squares: 0.0, highest: 0.0 }
    }

    /// Sets the number of seats that are wanted after `now`.
    pub fn set(&mut self, value: u32, now: Instant) {
        self.pass_time(now);
        self.value = f64::from(value);
        self.highest = self.highest.max(self.value);
    }

    /// Returns the statistics of the period, and begins a new period.
    pub fn take(&mut self, now: Instant) -> Observed {
        self.pass_time(now);
        let length = now.saturating_duration_since(self.since).as_secs_f64();
        let observed = if length > 0.0 {
            let average = self.sum / length;
            let variance = self.sum_of_squares / length - average * average;
            Observed { average, deviation: variance.max(0.0).sqrt(), highest: self.highest }
        } else {
            Observed { average: self.value, deviation: 0.0, highest: self.highest }
        };
        let value = self.value;
        *self = Demand { value, highest: value, ..Demand::new(now) };
        observed
    }

    fn pass_time(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.at = self.at.max(now);
        self.sum += self.value * passed;
        self.sum_of_squares += self.value * self.value * passed;
    }
}

/// Returns the smoothed demand of a level over many periods. The value rises immediately with the demand,
/// and falls slowly.
pub fn smooth(before: f64, observed: &Observed) -> f64 {
    let envelope = observed.average + observed.deviation;
    envelope.max(KEPT * before + (1.0 - KEPT) * envelope)
}

/// The entitlement of one level to seats.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Entitlement {
    /// Number of seats if no level lends or borrows.
    pub nominal: f64,
    /// Minimum number of seats when other levels borrow.
    pub least: f64,
    /// Maximum number of seats when the level borrows.
    pub most: f64,
}

/// Divides `total` seats among levels. Each element of the input is a level: its entitlement, its smoothed demand, and
/// its highest demand in the last period. Each level gets the same fraction of its demand, within its bounds.
pub fn divide(total: f64, levels: &[(Entitlement, f64, f64)]) -> Vec<u32> {
    let claims: Vec<(f64, f64, f64)> = levels
        .iter()
        .map(|(entitled, smoothed, highest)| {
            let lower = entitled.least.max(entitled.nominal.min(*highest));
            (lower, lower.max(*smoothed), entitled.most.max(lower))
        })
        .collect();
    let given =
        |fraction: f64| claims.iter().map(move |(low, want, high)| (want * fraction).clamp(*low, *high));
    // The sum grows with the fraction, so bisection finds the fraction.
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..64 {
        if given(high).sum::<f64>() >= total {
            break;
        }
        (low, high) = (high, high * 2.0);
    }
    for _ in 0..64 {
        let middle = f64::midpoint(low, high);
        if given(middle).sum::<f64>() > total {
            high = middle;
        } else {
            low = middle;
        }
    }
    given(low).map(|seats| seats.round() as u32).collect()
}
