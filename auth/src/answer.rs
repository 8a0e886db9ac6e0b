//! Answers of webhooks: reviews that come back, read in the words of kube-apiserver's decoder. Members that are not known
//! are ignored, and null is as good as absent.

use go::quote;
use serde_json::Value;

use crate::document::{self, Tree};
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
        let members = tree.typed_members()?;
        let review = Value::from(document::object(members));
        let Review { group, version, form } = self;
        let text = |name: &str| review[name].as_str().unwrap_or_default();
        let own = format!("{group}/{version}");
        let (api_version, kind) = (or(text("apiVersion"), &own), or(text("kind"), form.name));
        if (api_version, kind) != (&own, form.name) {
            if !self.is_known(api_version, kind) {
                let (kind, api_version) = (quote(kind), quote(api_version));
                return Err(format!(
                    "no kind {kind} is registered for version {api_version} in scheme \"pkg/runtime/scheme.go:110\""
                ));
            }
            let given = api_version.rsplit('/').next().unwrap_or_default();
            return Err(format!(
                "converting ({given}.{kind}) to ({version}.{}): unknown conversion",
                form.name
            ));
        }
        form.check(members, version, &mut Vec::new())?;
        Ok(review)
    }

    /// Whether clients of kube-apiserver know a kind, as far as groups and versions tell: there are no lists of reviews, and
    /// groups of other domains are not of Kubernetes.
    fn is_known(&self, api_version: &str, kind: &str) -> bool {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        if group == self.group {
            return matches!(version, "v1" | "v1beta1") && !kind.ends_with("List");
        }
        let domain = self.group.split_once('.').map_or(self.group, |(_, domain)| domain);
        !group.contains('.') || group.ends_with(domain)
    }
}

/// A text, or another if it is empty.
fn or<'t>(text: &'t str, default: &'t str) -> &'t str {
    if text.is_empty() { default } else { text }
}
