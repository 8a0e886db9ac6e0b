//! Finds a number in each event of a watch without parsing the event. An example is
//! `…"sent":"000000123456"…`.

use memchr::memmem::Finder;

/// A reader that finds the number after each occurrence of a text, in a stream of byte chunks of any size.
/// Such a text and the number after the text are called a mark.
pub struct Marks {
    text: Finder<'static>,
    /// The end of the last piece. A mark may begin in these bytes.
    carry: Vec<u8>,
    /// Number of marks so far.
    pub seen: u64,
}

impl Marks {
    /// Creates a reader of numbers after `text`, each followed by a quote.
    pub fn new(text: &'static str) -> Marks {
        Marks { text: Finder::new(text), carry: Vec::new(), seen: 0 }
    }

    /// Passes the numbers in the next piece to the callback.
    pub fn look(&mut self, piece: &[u8], each: impl FnMut(u64)) {
        if self.carry.is_empty() {
            let kept = self.find(piece, each);
            self.carry.extend_from_slice(&piece[kept..]);
        } else {
            let mut whole = std::mem::take(&mut self.carry);
            whole.extend_from_slice(piece);
            let kept = self.find(&whole, each);
            whole.drain(..kept);
            self.carry = whole;
        }
    }

    /// Returns the position from which bytes must be read again together with the next piece.
    fn find(&mut self, bytes: &[u8], mut each: impl FnMut(u64)) -> usize {
        let mark_bytes = self.text.needle().len();
        let mut at = 0;
        while let Some(found) = self.text.find(&bytes[at..]) {
            let start = at + found + mark_bytes;
            let Some(len) = memchr::memchr(b'"', &bytes[start..]) else { return at + found };
            let digits = &bytes[start..start + len];
            each(digits.iter().fold(0, |number, digit| number * 10 + u64::from(digit - b'0')));
            self.seen += 1;
            at = start + len;
        }
        // An event ends with a newline, and a mark does not contain a newline.
        if bytes.last() == Some(&b'\n') {
            bytes.len()
        } else {
            at.max(bytes.len().saturating_sub(mark_bytes - 1))
        }
    }
}
