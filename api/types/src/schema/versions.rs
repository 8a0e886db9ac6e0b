//! Order of version names within a group, as clients prefer them.

use std::cmp::Ordering;

/// Orders versions as clients prefer them: stable before beta before alpha, higher numbers first, then every
/// other string in alphabetical order. `Less` means preferred.
///
/// ```text
/// v10 v2 v1 v11beta2 v10beta3 v3beta1 v12alpha1 v11alpha2 foo1 foo10
/// ```
pub fn compare_versions(a: &str, b: &str) -> Ordering {
    match (Stability::parse(a), Stability::parse(b)) {
        (Some(a), Some(b)) => b.cmp(&a),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => a.cmp(b),
    }
}

/// Level (2 stable, 1 beta, 0 alpha), major number, number within the level; the greater value is preferred.
#[derive(Eq, Ord, PartialEq, PartialOrd)]
struct Stability(u8, u64, u64);

impl Stability {
    fn parse(version: &str) -> Option<Stability> {
        let rest = version.strip_prefix('v')?;
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let major = number(&rest[..digits])?;
        match &rest[digits..] {
            "" => Some(Stability(2, major, 0)),
            level => {
                let (rank, minor) = match (level.strip_prefix("beta"), level.strip_prefix("alpha")) {
                    (Some(minor), _) => (1, minor),
                    (_, Some(minor)) => (0, minor),
                    _ => return None,
                };
                Some(Stability(rank, major, number(minor)?))
            }
        }
    }
}

/// Parses a positive number without leading zero, as version names require it.
fn number(digits: &str) -> Option<u64> {
    if digits.starts_with('0') || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_as_clients_prefer_them() {
        let want = "v10 v2 v1 v11beta2 v10beta3 v3beta1 v12alpha1 v11alpha2 foo1 foo10 v01 v1beta vx";
        let mut got: Vec<&str> = want.split(' ').rev().collect();
        got.sort_by(|a, b| compare_versions(a, b));
        assert_eq!(got.join(" "), want);
    }
}
