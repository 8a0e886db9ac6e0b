//! Reads bytes as choices: every input gives an endless sequence.
//!
//! After its end, an input continues with zeros, so that targets build the smallest value and end.

/// The unread bytes of the input.
pub(crate) struct Input<'d>(&'d [u8]);

impl<'d> Input<'d> {
    /// Reads `data` from its start.
    pub fn new(data: &'d [u8]) -> Self {
        Input(data)
    }

    /// Returns whether the input is used up.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the next byte, or 0 at the end of the input.
    pub fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    /// Returns a number below `n`, or 0 at the end of the input; `n` must be at least 1. Reads one byte for
    /// small `n`, two otherwise.
    pub fn below(&mut self, n: usize) -> usize {
        let byte = usize::from(self.byte());
        if n <= 256 { byte % n } else { (byte << 8 | usize::from(self.byte())) % n }
    }

    /// Returns true once in `n` times on average, but never at the end of the input.
    pub fn one_in(&mut self, n: usize) -> bool {
        !self.is_empty() && self.below(n) == n - 1
    }

    /// Returns one of `choices`, or the first one at the end of the input.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    /// Returns a number from eight bytes, little-endian.
    pub fn u64(&mut self) -> u64 {
        (0..8).fold(0, |sum, at| sum | u64::from(self.byte()) << (8 * at))
    }

    /// Returns the next bytes, at most `n`.
    pub fn take(&mut self, n: usize) -> &'d [u8] {
        let (taken, rest) = self.0.split_at(n.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// Returns the bytes before the next zero byte, which is skipped, or all remaining bytes.
    pub fn section(&mut self) -> &'d [u8] {
        let end = self.0.iter().position(|&byte| byte == 0);
        let taken = self.take(end.unwrap_or(self.0.len()));
        self.take(1);
        taken
    }

    /// Returns all remaining bytes.
    pub fn rest(&mut self) -> &'d [u8] {
        self.take(self.0.len())
    }
}
