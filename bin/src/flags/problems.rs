//! Errors of wrong flags. All errors are reported together, so that the operator can correct all mistakes
//! before the next start.

use std::fmt::{self, Display};

/// A flag that the server cannot use: its name, its value, and what would be accepted.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct FlagError {
    flag: String,
    value: String,
    text: String,
    /// Whether this error is fatal in kube-apiserver, so that the exit code is 255.
    is_fatal: bool,
}

impl FlagError {
    /// Creates an error for which kube-apiserver has no message. `accepted` completes the sentence "must be …".
    pub fn must_be(flag: &str, value: impl Display, accepted: &str) -> FlagError {
        let value = value.to_string();
        FlagError::worded(flag, &value, format_args!("--{flag} {} must be {accepted}", go::quote(&value)))
    }

    /// Creates an error with a complete text, such as the message of kube-apiserver, or the problem of a file.
    pub fn worded(flag: &str, value: impl Display, text: impl Display) -> FlagError {
        // The alternate form of an error includes its causes.
        let text = format!("{text:#}");
        FlagError { flag: flag.to_owned(), value: value.to_string(), text, is_fatal: false }
    }

    /// Marks this error as fatal: kube-apiserver exits at once after this error.
    #[must_use]
    pub fn fatal(self) -> FlagError {
        FlagError { is_fatal: true, ..self }
    }

    /// Returns the name of the flag, without dashes.
    pub fn flag(&self) -> &str {
        &self.flag
    }

    /// Returns the part of the flag's value that is wrong.
    pub fn value(&self) -> &str {
        &self.value
    }
}

impl Display for FlagError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for FlagError {}

/// Collects wrong flags in the order in which they are found, without duplicates.
#[derive(Debug, Default)]
pub struct Problems(Vec<FlagError>);

impl Problems {
    /// Adds an error, if there is no error with the same text yet.
    pub fn add(&mut self, error: FlagError) {
        if !self.0.iter().any(|known| known.text == error.text) {
            self.0.push(error);
        }
    }

    /// Returns the value of a check. Adds the error if the check failed.
    pub fn take<V>(&mut self, checked: Result<V, FlagError>) -> Option<V> {
        checked.map_err(|error| self.add(error)).ok()
    }

    /// Returns the value of a check of a flag. Adds an error with the text of the failure if the check
    /// failed.
    pub fn take_for<V>(
        &mut self,
        flag: &str,
        value: impl Display,
        checked: Result<V, impl Display>,
    ) -> Option<V> {
        self.take(checked.map_err(|why| FlagError::worded(flag, value, why)))
    }

    /// Adds the problems of an earlier step. Returns `None` if that step has problems, so that checks that
    /// need its results can be skipped.
    pub fn take_all(&mut self, found: Problems) -> Option<()> {
        let is_well = found.0.is_empty();
        found.0.into_iter().for_each(|error| self.add(error));
        is_well.then_some(())
    }

    /// Returns `value` if there are no problems. If `value` is `None`, a check must have added a problem.
    ///
    /// # Errors
    /// There are problems. The error has all of them.
    pub fn finish<V>(self, value: Option<V>) -> Result<V, FlagErrors> {
        match value {
            Some(value) if self.0.is_empty() => Ok(value),
            _ => Err(FlagErrors(self.0)),
        }
    }
}

/// All wrong flags of a command line. The text is one line; several errors are in brackets.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct FlagErrors(Vec<FlagError>);

impl FlagErrors {
    /// Returns the errors in the order in which they were found.
    pub fn all(&self) -> &[FlagError] {
        &self.0
    }

    /// Returns whether kube-apiserver exits at once because of these errors.
    pub fn are_fatal(&self) -> bool {
        self.0.iter().all(|error| error.is_fatal)
    }
}

impl Display for FlagErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&go::join_errors(texts).unwrap_or_default())
    }
}

impl std::error::Error for FlagErrors {}

/// Formats the path in an optional flag for messages.
pub fn path_text(path: Option<&std::path::Path>) -> String {
    path.map(|path| path.display().to_string()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_problem_is_reported_once_with_its_flag() {
        let mut problems = Problems::default();
        problems.add(FlagError::must_be("a", "x", "y or z"));
        let failed: Result<(), &str> = Err("failed");
        assert_eq!(problems.take_for("b", 1, failed), None);
        assert_eq!(problems.take_for("b", 2, failed), None);
        assert_eq!(problems.take_for("c", 1, Ok::<_, String>(3)), Some(3));
        let errors = problems.finish(Some(())).unwrap_err();
        assert_eq!(errors.to_string(), "[--a \"x\" must be y or z, failed]");
        let named: Vec<_> = errors.all().iter().map(|error| (error.flag(), error.value())).collect();
        assert_eq!(named, [("a", "x"), ("b", "1")]);
        assert!(!errors.are_fatal());
    }

    #[test]
    fn are_fatal_is_true_only_if_all_errors_are_fatal() {
        let error = FlagError::worded("a", "", "a");
        for (errors, want) in [
            (vec![error.clone().fatal()], true),
            (vec![error.clone()], false),
            (vec![error.clone().fatal(), error], false),
        ] {
            assert_eq!(FlagErrors(errors).are_fatal(), want);
        }
    }
}
