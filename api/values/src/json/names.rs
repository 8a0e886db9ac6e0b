//! Perfect hash tables for fixed sets of member names: a lookup costs one multiplication and one comparison.
//!
//! A table has several times more slots than names, and its multiplier is chosen so that no two names
//! collide.

/// A perfect hash table of names.
#[derive(Clone, Debug)]
pub struct Names {
    multiplier: u64,
    shift: u32,
    /// Positions of names by hash; empty if there are no names.
    slots: Vec<u16>,
}

const VACANT: u16 = u16::MAX;

/// Number of multipliers that are tried before the table is enlarged. The first few dozen multipliers nearly
/// always include a suitable multiplier.
const TRIES: u64 = 64;

/// Maximum number of names in a table. With more names, every multiplier causes a collision.
const NAMES_MAX: usize = 1 << 10;

/// Maximum number of slots of a table.
const SLOTS_MAX: usize = 1 << 16;

/// Maximum number of slots per name. A hostile author can choose names for which no table exists; this limit
/// keeps the work for such names proportional to their number.
const SLOTS_PER_NAME_MAX: usize = 64;

impl Names {
    /// Builds the table of `names`, each identified by its position. Returns `None` if some names have equal
    /// keys, or if there are too many names.
    pub fn new<'n>(names: impl Iterator<Item = &'n str> + Clone) -> Option<Self> {
        let count = names.clone().count();
        if count > NAMES_MAX {
            return None;
        }
        let mut slots = (count * 4).next_power_of_two().max(2);
        let most = (count * SLOTS_PER_NAME_MAX).next_power_of_two().clamp(64, SLOTS_MAX);
        while slots <= most {
            for attempt in 1..=TRIES {
                // The multipliers are odd multiples of the golden ratio, so that the upper bits of the
                // product depend on all lower bits.
                let multiplier = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(2 * attempt + 1);
                let mut table =
                    Names { multiplier, shift: 64 - slots.trailing_zeros(), slots: vec![VACANT; slots] };
                if names.clone().enumerate().all(|(at, name)| table.put(name, at as u16)) {
                    return Some(table);
                }
            }
            slots *= 2;
        }
        None
    }

    fn put(&mut self, name: &str, at: u16) -> bool {
        let slot = self.slot(name.as_bytes());
        let was_vacant = self.slots[slot] == VACANT;
        self.slots[slot] = at;
        was_vacant
    }

    /// Returns the only position whose name can equal `name`. The caller must compare the names.
    #[inline]
    pub fn candidate(&self, name: &[u8]) -> Option<u16> {
        let at = self.slots[self.slot(name)];
        (at != VACANT).then_some(at)
    }

    #[inline]
    fn slot(&self, name: &[u8]) -> usize {
        (key(name).wrapping_mul(self.multiplier) >> self.shift) as usize
    }
}

/// Combines the length and the first and last bytes of a name into one word.
#[inline]
fn key(name: &[u8]) -> u64 {
    let bytes = match (name.first_chunk::<8>(), name.last_chunk::<8>()) {
        (Some(head), Some(tail)) => u64::from_le_bytes(*head) ^ u64::from_le_bytes(*tail).rotate_left(29),
        _ => match (name.first_chunk::<4>(), name.last_chunk::<4>()) {
            (Some(head), Some(tail)) => {
                u64::from(u32::from_le_bytes(*head)) | u64::from(u32::from_le_bytes(*tail)) << 32
            }
            _ => name.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)),
        },
    };
    bytes.wrapping_add((name.len() as u64).wrapping_mul(0x0123_4567_89ab_cdef))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_table_refuses_duplicate_names_and_may_be_empty() {
        assert!(Names::new(["a", "b", "a"].into_iter()).is_none());
        let none = Names::new(std::iter::empty()).unwrap();
        assert_eq!(none.candidate(b""), None);
        assert_eq!(none.candidate(b"name"), None);
        let one = Names::new(["name"].into_iter()).unwrap();
        assert_eq!(one.candidate(b"name"), Some(0));
    }
}
