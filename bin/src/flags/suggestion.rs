//! Suggestions for mistyped words.

/// Minimum length of a word that may match a part of a candidate.
const PART_MIN: usize = 4;

/// Returns the closest candidate that differs from `word` by at most two typing errors. If no candidate is so
/// close, the result is the shortest candidate with `word` as a part between dashes: `secure-port` for
/// `port`.
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

/// Returns the number of edits that turn `a` into `b`. An edit adds, removes or replaces a letter, or swaps
/// two neighbouring letters.
fn distance(a: &str, b: &str) -> usize {
    // Candidates are short, so only the first letters of a long word are compared.
    let end = a.char_indices().nth(64).map_or(a.len(), |(at, _)| at);
    strsim::osa_distance(&a[..end], b)
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
            ("statsu", Some("stats")),
            ("bakcpu", Some("backup")),
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
            ("seucre-prot", Some("secure-port")),
        ] {
            assert_eq!(nearest(word, flags.into_iter()), want, "{word}");
        }
    }
}
