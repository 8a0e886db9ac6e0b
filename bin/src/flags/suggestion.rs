//! Suggestions for mistyped words.

/// Shortest word that is looked for inside of candidates.
const PART_MIN: usize = 4;

/// Returns the closest candidate that differs from `word` in at most two letters, else the shortest one that contains
/// `word` between dashes: `secure-port` for `port`.
pub fn nearest<'c>(word: &str, candidates: impl Iterator<Item = &'c str>) -> Option<&'c str> {
    let candidates: Vec<&str> = candidates.collect();
    let near = candidates.iter().map(|candidate| (distance(word, candidate), *candidate));
    let nearest =
        near.filter(|(distance, candidate)| *distance <= 2 && *distance < candidate.len() / 2).min();
    nearest.map(|(_, candidate)| candidate).or_else(|| {
        let dashed = |text: &str| format!("-{text}-");
        let part = Some(dashed(word)).filter(|_| word.len() >= PART_MIN)?;
        let containing = candidates.iter().filter(|candidate| dashed(candidate).contains(&part));
        containing.min_by_key(|candidate| candidate.len()).copied()
    })
}

/// Returns the number of letters to add, remove or replace to turn `a` into `b` (Levenshtein distance).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    // Candidates are short, so only the first letters of a long word are compared.
    for (at, letter) in a.chars().take(64).enumerate() {
        let mut diagonal = row[0];
        row[0] = at + 1;
        for (column, other) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != *other);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(row[column] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistyped_words_are_recognised() {
        let commands = ["verify", "inspect", "stats", "backup", "restore", "compact"];
        for (word, want) in [
            ("verfy", Some("verify")),
            ("verifiy", Some("verify")),
            ("stat", Some("stats")),
            ("bakcup", Some("backup")),
            ("serve", None),
            ("", None),
            (&"x".repeat(100_000), None),
        ] {
            assert_eq!(nearest(word, commands.into_iter()), want, "{word:.10}");
        }
        let flags = ["kubelet-port", "secure-port", "tls-cert-file", "etcd-certfile"];
        for (word, want) in [
            ("port", Some("secure-port")),
            ("cert-file", Some("tls-cert-file")),
            ("tls", None),
            ("secure-prot", Some("secure-port")),
        ] {
            assert_eq!(nearest(word, flags.into_iter()), want, "{word}");
        }
    }
}
