//! Approval of types in a protected API group of the project, which an annotation of the definition records.

use values::field::go_quote;
use values::naming::Naming;

/// Returns whether a group is protected because it belongs to the project itself.
pub fn is_protected(naming: &Naming, group: &str) -> bool {
    let is_within =
        |domain: &str| group == domain || group.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'));
    is_within(naming.domain) || is_within(naming.group_suffix.trim_start_matches('.'))
}

/// Returns the name of the approval annotation.
pub fn annotation(naming: &Naming) -> String {
    format!("api-approved.{}", naming.domain)
}

/// Content of the approval annotation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Approval<'a> {
    /// The type was approved; contains the URL of the approval.
    Approved(&'a str),
    /// The type was not approved; contains the text that explains its existence.
    Bypassed(&'a str),
    /// The annotation is missing or empty.
    Missing,
    /// The annotation has any other value.
    Invalid(&'a str),
}

impl<'a> Approval<'a> {
    /// Parses the value of the annotation, which is empty if the annotation is missing.
    pub fn parse(value: &'a str) -> Approval<'a> {
        let has_host = || {
            let uri: Option<http::Uri> = value.parse().ok();
            uri.is_some_and(|uri| uri.scheme().is_some() && uri.host().is_some_and(|host| !host.is_empty()))
        };
        match value {
            "" => Approval::Missing,
            value if value.starts_with("unapproved") => Approval::Bypassed(value),
            value if has_host() => Approval::Approved(value),
            value => Approval::Invalid(value),
        }
    }

    /// Returns whether both values are of the same variant, regardless of their texts.
    pub fn is_like(&self, other: &Approval) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }

    /// Returns a message that describes the value of the annotation.
    pub fn reason(&self, annotation: &str) -> String {
        let annotation = go_quote(annotation);
        let page = "see https://github.com/kubernetes/enhancements/pull/1111";
        match self {
            Approval::Approved(address) => format!("approved in {address}"),
            Approval::Bypassed(why) => format!("not approved: {}", go_quote(why)),
            Approval::Missing => {
                format!("protected groups must have approval annotation {annotation}, {page}")
            }
            Approval::Invalid(_) => format!(
                "protected groups must have approval annotation {annotation} with either a URL or a reason starting \
                 with \"unapproved\", {page}"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use values::naming::{CLUSTER, KUBERNETES};

    #[test]
    fn groups_of_the_project_are_protected() {
        for (naming, group, want) in [
            (&KUBERNETES, "k8s.io", true),
            (&KUBERNETES, "a.k8s.io", true),
            (&KUBERNETES, "a.b.kubernetes.io", true),
            (&KUBERNETES, "notk8s.io", false),
            (&KUBERNETES, "a.cluster.io", false),
            (&CLUSTER, "a.cluster.io", true),
            (&CLUSTER, "a.k8s.io", false),
        ] {
            assert_eq!(is_protected(naming, group), want, "{group}");
        }
    }

    #[test]
    fn the_approval_annotation_is_an_address_or_a_reason_for_the_bypass() {
        for (value, want) in [
            ("", Approval::Missing),
            ("unapproved", Approval::Bypassed("unapproved")),
            ("unapproved, experimental", Approval::Bypassed("unapproved, experimental")),
            ("https://example.com/pull/1", Approval::Approved("https://example.com/pull/1")),
            ("/pull/1", Approval::Invalid("/pull/1")),
            ("yes", Approval::Invalid("yes")),
            ("https://", Approval::Invalid("https://")),
        ] {
            assert_eq!(Approval::parse(value), want, "{value}");
        }
    }
}
