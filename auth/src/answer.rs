//! Reads the reviews in the responses of webhooks. Error messages equal the messages of kube-apiserver's
//! decoder. Unknown members are ignored, and a null member counts as absent.

use go::quote;
use serde_json::Value;

use crate::document::{self, Tree, Typed};
use crate::json_error;
use crate::strict::Object;

/// The kind of review that the server sent to a webhook, and that the response must have.
pub(crate) struct Review<'r> {
    /// API group of the review.
    pub(crate) group: &'r str,
    /// Version of the review: `v1` or `v1beta1`.
    pub(crate) version: &'r str,
    /// Kind of the review, and the members that are read.
    pub(crate) form: &'static Object,
}

impl Review<'_> {
    /// Parses the JSON text `answer` as this review. If the answer has no version or kind, the expected
    /// version or kind is assumed.
    ///
    /// # Errors
    /// Fails if the answer has another kind or version, or if a member that is read has another type.
    pub(crate) fn read(&self, answer: &[u8]) -> Result<Value, String> {
        let tree: Tree =
            serde_json::from_slice(answer).map_err(|error| json_error::undecided(&error.to_string()))?;
        let Typed { members, api_version, kind } = tree.typed()?;
        let Review { group, version, form } = self;
        let (given_group, given) = {
            let (group, version) = names::group_version(api_version)?;
            self.completed(group, version)
        };
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

    /// Returns the group and version of an answer. Absent values are replaced by the expected values. An
    /// answer may leave out both values, or only the version.
    fn completed<'g>(&'g self, group: &'g str, version: &'g str) -> (&'g str, &'g str) {
        match (group, version) {
            ("", "") => (self.group, self.version),
            (group, "") if group == self.group => (group, self.version),
            given => given,
        }
    }

    /// Returns whether the kind is registered in kube-apiserver's decoder. The result is an estimate from the
    /// group, the version and the name of the kind: reviews have no lists, and Kubernetes has no groups in
    /// other domains.
    fn is_known(&self, group: &str, version: &str, kind: &str) -> bool {
        if group == self.group {
            return matches!(version, "v1" | "v1beta1") && !kind.ends_with("List");
        }
        let domain = self.group.split_once('.').map_or(self.group, |(_, domain)| domain);
        !group.contains('.') || group.ends_with(domain)
    }
}
