//! Lists of known exceptions with a count each. A count may decrease, but must not increase.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Reads a list with `<name> <number>` lines, where names may contain blanks, and compares it with the
/// numbers that were found. Returns each name whose number differs, with the reason.
/// `UPDATE_GOLDEN=1` lowers numbers in the list and removes names that were not found, but never adds a
/// name. Lines that begin with `#` and blank lines are kept.
///
/// The first version of a list is written by hand.
pub fn differences(list: &Path, head: &str, found: &BTreeMap<String, usize>) -> BTreeMap<String, String> {
    let text = fs::read_to_string(list).expect("the list can be read");
    assert!(text.starts_with(head), "{} begins with {head}", list.display());
    let mut allowed = BTreeMap::new();
    let mut updated = String::new();
    for line in text.lines() {
        if line.is_empty() || line.starts_with('#') {
            updated.push_str(&format!("{line}\n"));
            continue;
        }
        let (name, number) = line.rsplit_once(' ').expect("a line has a name and a number");
        let number: usize = number.parse().expect("a line ends with a number");
        let current = found.get(name).copied().unwrap_or(0);
        if current > 0 {
            updated.push_str(&format!("{name} {}\n", current.min(number)));
        }
        allowed.insert(name, number);
    }
    let is_updated = std::env::var_os("UPDATE_GOLDEN").is_some();
    if is_updated {
        fs::write(list, updated).expect("the list can be written");
    }
    let mut wrong = BTreeMap::new();
    for (name, number) in found {
        let limit = allowed.get(name.as_str()).copied().unwrap_or(0);
        if *number > limit {
            wrong.insert(name.clone(), format!("{number}, permitted are {limit}"));
        }
    }
    for (name, limit) in allowed {
        let current = found.get(name).copied().unwrap_or(0);
        if current < limit && !is_updated {
            wrong.insert(
                name.to_owned(),
                format!("{current}, the list says {limit}; run with UPDATE_GOLDEN=1"),
            );
        }
    }
    wrong
}
