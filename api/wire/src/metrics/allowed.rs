//! Lists of allowed values of metric labels, set by the operator: every other value is replaced by one fixed
//! value (docs/api/operations.md#metrics).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};

/// Replacement for values that are not allowed.
const UNEXPECTED: &str = "unexpected";

/// Allowed values by family and label.
#[derive(Debug, Default)]
pub struct Allowed {
    values: BTreeMap<String, BTreeMap<String, BTreeSet<String>>>,
    replaced: AtomicU64,
}

impl Allowed {
    /// Parses pairs of `family,label` and values separated by commas.
    ///
    /// # Errors
    /// The error is the first invalid key.
    pub fn parse<'p>(pairs: impl IntoIterator<Item = (&'p str, &'p str)>) -> Result<Allowed, String> {
        let mut allowed = Allowed::default();
        for (key, list) in pairs {
            let (family, label) = key
                .split_once(',')
                .filter(|(family, label)| is_family(family) && is_name(label, "_"))
                .ok_or_else(|| key.to_owned())?;
            let values = list.split(',').map(|value| value.trim_matches('\'').to_owned());
            let of_family = allowed.values.entry(family.to_owned()).or_default();
            of_family.entry(label.to_owned()).or_default().extend(values);
        }
        Ok(allowed)
    }

    /// Returns whether a label of the family is restricted to allowed values.
    pub fn is_about(&self, family: &str) -> bool {
        self.values.contains_key(family)
    }

    /// Returns how often a value was replaced.
    pub fn replaced(&self) -> u64 {
        self.replaced.load(Ordering::Relaxed)
    }

    /// Replaces each label value in `text` that is not allowed. `text` is the text between the braces.
    pub fn labels(&self, family: &str, text: &str) -> String {
        let Some(allowed) = self.values.get(family) else { return text.to_owned() };
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some((name, after)) = rest.split_once("=\"") {
            let end = value_end(after);
            let value = &after[..end];
            let fits = allowed.get(name).is_none_or(|values| values.contains(value));
            if !fits {
                self.replaced.fetch_add(1, Ordering::Relaxed);
            }
            let comma = if out.is_empty() { "" } else { "," };
            let _ = write!(out, "{comma}{name}=\"{}\"", if fits { value } else { UNEXPECTED });
            rest = after[end..].trim_start_matches('"').trim_start_matches(',');
        }
        out
    }
}

/// Returns the offset of the quote that ends a value: the first quote that is not escaped.
fn value_end(text: &str) -> usize {
    let mut escaped = false;
    text.bytes()
        .position(|byte| {
            let ends = byte == b'"' && !escaped;
            escaped = byte == b'\\' && !escaped;
            ends
        })
        .unwrap_or(text.len())
}

/// Returns whether a text can be the name of a family.
pub fn is_family(text: &str) -> bool {
    is_name(text, ":_")
}

/// Returns whether a name consists of letters, digits and characters of `marks`, and does not begin with a
/// digit.
fn is_name(text: &str, marks: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphabetic() || marks.contains(c);
    text.starts_with(fits) && text.chars().all(|c| fits(c) || c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::definition::Definition;
    use crate::metrics::definition::Stability;
    use crate::metrics::family::{Counters, Family};
    use crate::metrics::page::Page;

    #[test]
    fn label_values_that_are_not_allowed_are_added_up_as_unexpected() {
        let allowed = Allowed::parse([("things,a", "'x,y'")]).unwrap();
        let counters = Counters::new(Definition {
            name: "things",
            stability: Stability::Alpha,
            help: "Things.",
            labels: &["a", "b"],
        });
        for values in [["x", "1"], ["z", "1"], ["w\"", "1"], ["y", "2"]] {
            counters.count(&values);
        }
        let disabled = Default::default();
        let mut page = Page::new(&disabled).with_allowed(&allowed);
        counters.write(&mut page);
        assert_eq!(
            page.into_text(),
            "# HELP things [ALPHA] Things.\n# TYPE things counter\nthings{a=\"unexpected\",b=\"1\"} 2\n\
             things{a=\"x\",b=\"1\"} 1\nthings{a=\"y\",b=\"2\"} 1\n"
        );
        assert_eq!(allowed.replaced(), 2);
    }

    #[test]
    fn an_allow_list_key_is_a_family_and_a_label() {
        for (key, is_key) in
            [("a,b", true), ("a:b,c_1", true), ("a", false), ("a,b,c", false), ("1a,b", false), ("a,", false)]
        {
            assert_eq!(Allowed::parse([(key, "v")]).is_ok(), is_key, "{key}");
        }
    }
}
