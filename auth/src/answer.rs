//! Reads the reviews that webhooks send back. Error messages match kube-apiserver's decoder. Unknown members
//! are ignored, and a null member counts as absent.

use go::quote;
use serde_json::Value;

use crate::document::{self, Tree, Typed};
use crate::json_error;
use crate::strict::Object;

/// The kind of review that the server sent to a webhook and expects back.
pub(crate) struct Review<'r> {
    /// API group of the review.
    pub(crate) group: &'r str,
    /// Version of the review: `v1` or `v1beta1`.
    pub(crate) version: &'r str,
    /// Kind of the review, and the members that are read.
    pub(crate) form: &'static Object,
}

impl Review<'_> {
    /// Parses the JSON text `answer` as this review. An answer that names no version or kind is taken to be
    /// the expected review.
    ///
    /// # Errors
    /// The answer has another kind or version, or a member that is read has another type.
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

    /// Returns the group and version of an answer, with absent values filled in. An answer may leave out
    /// both, or only the version.
    fn completed<'g>(&'g self, given: (&'g str, &'g str)) -> (&'g str, &'g str) {
        match given {
            ("", "") => (self.group, self.version),
            (group, "") if group == self.group => (group, self.version),
            given => given,
        }
    }

    /// Returns whether clients of kube-apiserver know a kind, judged by its group and version: reviews have
    /// no list kinds, and groups of other domains do not belong to Kubernetes.
    fn is_known(&self, group: &str, version: &str, kind: &str) -> bool {
        if group == self.group {
            return matches!(version, "v1" | "v1beta1") && !kind.ends_with("List");
        }
        let domain = self.group.split_once('.').map_or(self.group, |(_, domain)| domain);
        !group.contains('.') || group.ends_with(domain)
    }
}
