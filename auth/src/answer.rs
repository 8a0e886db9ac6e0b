//! Answers of webhooks: reviews that come back, read in the words of kube-apiserver's decoder. Members that are not known
//! are ignored, and null is as good as absent.

use go::quote;
use serde_json::Value;

use crate::document::{self, Tree, Typed};
use crate::json_error;
use crate::strict::Object;

/// The review that a webhook was asked with.
pub(crate) struct Review<'r> {
    /// Group of its version.
    pub(crate) group: &'r str,
    /// `v1` or `v1beta1`.
    pub(crate) version: &'r str,
    /// Its kind and the members that are read.
    pub(crate) form: &'static Object,
}

impl Review<'_> {
    /// The review that `answer` is, a text in JSON. One that does not say what it is, is taken for the review.
    ///
    /// # Errors
    /// It is of another kind or version, or a member that is read has another type.
    pub(crate) fn read(&self, answer: &[u8]) -> Result<Value, String> {
        let tree: Tree =
            serde_json::from_slice(answer).map_err(|error| json_error::undecided(&error.to_string()))?;
        let Typed { members, api_version, kind } = tree.typed()?;
        let Review { group, version, form } = self;
        let (given_group, given) = self.completed(names::group_version(api_version)?);
        let kind = if kind.is_empty() { form.name } else { kind };
        if (given_group, given, kind) != (*group, *version, form.name) {
            if !self.is_known(given_group, given, kind) {
                let slash = if given_group.is_empty() { "" } else { "/" };
                let (kind, given) = (quote(kind), quote(&format!("{given_group}{slash}{given}")));
                return Err(format!(
                    "no kind {kind} is registered for version {given} in scheme \"pkg/runtime/scheme.go:110\""
                ));
            }
            return Err(format!(
                "converting ({given}.{kind}) to ({version}.{}): unknown conversion",
                form.name
            ));
        }
        form.check(members, version, &mut Vec::new())?;
        Ok(document::object(members).into())
    }

    /// Group and version of an answer, which may leave out both or the version.
    fn completed<'g>(&'g self, given: (&'g str, &'g str)) -> (&'g str, &'g str) {
        match given {
            ("", "") => (self.group, self.version),
            (group, "") if group == self.group => (group, self.version),
            given => given,
        }
    }

    /// Whether clients of kube-apiserver know a kind, as far as groups and versions tell: there are no lists of reviews, and
    /// groups of other domains are not of Kubernetes.
    fn is_known(&self, group: &str, version: &str, kind: &str) -> bool {
        if group == self.group {
            return matches!(version, "v1" | "v1beta1") && !kind.ends_with("List");
        }
        let domain = self.group.split_once('.').map_or(self.group, |(_, domain)| domain);
        !group.contains('.') || group.ends_with(domain)
    }
}
