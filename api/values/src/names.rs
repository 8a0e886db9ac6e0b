//! Random parts of object identity: UIDs and generated names (docs/api/writes.md#generated-names).

use std::cell::RefCell;

/// Maximum length of the base of a generated name; base and suffix together fit into a label value.
const GENERATED_BASE_MAX: usize = 58;

/// Characters of the random suffix: no vowels and no characters that look alike.
const SUFFIX_ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// Returns a random UUID (version 4).
pub fn uid() -> String {
    let mut bytes = random::<16>();
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let mut text = String::with_capacity(36);
    for (at, byte) in bytes.iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push(char::from_digit(u32::from(byte >> 4), 16).unwrap_or('0'));
        text.push(char::from_digit(u32::from(byte & 15), 16).unwrap_or('0'));
    }
    text
}

/// Returns `base`, truncated if necessary, with five random characters appended.
pub fn generated(base: &str) -> String {
    let mut name = String::with_capacity(base.len() + 5);
    let cut =
        base.char_indices().map(|(at, c)| at + c.len_utf8()).take_while(|&end| end <= GENERATED_BASE_MAX);
    name.push_str(&base[..cut.last().unwrap_or(0)]);
    for byte in random::<5>() {
        // The 256 values of a byte are mapped to 27 characters. Therefore some characters are more
        // frequent than others, by less than one part in nine. Such a small difference is irrelevant here.
        name.push(char::from(SUFFIX_ALPHABET[usize::from(byte) % SUFFIX_ALPHABET.len()]));
    }
    name
}

/// Number of random bytes that are fetched at once. Every request needs random bytes, and a system call costs
/// a microsecond.
const POOL_BYTES: usize = 1024;

/// Random bytes of one thread; the first `left` bytes are unused.
struct Pool {
    bytes: [u8; POOL_BYTES],
    left: usize,
}

// Each thread keeps unused random bytes, because a system call for each name would take longer.
thread_local! {
    static POOL: RefCell<Pool> = const { RefCell::new(Pool { bytes: [0; POOL_BYTES], left: 0 }) };
}

/// Returns random bytes of the operating system. Each byte is returned only once.
pub fn random<const N: usize>() -> [u8; N] {
    const { assert!(N <= POOL_BYTES, "more than the pool holds") };
    POOL.with_borrow_mut(|pool| {
        if pool.left < N {
            let filled = getrandom::fill(&mut pool.bytes);
            filled.expect("the operating system's random source does not fail once the system is up");
            pool.left = POOL_BYTES;
        }
        pool.left -= N;
        let mut bytes = [0; N];
        // Used bytes are overwritten in the pool.
        bytes.swap_with_slice(&mut pool.bytes[pool.left..pool.left + N]);
        bytes
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uids_are_version_4_and_differ() {
        let (a, b) = (uid(), uid());
        assert_ne!(a, b);
        assert_eq!(a.len(), 36);
        assert_eq!(a.as_bytes()[14], b'4');
        assert!(matches!(a.as_bytes()[19], b'8' | b'9' | b'a' | b'b'), "{a}");
    }

    #[test]
    fn random_bytes_do_not_repeat() {
        // More bytes than a pool, so that the pool is refilled in between.
        let drawn: std::collections::HashSet<[u8; 16]> = (0..POOL_BYTES / 4).map(|_| random()).collect();
        assert_eq!(drawn.len(), POOL_BYTES / 4);
        assert!(!drawn.contains(&[0; 16]));
    }

    #[test]
    fn generated_names_never_exceed_63_bytes() {
        for base in ["web-", "", &"x".repeat(300), &"ä".repeat(40)] {
            let name = generated(base);
            assert!(name.len() <= 63 && name.len() >= 5, "{name}");
            assert!(name.bytes().rev().take(5).all(|b| SUFFIX_ALPHABET.contains(&b)));
        }
        assert!(generated("web-").starts_with("web-"));
    }
}
