//! Joining of several errors into one text, as in kube-apiserver.

use std::collections::HashSet;
use std::fmt::Display;

/// Joins the texts of errors in order, without duplicates. A single text is returned unchanged; several texts
/// become `[a, b]`. Returns `None` if there are no errors.
pub fn join_errors<E: Display>(errors: impl IntoIterator<Item = E>) -> Option<String> {
    let mut seen = HashSet::new();
    let texts = errors.into_iter().map(|error| error.to_string());
    let mut texts: Vec<String> = texts.filter(|text| seen.insert(text.clone())).collect();
    match texts.len() {
        0 | 1 => texts.pop(),
        _ => Some(format!("[{}]", texts.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_errors_are_joined_into_one_text() {
        for (errors, want) in [
            (&[][..], None),
            (&["a"], Some("a")),
            (&["b", "a", "b"], Some("[b, a]")),
            (&["a", "a"], Some("a")),
            (&[""], Some("")),
        ] {
            assert_eq!(join_errors(errors).as_deref(), want, "{errors:?}");
        }
    }
}
